#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""rdma-core's own tests as a judge: all of them, by Python and pyverbs, over AF_XDP and UDP. rdma_core_expected.txt says
which are skipped or fail, and why; all others have to pass, and what does otherwise than it says fails here. The two
ends of each connection are objects of one process, on one netdev; only tests of rdma_cm, which pass over UDP sockets, and one of device memory, fork. See
suite.py.

The tests come from Debian's packages rdma-core and python3-pyverbs: as installed, or as tools/deps has unpacked them."""

import collections
import fnmatch
import gzip
import json
import shutil
import sys
from pathlib import Path

from suite import Case, check, main
from lab import SKIPPED

EXPECTED = Path(__file__).with_name("rdma_core_expected.txt")
RUNNER = Path(__file__).with_name("rdma_core_run.py")
UNPACKED = Path("/var/cache/uroce/rdma-core")  # by tools/deps
PYTHON = "/usr/bin/python3"  # pyverbs is built for Debian's
FEWEST_TESTS = 250  # of rdma-core 44 there are 273


def installation():
    """(the tests' directory, that of Python modules) of the first place that has both; None: nowhere."""
    for root in (Path("/"), UNPACKED):
        tests, modules = root / "usr/share/doc/rdma-core/tests", root / "usr/lib/python3/dist-packages"
        if tests.is_dir() and (modules / "pyverbs").is_dir():
            return tests, modules
    return None


def unpack(tests, where):
    """The tests as Python can load them: Debian compresses long files of documentation."""
    where.mkdir()
    for file in tests.iterdir():
        if file.suffix == ".gz":
            (where / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copy(file, where)


def expectations():
    """(outcomes allowed, pattern) of each line."""
    rules = []
    for number, line in enumerate(EXPECTED.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        outcomes, pattern, why = (line.split(maxsplit=2) + ["", ""])[:3]
        check(why and set(outcomes.split("|")) <= {"pass", "skip", "fail"}, f"{EXPECTED.name}:{number}: {line}")
        rules.append((set(outcomes.split("|")), pattern))
    return rules


def judge(results):
    """What is not as expected, a line each."""
    rules = expectations()
    used = set()
    wrong = []
    for name, outcome, words in results:
        matching = [rule for rule in rules if fnmatch.fnmatchcase(name, rule[1])]
        used.update(pattern for _, pattern in matching)
        allowed = matching[0][0] if matching else {"pass"}
        if outcome not in allowed:
            wrong.append(f"{name}: {outcome} instead of {' or '.join(sorted(allowed))}: {words}")
        if len(matching) > 1:
            wrong.append(f"{name}: several lines of {EXPECTED.name} are about it")
    return wrong + [f"no test matches {pattern}" for _, pattern in rules if pattern not in used]


def start(lab, io, name):
    """A run of all tests; the program, and the file of its results."""
    tests, modules = installation()
    copy, results = lab.directory / f"tests-{name}", lab.directory / f"results-{name}"
    unpack(tests, copy)
    command = [PYTHON, "-B", RUNNER, copy, results, "--dev", lab.a.device, "--gid", "0"]
    return lab.a.start(command, io=io, env={"PYTHONPATH": str(modules)}), results


def check_run(program, results, timeout=150):
    code = program.wait(timeout)
    check(code == 0, f"exit code {code} (None: hangs)\n{program.output[-3000:]}")
    outcomes = [json.loads(line) for line in results.read_text().splitlines()]
    check(len(outcomes) >= FEWEST_TESTS, f"only {len(outcomes)} tests ran\n{program.output[-3000:]}")
    wrong = judge(outcomes)
    check(not wrong, "\n".join(["not as expected:", *wrong, program.output[-3000:]]))
    counts = collections.Counter(outcome for _, outcome, _ in outcomes)
    return f"{counts['pass']} passed, {counts['skip']} skipped, {counts['fail']} failed, all as expected"


def two_at_once(lab):
    """Two processes on one netdev, each with all tests; one has the AF_XDP queues."""
    runs = [start(lab, io, f"{io}-beside") for io in ("af_xdp", "udp")]
    return "; ".join(check_run(*run, timeout=300) for run in runs)


CASES = [
    *[Case(f"pyverbs-{io}", lambda lab, io=io: check_run(*start(lab, io, io))) for io in ("af_xdp", "udp")],
    Case("pyverbs-two-at-once", two_at_once, quick=False),
]

if __name__ == "__main__":
    if installation() is None and "--list" not in sys.argv:
        print("skipped: rdma-core's tests and pyverbs are not there; tools/deps brings them")
        sys.exit(SKIPPED)
    sys.exit(main(__doc__, CASES))
