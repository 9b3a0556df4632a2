#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What Wireshark's built-in dissector says about the golden captures, and what the plugin says: a table for docs/.

Usage: side_by_side.py PLUGIN MAKE_GOLDEN
"""
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tshark import Tshark

OPTIONS = ("-2", "-o", "infiniband.try_heuristic_first:FALSE", "--disable-protocol", "rpcordma")


def short(text):
    """"NAK: PSN sequence error, the responder ..." -> "NAK: PSN sequence error"; of all others what is before the colon."""
    return re.split("[,;(]" if text.startswith("NAK:") else "[:;(]", text)[0].strip()


def experts(tshark, capture):
    out = tshark.run("-r", tshark.readable(capture), *OPTIONS, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=|", "-e",
                     "_ws.expert.message").stdout
    found = Counter(short(text) for line in out.splitlines() for text in line.split("|") if text)
    return "; ".join(f"{text} ({count})" if count > 1 else text for text, count in sorted(found.items())) or "nothing"


def unknown(tshark, capture):
    rows = tshark.fields(capture, ["_ws.col.Info"], *OPTIONS)
    count = sum("nknown" in row[0] for row in rows)
    return f"; {count} packets with unknown opcode" if count else ""


def main():
    plugin, make_golden = sys.argv[1:3]
    with_plugin, builtin = Tshark(plugin), Tshark(plugin, with_plugin=False)
    print("| capture | packets | built-in | plugin |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="uroce-side-") as directory:
        subprocess.run([make_golden, directory], check=True)
        for capture in sorted(Path(directory).glob("*.pcapng")):
            packets = len(builtin.fields(capture, ["frame.number"]))
            print(f"| {capture.stem} | {packets} | {experts(builtin, capture)}{unknown(builtin, capture)} "
                  f"| {experts(with_plugin, capture)} |")
    with_plugin.close()
    builtin.close()


main()
