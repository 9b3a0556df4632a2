#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Between ctest and the reader of tools/test: passes its lines on, and in front of its summary tells what was skipped and
where the time went.

Usage: ctest ... | test_summary.py RECORDS [PRESET=SECONDS...]
  RECORDS          see skips.py
  PRESET=SECONDS   how long a build took
"""

import re
import sys
from pathlib import Path

SLOWEST = 12
RESULT = re.compile(r" *\d+/\d+ Test +#\d+: (\S+) \.+.*?([\d.]+) sec")
SUMMARY = re.compile(r"\d+% tests passed")


def report(records, builds, seconds):
    skipped = set(records.read_text().splitlines()) if records.exists() else set()
    if skipped:
        yield f"{len(skipped)} skipped:"
        yield from (f"  {line}" for line in sorted(skipped))
    yield "Builds: " + ", ".join(build.replace("=", " ") + " s" for build in builds)
    slowest = sorted(seconds, key=seconds.get, reverse=True)[:SLOWEST]
    yield "Slowest tests: " + ", ".join(f"{name} {seconds[name]:.0f} s" for name in slowest)


def main():
    records, builds, seconds = Path(sys.argv[1]), sys.argv[2:], {}
    for line in sys.stdin:
        if SUMMARY.match(line):
            print("\n".join([*report(records, builds, seconds), ""]))
        elif result := RESULT.match(line):
            seconds[result[1]] = float(result[2])
        print(line, end="", flush=True)


if __name__ == "__main__":
    main()
