# SPDX-License-Identifier: BSD-2-Clause
"""The file of bench/limits --json: what was measured where, a line for each measurement; and what of it is drawn."""

import json
from pathlib import Path

from groups import Ratio
from measurement import Measurement
from report import Results, by_placement, value_of


def read_results(file: Path) -> tuple[dict, list[Measurement]]:
    """About the run, and its measurements."""
    stored = json.loads(file.read_text())
    return stored["about"], [Measurement(run=None, **result) for result in stored["measurements"]]


def write_results(file: Path, about: dict, measurements: list[Measurement], ratios: list[Ratio]) -> None:
    of_parts = {title: [{"label": ratio.label, "path_mtu": ratio.numerator.path_mtu, "target": ratio.target,
                         "cores": ratio.numerator.cores, "ratio": value_of(ratio, part)} for ratio in ratios
                        if ratio.numerator in part] for title, part in by_placement(measurements)}  # fmt: skip

    def lines(values: list) -> str:
        return ",\n".join(f"  {json.dumps(value)}" for value in values)

    file.write_text(f'{{"about": {json.dumps(about)},\n "measurements": [\n{lines([m.as_json() for m in measurements])}],\n "ratios": {{\n' +
                    ",\n".join(f" {json.dumps(title)}: [\n{lines(rows)}]" for title, rows in of_parts.items()) + "}}\n")


def drawn(about: dict, measurements: list[Measurement]) -> tuple[str, Results]:
    """Title and content of a picture; of two placements of the CPUs the one with more samples."""
    parts = by_placement(measurements)
    when = f"{about['date']}, uroce {about['commit']}, " if about.get("commit") else ""
    return (f"{when}Linux {about['kernel']}, {about['cpus']} virtual CPUs, veth; repetitions: {about['repetitions']};\n{parts[0][0]}",
            {**parts[-1][1], **parts[0][1]})
