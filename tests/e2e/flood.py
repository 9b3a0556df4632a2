#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""A stranger floods UDP port 4791 of a host with large datagrams that are no RoCE packets while a transfer goes on. The
transfer loses nothing. The datagrams are counted where the program is alone on its netdev; where there is a broker, they
go to the kernel, as they are for none of the program's QP numbers. See suite.py.

The netdevs have 16 queues and an MTU of 9000: a datagram of 5000 bytes takes two chunks of AF_XDP's memory, and those of
many source ports come over all queues at once. This file, called with --datagrams, is the stranger's program.
"""

import itertools
import json
import re
import socket
import struct
import sys
import time

from suite import Case, Lab, check, main
from lab import wait_until

ROCE_PORT = 4791
QUEUES = 16
SECONDS = 5  # at least; the transfer goes on for as long
SIZE = 5000  # bytes of UDP payload
_ports = itertools.count(21000)

COUNTER = "drop: not a well-formed IP/UDP packet"


def checksum(header):
    """Of an IPv4 header (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def datagram(macs, addresses, source_port, udp_length):
    """An Ethernet frame; macs, addresses: destination, source. UDP checksum 0 says that there is none."""
    size = 20 + 8 + SIZE
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, size, 0, 0x4000, 64, socket.IPPROTO_UDP, 0, addresses[1], addresses[0])
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    udp = struct.pack("!HHHH", source_port, ROCE_PORT, udp_length, 0)
    return b"".join(macs) + struct.pack("!H", 0x0800) + header + udp + bytes(SIZE)


def send_datagrams(netdev, mac, destination, source):
    """Until it is killed. UDP lengths that are shorter and longer than what follows the header, and 0."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((netdev, 0))
        macs = (bytes.fromhex(mac.replace(":", "")), raw.getsockname()[4])
        addresses = (socket.inet_aton(destination), socket.inet_aton(source))
        lengths = itertools.cycle((SIZE, SIZE + 16, 0, 12))
        frames = [datagram(macs, addresses, port, next(lengths)) for port in range(30000, 30256)]
        for frame in itertools.cycle(frames):
            try:
                raw.send(frame)
            except OSError:  # the queue is full
                time.sleep(0.0001)


def flood(lab, options):
    """Host b transfers with host a, in both directions, while a stranger on b sends to a."""
    link = json.loads(lab.a.system("ip", "-json", "link", "show", "dev", lab.a.netdev))[0]
    check(lab.a.system("ls", f"/sys/class/net/{lab.a.netdev}/queues").count("rx-") == QUEUES, "the netdev has other queues")
    port = next(_ports)
    own = [lab.build / "bin/rc_transfer", "--device", lab.a.device, "--port", port]
    counters = {"UROCE_COUNTERS": "1"}
    received = lab.a.packets()
    stranger = lab.b.start([sys.executable, "-B", __file__, "--datagrams", lab.b.netdev, link["address"], lab.a.ipv4,
                            lab.b.ipv4], uroce=False)
    wait_until(lambda: lab.a.packets() > received + 1000, 20, "datagrams arrive")
    began, transfers, malformed = time.monotonic(), 0, 0
    while time.monotonic() - began < SECONDS:
        server = lab.a.start([*own, "--server"], io="af_xdp", options=options, env=counters)
        server.wait_listening(port)
        plan = ["--mtu", 4096, "--bidirectional", "--qps", 4, "--messages", 4000, "--seed", transfers + 1]
        client = lab.b.start([*own, *plan, "--client", lab.a.ipv4], io="af_xdp")
        codes = (client.wait(120), server.wait(20))
        check(codes == (0, 0), f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
        check(f"{QUEUES} queues" in server.output and "multi-buffer" in server.output, server.output)
        found = re.search(re.escape(COUNTER) + r": (\d+)", server.output)
        malformed += int(found.group(1)) if found else 0
        transfers += 1
    check(stranger.running(), f"the flood ended: {stranger.output}")
    check((malformed > 1000) == bool(options), f"{malformed} datagrams were counted during {transfers} transfers")
    return f"{transfers} transfers, {malformed} datagrams"


CASES = [
    Case("large-malformed-datagrams", lambda lab: flood(lab, ["--alone"]), mtu=9000),
    Case("the-same-with-a-broker", lambda lab: flood(lab, []), mtu=9000),
]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--datagrams"]:
        send_datagrams(*sys.argv[2:])
    sys.exit(main(__doc__, CASES, make_lab=lambda options, mtu: Lab(options.build, mtu, queues=QUEUES)))
