#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""What a capture costs real traffic: perftest between two namespaces, the capturing side with and without a capture.

Variants: no capture (the stage is there, and nobody listens); all frames to a ring of files on tmpfs; 96 bytes of each; all
frames into a pipe whose reader takes 1 MB/s. Every round runs all of them, back and forth in turn, so that a slower moment of the
machine is everybody's; a round's ratios are to its own run without capture. Medians, with minimum and maximum.

Run it on a quiet machine. The writer thread needs a core: with two, which both hosts use up, it takes from them what it needs.
"""

import argparse
import dataclasses
import os
import re
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools/lib"))

from lab import REPOSITORY, Lab, enter_private_netns  # noqa: E402
from perftest import Side, run_pair  # noqa: E402

OFF = "off"
READER_BYTES_PER_S = 1_000_000


@dataclasses.dataclass
class Test:
    program: str
    arguments: list
    columns: dict  # of perftest: what it is called here


TESTS = (
    Test("ib_write_bw", ["-s", 65536], {"BW average[Gb/sec]": "Gb/s"}),
    Test("ib_send_lat", ["-s", 64], {"t_typical[usec]": "us, typical", "99% percentile[usec]": "us, 99 %"}),
)


class SlowReader:
    """Reads a pipe by name, slowly, until the writer is gone. To be open before the writer is."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        period = 0.02
        while not self.over.wait(period):
            try:
                os.read(self.descriptor, int(READER_BYTES_PER_S * period))
            except BlockingIOError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        os.close(self.descriptor)
        os.unlink(self.path)


def to_files(directory, *more):
    """A ring, so that memory does not fill up."""
    return ("--capture", directory / "traffic.pcapng", "--capture-files", 2, "--capture-size", 64, *more)


def run(lab, test, options, which, io):
    """One pair of programs: its figures by column, and the part of the packets that is missing in the capture."""
    sides = {side: Side(io=io, options=options if side == which else ()) for side in ("server", "client")}
    # The server of a bandwidth test ends when the client is gone, and says how its capture went.
    result = run_pair(lab, test.program, test.arguments, timeout=120, **sides)
    for file in lab.directory.glob("traffic*.pcapng"):
        file.unlink()
    if result.problem:
        raise SystemExit(f"capture_traffic: {test.program}: {result.problem}\n{result.report()}")
    told = re.search(r"(\d+) packets captured(?:, (\d+) missing)?", result.outputs[("server", "client").index(which)])
    if options and not told:
        raise SystemExit(f"capture_traffic: {test.program}: the {which} does not say what it has captured\n{result.report()}")
    captured, missing = (int(told[1]), int(told[2] or 0)) if told else (0, 0)
    return result.rows[-1], missing / max(captured + missing, 1)


def variants(directory):
    """By name: a function that runs `measure(options)`."""

    def slow_pipe(measure):
        with SlowReader(directory / "pipe") as reader:
            return measure(("--capture", reader.path))

    return {
        OFF: lambda measure: measure(()),
        "file": lambda measure: measure(to_files(directory)),
        "file, 96 bytes": lambda measure: measure(to_files(directory, "--capture-snap", 96)),
        "slow pipe": slow_pipe,
    }


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}} - {max(values):{form}})"


def compare(lab, test, arguments):
    """Rows of the table for one test and one capturing side after the other."""
    for which in ("client", "server"):
        samples = {name: [] for name in variants(lab.directory)}
        for number in range(arguments.rounds):
            order = list(variants(lab.directory).items())
            for name, variant in order if number % 2 == 0 else reversed(order):
                duration = [*test.arguments, "-D", arguments.seconds] if test.program.endswith("_bw") else [*test.arguments, "-n", arguments.iterations]
                samples[name].append(variant(lambda options: run(lab, Test(test.program, duration, {}), options, which, arguments.io)))
        for column, unit in test.columns.items():
            for name, runs in samples.items():
                ratios = [row[column] / base[column] for (row, _), (base, _) in zip(runs, samples[OFF])]
                missing = statistics.median(part for _, part in runs)
                print(f"{test.program:12} {which:7} {name:15} {spread([row[column] for row, _ in runs], '.2f'):26} {unit:12} "
                      f"{'' if name == OFF else spread(ratios, '.3f'):24} {'' if name == OFF else f'{missing:.1%}':>8}", flush=True)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=REPOSITORY / "build/release", help="build directory (build/release)")
    parser.add_argument("--io", default="af_xdp", choices=("af_xdp", "udp"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of one bandwidth run (3, at least 2)")
    parser.add_argument("--iterations", type=int, default=50000, help="of one latency run (50000)")
    parser.add_argument("--mtu", type=int, default=4300, help="of the netdevs (4300: path MTU 4096)")
    parser.add_argument("--quick", action="store_true", help="2 rounds, short: whether it works, not what it costs")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.seconds, chosen.iterations = 2, 2, 5000
    return chosen


def main():
    arguments = options()
    enter_private_netns()
    start = time.monotonic()
    print(f"{'test':12} {'capture':7} {'to':15} {'result':26} {'unit':12} {'ratio to off':24} {'missing':>8}")
    with Lab(arguments.build, arguments.mtu) as lab:
        for test in TESTS:
            compare(lab, test, arguments)
    print(f"{arguments.io}, netdev MTU {arguments.mtu}, {os.cpu_count()} CPUs, {arguments.rounds} rounds, {time.monotonic() - start:.0f} s; "
          "median (min - max); missing: packets that are not in the capture")


if __name__ == "__main__":
    main()
