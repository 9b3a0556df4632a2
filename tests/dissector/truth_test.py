#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Precision and recall of the analysis against faults that are known. Fails below 100 %.

Usage: truth_test.py PLUGIN MAKE_CAPTURES [SEED...]
"""
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tshark import Tshark

KINDS = ("retransmission", "psn_gap", "out_of_order", "duplicate_packet", "bad_icrc", "bad_ip_checksum", "response_gap",
         "response_replay")
# The transport under test does none of these, whatever the network does to it.
NEVER = ("opcode_sequence", "length", "psn_jump", "ack_unseen", "rnr_not_honoured", "nak_invalid_request",
         "nak_remote_access_error", "nak_remote_operational_error", "nak_other")
ADDRESS = {"a": "192.0.2.1", "b": "192.0.2.2"}


def truth_of(path):
    found = {kind: set() for kind in KINDS + ("anything", "unknowable")}
    for line in path.read_text().splitlines():
        number, kind = line.split()
        found[kind].add(int(number))
    return found


def findings_of(tshark, capture, own_address):
    fields = ["frame.number", "ip.src", "rocev2.reth.length", "rocev2.aeth.syndrome", "rocev2.opcode"]
    rows = tshark.fields(capture, fields + [f"rocev2.analysis.{kind}" for kind in KINDS], "-2")
    found = {kind: set() for kind in KINDS}
    for number, source, _, _, opcode, *flags in rows:
        kinds = {kind for kind, flag in zip(KINDS, flags) if flag}
        request = opcode and not 0x0d <= int(opcode, 16) <= 0x12
        # The truth knows the order of new requests, gaps in what comes in, and replays of what this end sends.
        if not request or "retransmission" in kinds:
            kinds.discard("out_of_order")
        kinds.discard("response_replay" if source != own_address else "response_gap")
        for kind in kinds:
            found[kind].add(int(number))
    return found


def never_findings(tshark, capture):
    """Of a run without faults nothing at all is to be found, but that credits ran out."""
    filters = [f"rocev2.analysis.{kind}" for kind in NEVER]
    if capture.stem.startswith(("clean", "wrap")):
        filters.append('_ws.expert.message && rocev2 && !rocev2.analysis.zero_credits && _ws.expert.group != "Malformed"')
    rows = tshark.fields(capture, ["frame.number", "_ws.expert.message", "rocev2.summary"], "-Y", " || ".join(filters), "-2",
                         "-o", "infiniband.try_heuristic_first:FALSE", "--disable-protocol", "rpcordma")
    return [" ".join(row) for row in rows]


def measure(tshark, make_captures, seeds):
    """Right, false and missed findings by kind, and how much was wrong."""
    wrong = 0
    totals = defaultdict(lambda: [0, 0, 0])
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="uroce-truth-") as directory:
            subprocess.run([make_captures, directory, seed], check=True, stdout=subprocess.DEVNULL)
            for capture in sorted(Path(directory).glob("*.pcapng")):
                truth = truth_of(capture.with_suffix(".truth"))
                found = findings_of(tshark, capture, ADDRESS[capture.stem[-1]])
                wrong += compare(f"seed {seed} {capture.stem}", truth, found, totals)
                for line in never_findings(tshark, capture):
                    wrong += 1
                    print(f"seed {seed} {capture.stem}: {line}")
    return totals, wrong


def compare(name, truth, found, totals):
    wrong = 0
    for kind in KINDS:
        found[kind] -= truth["anything"]
        if kind in ("retransmission", "out_of_order"):
            found[kind] -= truth["unknowable"]
        false, missed = found[kind] - truth[kind], truth[kind] - found[kind]
        for i, number in enumerate((len(truth[kind] & found[kind]), len(false), len(missed))):
            totals[kind][i] += number
        for what, frames in (("false", false), ("missed", missed)):
            if frames:
                wrong += 1
                print(f"{name}: {what} {kind}: {sorted(frames)[:12]}")
    return wrong


def report(title, totals):
    print(f"{title:18}{'right':>8}{'false':>8}{'missed':>8}  precision   recall")
    for kind in KINDS:
        right, false, missed = totals[kind]
        precision = 100 * right / (right + false) if right + false else 100
        recall = 100 * right / (right + missed) if right + missed else 100
        print(f"{kind:18}{right:8}{false:8}{missed:8}  {precision:7.2f} %  {recall:7.2f} %")


def main():
    plugin, make_captures, *seeds = sys.argv[1:]
    seeds = seeds or ["1"]
    tshark = Tshark(plugin)
    totals, wrong = measure(tshark, make_captures, seeds)
    report("IP IDs count up", totals)
    for kind in KINDS:
        if totals[kind][0] == 0:
            wrong += 1
            print(f"no case of {kind}")
    # Without IP IDs nobody can always tell a copy, a late packet and a retransmission: truth_seeds prints that.
    tshark.close()
    return 1 if wrong else 0


sys.exit(main())
