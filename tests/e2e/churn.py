#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""A transfer goes on while routes come and go and neighbours change state by the thousand. What is judged is the cause
of a slow-down, not the time: how often the process asked the kernel about the network. bench/churn.py measures what
it costs. See suite.py."""

import re
import sys

from suite import Case, check, main
from churn import Churn, NEIGHBOURS_PER_SECOND, ROUTES_PER_SECOND
from lab import wait_until

SECONDS = 4
PORT = 22000
# Opening the device asks a few dozen questions. Churn asked two or more per change before it was of no concern.
MOST_QUESTIONS = 300


def packets_flow(host, what):
    before = host.packets()
    wait_until(lambda: host.packets() > before + 1000, 20, what)


def churn(io):
    def run(lab):
        command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", PORT, "-q", 8, "-D", SECONDS]
        programs = [lab.a.start(command, io=io, env={"UROCE_COUNTERS": "1"})]
        programs[0].wait_listening(PORT)
        programs.append(lab.b.start([*command, lab.a.ipv4], io=io, env={"UROCE_COUNTERS": "1"}))
        packets_flow(lab.b, "packets flow")
        with Churn(lab.a.enter, lab.a.netdev, "192.0.2.77") as at_server, Churn(lab.b.enter, lab.b.netdev,
                                                                                "192.0.2.77") as at_client:
            packets_flow(lab.b, "packets flow under churn")
            codes = [program.wait(60) for program in programs]
        check(codes == [0, 0], f"exit codes {codes}\n{programs[1].output}\n--- server\n{programs[0].output}")
        changes = min(at_server.done, at_client.done)
        # Half of the rate for half of the time: the machine may be slow.
        check(changes > (2 * ROUTES_PER_SECOND + NEIGHBOURS_PER_SECOND) * SECONDS / 4, f"only {changes} changes were made")
        asked = []
        for program in programs:
            told = re.search(r"questions to the kernel about the network, of all devices: (\d+)", program.output)
            check(told, f"no number of questions\n{program.output}")
            asked.append(int(told[1]))
        check(max(asked) <= MOST_QUESTIONS, f"{asked} questions to the kernel during {changes} changes")
        return f"{changes} changes, {max(asked)} questions to the kernel"

    return Case(f"churn-{io}", run)


if __name__ == "__main__":
    sys.exit(main(__doc__, [churn("af_xdp"), churn("udp")]))
