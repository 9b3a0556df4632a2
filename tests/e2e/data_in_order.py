#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Programs that watch memory instead of completions: no byte of a message is there before those in front of it
(data_in_order/main.cc), whatever way it comes. Names of cases say WAY-OPERATION-MTU. See suite.py.

  WAY   af_xdp, udp   between two hosts
        lossy         the same over UDP, where packets are lost, repeated and overtaken
        sleeping      over UDP to a program that hardly polls: the library's own thread places the bytes
        one-host      between two processes of one host, through memory
        itself        of a process to itself
"""

import itertools
import re
import sys

from suite import Case, check, main
from carried import COUNTED

_runs = itertools.count()
FAULTS = "drop=1%,reorder=1%,dup=1%"
MTUS = (256, 512, 1024, 2048, 4096)
OPERATIONS = ("write", "send", "read")
WAYS = ("af_xdp", "udp", "lossy", "sleeping", "one-host", "itself")
LARGEST = 4200  # MTU of the netdevs


def start(lab, host, way, role, arguments):
    command = [lab.build / "bin/data_in_order", "--device", host.device, "--role", role, *arguments]
    faults = f"{FAULTS},seed={next(_runs) + 1}" if way == "lossy" else None
    return host.start(command, io="af_xdp" if way == "af_xdp" else "udp", faults=faults, env=COUNTED)


def counted(program, name):
    return sum(map(int, re.findall(rf"^roce0: {name}: (\d+)$", program.output, re.MULTILINE)))


def by_memory(program):
    """Packets that the process has taken from another one's memory."""
    return counted(program, "packets received through memory, from processes of this host")


def watch(way, operation, mtu, messages, lab):
    shared = lab.directory / f"shared-{next(_runs)}"
    arguments = ["--shared", shared, "--operation", operation, "--mtu", mtu, "--messages", messages, "--seed", mtu + messages]
    arguments += ["--sleeps"] if way == "sleeping" else []
    if way == "itself":
        programs = [start(lab, lab.a, way, "both", arguments)]
    else:
        other = lab.a if way == "one-host" else lab.b
        programs = [start(lab, lab.a, way, "destination", arguments), start(lab, other, way, "source", arguments)]
    codes = [program.wait(600) for program in programs]
    said = "\n---\n".join(program.output for program in programs)
    check(codes == [0] * len(codes), f"exit codes {codes} (None: hangs)\n{said}")
    check(f"data_in_order: {messages} messages, 0 out of order\n" in programs[0].stdout, said)
    check(sum(counted(program, "request packets sent") for program in programs) >= messages, f"not over uroce\n{said}")
    check((by_memory(programs[0]) > 0) == (way == "one-host"), f"through memory or not\n{said}")
    if way == "lossy":
        check(sum(counted(program, "request packets sent again") for program in programs) > 0, f"nothing was lost\n{said}")
    return f"{messages} messages"


def case(way, operation, mtu, messages, quick=True):
    name = f"{way}-{operation}-{mtu}" + ("" if quick else "-long")
    return Case(name, lambda lab: watch(way, operation, mtu, messages, lab), mtu=LARGEST, quick=quick)


def cases():
    for number, (way, operation) in enumerate(itertools.product(WAYS, OPERATIONS)):
        yield case(way, operation, MTUS[number % len(MTUS)], 1000)
    # At night nearly two million.
    for way, operation, mtu in itertools.product(WAYS, OPERATIONS, MTUS):
        yield case(way, operation, mtu, 20000, quick=False)


if __name__ == "__main__":
    sys.exit(main(__doc__, list(cases())))
