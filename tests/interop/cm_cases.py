"""Programs over rdma_cm: uroce here, Linux's rdma_cm on rxe there, in both directions."""

import dataclasses

import cm_programs
from cases import DIRECTIONS, Roles, captured, is_guest, judge, ours
from suite import Case

# Linux rejects IPv6 multicast over RoCE, and rxe has no XRC.
FAULTS = "drop=5%,dup=5%,reorder=5%"


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
            cm_programs.run(pair, roles.a, roles.b, version, start, start, seconds=2 * pair.seconds)
            judge(lab, (roles.a, roles.b), evidence)

    return Case(way, run, quick=quick)


def cases():
    for pair in cm_programs.programs():
        for direction in DIRECTIONS:
            for version in pair.versions:
                yield case(pair, direction, version, quick=pair.quick and version == "ipv4")
    exchange = next(cm_programs.programs())
    for direction in DIRECTIONS:
        yield case(exchange, direction, io="af_xdp")
        yield case(exchange, direction, faults=FAULTS)
