# SPDX-License-Identifier: BSD-2-Clause
"""The groups of measurements of bench/limits, and the ratios that each is about."""

import dataclasses
from pathlib import Path

from measurement import Key, Measurement, MessageCount
from over_uroce import Plane
from references import (AETH, MOST_SEGMENTS, RETH, Ucx, iperf3, raw_blast, raw_kick, raw_latency, roce_frame,
                        segments_of, socket_bulk, socket_latency, socket_latency_as_uroce, testpmd_blast, testpmd_latency, udp_payload)

SIZES = {"64 KiB": 65536, "1 MiB": 1 << 20}
TESTS = ("ib_write_bw", "ib_read_bw", "ib_send_bw")
# Names that ratios need.
RUNS, SUMMED, IPERF, UCX_TCP = "raw runs, contiguous", "raw runs, summed", "iperf3", "UCX tcp"
ACKNOWLEDGED = "raw runs, summed, acknowledged"
ACK_EVERY = 32  # packets
TESTPMD, TESTPMD_2 = "testpmd", "testpmd 2"
BESIDE = {"alone": 0, "beside WRITEs of 64 KiB": SIZES["64 KiB"]}


@dataclasses.dataclass
class Settings:
    path_mtus: list[int]
    cores: list[int]
    planes: list[str]  # uroce's packet I/O
    uroce: Path
    quick: bool = False
    ipv6: bool = False

    @property
    def seconds(self) -> float:
        return 0.3 if self.quick else 1.0

    @property
    def iterations(self) -> int:
        return 20_000 if self.quick else 100_000

    def all_planes(self) -> list[Plane]:
        return [Plane(self.uroce, io) for io in self.planes]


@dataclasses.dataclass
class Ratio:
    """Of medians taken in the same run."""
    label: str
    numerator: Key
    denominator: Key
    figure: str
    target: str = ""  # of the project


Group = tuple[list[Measurement], list[Ratio]]


def latency(settings: Settings) -> Group:
    mtu, iterations = settings.path_mtus[0], settings.iterations
    send_2, write_2 = roce_frame(2), roce_frame(2, RETH)
    read_request, read_response = roce_frame(0, RETH), roce_frame(2, AETH)
    datagram = udp_payload(2)

    def row(name: str, label: str, run, program: str = "") -> Measurement:
        return Measurement(name, "latency", label, mtu, run, program=program)

    def raw(name: str, label: str, request: int, reply: int, trips: int, turn: int = 1) -> Measurement:
        return row(name, label, lambda rig: raw_latency(rig, request, reply, iterations, trips, turn))

    def sockets(name: str, label: str, *options: object) -> Measurement:
        return row(name, label, lambda rig: socket_latency(rig, iterations // 2, *options))

    rows = [
        raw("raw send", f"raw AF_XDP, {send_2} B frames (SEND 2 B)", send_2, send_2, 2),
        raw("raw send 2", "raw AF_XDP, two of these each way (SEND 2 B and an ACK)", send_2, send_2, 2, 2),
        raw("raw write", f"raw AF_XDP, {write_2} B frames (WRITE 2 B)", write_2, write_2, 2),
        raw("raw read", f"raw AF_XDP, {read_request} B out, {read_response} B back (READ 2 B), whole round trip",
            read_request, read_response, 1),
        sockets("udp busy", "kernel UDP 2 B, spinning", "--busy"),
        sockets("udp busy 2", f"kernel UDP {datagram} B, spinning, two each way (SEND 2 B and an ACK)",
                "--busy", "--bytes", datagram, "--turn", 2),
        sockets("udp busy run", f"kernel UDP {datagram} B, spinning, two each way as one run (SEND 2 B and an ACK)",
                "--busy", "--bytes", datagram, "--turn", 2, "--run"),
        row("udp as uroce", "the same as uroce has them: not connected, with addresses, TOS and TTL each way",
            lambda rig: socket_latency_as_uroce(rig, iterations // 2, datagram, 2)),
        sockets("udp blocking", "kernel UDP 2 B, blocking"),
        sockets("tcp busy", "kernel TCP_NODELAY 2 B, spinning", "--tcp", "--busy"),
        sockets("tcp blocking", "kernel TCP_NODELAY 2 B, blocking", "--tcp"),
        row(UCX_TCP, "UCX over TCP, tag 2 B", lambda rig: Ucx().latency(rig, iterations // 2), "ucx_perftest"),
    ]
    if "dpdk" in settings.planes:
        rows.append(row(TESTPMD, f"testpmd, one frame of {send_2} B there and back (SEND 2 B)",
                        lambda rig: testpmd_latency(rig, send_2, 1), "dpdk-testpmd"))
        rows.append(row(TESTPMD_2, "testpmd, two of these (SEND 2 B and an ACK)",
                        lambda rig: testpmd_latency(rig, send_2, 2), "dpdk-testpmd"))
    all_ratios = []
    for plane in settings.all_planes():
        for name, options, what in (("ib_send_lat", (), ""), ("ib_send_lat UC", ("-c", "UC"), ", nothing acknowledged"),
                                    ("ib_write_lat", (), ""), ("ib_read_lat", (), ", whole round trip")):
            program = name.split()[0]
            rows.append(row(f"{name} {plane.io}", f"{name} 2 B, uroce {plane.io}{what}",
                            lambda rig, p=plane, t=program, o=options: p.latency(rig, t, iterations // 4, *o), program))
        rows.append(row(f"UCX {plane.io}", f"UCX over rc_verbs, tag 2 B, uroce {plane.io}",
                        lambda rig, p=plane: p.ucx(mtu).latency(rig, iterations // 4), "ucx_perftest"))

        def ratio(label: str, numerator: str, denominator: str, target: str = "", io: str = plane.io) -> Ratio:
            return Ratio(f"{label}, {io}", Key("latency", f"{numerator} {io}", mtu), Key("latency", denominator, mtu),
                         "us", target)

        own = {"af_xdp": [
            ratio("ib_send_lat 2 B / raw AF_XDP ping-pong", "ib_send_lat", "raw send", "<= 1.6"),
            ratio("ib_send_lat 2 B / raw AF_XDP, two frames each way", "ib_send_lat", "raw send 2"),
            ratio("ib_write_lat 2 B / raw AF_XDP ping-pong", "ib_write_lat", "raw write"),
            ratio("ib_read_lat 2 B / raw AF_XDP round trip", "ib_read_lat", "raw read", "<= 1.3"),
            ratio("ib_send_lat 2 B / kernel UDP spinning", "ib_send_lat", "udp busy"),
        ], "udp": [
            ratio("ib_send_lat 2 B / kernel UDP spinning", "ib_send_lat", "udp busy", "<= 1.5"),
            ratio("ib_send_lat 2 B / kernel UDP, two each way", "ib_send_lat", "udp busy 2"),
            ratio("ib_send_lat 2 B / kernel UDP, one run of two each way", "ib_send_lat", "udp busy run"),
            ratio("ib_send_lat 2 B / the same as uroce has them", "ib_send_lat", "udp as uroce"),
        ], "dpdk": [
            ratio("ib_send_lat 2 B / testpmd ping-pong", "ib_send_lat", TESTPMD, "<= 1.5"),
            ratio("ib_send_lat 2 B / testpmd, two frames each way", "ib_send_lat", TESTPMD_2),
            ratio("ib_send_lat UC 2 B / testpmd ping-pong", "ib_send_lat UC", TESTPMD, "<= 1.5"),
            ratio("ib_write_lat 2 B / testpmd ping-pong", "ib_write_lat", TESTPMD),
        ]}[plane.io]
        all_ratios += [
            *own,
            ratio("ib_send_lat 2 B / kernel TCP spinning", "ib_send_lat", "tcp busy"),
            ratio("ib_send_lat 2 B / UCX over TCP", "ib_send_lat", UCX_TCP, "<= 0.8" if plane.io == "udp" else ""),
            ratio("UCX tag 2 B over rc_verbs / over TCP", "UCX", UCX_TCP),
        ]
    return rows, all_ratios


def bulk(settings: Settings) -> Group:
    parts = [bulk_at(settings, path_mtu, cores) for cores in settings.cores for path_mtu in settings.path_mtus]
    return [row for rows, _ in parts for row in rows], [ratio for _, ratios in parts for ratio in ratios]


def bulk_at(settings: Settings, path_mtu: int, cores: int) -> Group:
    """References and uroce next to each other, so that a change of the machine meets both."""
    seconds, frame, datagram = settings.seconds, roce_frame(path_mtu), udp_payload(path_mtu)
    udp = ["--bytes", datagram, "--payload", path_mtu]
    runs = [*udp, "--segments", segments_of(datagram)]
    sizes = list(SIZES)[:1] if settings.quick else list(SIZES)

    def row(name: str, label: str, run, program: str = "") -> Measurement:
        return Measurement(name, "bulk", label, path_mtu, run, cores, program=program)

    def sockets(name: str, label: str, *options: object) -> Measurement:
        return row(name, label, lambda rig: socket_bulk(rig, seconds, *options))

    def count(size: int) -> MessageCount:
        return MessageCount(size, seconds)

    rows = [
        row("raw AF_XDP", "raw AF_XDP, a frame per packet", lambda rig: raw_blast(rig, frame, path_mtu, seconds)),
        sockets("udp", "kernel UDP, a datagram per packet, sendmmsg", *udp),
        sockets(RUNS, "raw runs (UDP_SEGMENT, UDP_GRO), contiguous", *runs),
        sockets("raw runs, gathered", "raw runs, gathered: 3 iovecs per packet", *runs, "--gather"),
        sockets(SUMMED, "raw runs, copied and summed at both ends", *runs, "--sum"),
        sockets(ACKNOWLEDGED, f"the same with a window of 264 packets, an answer to every {ACK_EVERY}",
                *runs, "--sum", "--acknowledge", ACK_EVERY),
        *([sockets("raw runs, IPv6", "raw runs over IPv6, contiguous", *runs, "--ipv6")] if settings.ipv6 else []),
        sockets("tcp", "kernel TCP, 64 KiB per send()", "--tcp", "--bytes", 65536),
        row(IPERF, "iperf3, TCP, 1 stream", iperf3, "iperf3"),
        row(UCX_TCP, "UCX over TCP, put 1 MiB",
            lambda rig, c=count(SIZES["1 MiB"]): Ucx().bandwidth(rig, c), "ucx_perftest"),
    ]
    if "dpdk" in settings.planes:
        rows.append(row(TESTPMD, "testpmd on net_af_packet, sends only and receives only, a frame per packet",
                        lambda rig: testpmd_blast(rig, frame, path_mtu), "dpdk-testpmd"))
    all_ratios = []

    def ratio(label: str, numerator: str, denominator: str, target: str) -> None:
        all_ratios.append(Ratio(label, Key("bulk", numerator, path_mtu, cores),
                                Key("bulk", denominator, path_mtu, cores), "gbps", target if cores == 2 else ""))

    for plane in settings.all_planes():
        io = plane.io
        for size in sizes:
            for test in TESTS:
                name = f"{test} {size} {io}"
                rows.append(row(
                    name, f"{test} {size}, uroce {io}",
                    lambda rig, p=plane, t=test, c=count(SIZES[size]): p.bandwidth(rig, t, path_mtu, c), test))
                ratio(f"{test} {size}, {io} / raw runs, contiguous", name, RUNS, ">= 0.7" if io == "udp" else "")
                ratio(f"{test} {size}, {io} / raw runs, summed", name, SUMMED, "")
                ratio(f"{test} {size}, {io} / raw runs, summed, acknowledged", name, ACKNOWLEDGED, "")
                ratio(f"{test} {size}, {io} / iperf3", name, IPERF, ">= 1.0" if io == "udp" else "")
                if io == "af_xdp":
                    ratio(f"{test} {size}, {io} / raw AF_XDP", name, "raw AF_XDP",
                          ">= 0.7" if (test, size, path_mtu) == ("ib_write_bw", "64 KiB", 1024) else "")
                if io == "dpdk":
                    ratio(f"{test} {size}, {io} / testpmd", name, TESTPMD, ">= 0.7" if path_mtu == 1024 else "")
        rows.append(row(
            f"UCX {io}", f"UCX over rc_verbs, put 1 MiB, uroce {io}",
            lambda rig, p=plane, c=count(SIZES["1 MiB"]): p.ucx(path_mtu).bandwidth(rig, c), "ucx_perftest"))
        ratio(f"UCX put 1 MiB over rc_verbs, {io} / over TCP", f"UCX {io}", UCX_TCP, ">= 2" if io == "udp" else "")
    return rows, all_ratios


def messages(settings: Settings) -> Group:
    mtu, seconds = settings.path_mtus[0], settings.seconds
    rows, all_ratios = [], []
    for cores in settings.cores:
        def row(name: str, label: str, run, program: str = "", target: str = "", on: int = cores) -> None:
            rows.append(Measurement(name, "messages", label, mtu, run, on, target if on == 2 else "", program))

        row("raw AF_XDP", "raw AF_XDP, 64 B frames", lambda rig: raw_blast(rig, 64, 0, seconds))
        for op, datagram in (("WRITE", udp_payload(8, RETH)), ("SEND", udp_payload(8))):
            packet = ["--bytes", datagram, "--payload", 8]
            row(f"udp {op}", f"kernel UDP {datagram} B ({op} 8 B), sendmmsg",
                lambda rig, o=packet: socket_bulk(rig, seconds, *o))
            row(f"runs {op}", f"raw runs of {MOST_SEGMENTS} x {datagram} B ({op} 8 B)",
                lambda rig, o=packet: socket_bulk(rig, seconds, *o, "--segments", MOST_SEGMENTS))
        for plane in settings.all_planes():
            for qps in (1, 16):
                name = f"ib_write_bw {qps} {plane.io}"
                row(name, f"ib_write_bw 8 B, lists of 32, QPs: {qps}, uroce {plane.io}",
                    lambda rig, p=plane, q=qps: p.messages(rig, q), "ib_write_bw", ">= 2" if plane.io == "udp" else "")
                all_ratios.append(Ratio(f"ib_write_bw 8 B, QPs: {qps}, {plane.io} / raw runs",
                                        Key("messages", name, mtu, cores), Key("messages", "runs WRITE", mtu, cores),
                                        "mpps"))
    return rows, all_ratios


def beside(settings: Settings) -> Group:
    mtu = settings.path_mtus[0]
    rows, all_ratios = [], []
    for plane in settings.all_planes():
        for what, size in BESIDE.items():
            rows.append(Measurement(f"{what} {plane.io}", "beside", f"SEND 2 B, a QP {what}, uroce {plane.io}", mtu,
                                    lambda rig, p=plane, s=size: p.beside(rig, mtu, s, 2 * settings.seconds)))
        all_ratios.append(Ratio(f"p99 beside the bulk QP / alone, {plane.io}", rows[-1].key, rows[-2].key, "p99 us",
                                "<= 5" if plane.io == "udp" else ""))
    return rows, all_ratios


def kick(settings: Settings) -> Group:
    return [Measurement("kick", "kick", "sendto() on the TX ring, 64 B frames", settings.path_mtus[0],
                        lambda rig: raw_kick(rig, 1000 if settings.quick else 5000))], []


GROUPS = {group.__name__: group for group in (latency, bulk, messages, beside, kick)}
