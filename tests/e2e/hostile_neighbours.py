#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""A user of the host attacks root's broker and the processes that use it (attacker/main.cc): transfers of root go on, the
broker answers, and `uroce stat` does. See suite.py."""

import re
import statistics
import sys
import time

from broker import TIMER, end_brokers, endless, start_broker
from suite import Case, check, main
from lab import wait_until

SECONDS = 1  # no share is judged: they show what an attack costs
BESIDE = ("nice", "-n", "19")  # what an attacker takes of the processor is not the matter


def attacker(lab, host, attack, *words, user=True):
    index = host.system("cat", f"/sys/class/net/{host.netdev}/ifindex").strip()
    command = [lab.program_for(user, "attacker"), "@uroced", index, attack, *words]
    return host.start(command, user=user, uroce=False, prefix=BESIDE if user else ())


def rates(program):
    return [float(m[1]) for m in re.finditer(r"^ *65536 +\d+ +[\d.]+ +([\d.]+)", program.stdout, re.MULTILINE)]


def mean_of_next(clients, seconds):
    """MB/s of each in the next seconds, in the middle."""
    before = [len(rates(client)) for client in clients]
    wait_until(lambda: all(len(rates(c)) >= n + seconds or not c.running() for c, n in zip(clients, before)), 10 * seconds, "results go on")
    return [statistics.median(rates(client)[n:]) for client, n in zip(clients, before)]


def attack(name, quick):
    def run(lab):
        end_brokers(lab)
        start_broker(lab, lab.a, ["--memory-between-users"])
        pairs = [endless(lab, lab.a, lab.a, timer=TIMER), endless(lab, lab.a, lab.b, timer=TIMER)]
        clients = [client for _, client in pairs]
        alone = mean_of_next(clients, SECONDS)
        hostile = attacker(lab, lab.a, name)
        time.sleep(1)
        probe = attacker(lab, lab.a, "hello", SECONDS, user=False)
        under = mean_of_next(clients, SECONDS)
        # Each greeting within the two seconds that clients wait for one.
        check(probe.wait(30) == 0, f"root's programs are not answered: {probe.output}")
        stat = lab.a.run([lab.build / "bin/uroce", "stat"], uroce=False, timeout=20)
        check(stat.process.returncode == 0 and stat.output.count("ib_write_bw") >= 3, f"uroce stat: {stat.output}")
        newcomer = endless(lab, lab.a, lab.a, timer=TIMER)  # can still come, and exchanges something
        check(hostile.running(), f"the attacker has ended: {hostile.output}")
        for server, client in [*pairs, newcomer]:
            check(server.running() and client.running(), f"ended: {client.output}\n--- server\n{server.output}")
        worst = float(re.search(r"after ([\d.]+) ms", probe.stdout)[1])
        return f"answers after {worst} ms at most; transfers at {', '.join(f'{u / a:.2f}' for u, a in zip(under, alone))} of alone"

    return Case(name, run, quick=quick)


QUICK = ("listeners", "unread", "meet", "linger")
CASES = [attack(name, name in QUICK) for name in (*QUICK, "masks", "ids", "binds", "looks", "reconnect")]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
