# SPDX-License-Identifier: BSD-2-Clause
"""What bench/messages prints for people."""

from matrix import HEADING
from runs import Row

PARTS = ("post", "round", "wire", "completion")
COUNTS = (("instructions", 6, 0), ("locked", 6, 1), ("level_1_misses", 6, 1), ("level_2_misses", 6, 1))


def print_heading(split: bool, counts: bool, compared: bool) -> None:
    line = f"{HEADING} | {'M/s (lowest - highest)':>23} {'ns':>6} {'line':>4}"
    if compared:
        line += " | ratio"
    if split:
        names = " ".join(f"{name[:5]:>5}" for name in PARTS)
        line += f" | requester: {names} | responder: {names}"
    if counts:
        line += " |  instr. locked L1 mis L2 mis"
    print(line, flush=True)


def row_text(row: Row) -> str:
    rates = [rate / 1e6 for rate in row.rates()]
    mark = "~" if row.disturbed() else " "
    return (f"{row.configuration.text()} | {row.rate() / 1e6:6.3f} ({min(rates):6.3f} - {max(rates):6.3f}){mark}"
            f"{row.nanoseconds():6.0f} {row.line():4.0f}")


def split_text(split: dict) -> str:
    return "".join(f" | {'':10} " + " ".join(f"{split[side][part]:5.0f}" for part in PARTS)
                   for side in ("requester", "responder"))


def print_row(row: Row, other: Row | None) -> None:
    line = row_text(row)
    if other:
        ratio = row.ratio_to(other)
        line += f" | {ratio:5.2f}" if ratio else " |     -"
    if row.split:
        line += split_text(row.split)
    if row.counts:
        line += " | " + " ".join(f"{row.counts[name]:{width}.{digits}f}" for name, width, digits in COUNTS)
    print(line, flush=True)


def print_memory(memory: dict, name: str = "") -> None:
    print(f"idle QP{name}: {memory['smallest'] / 1e3:.1f} KB with the smallest queues, {memory['deep'] / 1e3:.1f} KB with "
          "128 work requests of 4 SGEs in each queue")


def print_report(rows: list[list[Row]], memory: dict[str, dict], arguments) -> None:
    if rows:
        print_heading(arguments.split, arguments.counts, len(rows[0]) > 1)
    for row, *others in rows:
        print_row(row, others[0] if others else None)
    for name, each in memory.items():
        print_memory(each, name)
