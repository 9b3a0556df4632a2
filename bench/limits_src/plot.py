# SPDX-License-Identifier: BSD-2-Clause
"""Results of bench/limits as a picture: bulk by path MTU, latency, messages, one QP beside another. With matplotlib."""

import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from groups import BESIDE, IPERF, RUNS, SUMMED, TESTS, UCX_TCP  # noqa: E402
from measurement import Key, Measurement  # noqa: E402
from report import Results  # noqa: E402

GREYS = ("#30343b", "#7d838c", "#b9bec6", "#dcdfe4", "#565c65")
COLOURS = {"udp": ("#08519c", "#3182bd", "#6baed6", "#bdd7e7"), "af_xdp": ("#a63603", "#e6550d", "#fd8d3c", "#fdd0a2")}
PLANES = {"udp": "UDP", "af_xdp": "AF_XDP"}
VALUE_SIZE = 7  # points: of the figures at bars
Row = tuple[str, float, str]  # label, value, colour
TARGET = 0.7  # of raw runs: what the project wants of perftest over UDP


def draw(title: str, results: Results, file: Path) -> None:
    pyplot.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
                            "svg.hashsalt": "limits", "axes.titlesize": 10, "axes.titlelocation": "left"})
    cores = sorted({key.cores for key, m in results.items() if key.group == "bulk" and m.samples}, reverse=True)
    small = [panel for panel in (
        (latency_rows(results), "us, half round trip", "Latency, 2 bytes (smaller is better)", False),
        (message_rows(results), "million/s", "Messages of 8 bytes (larger is better)", True),
        (beside_rows(results), "us, half round trip", "p99 of a QP alone, beside WRITEs of 64 KiB", True)) if panel[0]]
    rows = len(cores) + bool(small)
    if rows == 0:
        return
    figure = pyplot.figure(figsize=(14, 4.3 * rows + 0.6), layout="constrained")
    figure.suptitle(f"uroce beside its references\n{title}", fontsize=11)
    parts = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    for part, number in zip(parts, cores):
        draw_bulk(part.subplots(), results, number)
    if small:
        for panel, axes in zip(small, parts[-1].subplots(1, len(small), squeeze=False)[0]):
            draw_rows(axes, *panel)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=110)


def draw_bulk(axes: Axes, results: Results, cores: int) -> None:
    """Grouped bars; above those of uroce their ratio to the raw run of the same path MTU."""
    path_mtus = sorted({key.path_mtu for key in results if key.group == "bulk" and key.cores == cores})
    size = next(size for size in ("1 MiB", "64 KiB") if any(size in key.name for key in results))
    bars = [(RUNS, "raw runs, contiguous", GREYS[0]), ("raw runs, gathered", "raw runs, gathered", GREYS[1]),
            (SUMMED, "raw runs, copied and summed", GREYS[4]),
            (IPERF, "iperf3 (TCP)", GREYS[2]), (UCX_TCP, "UCX over TCP, put 1 MiB", GREYS[3])]
    for io, colours in COLOURS.items():
        bars += [(f"{test} {size} {io}", f"{test} {size}, {PLANES[io]}", colour)
                 for test, colour in zip(TESTS, colours)]
        bars.append((f"UCX {io}", f"UCX over rc_verbs, put 1 MiB, {PLANES[io]}", colours[3]))
    bars = [bar for bar in bars if any(of(results, bar[0], mtu, cores) for mtu in path_mtus)]
    width = 0.86 / len(bars)
    for position, (name, label, colour) in enumerate(bars):
        for group, path_mtu in enumerate(path_mtus):
            measurement = of(results, name, path_mtu, cores)
            if not measurement:
                continue
            values = measurement.values("gbps")
            value, x = statistics.median(values), group + (position - (len(bars) - 1) / 2) * width
            axes.bar(x, value, 0.92 * width, color=colour, label=label if group == 0 else None,
                     yerr=[[value - min(values)], [max(values) - value]], ecolor="#555555",
                     error_kw={"elinewidth": 0.8})
            text = f"{value:.1f}"
            raw = of(results, RUNS, path_mtu, cores)
            if raw and position >= 3:
                text += f"  {value / raw.median('gbps'):.2f} x"
            axes.annotate(text, (x, max(values)), (0, 3), textcoords="offset points", ha="center", va="bottom",
                          rotation=90, fontsize=VALUE_SIZE)
    for group, path_mtu in enumerate(path_mtus if cores == 2 else []):
        raw = of(results, RUNS, path_mtu, cores)
        if raw:
            axes.hlines(TARGET * raw.median("gbps"), group - 0.43, group + 0.43, "#2ca02c", "dashed", linewidth=1,
                        label=f"target: {TARGET} x raw runs" if group == 0 else None)
    axes.set_xticks(range(len(path_mtus)), [f"path MTU {path_mtu}" for path_mtu in path_mtus])
    axes.set_ylabel("Gb/s of payload")
    place = "a CPU per side" if cores == 2 else "both sides on one CPU"
    axes.set_title(f"Bulk, {place}: median, lowest and highest; x: of raw runs, contiguous")
    axes.margins(x=0.02, y=0.15)
    axes.legend(fontsize=8, ncols=1, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def of(results: Results, name: str, path_mtu: int, cores: int) -> Measurement | None:
    measurement = results.get(Key("bulk", name, path_mtu, cores))
    return measurement if measurement and measurement.samples else None


def draw_rows(axes: Axes, rows: list[Row], unit: str, title: str, logarithmic: bool) -> None:
    """Horizontal bars, the first on top."""
    labels, values, colours = zip(*rows)
    axes.barh(range(len(rows)), values, color=colours)
    for position, value in enumerate(values):
        axes.annotate(f"{value:.3g}", (value, position), (3, 0), textcoords="offset points", va="center",
                      fontsize=VALUE_SIZE + 1)
    if logarithmic and max(values) > 10 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(unit)
    axes.set_title(title)


def medians(results: Results, group: str, figure: str, names: dict[str, str]) -> list[Row]:
    """Of those that were measured, with a CPU per side; `names` maps them to their labels."""
    found = {key.name: m for key, m in results.items() if key.group == group and key.cores == 2 and m.values(figure)}
    return [(label, found[name].median(figure), colour_of(name)) for name, label in names.items() if name in found]


def colour_of(name: str) -> str:
    return next((colours[1] for io, colours in COLOURS.items() if name.endswith(f" {io}")), GREYS[1])


def latency_rows(results: Results) -> list[Row]:
    return medians(results, "latency", "us", {
        "raw send": "raw AF_XDP", "raw send 2": "raw AF_XDP, two each way",
        "ib_send_lat af_xdp": "ib_send_lat, AF_XDP", "UCX af_xdp": "UCX over rc_verbs, AF_XDP",
        "udp busy": "kernel UDP, spinning", "udp busy 2": "kernel UDP, two each way",
        "udp busy run": "kernel UDP, two each way in a run",
        "ib_send_lat udp": "ib_send_lat, UDP", "UCX udp": "UCX over rc_verbs, UDP",
        "tcp busy": "kernel TCP, spinning", UCX_TCP: "UCX over TCP"})


def message_rows(results: Results) -> list[Row]:
    names = {"runs WRITE": "raw runs of 64", "udp WRITE": "kernel UDP, sendmmsg", "raw AF_XDP": "raw AF_XDP"}
    for io, plane in PLANES.items():
        names |= {f"ib_write_bw {qps} {io}": f"ib_write_bw, QPs: {qps}, {plane}" for qps in (1, 16)}
    return medians(results, "messages", "mpps", names)


def beside_rows(results: Results) -> list[Row]:
    return medians(results, "beside", "p99 us", {f"{what} {io}": f"{plane}, {what.split()[0]}"
                                                 for io, plane in PLANES.items() for what in BESIDE})
