#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What tshark with the plugin says about the golden captures, against the text in expected/.

Usage: golden_test.py PLUGIN MAKE_GOLDEN [--update] [NAME...]
--update writes what it says now; read the difference before you commit it.
"""
import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

from tshark import Tshark

EXPECTED = Path(__file__).parent / "expected"
# Name in the text -> field. All passes are over when these are shown (-2), so links forward are there.
FIELDS = {
    "stream": "rocev2.stream", "src": "rocev2.srcqp", "ecn": "rocev2.ecn", "becn": "rocev2.becn",
    "icrc": "rocev2.icrc.status", "msg": "rocev2.message", "part": "rocev2.message.part", "len": "rocev2.message.length",
    "first": "rocev2.message.first_frame", "last": "rocev2.message.last_frame",
    "done": "rocev2.message.answer_frame", "took": "rocev2.message.time", "missing": "rocev2.analysis.missing",
    "flight": "rocev2.analysis.packets_in_flight", "bytes": "rocev2.analysis.bytes_in_flight",
    "original": "rocev2.analysis.original", "request": "rocev2.analysis.request", "answer": "rocev2.analysis.answer",
    "answered_after": "rocev2.analysis.answer_time", "resent_after": "rocev2.analysis.resend_wait",
    "rnr_waited": "rocev2.analysis.rnr_waited", "honoured": "rocev2.analysis.rnr_honoured",
    "recovery": "rocev2.analysis.recovery_time", "before": "rocev2.cnp.rate_before", "after": "rocev2.cnp.rate_after",
    "credits": "rocev2.aeth.credits", "qkey": "rocev2.deth.qkey", "srqn": "rocev2.xrceth.srqn",
    "flush": "rocev2.feth.persistent", "imm": "rocev2.immdt", "inv": "rocev2.ieth.rkey",
    "dup_request": "rocev2.analysis.duplicate_request", "rate_cut": "rocev2.analysis.rate_cut",
    "mraed": "rocev2.cm.mra.message", "mra_timeout": "rocev2.cm.mra.timeout", "sidr": "rocev2.cm.sidr.request_id",
    "service": "rocev2.cm.sidr.service_id", "sidr_qpn": "rocev2.cm.sidr.qpn", "sidr_qkey": "rocev2.cm.sidr.qkey",
    "lap_qpn": "rocev2.cm.lap.qpn", "lap_gid": "rocev2.cm.lap.local_gid", "lap_label": "rocev2.cm.lap.flow_label",
    "lap_hops": "rocev2.cm.lap.hop_limit", "lap_rate": "rocev2.cm.lap.rate", "lap_timeout": "rocev2.cm.lap.ack_timeout",
    "apr": "rocev2.cm.apr.status", "space": "rocev2.cm.port_space", "port": "rocev2.cm.port",
    "source_port": "rocev2.cm.source_port", "request_in": "rocev2.cm.request_in",
    "response_in": "rocev2.cm.response_in", "response_after": "rocev2.cm.response_time",
    "cm_original": "rocev2.cm.original", "cm_resent_after": "rocev2.cm.resend_wait", "reason": "rocev2.cm.rej.reason", "batch": "rocev2.batch.packet", "of": "rocev2.batch.packets", "malformed": "rocev2.malformed", "not_captured": "rocev2.not_captured",
}


def text_of(tshark, capture):
    rows = tshark.fields(capture, ["frame.number", "rocev2.summary", *FIELDS.values()], "-2")
    lines = []
    for number, summary, *values in rows:
        shown = " ".join(f"{name}={value}" for name, value in zip(FIELDS, values) if value)
        lines.append(f"{number}: {summary}\n    {shown}\n")
    return "".join(lines)


def main():
    arguments = [a for a in sys.argv[1:] if a != "--update"]
    update = "--update" in sys.argv
    plugin, make_golden, *names = arguments
    tshark = Tshark(plugin)
    failed = []
    with tempfile.TemporaryDirectory(prefix="uroce-golden-") as directory:
        subprocess.run([make_golden, directory], check=True)
        captures = sorted(Path(directory).glob("*.pcapng"))
        assert captures
        for capture in captures:
            if names and capture.stem not in names:
                continue
            expected = EXPECTED / f"{capture.stem}.txt"
            now = text_of(tshark, capture)
            if update:
                EXPECTED.mkdir(exist_ok=True)
                expected.write_text(now)
                continue
            before = expected.read_text() if expected.exists() else ""
            if now != before:
                failed.append(capture.stem)
                sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), now.splitlines(True),
                                                           str(expected), "now"))
    tshark.close()
    print(f"{len(captures)} captures, wrong: {failed or 'none'}")
    return 1 if failed else 0


sys.exit(main())
