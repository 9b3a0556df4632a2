# SPDX-License-Identifier: BSD-2-Clause
"""What bench/limits measures without uroce: raw AF_XDP sockets, kernel sockets, testpmd, iperf3, and UCX over TCP."""

import json
import re
import statistics
import time

from measurement import MessageCount
from rig import CLIENT_ADDRESS, SERVER_ADDRESS, SERVER_IPV6, MeasurementFailed, Rig, Side, finish

IPERF_PORT, UCX_PORT = 5201, 13337

BTH, RETH, AETH, ICRC = 12, 16, 4, 4
LONGEST_SEND = 65493  # UDP payload of a run that leaves the sender whole: gso_max_size 65536, with all headers
MOST_SEGMENTS = 64  # of one send


def udp_payload(payload: int, extension: int = 0) -> int:
    """Of a RoCE v2 packet."""
    return BTH + extension + payload + -payload % 4 + ICRC


def roce_frame(payload: int, extension: int = 0) -> int:
    """Length of the Ethernet frame of a RoCE v2 packet over IPv4, without FCS."""
    return 14 + 20 + 8 + udp_payload(payload, extension)


def segments_of(datagram: int) -> int:
    return min(MOST_SEGMENTS, LONGEST_SEND // datagram)


# --- raw AF_XDP -------------------------------------------------------------------------------------------------------


def xsk_pair(rig: Rig, server: list[object], client: list[object]) -> tuple:
    tool = rig.tools / "xsk_bench"
    return rig.start_pair([tool, "--dev", rig.server.netdev, *server], [tool, "--dev", rig.client.netdev, *client])


def raw_latency(rig: Rig, request: int, reply: int, iterations: int, trips: int, turn: int = 1) -> dict:
    server, client = xsk_pair(rig, ["pong", "--bytes", reply, "--turn", turn],
                              ["ping", "--bytes", request, "--iterations", iterations, "--turn", turn])
    _, ping = rig.run_pair(server, client, client)
    if ping["samples"] < iterations * 0.99:
        raise MeasurementFailed(f"raw ping-pong lost {ping['lost']} frames")
    return {"us": ping["median_us"] / trips}


def raw_blast(rig: Rig, frame: int, payload: int, seconds: float) -> dict:
    server, client = xsk_pair(rig, ["sink", "--bytes", frame, "--payload", payload, "--seconds", seconds],
                              ["blast", "--bytes", frame])
    sink, _ = rig.run_pair(server, client, server)
    return {"gbps": sink["gbps"], "mpps": sink["mpps"]}


def raw_kick(rig: Rig, iterations: int) -> dict:
    server, client = xsk_pair(rig, ["arrivals"], ["kick", "--bytes", 64, "--iterations", iterations])
    arrivals, kick = rig.run_pair(server, client, client)
    figures = {f"call {burst['descriptors']}": burst["median_us"] for burst in kick["bursts"]}
    for frame in arrivals["frames"]:
        figures[f"arrival {frame['descriptors']} {frame['index']}"] = frame["median_us"]
    return figures


# --- kernel sockets ---------------------------------------------------------------------------------------------------


def socket_latency(rig: Rig, iterations: int, *options: object) -> dict:
    tool = rig.tools / "socket_bench"
    server, client = rig.start_pair([tool, "pong", *options],
                                    [tool, "ping", "--peer", SERVER_ADDRESS, "--iterations", iterations, *options])
    _, ping = rig.run_pair(server, client, client)
    if ping["samples"] < iterations:
        raise MeasurementFailed("socket ping-pong broke off")
    return {"us": ping["median_us"] / 2}


def socket_latency_as_uroce(rig: Rig, iterations: int, datagram: int, turn: int) -> dict:
    """With uroce's sockets and system calls, and nothing else of it."""
    def command(mode: str, side: Side, own: str, peer: str, *options: object) -> list[object]:
        return [rig.tools / "socket_bench", mode, "--as-uroce", side.netdev, "--local", own, "--peer", peer, "--bytes", datagram,
                "--turn", turn, *options]

    server, client = rig.start_pair(command("pong", rig.server, SERVER_ADDRESS, CLIENT_ADDRESS),
                                    command("ping", rig.client, CLIENT_ADDRESS, SERVER_ADDRESS, "--iterations", iterations))
    _, ping = rig.run_pair(server, client, client)
    if ping["samples"] < iterations:
        raise MeasurementFailed("socket ping-pong broke off")
    return {"us": ping["median_us"] / 2}


def socket_bulk(rig: Rig, seconds: float, *options: object) -> dict:
    tool = rig.tools / "socket_bench"
    peer = SERVER_IPV6 if "--ipv6" in options else SERVER_ADDRESS
    server, client = rig.start_pair([tool, "sink", "--seconds", seconds, *options],
                                    [tool, "blast", "--peer", peer, *options])
    sink, _ = rig.run_pair(server, client, server)
    return {"gbps": sink["gbps"]} | ({"mpps": sink["mpps"]} if sink["mpps"] else {})


# --- DPDK's own test program -----------------------------------------------------------------------------------------


def testpmd(side: Side, frame_size: int, *options: object) -> list[object]:
    """The program on net_af_packet of the netdev, with rings as uroce has them; both threads on the side's CPU."""
    room = 2048 if frame_size <= 1514 else 8192
    port = f"net_af_packet0,iface={side.netdev},blocksz=65536,framesz={room},framecnt={(2 << 20) // room}"
    memory = ["--no-huge", "-m", 256, "--no-shconf", "--no-telemetry", "--no-pci", "--iova-mode=va"]
    return ["dpdk-testpmd", *memory, "--lcores", f"0@{side.cpu},1@{side.cpu}", f"--vdev={port}", "--", "--stats-period=1",
            "--total-num-mbufs=4096", f"--mbuf-size={room + 128}", f"--txpkts={frame_size}", *options]


def testpmd_received(rig: Rig, server: list[object], client: list[object], seconds: int) -> float:
    """Packets per second that the server has received: the median of those it shows, the first ones left out."""
    waiting = rig.start(rig.server, server)
    time.sleep(1)  # it has no way to say that it is ready; a second of nothing at its beginning is left out
    sending = rig.start(rig.client, client)
    time.sleep(seconds + 2.5)  # a slow machine takes a second to start it
    outputs = []
    for process in (sending, waiting):
        process.terminate()
        outputs.append(finish(process))
    rig.processes.clear()
    shown = [float(number) for number in re.findall(r"Rx-pps:\s+(\d+)", outputs[1]) if number != "0"]
    if len(shown) < 2:
        raise MeasurementFailed(f"testpmd received nothing: {outputs[1][-300:]}")
    return statistics.median(shown[1:])


def testpmd_blast(rig: Rig, frame: int, payload: int) -> dict:
    pps = testpmd_received(rig, testpmd(rig.server, frame, "--forward-mode=rxonly"),
                           testpmd(rig.client, frame, "--forward-mode=txonly"), 3)
    return {"gbps": pps * payload * 8 / 1e9, "mpps": pps / 1e6}


def testpmd_latency(rig: Rig, frame: int, burst: int) -> dict:
    """Frames that both sides send back, as many as they find: the server receives each once in a round trip."""
    pps = testpmd_received(rig, testpmd(rig.server, frame, "--forward-mode=macswap"),
                           testpmd(rig.client, frame, "--forward-mode=macswap", f"--burst={burst}", "--tx-first"), 2)
    return {"us": burst * 1e6 / pps / 2}


# --- programs of others -----------------------------------------------------------------------------------------------


def iperf3(rig: Rig) -> dict:
    output = rig.run_client(["iperf3", "--server", "--one-off"],
                            ["iperf3", "--client", SERVER_ADDRESS, "--time", 1, "--json"], IPERF_PORT)
    return {"gbps": json.loads(output)["end"]["sum_received"]["bits_per_second"] / 1e9}


class Ucx:
    """ucx_perftest; over TCP unless `run` and `transport` name another way."""

    def __init__(self, run: tuple[object, ...] = (), transport: str = "tcp", device: str = "{}", path_mtu: int = 1024):
        self.run = run  # what comes in front of the program
        self.device = device
        self.environment = {"UCX_TLS": transport, "UCX_RC_PATH_MTU": str(path_mtu), "UCX_LOG_LEVEL": "warn",
                            "UCX_WARN_UNUSED_ENV_VARS": "n"}

    def measure(self, rig: Rig, test: str, size: int, count: int) -> list[float]:
        """The last row: time of the median, mean and overall; MiB/s and messages/s on average and overall."""
        environments = tuple(self.environment | {"UCX_NET_DEVICES": self.device.format(side.netdev)}
                             for side in (rig.server, rig.client))
        program = [*self.run, "ucx_perftest", "-p", UCX_PORT]
        output = rig.run_client(program, [*program, "-t", test, "-s", size, "-n", count, "-w", 10, SERVER_ADDRESS],
                                UCX_PORT, environments)
        final = re.search(r"^Final:\s+\d+((?:\s+[\d.]+){7})$", output, re.MULTILINE)
        if not final:
            raise MeasurementFailed(f"ucx_perftest: no result in: {output.strip()[-300:]}")
        return [float(number) for number in final[1].split()]

    def latency(self, rig: Rig, iterations: int) -> dict:
        return {"us": self.measure(rig, "tag_lat", 2, iterations)[0]}

    def bandwidth(self, rig: Rig, messages: MessageCount) -> dict:
        def send(count: int) -> float:
            return self.measure(rig, "ucp_put_bw", messages.size, count)[4] * 2**20 * 8 / 1e9
        return {"gbps": messages.measure(send)}
