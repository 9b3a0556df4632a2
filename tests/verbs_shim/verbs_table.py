#!/usr/bin/env python3
"""Makes the tables of docs/verbs.md from what the tests call, or checks them. What stands above them is written by hand.

Runs verbs_client_test with the instrumented shim (call_trace.cc) and puts what was called beside what is there: the
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
# Slots whose function is set in an array of its own: newer than the header.
NEWER_SLOTS = {"ibv_qp_ex": {"wr_flush": "wr_flush"}}
GENERATED = "## Functions"  # the heading of what is made; what stands above it is kept
OURS = "UROCE_1"  # the node of functions that are not of libibverbs


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exports_of(library):
    """(name, node) -> offset of every exported function."""
    exports = {}
    for line in output_of("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines():
        address, kind, symbol = line.split()
        if kind != "T":
            continue
        name, node = re.split("@+", symbol)
        exports[name, node] = int(address, 16)
    return exports


def functions_of(library):
    """Plain name -> offsets of the library's functions, exported or not."""
    functions = defaultdict(set)
    for line in output_of("nm", "-C", "--defined-only", library).splitlines():
        found = re.match(r"([0-9a-f]+) [tT] (?:uroce::verbs::)?(?:\(anonymous namespace\)::)?(\w+)(?:[(@]|$)", line)
        if found:
            functions[found[2]].add(int(found[1], 16))
    return functions


def slots_of(struct):
    """Names of its function pointers, in their order."""
    with open(HEADER) as header:
        body = re.search(rf"^struct {struct} {{\n(.*?)^}};", header.read(), re.M | re.S)[1]
    return [name for name in re.findall(r"\(\*(\w+)\)\s*\(", body) if "placeholder" not in name]


def assigned_slots(source):
    """Slot -> function, as the shim fills its tables."""
    folder = os.path.join(source, "verbs_shim")
    slots = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".cc"):
            with open(os.path.join(folder, name)) as file:
                slots |= dict(re.findall(r"(?:\.|->)(\w+) = (\w+);", file.read()))
    return slots


def run_tests(tests, library):
    """Offset -> test that called it first; name -> (errno, test)."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace")
        environment = os.environ | {"LD_PRELOAD": library, "UROCE_IO": "udp", "UROCE_QUIET": "1", "UROCE_TRACE": trace}
        result = subprocess.run([tests, "--gtest_brief=1"], env=environment, stdout=subprocess.PIPE, text=True)
        if result.returncode == 77:
            sys.exit(77)
        if result.returncode != 0:
            sys.exit(f"{result.stdout}\nverbs_client_test fails on the instrumented shim")
        calls, answers = {}, {}
        for line in open(trace):
            kind, what, *rest = line.split()
            if kind == "call":
                calls.setdefault(int(what, 16), rest[0])
            else:
                answers.setdefault(what, rest)
    return calls, answers


class Table:
    def __init__(self, options):
        self.exports = exports_of(options.library)
        self.functions = functions_of(options.library)
        self.assigned = assigned_slots(options.source)
        self.calls, self.answers = run_tests(options.tests, options.library)
        self.never = []

    def row(self, name, offsets):
        tests = [self.calls[offset] for offset in offsets if offset in self.calls]
        answer, test = self.answers.get(name, ("yes", tests[0] if tests else None))
        if not tests:
            self.never.append(name)
        return f"| `{name}` | {answer} | {test} |"

    def public(self):
        """Functions at the nodes that programs are linked to."""
        rows = defaultdict(list)
        aliases = {name for name, node in self.exports if node == "IBVERBS_1.1"}
        for (name, node), offset in sorted(self.exports.items()):
            old = node == "IBVERBS_1.0" and name in aliases or name == "ibv_register_driver"
            if "PRIVATE" not in node and not old:
                rows[node].append(self.row(name, [offset]))
        order = sorted(rows, key=lambda node: (node == OURS, [int(number) for number in re.findall(r"\d+", node)]))
        for node in order:
            yield from ["", f"### {node}", "", "| function | there | called by |", "|---|---|---|", *rows[node]]

    def hidden(self):
        """Stubs at private nodes and those of before 2007: only how many, and that all are called."""
        counts = defaultdict(int)
        aliases = {name for name, node in self.exports if node == "IBVERBS_1.1"}
        for (name, node), offset in sorted(self.exports.items()):
            old = node == "IBVERBS_1.0" and name in aliases or name == "ibv_register_driver"
            if "PRIVATE" not in node and not old:
                continue
            counts[node] += 1
            if offset not in self.calls:
                self.never.append(f"{name}@{node}")
        for node in sorted(counts):
            yield f"| {node} | {counts[node]} |"

    def slots(self, struct):
        compatible = 0
        for slot in [*slots_of(struct), *NEWER_SLOTS.get(struct, {})]:
            function = self.assigned.get(slot) or NEWER_SLOTS.get(struct, {}).get(slot)
            if function is not None and function != "nullptr":
                yield self.row(slot, sorted(self.functions[function]))
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
                 "From here on made by `tests/verbs_shim/verbs_table.py` from a run of the tests; the test `verbs_table` fails when",
                 "it is not up to date or when nothing calls a function or slot. Anew:",
                 "`cmake --build build/release --target verbs_table`. \"There\" is *yes*, or the errno that a call answers. \"Called",
                 "by\" is the first test in `tests/verbs_shim` that calls it, from outside the library.", *self.public(), "",
                 "### Symbols that only rdma-core's own providers and programs of before 2007 ask for", "",
                 "`AbsentTest.PrivateSymbolsAndThoseBefore2007` calls all of them; `ibv_query_gid_type` works, the others do",
                 "nothing or answer EOPNOTSUPP.", "", "| node | functions |", "|---|---|", *self.hidden()]
        for struct, title in TABLES.items():
            lines += ["", f"## Slots of {title}", "", "| slot | there | called by |", "|---|---|---|", *self.slots(struct)]
        return "\n".join(lines) + "\n"


def without_tests(text):
    """The lines without the last column: which test is first depends on what a machine can run, and on no more."""
    return [line.rsplit("|", 2)[0] if line.startswith("| `") else line for line in text.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="the instrumented liburoce")
    parser.add_argument("--tests", required=True, help="verbs_client_test")
    parser.add_argument("--source", required=True)
    parser.add_argument("--write", action="store_true", help="write docs/verbs.md instead of checking it")
    options = parser.parse_args()
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
