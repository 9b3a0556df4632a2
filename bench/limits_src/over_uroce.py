# SPDX-License-Identifier: BSD-2-Clause
"""What bench/limits measures over uroce: perftest, UCX, and verbs_bench for what perftest cannot do."""

import dataclasses
import re
from pathlib import Path

from measurement import MessageCount
from references import Ucx
from rig import SERVER_ADDRESS, MeasurementFailed, Rig

PERFTEST_PORT = 18515


@dataclasses.dataclass(frozen=True)
class Plane:
    """A packet I/O of uroce, by which programs run."""
    uroce: Path
    io: str

    @property
    def run(self) -> tuple[object, ...]:
        return (self.uroce, "run", "--io", self.io, "--")

    def ucx(self, path_mtu: int) -> Ucx:
        return Ucx(self.run, "rc_v,self", "uroce_{}:1", path_mtu)

    def perftest(self, rig: Rig, test: str, *options: object) -> list[float]:
        """Runs a perftest program on both sides; returns the numbers of the client's row of results."""
        server, client = ([*self.run, test, "-F", "-d", f"uroce_{side.netdev}", "-x", 0, *options]
                          for side in (rig.server, rig.client))
        output = rig.run_client(server, [*client, SERVER_ADDRESS], PERFTEST_PORT)
        rows = re.findall(r"^[ \t]*\d+[ \t]+\d+(?:[ \t]+[\d.]+)+[ \t]*$", output, re.MULTILINE)
        if len(rows) != 1:
            raise MeasurementFailed(f"{test}: no row of results in: {output.strip()[-300:]}")
        return [float(number) for number in rows[0].split()]

    def latency(self, rig: Rig, test: str, iterations: int, *options: object) -> dict:
        # bytes, iterations, t_min, t_max, t_typical, ...; for READ the whole round trip, else half of it.
        return {"us": self.perftest(rig, test, "-s", 2, "-n", iterations, *options)[4]}

    def bandwidth(self, rig: Rig, test: str, path_mtu: int, messages: MessageCount) -> dict:
        def send(count: int) -> float:
            # bytes, iterations, peak, average in Gb/s, messages in Mpps
            return self.perftest(rig, test, "-s", messages.size, "-m", path_mtu, "-n", count, "--report_gbits")[3]
        gbps = messages.measure(send)
        return {"gbps": gbps, "mpps": gbps * 1e3 / 8 / path_mtu}

    def messages(self, rig: Rig, qps: int) -> dict:
        row = self.perftest(rig, "ib_write_bw", "-s", 8, "-l", 32, "-q", qps, "-D", 1, "--report_gbits")
        return {"mpps": row[4]}

    def beside(self, rig: Rig, path_mtu: int, bulk: int, seconds: float) -> dict:
        """Half round trips of one QP while another one writes messages of `bulk` bytes; 0: none."""
        program = [*self.run, rig.tools / "verbs_bench", "--path-mtu", path_mtu, "--dev"]
        server, client = ([*program, f"uroce_{side.netdev}"] for side in (rig.server, rig.client))
        server, client = rig.start_pair([*server, "pong"], [*client, "--peer", SERVER_ADDRESS, "--seconds", seconds,
                                                            "--bulk", bulk, "ping"])
        _, ping = rig.run_pair(server, client, client)
        if ping["samples"] == 0:
            raise MeasurementFailed("not one answer came")
        return {"us": ping["median_us"] / 2, "p99 us": ping["p99_us"] / 2} | ({"gbps": ping["gbps"]} if bulk else {})
