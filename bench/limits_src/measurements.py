"""What bench/limits measures: each measurement runs a pair of processes on a Rig and returns its figures by name."""

import dataclasses
import os
import re
import resource
import statistics
import subprocess
import time
from pathlib import Path
from typing import Callable

from rig import (CLIENT_CPU, PROCESS_TIMEOUT_S, SERVER_ADDRESS, SERVER_CPU, MeasurementFailed, Rig, finish,
                 is_listening, last_json)

PERFTEST_PORT = 18515
QUIET_SHARE = 0.05  # of one CPU: what others may use during a repetition that counts as undisturbed
MOVED = 1.5  # the host has moved the CPUs when a cache line's hand-over changes by this factor
ATTEMPTS = 3  # per repetition, to find an undisturbed one
# A netdev MTU that just carries a RoCE v2 packet of the path MTU, over IPv6 and with every extension header.
NETDEV_MTU = {256: 1500, 512: 1500, 1024: 1500, 2048: 2300, 4096: 4300}

BTH, RETH, AETH, ICRC = 12, 16, 4, 4


def roce_frame(payload: int, extension: int = 0) -> int:
    """Length of the Ethernet frame of a RoCE v2 packet over IPv4, without FCS."""
    return 14 + 20 + 8 + BTH + extension + payload + -payload % 4 + ICRC


SEND_2 = roce_frame(2)
WRITE_2 = roce_frame(2, RETH)
READ_REQUEST = roce_frame(0, RETH)
READ_RESPONSE_2 = roce_frame(2, AETH)


def raw_latency(rig: Rig, request: int, reply: int, iterations: int, trips: int, turn: int = 1) -> dict:
    server = rig.start_tool("xsk_bench", True, "pong", "--bytes", reply, "--turn", turn)
    client = rig.start_tool("xsk_bench", False, "ping", "--bytes", request, "--iterations", iterations, "--turn", turn)
    _, ping = rig.run_pair(server, client, client)
    if ping["samples"] < iterations * 0.99:
        raise MeasurementFailed(f"raw ping-pong lost {ping['lost']} frames")
    return {"us": ping["median_us"] / trips}


def raw_blast(rig: Rig, frame: int, payload: int, seconds: float) -> dict:
    server = rig.start_tool("xsk_bench", True, "sink", "--bytes", frame, "--payload", payload, "--seconds", seconds)
    client = rig.start_tool("xsk_bench", False, "blast", "--bytes", frame)
    sink, _ = rig.run_pair(server, client, server)
    return {"gbps": sink["gbps"], "mpps": sink["mpps"]}


def raw_kick(rig: Rig, iterations: int) -> dict:
    server = rig.start_tool("xsk_bench", True, "arrivals")
    client = rig.start_tool("xsk_bench", False, "kick", "--bytes", 64, "--iterations", iterations)
    arrivals, kick = rig.run_pair(server, client, client)
    figures = {f"call {burst['descriptors']}": burst["median_us"] for burst in kick["bursts"]}
    for frame in arrivals["frames"]:
        figures[f"arrival {frame['descriptors']} {frame['index']}"] = frame["median_us"]
    return figures


def socket_latency(rig: Rig, iterations: int, *options: str) -> dict:
    server = rig.start_tool("socket_bench", True, "pong", *options)
    client = rig.start_tool("socket_bench", False, "ping", "--peer", SERVER_ADDRESS, "--iterations", iterations,
                            *options)
    _, ping = rig.run_pair(server, client, client)
    if ping["samples"] < iterations:
        raise MeasurementFailed("socket ping-pong broke off")
    return {"us": ping["median_us"] / 2}


def socket_bulk(rig: Rig, seconds: float, *options: object) -> dict:
    server = rig.start_tool("socket_bench", True, "sink", "--seconds", seconds, *options)
    client = rig.start_tool("socket_bench", False, "blast", "--peer", SERVER_ADDRESS, *options)
    sink, _ = rig.run_pair(server, client, server)
    return {"gbps": sink["gbps"]} | ({"mpps": sink["mpps"]} if sink["mpps"] else {})


def perftest(rig: Rig, uroce: Path, io: str, test: str, *options: object) -> list[float]:
    """Runs a perftest program on both sides over uroce; returns the numbers of the client's row of results."""

    def start(namespace: str, cpu: int, netdev: str, *tail: str) -> subprocess.Popen:
        return rig.start(namespace, ["taskset", "-c", str(cpu), str(uroce), "run", "--io", io, "--", test, "-F", "-d",
                                     f"uroce_{netdev}", "-x", "0", *map(str, options), *tail])

    server = start(rig.server_ns, SERVER_CPU, rig.server_dev)
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while server.poll() is None and not is_listening(server.pid, PERFTEST_PORT):
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"{test}: the server does not listen")
        time.sleep(0.02)
    if server.poll() is not None:
        raise MeasurementFailed(f"{test} server: {finish(server).strip() or f'exit {server.returncode}'}")
    client = start(rig.client_ns, CLIENT_CPU, rig.client_dev, SERVER_ADDRESS)
    output = finish(client)
    finish(server)
    rig.processes.clear()
    rows = re.findall(r"^[ \t]*\d+[ \t]+\d+(?:[ \t]+[\d.]+)+[ \t]*$", output, re.MULTILINE)
    if len(rows) != 1:
        raise MeasurementFailed(f"{test}: no row of results in: {output.strip()[-300:]}")
    return [float(number) for number in rows[0].split()]


def perftest_latency(rig: Rig, uroce: Path, io: str, test: str, iterations: int) -> dict:
    # bytes, iterations, t_min, t_max, t_typical, ...; for READ the whole round trip, else half of it.
    return {"us": perftest(rig, uroce, io, test, "-s", 2, "-n", iterations)[4]}


def perftest_bandwidth(rig: Rig, uroce: Path, io: str, test: str, path_mtu: int, iterations: int) -> dict:
    # bytes, iterations, peak, average in Gb/s, messages in Mpps
    row = perftest(rig, uroce, io, test, "-s", 65536, "-m", path_mtu, "-n", iterations, "--report_gbits")
    return {"gbps": row[3], "mpps": row[4] * 65536 / path_mtu}


@dataclasses.dataclass
class Measurement:
    key: str
    kind: str  # latency, bulk or kick: where it is printed
    label: str
    netdev_mtu: int
    run: Callable[[Rig], dict]
    samples: list[dict] = dataclasses.field(default_factory=list)
    failure: str = ""

    @property
    def disturbed(self) -> int:
        """Repetitions for which no quiet moment was found."""
        return sum(sample["disturbed"] for sample in self.samples)

    def figures(self) -> list[str]:
        return list(dict.fromkeys(name for sample in self.samples for name in sample))

    def values(self, figure: str) -> list[float]:
        """Of the undisturbed repetitions, or of all if there was none."""
        good = [sample for sample in self.samples if not sample["disturbed"]] or self.samples
        return [sample[figure] for sample in good if figure in sample]

    def median(self, figure: str) -> float:
        return statistics.median(self.values(figure))

    def repeat(self, rig: Rig) -> None:
        if self.failure:
            return
        try:
            best = None
            for _ in range(ATTEMPTS):
                rig.set_mtu(self.netdev_mtu)
                before = hand_over_ns(rig)
                share, sample = with_foreign_share(lambda: self.run(rig))
                after = hand_over_ns(rig)
                moved = max(before, after) > MOVED * min(before, after)
                sample["hand_over_ns"] = (before + after) / 2
                if best is None or (moved, share) < best[:2]:
                    best = (moved, share, sample)
                if not moved and share <= QUIET_SHARE:
                    break
            moved, share, sample = best
            sample["disturbed"] = moved or share > QUIET_SHARE
            self.samples.append(sample)
        except MeasurementFailed as failure:
            self.failure = str(failure)
            rig.end_processes()


def hand_over_ns(rig: Rig) -> float:
    """Time of a cache line between the two CPUs: it tells where the host has put them."""
    process = subprocess.Popen([str(rig.tools / "cache_line"), str(CLIENT_CPU), str(SERVER_CPU)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    rig.processes.append(process)
    output = finish(process)
    rig.processes.remove(process)
    return last_json(output)["hand_over_ns"]


def with_foreign_share(work: Callable[[], dict]) -> tuple[float, dict]:
    """Runs `work` and tells how much of a CPU others used meanwhile: a latency taken beside a compiler is none."""

    def used() -> tuple[float, float]:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        user, nice, system, _, _, irq, softirq = map(int, fields[1:8])
        ours = sum(usage.ru_utime + usage.ru_stime
                   for usage in map(resource.getrusage, (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)))
        return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"), ours

    start, (all_before, ours_before) = time.monotonic(), used()
    result = work()
    all_after, ours_after = used()
    foreign = (all_after - all_before) - (ours_after - ours_before)
    return foreign / (time.monotonic() - start), result


def reference_measurements(path_mtus: list[int], quick: bool) -> list[Measurement]:
    iterations = 20_000 if quick else 100_000
    seconds = 0.3 if quick else 1.0
    mtu = NETDEV_MTU[path_mtus[0]]

    def raw(key: str, label: str, request: int, reply: int, trips: int, turn: int = 1) -> Measurement:
        return Measurement(key, "latency", label, mtu,
                           lambda rig: raw_latency(rig, request, reply, iterations, trips, turn))

    def sockets(key: str, label: str, *options: str) -> Measurement:
        return Measurement(key, "latency", label, mtu, lambda rig: socket_latency(rig, iterations // 2, *options))

    measurements = [
        raw("raw send", f"raw AF_XDP, {SEND_2} B frames (SEND 2 B)", SEND_2, SEND_2, 2),
        raw("raw send 2", "raw AF_XDP, two of these each way (SEND 2 B and an ACK)", SEND_2, SEND_2, 2, 2),
        raw("raw write", f"raw AF_XDP, {WRITE_2} B frames (WRITE 2 B)", WRITE_2, WRITE_2, 2),
        raw("raw read", f"raw AF_XDP, {READ_REQUEST} B out, {READ_RESPONSE_2} B back (READ 2 B), whole round trip",
            READ_REQUEST, READ_RESPONSE_2, 1),
        sockets("udp busy", "kernel UDP 2 B, spinning", "--busy"),
        sockets("udp blocking", "kernel UDP 2 B, blocking"),
        sockets("tcp busy", "kernel TCP_NODELAY 2 B, spinning", "--tcp", "--busy"),
        sockets("tcp blocking", "kernel TCP_NODELAY 2 B, blocking", "--tcp"),
        Measurement("blast 64", "bulk", "raw AF_XDP one-way, 64 B frames", mtu,
                    lambda rig: raw_blast(rig, 64, 0, seconds)),
    ]
    for path_mtu in path_mtus:
        frame, datagram = roce_frame(path_mtu), path_mtu + BTH + ICRC
        segments = min(64, 65507 // datagram)
        udp = ["--bytes", datagram, "--payload", path_mtu]

        def bulk(key: str, label: str, run: Callable[[Rig], dict], at: int = path_mtu) -> Measurement:
            return Measurement(f"{key} {at}", "bulk", f"{label}, path MTU {at}", NETDEV_MTU[at], run)

        measurements += [
            bulk("blast", f"raw AF_XDP one-way, {frame} B frames",
                 lambda rig, f=frame, p=path_mtu: raw_blast(rig, f, p, seconds)),
            bulk("udp", f"kernel UDP {datagram} B, sendmmsg", lambda rig, o=udp: socket_bulk(rig, seconds, *o)),
            bulk("udp gso", f"kernel UDP {datagram} B, {segments} per UDP_SEGMENT call",
                 lambda rig, o=udp, s=segments: socket_bulk(rig, seconds, *o, "--segments", s)),
            bulk("tcp", "kernel TCP, 64 KiB per send()",
                 lambda rig: socket_bulk(rig, seconds, "--tcp", "--bytes", 65536)),
        ]
    measurements.append(Measurement("kick", "kick", "sendto() on the TX ring, 64 B frames", mtu,
                                    lambda rig: raw_kick(rig, 1000 if quick else 5000)))
    return measurements


def uroce_measurements(uroce: Path, io: str, path_mtus: list[int], quick: bool) -> list[Measurement]:
    iterations = 5_000 if quick else 30_000
    messages = 1_000 if quick else 5_000
    measurements = []
    for test in ("ib_send_lat", "ib_write_lat", "ib_read_lat"):
        label = f"{test} 2 B, uroce {io}" + (", whole round trip" if test == "ib_read_lat" else "")
        measurements.append(Measurement(f"{test} {io}", "latency", label, NETDEV_MTU[path_mtus[0]],
                                        lambda rig, t=test: perftest_latency(rig, uroce, io, t, iterations)))
    for path_mtu in path_mtus:
        for test in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            measurements.append(Measurement(
                f"{test} {path_mtu} {io}", "bulk", f"{test} 64 KiB, uroce {io}, path MTU {path_mtu}",
                NETDEV_MTU[path_mtu],
                lambda rig, t=test, m=path_mtu: perftest_bandwidth(rig, uroce, io, t, m, messages)))
    return measurements
