# SPDX-License-Identifier: BSD-2-Clause
"""Programs over rdma_cm: uroce here, Linux's rdma_cm on rxe there, in both directions. The oracle judges what uroce has said to
Linux's connection manager, as it was on the wire, and the packets of its QPs where there are any."""

import dataclasses
import itertools
import subprocess

import cm_programs
from cases import DIRECTIONS, FAULTS, SLACK, Roles, captured, is_guest, judge, ours
from suite import Case, check


def judge_cm(lab, evidence, version):
    """Management datagrams as they were on the wire, faults included; which the broker's own capture would not show."""
    said = evidence / "cm.pcapng"
    to_qp1 = ["tshark", "-r", evidence / "wire.pcap", "-Y", "infiniband.bth.destqp == 1", "-w", said]
    subprocess.run(list(map(str, to_qp1)), check=True, capture_output=True)
    checker = [lab.build / "bin/uroce", "check", "--slack", SLACK, "--quiet", "--at", getattr(lab.a, version), said]
    done = subprocess.run(list(map(str, checker)), capture_output=True, text=True)
    check(done.returncode == 0, f"the oracle says of the connection manager:\n{done.stdout}{done.stderr}")


def case(pair, direction, version="ipv4", io="udp", faults=None, quick=True):
    way = "-".join(["cm", pair.name, version, *([io] if io != "udp" else []), *(["faults"] if faults else []), direction])

    def run(lab):
        lab.revive()
        roles = Roles(lab, direction)

        def start(host, command):
            def program_of(name):
                return lab.build / "bin" / name if name == "cm_exchange" and not is_guest(host) else name

            words = cm_programs.words(command, roles.a, roles.b, version, program_of)
            return host.start(words, **dataclasses.asdict(ours(host, evidence, io, faults)))

        with captured(lab, way) as evidence:
            cm_programs.run(pair, roles.a, roles.b, start, start, 2 * pair.seconds)
            if pair.listens:  # mckey only joins groups
                judge_cm(lab, evidence, version)
            if pair.moves_data:
                judge(lab, (roles.a, roles.b), evidence)

    return Case(way, run, quick=quick)


def cases():
    short = itertools.cycle(DIRECTIONS)  # of each program in the short form, in turn
    for pair in cm_programs.programs():
        if not pair.over_linux:
            continue
        chosen = next(short) if pair.quick and not pair.name.startswith("ib_") else "from-peer"
        for direction in DIRECTIONS:
            for version in pair.versions:
                # perftest's server ends its listener and listens anew; Linux refuses a client that comes in between, and in an
                # emulated machine that takes its time. 16 QPs are much for it, too.
                sure = not pair.name.startswith("ib_") or (direction == "from-peer" and pair.name == "ib_send_bw")
                yield case(pair, direction, version, quick=pair.quick and sure and version == "ipv4" and direction == chosen)
    exchange = next(cm_programs.programs())
    connections_only = dataclasses.replace(exchange, client=[*exchange.client, "rc"])  # datagrams get lost
    for direction in DIRECTIONS:
        yield case(exchange, direction, io="af_xdp")
        yield case(connections_only, direction, faults=FAULTS)
