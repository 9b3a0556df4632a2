#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes the tables of docs/verbs.md from what the tests call, or checks them. What stands above them is written by hand.

Runs verbs_client_test with call_trace.cc between it and the library, and puts what was called beside what is there: the
library's exports and the slots of the dispatch tables. Exit codes: 0 as it should be; 1 something is never called, or
docs/verbs.md says otherwise (--write makes it anew); 77 skipped: no right to make a network namespace.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict

HEADER = "/usr/include/infiniband/verbs.h"
TABLES = {"ibv_context_ops": "context->ops", "verbs_context": "verbs_context", "ibv_qp_ex": "ibv_qp_ex",
          "ibv_cq_ex": "ibv_cq_ex", "ibv_dm": "ibv_dm"}
# Slots that are newer than the header: behind its struct.
NEWER_SLOTS = {"ibv_qp_ex": ["wr_flush"]}
GENERATED = "## Functions"  # the heading of what is made; what stands above it is kept
OURS = "UROCE_1"  # the node of functions that are not of libibverbs


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exports_of(library):
    """(name, node) -> "name@node" or "name@@node", of every exported function."""
    exports = {}
    for line in output_of("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines():
        _, kind, symbol = line.split()
        if kind == "T":
            name, node = re.split("@+", symbol)
            exports[name, node] = symbol
    return exports


def slots_of(struct):
    """Names of its function pointers, in their order."""
    with open(HEADER) as header:
        body = re.search(rf"^struct {struct} {{\n(.*?)^}};", header.read(), re.M | re.S)[1]
    return [name for name in re.findall(r"\(\*(\w+)\)\s*\(", body) if "placeholder" not in name]


def list_for_trace(library):
    """What call_trace.cc stands in front of."""
    for index, ((name, node), symbol) in enumerate(sorted(exports_of(library).items())):
        yield f'UROCE_EXPORT({index}, "{name}", "{node}", "{symbol}")\n'
    for table in TABLES:
        yield from (f"UROCE_SLOT({table}, {slot})\n" for slot in slots_of(table))
        yield from (f"UROCE_SLOT_AT_END({table}, {slot})\n" for slot in NEWER_SLOTS.get(table, []))


# They take most of the time, and call nothing that others do not call.
SLOW_TESTS = ["*.MayGoAwayUnderTraffic/*", "*.LetProgramsExitWhileTheyPoll/*", "*.AreOpened*", "LimitsTest.*", "MemoryLimits.*",
              "*/ForkOverWire.*", "NameService.*", "ThreadsTest.*", "LongMessages.*"]


def run_tests(options):
    """Export or slot -> test that called it first; name -> (errno, test); the slots that are not null."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace")
        environment = os.environ | {"LD_PRELOAD": f"{options.trace}:{options.library}", "UROCE_IO": "udp", "UROCE_QUIET": "1",
                                    "UROCE_TRACE": trace}
        result = subprocess.run([options.tests, "--gtest_brief=1", f"--gtest_filter=-{':'.join(SLOW_TESTS)}"], env=environment, stdout=subprocess.PIPE, text=True)
        if result.returncode == 77:
            sys.exit(77)
        if result.returncode != 0:
            sys.exit(f"{result.stdout}\nverbs_client_test fails with {options.trace}")
        calls, answers, slots = {}, {}, set()
        for line in open(trace):
            kind, what, *rest = line.split()
            if kind == "call":
                calls.setdefault(what, rest[0])
            elif kind == "slot":
                slots.add(what)
            else:
                answers.setdefault(what, rest)
    return calls, answers, slots


class Table:
    def __init__(self, options):
        self.exports = exports_of(options.library)
        self.calls, self.answers, self.filled_slots = run_tests(options)
        self.never = []

    def row(self, name, full_name):
        answer, test = self.answers.get(name, ("yes", self.calls.get(full_name)))
        if full_name not in self.calls:
            self.never.append(full_name)
        return f"| `{name}` | {answer} | {test} |"

    def public(self):
        """Functions at the nodes that programs are linked to."""
        rows = defaultdict(list)
        aliases = {name for name, node in self.exports if node == "IBVERBS_1.1"}
        for name, node in sorted(self.exports):
            old = node == "IBVERBS_1.0" and name in aliases or name == "ibv_register_driver"
            if "PRIVATE" not in node and not old:
                rows[node].append(self.row(name, f"{name}@{node}"))
        order = sorted(rows, key=lambda node: (node == OURS, [int(number) for number in re.findall(r"\d+", node)]))
        for node in order:
            yield from ["", f"### {node}", "", "| function | there | called by |", "|---|---|---|", *rows[node]]

    def hidden(self):
        """Stubs at private nodes and those of before 2007: only how many, and that all are called."""
        counts = defaultdict(int)
        aliases = {name for name, node in self.exports if node == "IBVERBS_1.1"}
        for name, node in sorted(self.exports):
            old = node == "IBVERBS_1.0" and name in aliases or name == "ibv_register_driver"
            if "PRIVATE" not in node and not old:
                continue
            counts[node] += 1
            if f"{name}@{node}" not in self.calls:
                self.never.append(f"{name}@{node}")
        for node in sorted(counts):
            yield f"| {node} | {counts[node]} |"

    def slots(self, struct):
        compatible = 0
        for slot in [*slots_of(struct), *NEWER_SLOTS.get(struct, [])]:
            if f"{struct}.{slot}" in self.filled_slots:
                yield self.row(slot, f"{struct}.{slot}")
            elif slot in self.answers:
                answer, test = self.answers[slot]
                yield f"| `{slot}` | {answer} | {test} |"
            elif slot.startswith("_compat_"):
                compatible += 1
            else:
                self.never.append(f"{struct}.{slot}")
        if compatible:
            yield f"| {compatible} of `_compat_*` | null, nothing calls them since 2007 | |"

    def text(self):
        lines = [GENERATED, "",
                 "From here on made by `tests/abi/verbs/verbs_table.py` from a run of the tests; the test `verbs_table` fails when",
                 "it is not up to date or when nothing calls a function or slot. Anew:",
                 "`cmake --build build/release --target verbs_table`. \"There\" is *yes*, or the errno that a call answers. \"Called",
                 "by\" is the first test in `tests/abi/verbs` that calls it, from outside the library.", *self.public(), "",
                 "### Symbols that only rdma-core's own providers and programs of before 2007 ask for", "",
                 "`AbsentTest.PrivateSymbolsAndThoseBefore2007` calls all of them; `ibv_query_gid_type` works, the others do",
                 "nothing or answer EOPNOTSUPP.", "", "| node | functions |", "|---|---|", *self.hidden()]
        for struct, title in TABLES.items():
            lines += ["", f"## Slots of {title}", "", "| slot | there | called by |", "|---|---|---|", *self.slots(struct)]
        return "\n".join(lines) + "\n"


def write_if_new(path, text):
    """Without touching a file that has the text already: what is made from it stays."""
    if not os.path.exists(path) or open(path).read() != text:
        with open(path, "w") as file:
            file.write(text)


def without_tests(text):
    """The lines without the last column: which test is first depends on what a machine can run, and on no more."""
    return [line.rsplit("|", 2)[0] if line.startswith("| `") else line for line in text.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="liburoce.so")
    parser.add_argument("--trace", help="call_trace.cc as a library")
    parser.add_argument("--tests", help="verbs_client_test")
    parser.add_argument("--source")
    parser.add_argument("--write", action="store_true", help="write docs/verbs.md instead of checking it")
    parser.add_argument("--list", metavar="FILE", help="write what call_trace.cc stands in front of, and do nothing else")
    options = parser.parse_args()
    if options.list:
        write_if_new(options.list, "".join(list_for_trace(options.library)))
        return
    table = Table(options)
    path = os.path.join(options.source, "docs", "verbs.md")
    written = open(path).read() if os.path.exists(path) else ""
    text = written.partition(GENERATED)[0] + table.text()
    if table.never:
        sys.exit("no test calls: " + ", ".join(sorted(set(table.never))))
    if options.write:
        with open(path, "w") as file:
            file.write(text)
        return
    if without_tests(written) != without_tests(text):
        sys.stdout.writelines(difflib.unified_diff(written.splitlines(True), text.splitlines(True), path, "this run"))
        sys.exit("docs/verbs.md is out of date: cmake --build BUILD --target verbs_table")


if __name__ == "__main__":
    main()
