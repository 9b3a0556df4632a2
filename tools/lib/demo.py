#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""The demonstration behind tools/demo: perftest between two hosts, one table. See lab.py.

Usage: demo.py BUILD_DIRECTORY
"""

import math
import sys

from lab import Lab, LabError, enter_private_netns
from perftest import PINGPONG, run_pair

# Program, its arguments, the column that is its result, what the column is called in the table.
TESTS = (
    ("ib_write_bw", ["-n", "2000"], "BW average[Gb/sec]", "Gb/s"),
    ("ib_read_bw", ["-n", "2000"], "BW average[Gb/sec]", "Gb/s"),
    ("ib_send_bw", ["-n", "2000"], "BW average[Gb/sec]", "Gb/s"),
    ("ib_write_lat", ["-n", "5000"], "t_typical[usec]", "us"),
    ("ib_send_lat", ["-n", "5000"], "t_typical[usec]", "us"),
    ("ib_read_lat", ["-n", "5000"], "t_typical[usec]", "us"),
    ("ib_atomic_lat", ["-n", "5000"], "t_typical[usec]", "us"),
    (PINGPONG, ["-c", "-n", "5000"], "t_iter[usec]", "us, both ways"),
)


def show_progress(text):
    """One line that is rewritten on a terminal, plain lines elsewhere."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)
    elif text:
        print(text, flush=True)


def describe_io(modes):
    server, client = modes
    return server if server == client else f"server {server or '?'}; client {client or '?'}"


def print_table(rows):
    heads = ("test", "size", "result", "unit", "status", "packet I/O")
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    for row in (heads, tuple("-" * width for width in widths), *rows):
        # Numbers to the right.
        cells = [cell.rjust(width) if i in (1, 2) else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def run_measured(lab, program, arguments, column):
    """Runs the pair; once more when perftest could not gauge the CPU's clock, as it happens on a busy machine: it says
    "inf" then."""
    result = run_pair(lab, program, arguments)
    if not result.problem and not math.isfinite(result.rows[-1][column]):
        result = run_pair(lab, program, arguments)
    return result


def run_all(lab):
    """Table rows, and the reports of those that failed."""
    rows, failures = [], []
    for number, (program, arguments, column, unit) in enumerate(TESTS, 1):
        show_progress(f"[{number}/{len(TESTS)}] {program} ...")
        result = run_measured(lab, program, arguments, column)
        size = f"{result.rows[-1]['#bytes']:.0f}" if result.rows else "-"
        value = f"{result.rows[-1][column]:.2f}" if result.rows else "-"
        rows.append((program, size, value, unit, "FAILED" if result.problem else "ok", describe_io(result.io_modes)))
        if result.problem:
            failures.append(f"{program}: {result.problem}\n{result.report()}")
    show_progress("")
    return rows, failures


def main():
    enter_private_netns()
    try:
        with Lab(sys.argv[1], mtu=1500) as lab:
            rows, failures = run_all(lab)
    except LabError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        show_progress("")
        print("demo: interrupted; everything is removed", file=sys.stderr)
        return 130
    print_table(rows)
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    if failures:
        print(f"\ndemo: {len(failures)} of {len(rows)} failed", file=sys.stderr)
        return 1
    print(f"\ndemo: all {len(rows)} passed, between two hosts without any RDMA device")
    return 0


if __name__ == "__main__":
    sys.exit(main())
