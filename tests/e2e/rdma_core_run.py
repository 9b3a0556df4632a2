# SPDX-License-Identifier: BSD-2-Clause
"""Runs rdma-core's tests in this process and notes what became of each: a line [name, outcome, words] of JSON. For
rdma_core.py, which judges.
    rdma_core_run.py TESTS RESULTS [OPTION...]     options: those of rdma-core's run_tests.py
"""

import importlib.machinery
import json
import os
import sys
import unittest

TESTS, RESULTS = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, TESTS)
from args_parser import parser  # noqa: E402  rdma-core's


class Notes(unittest.TestResult):
    def __init__(self, file):
        super().__init__()
        self.file = file
        self.outcome = None

    def startTest(self, test):
        super().startTest(test)
        self.outcome = ("pass", "")

    def stopTest(self, test):
        super().stopTest(test)
        self.note(test, *self.outcome)

    def note(self, test, outcome, words):
        print(json.dumps([test.id(), outcome, words]), file=self.file, flush=True)

    def addSkip(self, test, reason):
        self.outcome = ("skip", reason)

    def addError(self, test, err):
        words = f"{err[0].__name__}: {err[1]}"
        if isinstance(test, unittest.TestCase):
            self.outcome = ("fail", words)
        else:  # set-up of a class or module: it has no start
            self.note(test, "fail", words)

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addError(test, err)


def main():
    parser.parse_args()
    # As run_tests.py: a package of this name, whose load_tests() finds all of them.
    loader = importlib.machinery.SourceFileLoader("tests", os.path.join(TESTS, "__init__.py"))
    suite = unittest.defaultTestLoader.loadTestsFromModule(loader.load_module())
    with open(RESULTS, "w") as file:
        suite.run(Notes(file))


main()
