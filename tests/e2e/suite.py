# SPDX-License-Identifier: BSD-2-Clause
"""What the end-to-end tests share: cases with names, run one after the other, a line for each, a summary at the end.

A test file makes a list of Case (or a function of the options that does) and calls main(). Every file has the same options, and may have more:
    FILE [--build DIR] [--filter REGEX] [--full] [--list]
CTest says --no-full-form to those that it never runs with --full (CMakeLists.txt).
"""

import argparse
import dataclasses
import re
import resource
import sys
import time
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/lib"))

from lab import REPOSITORY, Lab, LabError, enter_private_netns  # noqa: E402


class Failure(Exception):
    """A case did not come out as it has to; the text says how."""


def check(condition, text):
    if not condition:
        raise Failure(text)


@dataclasses.dataclass
class Case:
    name: str
    run: Callable  # run(lab): returns a few words for the line, or raises Failure
    mtu: int = 1500  # of the veth pair
    quick: bool = True  # False: with --full only


def _options(description, add_options):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=REPOSITORY / "build/release", help="build directory (build/release)")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only cases whose names match")
    parser.add_argument("--full", action="store_true", help="all cases, not only the quick ones")
    parser.add_argument("--no-full-form", action="store_true", help="fail where a case is not a quick one: nobody would run it")
    parser.add_argument("--list", action="store_true", help="print the names of the cases, run nothing")
    add_options(parser)
    return parser.parse_args()


def _processor_seconds():
    """Of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run_case(case, lab):
    """True when it passed."""
    start, used = time.monotonic(), _processor_seconds()
    try:
        words = case.run(lab) or ""
        failure = ""
    except (Failure, LabError) as error:
        failure = str(error) or repr(error)
    finally:
        lab.stop_programs()
    seconds = f"{time.monotonic() - start:.1f} s, {_processor_seconds() - used:.1f} of a processor"
    if failure:
        print(f"FAILED {case.name} ({seconds}): {failure}", flush=True)
    else:
        print(f"ok     {case.name} ({seconds}) {words}".rstrip(), flush=True)
    return not failure


def main(description, cases, make_lab=lambda options, mtu: Lab(options.build, mtu), add_options=lambda parser: None):
    options = _options(description, add_options)
    cases = cases(options) if callable(cases) else cases
    if options.no_full_form and (left := [case.name for case in cases if not case.quick]):
        print(f"never run by CTest, which has no FULL_TIMEOUT for this suite: {' '.join(left)}")
        return 1
    chosen = [c for c in cases if (c.quick or options.full) and re.search(options.filter, c.name)]
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    if not chosen:
        print(f"no case matches '{options.filter}'" + ("" if options.full else " in the quick form; --full has more"))
        return 1
    enter_private_netns()
    failed = []
    for mtu in sorted({case.mtu for case in chosen}):
        with make_lab(options, mtu) as lab:
            failed += [case.name for case in chosen if case.mtu == mtu and not _run_case(case, lab)]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} passed" + "".join(f"\n  failed: {name}" for name in failed))
    return 1 if failed else 0
