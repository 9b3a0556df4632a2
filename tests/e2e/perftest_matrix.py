#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified perftest and ibv_rc_pingpong between two hosts, in every way that users run them.

Names of cases say what is run: PROGRAM/WAY, e.g. ib_send_bw/qps-64. Options: see suite.py.
"""

import sys

from suite import Case, check, main
from perftest import BANDWIDTH, LATENCY, PINGPONG, Side, describe, run_pair

PROGRAMS = BANDWIDTH + LATENCY
ATOMIC = ("ib_atomic_bw", "ib_atomic_lat")
WITH_EVENTS = [p for p in PROGRAMS if not p.startswith("ib_write")]  # a WRITE tells its target nothing
WITH_INLINE = [p for p in PROGRAMS if p.startswith(("ib_write", "ib_send"))]
WITH_ALL_SIZES = [p for p in PROGRAMS if p not in ATOMIC]
JUMBO = 9000
AF_XDP = Side(io="af_xdp")
FAULTS = "drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%"
SIZES = [2**n for n in range(1, 24)]  # of -a


def iterations(program):
    return ["-n", "500" if program in BANDWIDTH else "2000"]


def pair_case(program, way, arguments, expected_rows=1, timeout=60, mtu=1500, quick=True, server=AF_XDP, client=AF_XDP, **how):
    """A case that runs the pair and wants a result for every message size."""

    def run(lab):
        result = run_pair(lab, program, arguments, timeout=timeout, server=server, client=client, **how)
        check(not result.problem, f"{result.problem}\n{result.report()}")
        check(len(result.rows) == expected_rows, f"{len(result.rows)} rows, not {expected_rows}\n{result.report(40)}")
        check_io(result, server, client)
        return describe(result.rows[-1])

    return Case(f"{program}/{way}", run, mtu, quick)


def check_io(result, server, client):
    """Both sides use the packet I/O that was asked for, or what is best over veth, and make the faults asked for."""
    for side, wanted, mode in zip(("server", "client"), (server, client), result.io_modes):
        expected = wanted.io or "udp"
        check(mode.startswith(expected), f"the {side} says '{mode}', not {expected}\n{result.report()}")
        check((wanted.faults or "") in mode, f"the {side} says '{mode}', not {wanted.faults}\n{result.report()}")


def plain():
    for program in PROGRAMS:
        yield pair_case(program, "ipv4", iterations(program))
        yield pair_case(program, "ipv6", iterations(program), gid=1, quick=program.startswith("ib_send"))
        yield pair_case(program, "link-local", iterations(program), gid=2, quick=program == "ib_send_lat")
    for way, gid in (("ipv4", 0), ("ipv6", 1)):
        yield pair_case(PINGPONG, way, ["-c"], gid=gid)
    yield pair_case(PINGPONG, "events", ["-c", "-e"])
    yield pair_case(PINGPONG, "new-send", ["-c", "-N"])
    yield pair_case(PINGPONG, "timestamps", ["-c", "-t"])


def events():
    for program in WITH_EVENTS:
        yield pair_case(program, "events", [*iterations(program), "-e"])


def all_sizes():
    for program in WITH_ALL_SIZES:
        yield pair_case(program, "all-sizes", ["-a", "-n", "20"], len(SIZES), 180, quick=program == "ib_write_bw")
        yield pair_case(program, "all-sizes-jumbo", ["-a", "-n", "20"], len(SIZES), 180, JUMBO, quick=False)
    for program in set(WITH_ALL_SIZES) & set(WITH_EVENTS):
        yield pair_case(program, "all-sizes-events", ["-a", "-e", "-n", "20"], len(SIZES), 180, quick=False)


def path_mtus():
    for program in PROGRAMS:
        for path_mtu in (256, 512, 1024, 2048, 4096):
            arguments = [*iterations(program), "-m", path_mtu]
            arguments += ["-s", 65536] if program in LATENCY and program not in ATOMIC else []
            quick = program == "ib_write_bw" or (path_mtu == 4096 and program == "ib_read_lat")
            yield pair_case(program, f"mtu-{path_mtu}", arguments, mtu=JUMBO, quick=quick)


def many_qps():
    for program in BANDWIDTH:
        for qps in (4, 64):
            quick = program == "ib_read_bw" and qps == 64
            yield pair_case(program, f"qps-{qps}", ["-q", qps, "-n", "200"], timeout=120, quick=quick)


def bidirectional():
    for program in BANDWIDTH:
        yield pair_case(program, "bidirectional", [*iterations(program), "-b"])
        yield pair_case(program, "bidirectional-qps-4", ["-n", "200", "-b", "-q", 4], quick=False)


def inline():
    for program in WITH_INLINE:
        for size in (0, 64, 512):
            arguments = [*iterations(program), "-I", size, "-s", size or 64]
            yield pair_case(program, f"inline-{size}", arguments, quick=size == 512)


def depths():
    for program in BANDWIDTH:
        for way, arguments in (("depth-1", ["-t", 1, "-Q", 1]), ("depth-1024", ["-t", 1024]), ("post-list", ["-l", 16])):
            yield pair_case(program, way, ["-n", "320", *arguments], quick=False)


def packet_io():
    default, udp, user = Side(), Side(io="udp"), Side(user=True)
    ways = {
        "udp": (udp, udp),
        "udp-to-af_xdp": (AF_XDP, udp),
        "af_xdp-to-udp": (udp, AF_XDP),
        "users": (user, user),
        "user-to-root": (AF_XDP, user),
        "root-to-user": (user, AF_XDP),
        "default": (default, default),
    }
    for program in PROGRAMS:
        for way, (server, client) in ways.items():
            quick = program == "ib_send_bw" or (program in ("ib_read_bw", "ib_write_lat") and way in ("udp", "user-to-root"))
            yield pair_case(program, f"io-{way}", iterations(program), server=server, client=client, quick=quick)
    for way in ("udp", "af_xdp-to-udp"):
        server, client = ways[way]
        yield pair_case("ib_send_bw", f"io-{way}-ipv6", ["-n", "500"], gid=1, server=server, client=client)
        yield pair_case("ib_write_bw", f"io-{way}-mtu-4096", ["-n", "500", "-m", 4096], mtu=JUMBO, server=server, client=client)


def faults():
    for program in PROGRAMS:
        for io in ("af_xdp", "udp"):
            sides = {"server": Side(io=io, faults=f"{FAULTS},seed=1"), "client": Side(io=io, faults=f"{FAULTS},seed=2")}
            quick = io == "af_xdp" and program in ("ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_atomic_bw")
            yield pair_case(program, f"faults-{io}", ["-n", "200"], timeout=180, quick=quick, **sides)
            if program in WITH_ALL_SIZES:
                yield pair_case(
                    program, f"faults-{io}-all-sizes", ["-a", "-n", "5"], len(SIZES), 600, quick=False, **sides
                )
        if program in BANDWIDTH:
            yield pair_case(program, "faults-qps-4", ["-n", "100", "-q", 4], timeout=180, quick=False, **sides)


GROUPS = (plain, events, all_sizes, path_mtus, many_qps, bidirectional, inline, depths, packet_io, faults)

if __name__ == "__main__":
    sys.exit(main(__doc__, [case for group in GROUPS for case in group()]))
