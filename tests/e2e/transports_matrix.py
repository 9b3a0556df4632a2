#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs over the transports beyond RC: UC, UD, XRC, shared receive queues, multicast.

Names of cases say what is run: PROGRAM/WAY, e.g. ib_send_bw/uc. Options: see suite.py.
"""

import sys

from suite import main
from perftest import BANDWIDTH, LATENCY, Side
from perftest_matrix import FAULTS, JUMBO, SIZES, iterations, pair_case

UC = ("ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat")
SEND = ("ib_send_bw", "ib_send_lat")
# perftest's own group, ff01::, is of interface-local scope: the kernel does not let UDP sockets send to it.
IPV6_GROUP = ["-M", "255:21:0:0:0:0:0:0:0:0:0:0:0:0:66:66"]
GROUPS = {
    "ipv4": (0, ["-M", "0:0:0:0:0:0:0:0:0:0:255:255:239:77:1:1"]),
    "ipv6": (1, IPV6_GROUP),
    "link-local": (2, IPV6_GROUP),
}
# Nothing paces an unreliable sender, and perftest waits for every message: less than what a busy receiver takes.
UNPACED = ["--rate_limit", "0.5", "--rate_units", "g", "--rate_limit_type", "SW", "--burst_size", "16"]
GID = {"ipv4": 0, "ipv6": 1, "link-local": 2}


def unreliable_connected():
    for program in UC:
        arguments = ["-c", "UC", *(["-n", "100", *UNPACED] if program in BANDWIDTH else iterations(program))]
        for way, gid in GID.items():
            yield pair_case(program, f"uc-{way}", arguments, gid=gid, quick=way == "ipv4")
        yield pair_case(program, "uc-udp", arguments, server=Side("udp"), client=Side("udp"))
        if program in LATENCY:
            yield pair_case(program, "uc-all-sizes", ["-c", "UC", "-a", "-n", "50"], len(SIZES), 120, quick=False)
    yield pair_case("ib_send_lat", "uc-events", ["-c", "UC", "-e", *iterations("ib_send_lat")])
    yield pair_case("ib_write_bw", "uc-qps", ["-c", "UC", "-q", "4", "-n", "50"])


def datagrams():
    for program in SEND:
        for way, gid in GID.items():
            yield pair_case(program, f"ud-{way}", ["-c", "UD", *iterations(program)], gid=gid)
        yield pair_case(program, "ud-udp", ["-c", "UD", *iterations(program)], server=Side("udp"), client=Side("udp"))
        yield pair_case(program, "ud-events", ["-c", "UD", "-e", *iterations(program)])
        yield pair_case(program, "ud-jumbo", ["-c", "UD", "-s", "4096", *iterations(program)], mtu=JUMBO, quick=False)
        for way, (gid, group) in GROUPS.items():
            yield pair_case(program, f"multicast-{way}", ["-c", "UD", "-g", *group, *iterations(program)], gid=gid)
            yield pair_case(program, f"multicast-{way}-udp", ["-c", "UD", "-g", *group, *iterations(program)], gid=gid,
                            server=Side("udp"), client=Side("udp"))


def shared_receive_queues():
    # Without a receive request an unreliable message is lost: for UD there are enough from the beginning.
    for transport, arguments in (("RC", ["-q", "4"]), ("UC", ["-q", "4", *UNPACED]), ("UD", ["-q", "1"])):
        yield pair_case("ib_send_bw", f"srq-{transport.lower()}", ["-c", transport, "--use-srq", "-n", 100, *arguments])
    yield pair_case("ib_send_bw", "srq-rx-depth", ["-r", "32", "--use-srq", "-q", "8", "-n", "200"])
    yield pair_case("ib_send_bw", "srq-faults", ["--use-srq", "-q", "2", "-n", "500"], 1, 120,
                    server=Side("af_xdp", FAULTS), client=Side("af_xdp", FAULTS), quick=False)


def xrc():
    for program in ("ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", *SEND, "ib_atomic_bw", "ib_atomic_lat"):
        yield pair_case(program, "xrc", ["-c", "XRC", *iterations(program)])
    yield pair_case("ib_send_bw", "xrc-qps", ["-c", "XRC", "-q", "4", *iterations("ib_send_bw")])
    yield pair_case("ib_send_bw", "xrc-faults", ["-c", "XRC", *iterations("ib_send_bw")], 1, 120,
                    server=Side("af_xdp", FAULTS), client=Side("af_xdp", FAULTS), quick=False)


def pingpongs():
    checked = {"ibv_uc_pingpong": ["-c"], "ibv_ud_pingpong": ["-c"], "ibv_srq_pingpong": ["-c"], "ibv_xsrq_pingpong": []}
    for program, arguments in checked.items():
        for way, gid in (("ipv4", 0), ("ipv6", 1)):
            yield pair_case(program, way, arguments, gid=gid)
        yield pair_case(program, "events", [*arguments, "-e"])
        yield pair_case(program, "udp", arguments, server=Side("udp"), client=Side("udp"))


def cases():
    for group in (unreliable_connected, datagrams, shared_receive_queues, xrc, pingpongs):
        yield from group()


if __name__ == "__main__":
    sys.exit(main(__doc__.splitlines()[0], list(cases())))
