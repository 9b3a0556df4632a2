# SPDX-License-Identifier: BSD-2-Clause
"""What bench/limits prints: the tables of each group, and the ratios of uroce to the references."""

import dataclasses
import itertools
import math
import statistics
from typing import Callable, Iterable

from groups import Ratio
from measurement import MOVED, QUIET_SHARE, Key, Measurement

HEADINGS = {
    "latency": "Latency: half round trip, median of each repetition (perftest: t_typical); smaller is better",
    "bulk": "Bulk, Gb/s of payload at the receiver (perftest: as the client reports it); larger is better",
    "messages": "Messages of 8 bytes: a list of 32, or a run of packets, for each call; larger is better",
    "beside": "A latency QP beside a bulk QP of the same process: half round trip, median and 99th percentile",
    "kick": "sendto() on the TX ring, 64 B frames: duration of the call",
}
FIGURES = {"latency": ["us"], "messages": ["mpps"], "beside": ["us", "p99 us", "gbps"]}
UNITS = {"us": ("us", 2), "p99 us": ("us p99", 2), "gbps": ("Gb/s", 2), "mpps": ("M/s", 3)}
LABEL_WIDTH, CELL_WIDTH = 62, 26
NOTHING = f"{'-':>9}"
Results = dict[Key, Measurement]


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):9.{digits}f}  ({min(values):.{digits}f} - {max(values):.{digits}f})"


def shortened(failure: str) -> str:
    """--json has all of it."""
    return failure if len(failure) < 300 else f"{failure[:297]}..."


def print_measurement(measurement: Measurement) -> None:
    label = f"  {measurement.label:<{LABEL_WIDTH}}"
    if measurement.samples:
        cells = [f"{spread(measurement.values(figure), UNITS[figure][1])} {UNITS[figure][0]}"
                 for figure in FIGURES[measurement.group] if measurement.values(figure)]
        target = f"   (target {measurement.target})" if measurement.target else ""
        note = f"   [others used the CPU in {measurement.disturbed} of {len(measurement.samples)}]" \
            if measurement.disturbed else ""
        print(f"{label}{'   '.join(cells)}{target}{note}")
    if measurement.failure:
        print(f"{label}failed: {shortened(measurement.failure)}")


def print_bulk(rows: list[Measurement]) -> None:
    """A column for each path MTU. ~ marks what others disturbed in every repetition."""
    path_mtus = sorted({row.path_mtu for row in rows})
    print(f"  {'path MTU':<{LABEL_WIDTH}}{''.join(f'{mtu:>9}'.ljust(CELL_WIDTH) for mtu in path_mtus)}".rstrip())
    for label, found in itertools.groupby(rows_by(rows, lambda row: row.label), lambda row: row.label):
        cells = dict.fromkeys(path_mtus, NOTHING)
        failures = []
        for row in found:
            if row.samples:
                mark = "~" if row.disturbed == len(row.samples) else ""
                cells[row.path_mtu] = spread(row.values("gbps"), 2) + mark
            if row.failure:
                failures.append(f"    failed at path MTU {row.path_mtu}: {shortened(row.failure)}")
        if not failures and set(cells.values()) == {NOTHING}:
            continue
        print(f"  {label:<{LABEL_WIDTH}}{''.join(cell.ljust(CELL_WIDTH) for cell in cells.values())}".rstrip())
        print(*failures, sep="\n", end="\n" if failures else "")


def rows_by(rows: Iterable, key: Callable) -> list:
    """Equal ones next to each other, otherwise as they come."""
    rows = list(rows)
    order = {value: position for position, value in reversed(list(enumerate(map(key, rows))))}
    return sorted(rows, key=lambda row: order[key(row)])


def print_kick(kick: Measurement) -> None:
    if kick.failure:
        print(f"  failed: {shortened(kick.failure)}")
    for descriptors in sorted(int(name.split()[1]) for name in kick.figures() if name.startswith("call ")):
        line = f"  {descriptors:3} descriptors: {spread(kick.values(f'call {descriptors}'), 2)} us"
        arrivals = {index: kick.values(f"arrival {descriptors} {index}")
                    for index in (0, descriptors // 2, descriptors - 1)}
        if descriptors and all(arrivals.values()):
            seen = ", ".join(f"#{index + 1} after {statistics.median(values):.2f}"
                             for index, values in arrivals.items())
            line += f"   seen by the receiver: {seen} us"
        print(line)


def by_placement(measurements: list[Measurement]) -> list[tuple[str, Results]]:
    """The samples apart by the number of CPUs, and by where the host had put two: a ratio across placements would tell
    nothing. The part with most samples of two CPUs is the first."""

    def part(title: str, cores: int, belongs: Callable[[float], bool]) -> tuple[str, Results]:
        return title, {m.key: dataclasses.replace(m, samples=[s for s in m.samples if belongs(s["hand_over_ns"])])
                       for m in measurements if m.cores == cores}

    def placed(place: str, belongs: Callable[[float], bool]) -> tuple[str, Results]:
        hand_over = statistics.median(filter(belongs, times))
        return part(f"CPUs {place}: a cache line takes {hand_over:.0f} ns from one to the other", 2, belongs)

    times = [sample["hand_over_ns"] for m in measurements if m.cores == 2 for sample in m.samples]
    if not times:
        parts = [part("a CPU per side", 2, bool)]
    elif max(times) <= MOVED * min(times):
        parts = [placed("did not move", bool)]
    else:
        border = math.sqrt(min(times) * max(times))
        parts = [placed("near each other", lambda time: time <= border),
                 placed("far from each other", lambda time: time > border)]
    parts.sort(key=lambda each: -sum(len(m.samples) for m in each[1].values()))
    return [each for each in [*parts, part("both sides on one CPU", 1, bool)] if each[1]]


def print_group(group: str, rows: list[Measurement]) -> None:
    print(f"\n{HEADINGS[group]}")
    if group == "bulk":
        print_bulk(rows)
    elif group == "kick":
        print_kick(rows[0])
    else:
        for row in rows:
            print_measurement(row)


def value_of(ratio: Ratio, results: Results) -> float | None:
    pair = [results.get(key) for key in (ratio.numerator, ratio.denominator)]
    if not all(m and m.values(ratio.figure) and m.median(ratio.figure) > 0 for m in pair):
        return None
    return pair[0].median(ratio.figure) / pair[1].median(ratio.figure)


def print_ratios(ratios: list[Ratio], results: Results) -> None:
    """A column for each path MTU in the bulk group. ~ marks what others disturbed in every repetition."""
    for group in dict.fromkeys(ratio.numerator.group for ratio in ratios):
        print(f"  {group}:")
        rows = [ratio for ratio in ratios if ratio.numerator.group == group]
        path_mtus = sorted({ratio.numerator.path_mtu for ratio in rows})
        if len(path_mtus) > 1:
            print(f"    {'path MTU':<{LABEL_WIDTH}}{''.join(f'{mtu:>7} ' for mtu in path_mtus)}")
        for label, found in itertools.groupby(rows_by(rows, lambda ratio: ratio.label), lambda ratio: ratio.label):
            line, targets = f"    {label:<{LABEL_WIDTH}}", {}
            for ratio in found:
                value = value_of(ratio, results)
                disturbed = value is not None and any(
                    results[key].disturbed == len(results[key].samples) for key in (ratio.numerator, ratio.denominator))
                line += f"{'-' if value is None else f'{value:.2f}':>7}{'~' if disturbed else ' '}"
                targets |= {ratio.target: None} if ratio.target else {}
            print((line + "".join(f"   (target {target})" for target in targets)).rstrip())


def print_report(title: str, results: Results, ratios: list[Ratio]) -> None:
    print(f"\n=== {title} ===")
    measured = {m.group for m in results.values() if m.samples or m.failure}
    for group, rows in itertools.groupby(results.values(), lambda row: row.group):
        if group in measured:
            print_group(group, list(rows))
    ratios = [ratio for ratio in ratios if value_of(ratio, results)]
    if not ratios:
        return
    print("\nRatios of medians")
    disturbed = sum(m.disturbed for m in results.values())
    if disturbed:
        print(f"  beware: others used more than {QUIET_SHARE:.0%} of a CPU in {disturbed} of "
              f"{sum(len(m.samples) for m in results.values())} repetitions (~: in all of that row); "
              "run this on an idle machine")
    print_ratios(ratios, results)
