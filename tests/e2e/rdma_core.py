#!/usr/bin/env -S python3 -B
"""rdma-core's own tests as a judge: all of them, by Python and pyverbs, over AF_XDP and UDP. rdma_core_expected.txt says
which are skipped or fail, and why; all others have to pass, and what does otherwise than it says fails here. The two
ends of each connection are objects of one process, on one netdev. See suite.py.

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


def run(lab, io):
    tests, modules = installation()
    copy = lab.directory / f"tests-{io}"
    unpack(tests, copy)
    results = lab.directory / f"results-{io}"
    command = [PYTHON, "-B", RUNNER, copy, results, "--dev", lab.a.device, "--gid", "0"]
    program = lab.a.run(command, io=io, timeout=150, env={"PYTHONPATH": str(modules)})
    check(program.process.returncode == 0, f"exit code {program.process.returncode}\n{program.output[-3000:]}")
    outcomes = [json.loads(line) for line in results.read_text().splitlines()]
    check(len(outcomes) >= FEWEST_TESTS, f"only {len(outcomes)} tests ran\n{program.output[-3000:]}")
    wrong = judge(outcomes)
    check(not wrong, "\n".join(["not as expected:", *wrong, program.output[-3000:]]))
    counts = collections.Counter(outcome for _, outcome, _ in outcomes)
    return f"{counts['pass']} passed, {counts['skip']} skipped, {counts['fail']} failed, all as expected"


CASES = [Case(f"pyverbs-{io}", lambda lab, io=io: run(lab, io)) for io in ("af_xdp", "udp")]

if __name__ == "__main__":
    if installation() is None and "--list" not in sys.argv:
        print("skipped: rdma-core's tests and pyverbs are not there; tools/deps brings them")
        sys.exit(SKIPPED)
    sys.exit(main(__doc__, CASES))
