#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Between ctest and the reader of tools/test: passes its lines on, and in front of its summary tells what was skipped and
where the time went.

Usage: ctest ... | test_summary.py DIRECTORY KNOWN [STEP=SECONDS...]
  DIRECTORY      of tools/test: `skipped` (skips.py) and `times` (tests/recorded_test.sh)
  KNOWN          a file with the times of all tests that ever ran here, to which these are added
  STEP=SECONDS   how long lint or a build took
"""

import os
import re
import sys
import tempfile
from pathlib import Path

SLOWEST = 30
SUMMARY = re.compile(r"\d+% tests passed")


def lines_of(file):
    return file.read_text(errors="replace").splitlines() if file.exists() else []


def processor_seconds(text):
    """Of "1m2.5s"."""
    minutes, seconds = text.rstrip("s").split("m")
    return 60 * float(minutes) + float(seconds)


def read_times(file):
    """{test: (seconds by the clock, seconds of a processor)}"""
    times = {}
    for line in lines_of(file):
        name, begin, end, user, system = line.replace(",", ".").split()  # bash writes what the locale has between digits
        times[name] = float(end) - float(begin), processor_seconds(user) + processor_seconds(system)
    return times


def keep(times, known):
    """Whole or not at all: several checkouts read and write `known`."""
    lines = {line.split()[0]: line for file in (known, times) for line in lines_of(file)}
    with tempfile.NamedTemporaryFile("w", dir=known.parent, prefix=known.name, delete=False) as new:
        new.write("".join(f"{line}\n" for line in lines.values()))
    os.chmod(new.name, 0o644)
    os.replace(new.name, known)


def report(directory, steps):
    skipped = set(lines_of(directory / "skipped"))
    if skipped:
        yield f"{len(skipped)} skipped:"
        yield from (f"  {line}" for line in sorted(skipped))
    if steps:
        yield "Before the tests: " + ", ".join(step.replace("=", " ") + " s" for step in steps)
    times = read_times(directory / "times")
    slowest = sorted(times, key=times.get, reverse=True)[:SLOWEST]
    if slowest:
        width = max(len(name) for name in slowest)
        yield f"{'Slowest tests, seconds':{width}}   wall    CPU  waiting"
        for name in slowest:
            wall, processor = times[name]
            yield f"{name:{width}} {wall:6.1f} {processor:6.1f} {max(0.0, wall - processor):8.1f}"
        both = [sum(column) for column in zip(*times.values())]
        yield f"{f'all {len(times)}':{width}} {both[0]:6.0f} {both[1]:6.0f}, of {os.cpu_count()} cores"


def main():
    directory, known, steps = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(errors="replace")
    for line in sys.stdin:
        if SUMMARY.match(line):
            try:
                print("\n".join([*report(directory, steps), ""]))
                keep(directory / "times", known)
            except Exception as error:  # the result of the tests matters more
                print(f"test: no table of what was skipped and how long it took: {error!r}")
        print(line, end="", flush=True)


if __name__ == "__main__":
    main()
