# SPDX-License-Identifier: BSD-2-Clause
"""Runs of messages_bench: for times, for where they go, and below valgrind."""

import contextlib
import dataclasses
import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from matrix import Configuration

TIMEOUT_S = 600
QUIET = 0.95  # of the CPUs: the share that a repetition must have got to count as undisturbed
MOVED = 1.5   # the host has moved the CPUs when a cache line takes so many times as long
# Simulated below valgrind, so that counts of different machines compare: the first level and the second, the last.
CACHES = ("--I1=32768,8,64", "--D1=49152,12,64", "--LL=1048576,16,64")
SPLIT_REPETITIONS = 8
LARGEST_COUNTED = 10_000  # QPs below valgrind, where creating them takes long


class RunFailed(Exception):
    pass


@dataclasses.dataclass
class Row:
    """What has been measured of one configuration with one build."""
    configuration: Configuration
    samples: list[dict] = dataclasses.field(default_factory=list)  # of messages_bench, one a process
    hand_over_ns: list[float] = dataclasses.field(default_factory=list)
    split: dict = dataclasses.field(default_factory=dict)
    counts: dict = dataclasses.field(default_factory=dict)

    def cpus(self) -> int:
        place, threads = self.configuration.place, self.configuration.threads
        return 1 if place == "one" or (place == "spread" and threads == 1) else 2

    def line(self) -> float:
        return statistics.median(self.hand_over_ns)

    def together(self) -> list[dict]:
        """The samples with the CPUs where they were most of the time: the others are of another machine, so to say."""
        if self.cpus() == 1:
            return self.samples
        return [sample for sample, line in zip(self.samples, self.hand_over_ns)
                if self.line() / MOVED <= line <= self.line() * MOVED] or self.samples

    def repetitions(self) -> list[tuple[float, float]]:
        """What each got of the CPUs, which the threads never leave by themselves; and its CPU time per message and side."""
        return [(times["cpu_seconds"] / times["seconds"] / self.cpus(), 1e9 * times["cpu_seconds"] / sample["messages"] / 2)
                for sample in self.together() for times in sample["repetitions"]]

    def nanoseconds_of_all(self) -> list[float]:
        """Of the undisturbed repetitions; of the least disturbed one, if there was none."""
        quiet = min(QUIET, max(share for share, _ in self.repetitions()))
        return [time for share, time in self.repetitions() if share >= quiet]

    def nanoseconds(self) -> float:
        return statistics.median(self.nanoseconds_of_all())

    def rates(self) -> list[float]:
        """Messages per second: what the CPU time makes possible when nobody else takes a part of the CPUs."""
        return [1e9 / (2 * each) * self.cpus() for each in self.nanoseconds_of_all()]

    def rate(self) -> float:
        return statistics.median(self.rates())

    def disturbed(self) -> bool:
        """Others had the CPUs for a part of every repetition."""
        return max(share for share, _ in self.repetitions()) < QUIET

    def ratio_to(self, other: "Row") -> float | None:
        """Of messages per second: the median of those of the turns, whose two processes met the same machine. None: in no
        turn were the CPUs equally far from each other."""
        ratios = [median_time(theirs) / median_time(own)
                  for own, theirs, line, their_line in zip(self.samples, other.samples, self.hand_over_ns, other.hand_over_ns)
                  if self.cpus() == 1 or 1 / MOVED <= line / their_line <= MOVED]
        return statistics.median(ratios) if ratios else None

    def as_json(self) -> dict:
        return {**dataclasses.asdict(self.configuration), "messages_per_second": self.rate(),
                "ns_per_message_and_side": self.nanoseconds(), "disturbed": self.disturbed(), "split": self.split,
                "counts": self.counts, "samples": self.samples, "hand_over_ns": self.hand_over_ns}


def raise_priority(process: int) -> None:
    """Others on the machine disturb less; without the right to do so the figures say when they did."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, process, -20)
    with contextlib.suppress(OSError):  # where sessions compete with each other (sched_autogroup)
        Path(f"/proc/{process}/autogroup").write_text("-20")


def median_time(sample: dict) -> float:
    return statistics.median(times["cpu_seconds"] for times in sample["repetitions"]) / sample["messages"]


class Program:
    def __init__(self, tools: Path, cpus: list[int]):
        self.tools = tools
        self.cpus = cpus

    def command(self, *arguments: str) -> list[str]:
        return [str(self.tools / "messages_bench"), "--cpus", *map(str, self.cpus), *arguments]

    def measure(self, row: Row, repetitions: int) -> None:
        row.hand_over_ns.append(run_json([str(self.tools / "cache_line"), *map(str, self.cpus)])["hand_over_ns"])
        configuration = row.configuration
        row.samples.append(run_json(self.command(
            *configuration.arguments(), f"--messages={configuration.messages()}", f"--repetitions={repetitions}")))

    def split(self, row: Row) -> None:
        configuration = row.configuration
        done = run_json(self.command(*configuration.arguments(), f"--messages={configuration.messages()}",
                                     f"--repetitions={SPLIT_REPETITIONS}", "--split"))
        # Whoever else had the CPUs stands in the time of some call: the quietest repetition counts.
        quietest = min(done["repetitions"], key=lambda times: times["seconds"])
        row.split = {side: quietest[side] for side in ("requester", "responder")}

    def idle_memory(self) -> dict:
        return run_json(self.command("--memory"))

    def count(self, configuration: Configuration) -> dict:
        """Per message, both sides together: one thread drives them, so the place makes no difference."""
        messages = max(2_000, configuration.qps * configuration.list)
        with tempfile.NamedTemporaryFile(prefix="messages") as out:
            output = run(["env", f"LD_PRELOAD={slow_clock(self.tools)}",
                          "valgrind", "--tool=callgrind", "--quiet", "--toggle-collect=*::measured(*", "--cache-sim=yes",
                          "--collect-bus=yes", *CACHES, f"--callgrind-out-file={out.name}",
                          *self.command(*configuration.arguments(), f"--messages={messages}", "--repetitions=1")])
            text = Path(out.name).read_text()
        names, totals = (re.search(rf"^{key}: (.*)$", text, re.MULTILINE)[1].split() for key in ("events", "totals"))
        total = dict(zip(names, map(int, totals)))
        done = json.loads(output)["messages"]
        return {"instructions": total["Ir"] / done, "locked": total["Ge"] / done,
                "level_1_misses": (total["D1mr"] + total["D1mw"]) / done,
                "level_2_misses": (total["DLmr"] + total["DLmw"]) / done}


def slow_clock(tools: Path) -> Path:
    return tools.parent / "lib" / "messages_slow_clock.so"


def can_be_counted(configuration: Configuration) -> bool:
    return configuration.threads == 1 and configuration.qps + configuration.idle <= LARGEST_COUNTED


def run(command: list[str]) -> str:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        raise_priority(process.pid)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"no end within {TIMEOUT_S} s: {' '.join(command)}") from None
        finally:
            process.kill()
    if process.returncode != 0:
        raise RunFailed(f"exit {process.returncode}: {err.strip()} ({' '.join(command)})")
    return out


def run_json(command: list[str]) -> dict:
    return json.loads(run(command))
