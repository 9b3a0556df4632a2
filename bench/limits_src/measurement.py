# SPDX-License-Identifier: BSD-2-Clause
"""A measurement of bench/limits: what runs on a Rig, samples of its repetitions, and which were disturbed."""

import dataclasses
import os
import resource
import statistics
import subprocess
import time
from pathlib import Path
from typing import Callable

from rig import CPUS, MeasurementFailed, Rig, finish, last_json

QUIET_SHARE = 0.05  # of one CPU: what others may use during a repetition that counts as undisturbed
MOVED = 1.5  # the host has moved the CPUs when a cache line's hand-over changes by this factor
# A netdev MTU that just carries a RoCE v2 packet of the path MTU, over IPv6 and with every extension header.
NETDEV_MTU = {256: 1500, 512: 1500, 1024: 1500, 2048: 2300, 4096: 4300}


@dataclasses.dataclass(frozen=True)
class Key:
    group: str
    name: str
    path_mtu: int
    cores: int = 2


@dataclasses.dataclass
class Measurement:
    name: str
    group: str  # where it is printed
    label: str
    path_mtu: int  # for which the netdevs are set up
    run: Callable[[Rig], dict]
    cores: int = 2  # one for each side, or one for both
    target: str = ""  # of the project
    program: str = ""  # of another package
    samples: list[dict] = dataclasses.field(default_factory=list)
    failure: str = ""

    @property
    def key(self) -> Key:
        return Key(self.group, self.name, self.path_mtu, self.cores)

    @property
    def disturbed(self) -> int:
        """Repetitions for which no quiet moment was found."""
        return sum(sample["disturbed"] for sample in self.samples)

    def figures(self) -> list[str]:
        return list(dict.fromkeys(name for sample in self.samples for name in sample))

    def values(self, figure: str) -> list[float]:
        """Of the undisturbed repetitions, or of all if there was none."""
        good = [sample for sample in self.samples if not sample["disturbed"]] or self.samples
        return [sample[figure] for sample in good if figure in sample]

    def median(self, figure: str) -> float:
        return statistics.median(self.values(figure))

    def as_json(self) -> dict:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "run"}

    def repeat(self, rig: Rig, attempts: int) -> None:
        """Takes a sample; of several attempts the first undisturbed one, or the least disturbed."""
        if self.failure:
            return
        try:
            best = None
            for _ in range(attempts):
                rig.prepare(NETDEV_MTU[self.path_mtu], self.cores)
                before = hand_over_ns(rig)
                share, sample = with_foreign_share(lambda: self.run(rig))
                after = hand_over_ns(rig)
                moved = self.cores > 1 and max(before, after) > MOVED * min(before, after)
                sample["hand_over_ns"] = (before + after) / 2
                if best is None or (moved, share) < best[:2]:
                    best = (moved, share, sample)
                if not moved and share <= QUIET_SHARE:
                    break
            moved, share, sample = best
            sample["disturbed"] = moved or share > QUIET_SHARE
            self.samples.append(sample)
        except MeasurementFailed as failure:
            self.failure = str(failure)
            rig.end_processes()


def hand_over_ns(rig: Rig) -> float:
    """Time of a cache line between the two CPUs: it tells where the host has put them."""
    process = subprocess.Popen([str(rig.tools / "cache_line"), *map(str, CPUS)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    rig.processes.append(process)
    output = finish(process)
    rig.processes.remove(process)
    return last_json(output)["hand_over_ns"]


def with_foreign_share(work: Callable[[], dict]) -> tuple[float, dict]:
    """Runs `work` and tells how much of a CPU others used meanwhile: a latency taken beside a compiler is none."""

    def used() -> tuple[float, float]:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        user, nice, system, _, _, irq, softirq = map(int, fields[1:8])
        ours = sum(usage.ru_utime + usage.ru_stime
                   for usage in map(resource.getrusage, (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)))
        return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"), ours

    start, (all_before, ours_before) = time.monotonic(), used()
    result = work()
    all_after, ours_after = used()
    foreign = (all_after - all_before) - (ours_after - ours_before)
    return foreign / (time.monotonic() - start), result


@dataclasses.dataclass
class MessageCount:
    """How many messages of `size` bytes take `seconds`: learnt as they are sent, since planes differ by a factor of a
    hundred."""
    size: int
    seconds: float
    count: int = 0

    def measure(self, send: Callable[[int], float]) -> float:
        """send(count) returns Gb/s, as does this."""
        if self.count == 0:
            self.count = max(32, (32 << 20) // self.size)
        while True:
            gbps = send(self.count)
            if gbps <= 0:
                raise MeasurementFailed("the rate is given as 0")
            took = self.count * self.size * 8 / (gbps * 1e9)
            wanted = max(32, int(self.count * self.seconds / took))
            self.count, long_enough = wanted, wanted <= 2 * self.count
            if long_enough:
                return gbps
