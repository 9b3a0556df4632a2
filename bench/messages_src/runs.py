"""Runs of messages_bench: for times, for where they go, and below valgrind."""

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
QUIET = 0.95  # of the CPUs: the share that a run must have got to count as undisturbed
MOVED = 1.5   # the host has moved the CPUs when a cache line takes so many times as long
# Simulated below valgrind, so that counts of different machines compare: the first level and the second, the last.
CACHES = ("--I1=32768,8,64", "--D1=49152,12,64", "--LL=1048576,16,64")
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

    def repetitions(self) -> list[tuple[float, float]]:
        """Messages per second, and nanoseconds of CPU time per message and side."""
        return [(sample["messages"] / times["seconds"], 1e9 * times["cpu_seconds"] / sample["messages"] / 2)
                for sample in self.samples for times in sample["repetitions"]]

    def rates(self) -> list[float]:
        return [rate for rate, _ in self.repetitions()]

    def rate(self) -> float:
        return statistics.median(self.rates())

    def nanoseconds(self) -> float:
        return statistics.median(time for _, time in self.repetitions())

    def disturbed(self) -> bool:
        """Others had the CPUs for a part of the median repetition, or the host has moved them meanwhile."""
        cpus = 1 if self.configuration.place == "one" else 2
        share = statistics.median(times["cpu_seconds"] / times["seconds"] / cpus
                                  for sample in self.samples for times in sample["repetitions"])
        return share < QUIET or max(self.hand_over_ns) > MOVED * min(self.hand_over_ns)

    def as_json(self) -> dict:
        return {**dataclasses.asdict(self.configuration), "messages_per_second": self.rate(),
                "ns_per_message_and_side": self.nanoseconds(), "disturbed": self.disturbed(), "split": self.split,
                "counts": self.counts, "samples": self.samples, "hand_over_ns": self.hand_over_ns}


def raise_priority() -> None:
    """Others on the machine disturb less; without the right to do so the figures say when they did."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except PermissionError:
        pass


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
        row.split = run_json(self.command(*configuration.arguments(), f"--messages={configuration.messages()}",
                                          "--repetitions=3", "--split"))

    def idle_memory(self) -> dict:
        return run_json(self.command("--memory"))

    def count(self, configuration: Configuration) -> dict:
        """Per message, both sides together: one thread drives them, so the place makes no difference."""
        messages = max(2_000, configuration.qps * configuration.list)
        with tempfile.NamedTemporaryFile(prefix="messages") as out:
            output = run(["valgrind", "--tool=callgrind", "--quiet", "--toggle-collect=*::measured(*", "--cache-sim=yes",
                          "--collect-bus=yes", *CACHES, f"--callgrind-out-file={out.name}",
                          *self.command(*configuration.arguments(), f"--messages={messages}", "--repetitions=1")])
            text = Path(out.name).read_text()
        names, totals = (re.search(rf"^{key}: (.*)$", text, re.MULTILINE)[1].split() for key in ("events", "totals"))
        total = dict(zip(names, map(int, totals)))
        done = json.loads(output)["messages"]
        return {"instructions": total["Ir"] / done, "locked": total["Ge"] / done,
                "level_1_misses": (total["D1mr"] + total["D1mw"]) / done,
                "level_2_misses": (total["DLmr"] + total["DLmw"]) / done}


def can_be_counted(configuration: Configuration) -> bool:
    return configuration.threads == 1 and configuration.qps + configuration.idle <= LARGEST_COUNTED


def run(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"no end within {TIMEOUT_S} s: {' '.join(command)}") from None
    if result.returncode != 0:
        raise RunFailed(f"exit {result.returncode}: {result.stderr.strip()} ({' '.join(command)})")
    return result.stdout


def run_json(command: list[str]) -> dict:
    return json.loads(run(command))
