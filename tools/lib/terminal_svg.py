#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Draws what a command printed as a picture of a terminal (SVG), for documents. Used by tools/screenshots.

Usage: COMMAND | terminal_svg.py 'COMMAND AS TYPED' >PICTURE.svg
"""

import html
import re
import sys

CHARACTER, LINE, MARGIN = 8.4, 19, 16  # of 14 px DejaVu Sans Mono
COLOURS = {"prompt": "#8ae234", "command": "#ffffff", "head": "#729fcf", "text": "#d3d7cf", "good": "#8ae234"}


def spans(line, number):
    """(colour, text) pieces of a line."""
    if number == 0:
        return [("prompt", "$ "), ("command", line)]
    if re.match(r"test\s|-+\s", line):
        return [("head", line)]
    ok = re.search(r"\bok\b|\ball \d+ passed", line)
    if not ok:
        return [("text", line)]
    return [("text", line[: ok.start()]), ("good", ok[0]), ("text", line[ok.end() :])]


def main():
    lines = [sys.argv[1], *sys.stdin.read().rstrip("\n").split("\n")]
    width = round(max(map(len, lines)) * CHARACTER + 2 * MARGIN + 2 * CHARACTER)
    height = len(lines) * LINE + 2 * MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">')
    print(f'<rect width="{width}" height="{height}" rx="8" fill="#2e3436"/>')
    print('<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">')
    for number, line in enumerate(lines):
        pieces = "".join(f'<tspan fill="{COLOURS[colour]}">{html.escape(text)}</tspan>' for colour, text in spans(line, number) if text)
        print(f'<text x="{MARGIN}" y="{MARGIN + LINE * number + 14}" xml:space="preserve">{pieces}</text>')
    print("</g>\n</svg>")


if __name__ == "__main__":
    main()
