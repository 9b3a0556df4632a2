#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""A program that ends right after it has received a message: its ACK leaves first (last_ack/main.cc). Names of cases say
WAY-WAIT-END. See suite.py.

  WAY   af_xdp, udp   between two hosts
        one-host      between two processes of one host, through memory
  WAIT  poll, event, memory: how the program hears of the message
  END   how it ends; "kill" leaves no time for an ACK, and the sender ends by its retry budget
"""

import itertools
import sys

from suite import Case, check, main

_runs = itertools.count()
WAYS = ("udp", "af_xdp", "one-host")
WAITS = ("poll", "event", "memory")
ENDS = ("destroy", "error", "reset", "close", "cancel", "exit", "_exit", "_Exit", "quick_exit", "handler", "execv", "execlp", "kill")


def end(way, wait, how, rounds, lab):
    shared = lab.directory / f"shared-{next(_runs)}"

    def start(host, role):
        command = [lab.build / "bin/last_ack", "--device", host.device, "--role", role, "--shared", shared, "--wait", wait, "--end", how, "--rounds", rounds]
        return host.start(command, io="af_xdp" if way == "af_xdp" else "udp")

    programs = [start(lab.a, "receiver"), start(lab.a if way == "one-host" else lab.b, "sender")]
    codes = [program.wait(300) for program in programs]
    said = "\n---\n".join(program.output for program in programs)
    check(codes == [0, 0], f"exit codes of receiver and sender {codes} (None: hangs)\n{said}")
    return programs[1].stdout.strip().removeprefix("last_ack: ")


def case(way, wait, how, rounds, quick):
    name = f"{way}-{wait}-{how}" + ("" if quick else "-long")
    return Case(name, lambda lab: end(way, wait, how, rounds, lab), quick=quick)


def cases():
    """Each end with each way to wait and each way to travel, in turn; all of them, and often, at night."""
    for number, (how, wait) in enumerate(itertools.product(ENDS, WAITS)):
        yield case(WAYS[(number + number // 3) % 3], wait, how, 4, True)
    for way, wait, how in itertools.product(WAYS, WAITS, ENDS):
        yield case(way, wait, how, 40, False)


if __name__ == "__main__":
    sys.exit(main(__doc__, list(cases())))
