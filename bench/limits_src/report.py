"""What bench/limits prints: the tables, and the ratios of uroce to the reference."""

import dataclasses
import math
import statistics
from typing import Callable

from measurements import MOVED, QUIET_SHARE, Measurement


@dataclasses.dataclass
class Ratio:
    label: str
    numerator: str
    denominator: str
    figure: str
    target: str = ""


def ratios(io: str, path_mtus: list[int]) -> list[Ratio]:
    """Of medians taken in the same run. Targets are those of the project, for AF_XDP."""
    result = [
        Ratio("ib_send_lat 2 B / raw AF_XDP ping-pong", f"ib_send_lat {io}", "raw send", "us", "<= 1.6"),
        Ratio("ib_send_lat 2 B / raw AF_XDP, two frames each way", f"ib_send_lat {io}", "raw send 2", "us"),
        Ratio("ib_write_lat 2 B / raw AF_XDP ping-pong", f"ib_write_lat {io}", "raw write", "us"),
        Ratio("ib_read_lat 2 B / raw AF_XDP round trip", f"ib_read_lat {io}", "raw read", "us", "<= 1.3"),
        Ratio("ib_send_lat 2 B / kernel UDP spinning", f"ib_send_lat {io}", "udp busy", "us"),
        Ratio("ib_send_lat 2 B / kernel TCP spinning", f"ib_send_lat {io}", "tcp busy", "us"),
    ]
    for path_mtu in path_mtus:
        for test in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            target = ">= 0.7" if test == "ib_write_bw" and path_mtu == 1024 else ""
            result.append(Ratio(f"{test} 64 KiB @{path_mtu} / raw AF_XDP blast", f"{test} {path_mtu} {io}",
                                f"blast {path_mtu}", "gbps", target))
        result.append(Ratio(f"ib_write_bw 64 KiB @{path_mtu} / kernel TCP", f"ib_write_bw {path_mtu} {io}",
                            f"tcp {path_mtu}", "gbps"))
    if io != "af_xdp":
        result = [dataclasses.replace(ratio, target="") for ratio in result]
    return result


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):9.{digits}f}  ({min(values):.{digits}f} - {max(values):.{digits}f})"


def print_measurement(measurement: Measurement) -> None:
    note = f"   [others used the CPU in {measurement.disturbed} of {len(measurement.samples)}]" \
        if measurement.disturbed else ""
    if measurement.samples:
        units = {"us": ("us", 2), "gbps": ("Gb/s", 2), "mpps": ("Mpps", 3)}
        cells = [f"{spread(measurement.values(figure), units[figure][1])} {units[figure][0]}"
                 for figure in measurement.figures() if figure in units and measurement.median(figure) > 0]
        print(f"  {measurement.label:<72}{'   '.join(cells)}{note}")
    if measurement.failure:
        print(f"  {measurement.label:<72}failed: {measurement.failure}")


def print_kick(kick: Measurement) -> None:
    if kick.failure:
        print(f"  failed: {kick.failure}")
    for descriptors in sorted(int(name.split()[1]) for name in kick.figures() if name.startswith("call ")):
        line = f"  {descriptors:3} descriptors: {spread(kick.values(f'call {descriptors}'), 2)} us"
        arrivals = {index: kick.values(f"arrival {descriptors} {index}")
                    for index in (0, descriptors // 2, descriptors - 1)}
        if descriptors and all(arrivals.values()):
            seen = ", ".join(f"#{index + 1} after {statistics.median(values):.2f}"
                             for index, values in arrivals.items())
            line += f"   seen by the receiver: {seen} us"
        print(line)


def by_placement(measurements: list[Measurement]) -> list[tuple[str, dict[str, Measurement]]]:
    """The samples apart by where the host had put the two CPUs: a ratio across placements would tell nothing."""

    def part(place: str, belongs: Callable[[float], bool]) -> tuple[str, dict[str, Measurement]]:
        hand_over = statistics.median(time for time in times if belongs(time))
        return (f"CPUs {place}: a cache line takes {hand_over:.0f} ns from one to the other", {
            m.key: dataclasses.replace(m, samples=[s for s in m.samples if belongs(s["hand_over_ns"])])
            for m in measurements})

    times = [sample["hand_over_ns"] for m in measurements for sample in m.samples]
    if not times:
        return [("nothing could be measured", {m.key: m for m in measurements})]
    if max(times) <= MOVED * min(times):
        return [part("did not move", lambda time: True)]
    border = math.sqrt(min(times) * max(times))
    return [part("near each other", lambda time: time <= border),
            part("far from each other", lambda time: time > border)]


def print_report(title: str, measurements: dict[str, Measurement], all_ratios: list[Ratio], uroce_note: str) -> dict:
    print(f"\n=== {title} ===")
    print("\nLatency: half round trip, median of each repetition (perftest: t_typical); smaller is better")
    for measurement in measurements.values():
        if measurement.kind == "latency":
            print_measurement(measurement)
    print("\nBulk: payload at the receiver (perftest: as the client reports it); larger is better")
    for measurement in measurements.values():
        if measurement.kind == "bulk":
            print_measurement(measurement)
    print(f"\n{measurements['kick'].label}: duration of the call")
    print_kick(measurements["kick"])

    print("\nRatios of medians")
    disturbed = sum(m.disturbed for m in measurements.values())
    if disturbed:
        print(f"  beware: others used more than {QUIET_SHARE:.0%} of a CPU in {disturbed} of "
              f"{sum(len(m.samples) for m in measurements.values())} repetitions; run this on an idle machine")
    result = {}
    if uroce_note:
        print(f"  {uroce_note}")
    for ratio in all_ratios:
        target = f"   (target {ratio.target})" if ratio.target else ""
        pair = [measurements.get(key) for key in (ratio.numerator, ratio.denominator)]
        if all(m and m.values(ratio.figure) and m.median(ratio.figure) > 0 for m in pair):
            result[ratio.label] = pair[0].median(ratio.figure) / pair[1].median(ratio.figure)
            note = "   [disturbed]" if any(m.disturbed == len(m.samples) for m in pair) else ""
            print(f"  {ratio.label:<56} = {result[ratio.label]:.2f}{target}{note}")
        elif not uroce_note:
            print(f"  {ratio.label:<56} = not measured{target}")
    return result
