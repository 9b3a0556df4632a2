# SPDX-License-Identifier: BSD-2-Clause
"""Results of bench/limits as a picture (SVG): bulk by path MTU, latency, messages, one QP beside another.

The same results give the same file, byte by byte, so that a test can compare (bench/plots). The colours follow the reader's
light or dark theme; the background is painted, so that text can be read where a viewer does not know the theme."""

import dataclasses
import math
from pathlib import Path
from xml.sax.saxutils import escape

from groups import ACKNOWLEDGED, BESIDE, IPERF, RUNS, SUMMED, TESTS, UCX_TCP
from measurement import Key, Measurement
from report import Results

PLANES = {"udp": "UDP", "af_xdp": "AF_XDP", "dpdk": "DPDK"}
WIDTH, MARGIN = 960, 16
PLOT_LEFT, PLOT_HEIGHT = 60, 260  # of bulk: what is left of the bars, and the height of the highest
ROW, ROW_LEFT = 24, 300  # of horizontal bars: height, and what is left of them
LEGEND_COLUMNS = 3
# A class of each colour, for light and for dark: references grey, uroce blue over UDP, orange over AF_XDP, green over DPDK.
COLOURS = {
    "r0": ("#30343b", "#f0f3f6"), "r1": ("#565c65", "#c3c9d1"), "r2": ("#7d838c", "#979ea8"),
    "r3": ("#a3a9b2", "#717883"), "r4": ("#c8ccd2", "#525964"), "r5": ("#dcdfe4", "#3d434c"),
    "udp0": ("#08519c", "#1f6feb"), "udp1": ("#3182bd", "#58a6ff"), "udp2": ("#6baed6", "#8cc4ff"), "udp3": ("#a6cee8", "#c0e0ff"),
    "af_xdp0": ("#a63603", "#d9640f"), "af_xdp1": ("#e6550d", "#f0883e"), "af_xdp2": ("#fd8d3c", "#ffab70"),
    "af_xdp3": ("#fdc38d", "#ffd3b0"),
    "dpdk0": ("#116329", "#238636"), "dpdk1": ("#2da44e", "#3fb950"), "dpdk2": ("#6fdd8b", "#7ee787"),
    "dpdk3": ("#aceebb", "#b4f1c4"),
}  # fmt: skip
INK, PALE, GRID, PAPER = ("#1f2328", "#e6edf3"), ("#57606a", "#9ea7b3"), ("#d0d7de", "#30363d"), ("#ffffff", "#0d1117")
Row = tuple[str, Measurement, str]  # label, what was measured, colour


@dataclasses.dataclass
class Panel:
    """A part of the picture: what is drawn with the panel's upper edge at 0."""
    height: float
    elements: list[str]


def draw(title: str, results: Results, file: Path, chosen: list[str] | None = None) -> None:
    """`chosen` are names of PANELS; all of which there are figures if it is None."""
    panels = [panel for name in chosen or PANELS if (panel := PANELS[name](results)).elements]
    if not panels:
        raise SystemExit("limits: nothing was measured that could be drawn")
    lines = title.split("\n")
    height, body = 26.0 + 18 * len(lines), [text(MARGIN, 28 + 18 * i, words, "pale") for i, words in enumerate(lines)]
    for panel in panels:
        body += [f'<g transform="translate(0 {number(height)})">', *panel.elements, "</g>"]
        height += panel.height
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {number(height)}" font-family="sans-serif" font-size="13">',
            f"<title>{escape(' '.join(lines))}</title>", *style(), f'<rect class="paper" width="{WIDTH}" height="{number(height)}"/>']  # fmt: skip
    file.write_text("\n".join([*head, *body, "</svg>", ""]))


def style() -> list[str]:
    def rules(theme: int) -> str:
        painted = {name: colours for name, colours in {**COLOURS, "paper": PAPER, "ink": INK, "pale": PALE}.items()}
        return "".join(f".{name}{{fill:{colours[theme]}}}" for name, colours in painted.items()) + \
            f".grid{{stroke:{GRID[theme]}}}.spread{{stroke:{PALE[theme]}}}"

    return ["<style>", rules(0), "@media (prefers-color-scheme: dark){", rules(1) + "}", "</style>"]


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, kind: str = "ink", anchor: str = "start", size: int = 13, bold: bool = False) -> str:
    more = ("" if anchor == "start" else f' text-anchor="{anchor}"') + ("" if size == 13 else f' font-size="{size}"') + \
        (' font-weight="bold"' if bold else "")
    return f'<text class="{kind}" x="{number(x)}" y="{number(y)}"{more}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect class="{colour}" x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"/>'


def line(kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path class="{kind}" d="M{number(x)} {number(y)}L{number(to_x)} {number(to_y)}"/>'


def ticks(highest: float) -> list[float]:
    """Round numbers from 0 to above `highest`, four to nine of them."""
    power = 10 ** math.floor(math.log10(highest))
    step = next(power * factor for factor in (0.2, 0.5, 1, 2) if highest / (power * factor) <= 7)
    return [step * i for i in range(math.ceil(highest / step) + 1)]


def bulk_bars(results: Results, cores: int) -> list[tuple[str, str, str]]:
    """Name of the measurement, label, colour; of uroce the longest messages."""
    size = "1 MiB" if any("1 MiB" in key.name for key in results if key.group == "bulk") else "64 KiB"
    bars = [(RUNS, "raw runs of datagrams (UDP_SEGMENT)", "r0"), ("raw runs, gathered", "raw runs, gathered from 3 places", "r1"),
            (SUMMED, "raw runs, copied and summed", "r2"), (ACKNOWLEDGED, "the same, acknowledged", "r3"),
            (IPERF, "TCP: iperf3, one stream", "r4"), (UCX_TCP, "TCP: UCX, put 1 MiB", "r5")]  # fmt: skip
    for io, plane in PLANES.items():
        bars += [(f"{test} {size} {io}", f"{test} {size}, {plane}", f"{io}{shade}") for shade, test in enumerate(TESTS)]
        bars.append((f"UCX {io}", f"UCX over rc_verbs, put 1 MiB, {plane}", f"{io}3"))
    measured = {key.name for key, m in results.items() if key.group == "bulk" and key.cores == cores and m.samples}
    return [bar for bar in bars if bar[0] in measured]


def bulk_panel(results: Results, cores: int) -> Panel:
    """Bars in groups by path MTU, with what each repetition gave as a line from the lowest to the highest."""
    bars = bulk_bars(results, cores)
    found = {key: m for key, m in results.items() if key.group == "bulk" and key.cores == cores and m.samples}
    path_mtus = sorted({key.path_mtu for key in found})
    if not bars or not path_mtus:
        return Panel(0, [])
    scale = ticks(1.05 * max(max(m.values("gbps")) for key, m in found.items() if key.name in {bar[0] for bar in bars}))
    top = 56.0
    bottom = top + PLOT_HEIGHT
    y = lambda gbps: bottom - PLOT_HEIGHT * gbps / scale[-1]
    place = "a CPU per side" if cores == 2 else "both sides on one CPU"
    out = [text(MARGIN, 16, f"Bulk, {place}: median, lowest and highest; larger is better", bold=True),
           text(MARGIN, 42, "Gb/s of payload", "pale", size=12)]  # fmt: skip
    for tick in scale:
        out += [line("grid", PLOT_LEFT, y(tick), WIDTH - MARGIN, y(tick)),
                text(PLOT_LEFT - 8, y(tick) + 4, f"{tick:g}", "pale", "end", 12)]  # fmt: skip
    group_width = (WIDTH - MARGIN - PLOT_LEFT) / len(path_mtus)
    width = min(0.92 * group_width / len(bars), 60)
    for group, path_mtu in enumerate(path_mtus):
        middle = PLOT_LEFT + (group + 0.5) * group_width
        out.append(text(middle, bottom + 20, f"path MTU {path_mtu}", anchor="middle"))
        for position, (name, _, colour) in enumerate(bars):
            m = found.get(Key("bulk", name, path_mtu, cores))
            if m:
                x = middle + (position - len(bars) / 2) * width
                out += bar(x, width, m.values("gbps"), m.median("gbps"), y, bottom, colour)
    out.append(line("spread", PLOT_LEFT, bottom, WIDTH - MARGIN, bottom))
    per_column = math.ceil(len(bars) / LEGEND_COLUMNS)
    for position, (_, label, colour) in enumerate(bars):
        x = PLOT_LEFT + position // per_column * (WIDTH - MARGIN - PLOT_LEFT) / LEGEND_COLUMNS
        at = bottom + 48 + position % per_column * 20
        out += [box(x, at - 10, 12, 12, colour), text(x + 18, at, label, size=12)]
    return Panel(bottom + 48 + per_column * 20 + 16, out)


def bar(x: float, width: float, values: list[float], median: float, y, bottom: float, colour: str) -> list[str]:
    out = [box(x + 1, y(median), width - 2, bottom - y(median), colour)]
    if min(values) < max(values):
        out.append(line("spread", x + width / 2, y(min(values)), x + width / 2, y(max(values))))
    words = f"{median:.0f}" if median >= 9.95 else f"{median:.1f}"  # a bar is no broader
    return [*out, text(x + width / 2, y(max(values)) - 4, words, anchor="middle", size=11)]


def rows_panel(heading: str, unit: str, rows: list[Row], figure: str) -> Panel:
    """Horizontal bars, the first on top."""
    if not rows:
        return Panel(0, [])
    scale = ticks(max(max(m.values(figure)) for _, m, _ in rows))
    top, right = 32.0, WIDTH - MARGIN - 60
    bottom = top + ROW * len(rows)
    x = lambda value: ROW_LEFT + (right - ROW_LEFT) * value / scale[-1]
    out = [text(MARGIN, 16, heading, bold=True)]
    for tick in scale:
        out += [line("grid", x(tick), top, x(tick), bottom), text(x(tick), bottom + 18, f"{tick:g}", "pale", "middle", 12)]
    for position, (label, m, colour) in enumerate(rows):
        values, median, at = m.values(figure), m.median(figure), top + ROW * position
        out += [text(ROW_LEFT - 8, at + 16, label, anchor="end"), box(ROW_LEFT, at + 3, x(median) - ROW_LEFT, ROW - 6, colour)]
        if min(values) < max(values):
            out.append(line("spread", x(min(values)), at + ROW / 2, x(max(values)), at + ROW / 2))
        out.append(text(x(max(values)) + 6, at + 16, f"{median:.2f}" if median < 10 else f"{median:.1f}" if median < 1000 else f"{median:.0f}", size=12))
    out += [line("spread", ROW_LEFT, top, ROW_LEFT, bottom), text((ROW_LEFT + right) / 2, bottom + 36, unit, "pale", "middle", 12)]
    return Panel(bottom + 60, out)


def chosen_rows(results: Results, group: str, figure: str, names: dict[str, str]) -> list[Row]:
    """Of those that were measured, with a CPU per side; `names` maps them to their labels."""
    found = {key.name: m for key, m in results.items() if key.group == group and key.cores == 2 and m.values(figure)}
    colour = lambda name: next((f"{io}1" for io in PLANES if name.endswith(f" {io}")), "r2")
    return [(label, found[name], colour(name)) for name, label in names.items() if name in found]


def latency_panel(results: Results) -> Panel:
    names = {
        "raw send": "raw AF_XDP", "raw send 2": "raw AF_XDP, two frames each way",
        "udp busy": "kernel UDP, spinning", "udp busy 2": "kernel UDP, spinning, two each way",
        "udp busy run": "the same as one run", "tcp busy": "kernel TCP, spinning",
        UCX_TCP: "UCX over TCP",
    }  # fmt: skip
    for io, plane in PLANES.items():
        names |= {f"ib_send_lat {io}": f"ib_send_lat, {plane}", f"UCX {io}": f"UCX over rc_verbs, {plane}"}
    return rows_panel("Latency of 2 bytes: median, lowest and highest; smaller is better", "us, half a round trip",
                      chosen_rows(results, "latency", "us", names), "us")


def message_panel(results: Results) -> Panel:
    names = {"runs WRITE": "raw runs of 64 datagrams", "udp WRITE": "kernel UDP, sendmmsg", "raw AF_XDP": "raw AF_XDP"}
    for io, plane in PLANES.items():
        names |= {f"ib_write_bw {qps} {io}": f"ib_write_bw, QPs: {qps}, {plane}" for qps in (1, 16)}
    return rows_panel("Messages of 8 bytes, in lists of 32: median, lowest and highest; larger is better", "million per second",
                      chosen_rows(results, "messages", "mpps", names), "mpps")


def beside_panel(results: Results) -> Panel:
    names = {f"{what} {io}": f"{what}, {plane}" for io, plane in PLANES.items() for what in BESIDE}
    return rows_panel("99th percentile of the latency of a QP; smaller is better", "us, half a round trip",
                      chosen_rows(results, "beside", "p99 us", names), "p99 us")


PANELS = {
    "bulk": lambda results: bulk_panel(results, 2), "bulk on one CPU": lambda results: bulk_panel(results, 1),
    "latency": latency_panel, "messages": message_panel, "beside": beside_panel,
}  # fmt: skip
