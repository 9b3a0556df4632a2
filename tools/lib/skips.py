#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Judges what was skipped in a run of tools/test: its test `skips`, which runs after all others.

Usage: skips.py RECORDS EXPECTED
  RECORDS   a line for every skipped test, "PROGRAM: TEST: REASON" or "TEST: REASON" (tests/run_tests.cc, recorded_test.sh)
  EXPECTED  lines of a regular expression for the beginning of such a line, blanks, and why that may be (tests/skips.txt)
Fails when something is skipped that EXPECTED does not have, as root or in CI: there everything has to run.
"""

import os
import re
import sys
from pathlib import Path


def expectations(path):
    lines = (line.split("#", 1)[0].split(None, 1) for line in path.read_text().splitlines())
    return [re.compile(words[0]) for words in lines if words]


def main():
    records, expected = (Path(argument) for argument in sys.argv[1:])
    patterns = expectations(expected)
    skipped = records.read_text(errors="replace").splitlines() if records.exists() else []
    unexpected = [line for line in skipped if not any(pattern.match(line) for pattern in patterns)]
    strict = os.geteuid() == 0 or os.environ.get("CI") == "true"
    for line in unexpected:
        print(f"not in {expected.name}: {line}")
    return 1 if unexpected and strict else 0


if __name__ == "__main__":
    sys.exit(main())
