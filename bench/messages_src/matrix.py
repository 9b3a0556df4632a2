# SPDX-License-Identifier: BSD-2-Clause
"""Which configurations bench/messages measures."""

from __future__ import annotations  # a field is called list

import dataclasses
import itertools

OPS, SIZES, LISTS = ("send", "write", "read"), (8, 64, 1024), (1, 32)
PLACES = ("sides", "one", "spread")


@dataclasses.dataclass(frozen=True)
class Configuration:
    op: str = "write"
    size: int = 8
    qps: int = 1
    idle: int = 0
    list: int = 1
    threads: int = 1
    place: str = "sides"

    def arguments(self) -> list[str]:
        return [f"--{name}={value}" for name, value in dataclasses.asdict(self).items()]

    def messages(self) -> int:
        """Of one repetition: some 0.1 s, and every QP has its turn."""
        return max(200_000 if self.size <= 64 else 100_000, self.qps * self.list)

    def text(self) -> str:
        return (f"{self.op:<5} {self.size:>5} {self.qps:>6} {self.idle:>6} {self.list:>4} {self.threads:>3} "
                f"{self.place:<6}")


HEADING = f"{'op':<5} {'bytes':>5} {'QPs':>6} {'idle':>6} {'list':>4} {'thr':>3} {'place':<6}"


def product(**axes) -> list[Configuration]:
    return [Configuration(**dict(zip(axes, values))) for values in itertools.product(*axes.values())]


def full() -> list[Configuration]:
    """Each axis by itself, beside the axes that change its meaning; all combinations would take hours."""
    two = ("sides", "one")
    return unique(product(op=OPS, size=SIZES, list=LISTS, place=two) +
                  product(op=OPS, qps=(100, 10_000, 65_536), list=LISTS, place=two) +
                  product(qps=[1], idle=(10_000, 65_535), list=LISTS, place=two) +
                  [dataclasses.replace(c, qps=c.threads)
                   for c in product(threads=(2, 4, 16), list=LISTS, place=PLACES)])


def quick() -> list[Configuration]:
    return unique(product(op=OPS, list=LISTS, place=["sides"]) + product(list=LISTS, place=["one"]) +
                  product(qps=(100, 10_000), place=["one"]) + [Configuration(qps=2, threads=2, place="spread")])


def chosen(arguments) -> list[Configuration]:
    """All combinations of what the command line names; what it does not name keeps its default."""
    axes = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(Configuration)}
    threads = axes["threads"] or [1]
    if axes["qps"] is None:  # one for each thread
        return [dataclasses.replace(c, qps=c.threads) for c in product(**{k: v for k, v in axes.items() if v})]
    bad = [(qps, n) for qps in axes["qps"] for n in threads if qps % n]
    if bad:
        raise SystemExit(f"messages: {bad[0][0]} QPs cannot be shared out to {bad[0][1]} threads")
    return product(**{name: values for name, values in axes.items() if values})


def unique(configurations: list[Configuration]) -> list[Configuration]:
    return list(dict.fromkeys(configurations))
