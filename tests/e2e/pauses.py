#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Processes that stand still in the middle of a transfer (SIGSTOP, SIGCONT), and netdevs that change under one: every byte
is right afterwards. Who is away for longer than the attributes allow is given up in order, and a new connection works.
See suite.py."""

import itertools
import re
import signal
import sys
import time

from suite import Case, check, main
from lab import Lab, wait_until

# Per QP and direction: for longer than it takes on a busy machine to find out that packets flow.
MESSAGES = 10000
RETRY_EXCEEDED, FLUSHED = 12, 5  # ibv_wc_status
_ports = itertools.count(22300)


def start(lab, io, ack_timeout, messages, options=(), own=()):
    """A transfer in both directions that is well under way: server on host a, client on host b."""
    port = next(_ports)
    command = [lab.build / "bin/rc_transfer", "--device", lab.a.device, "--gid-index", 0, "--port", port, "--ack-timeout", ack_timeout, *own]
    how = {"io": io, "options": options, "env": {"UROCE_COUNTERS": "1"}}
    server = lab.a.start([*command, "--server"], **how)
    server.wait_listening(port)
    before = lab.b.packets()
    client = lab.b.start([*command, "--client", lab.a.ipv4, "--bidirectional", "--messages", messages, "--qps", 2], **how)
    wait_until(lambda: lab.b.packets() > before + 1000 or not client.running(), 20, "packets flow")
    check(client.running() and server.running(), f"ended at once\n{client.output}\n--- server\n{server.output}")
    return server, client


def expect_whole(server, client):
    codes = [client.wait(60), server.wait(20)]
    check(codes == [0, 0], f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
    return client.stdout.strip().splitlines()[-1]


def stop_for(program, seconds):
    program.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        program.process.send_signal(signal.SIGCONT)


def stopped(who, io, seconds, ack_timeout, options=(), times=1, **case):
    """One process, or both, stands still; retry_cnt is 7."""

    def run(lab):
        server, client = start(lab, io, ack_timeout, MESSAGES, options)
        for _ in range(times):
            check(client.running() and server.running(), f"it was over before the fault\n{client.output}")
            victims = {"server": [server], "client": [client], "both": [server, client]}[who]
            for victim in victims[1:]:
                victim.process.send_signal(signal.SIGSTOP)
            stop_for(victims[0], seconds)
            for victim in victims[1:]:
                victim.process.send_signal(signal.SIGCONT)
            time.sleep(0.2)
        return expect_whole(server, client)

    return Case(f"stopped-{who}-{io}-{seconds}s" + ("-patience" if options else "") + (f"-{times}-times" if times > 1 else ""), run, **case)


def given_up(io):
    """Away for longer than the attributes allow: both sides end in order, and a new connection works."""

    def run(lab):
        server, client = start(lab, io, 10, MESSAGES)  # 0.13 s in all
        stop_for(server, 3)
        for program in (client, server):
            code = program.wait(40)
            check(code not in (None, 0), f"exit code {code} (None: hangs)\n{program.output}")
        check(re.search(rf"status ({RETRY_EXCEEDED}|{FLUSHED})\b", client.output), f"no error completion\n{client.output}")
        return "given up; then " + expect_whole(*start(lab, io, 14, 200))

    return Case(f"given-up-{io}", run)


# --- netdevs that change, as they may where a virtual machine has moved to ------------------------------------------------


def changed(name, io, change, before=lambda lab: None, **case):
    """change(lab) in the middle of a transfer, whose queue pairs stay."""

    def run(lab):
        before(lab)
        server, client = start(lab, io, 16, MESSAGES, own=["--port-changes"])
        change(lab)
        packets = lab.b.packets()
        wait_until(lambda: lab.b.packets() > packets + 500 or not client.running(), 20, "packets flow again")
        return expect_whole(server, client)

    return Case(f"{name}-{io}", run, **case)


def down_and_up(lab):
    for host in (lab.b, lab.a):
        host.system("ip", "link", "set", host.netdev, "down")
        time.sleep(0.5)
        host.system("ip", "link", "set", host.netdev, "up")
        time.sleep(0.5)


def set_mtus(mtu):
    def change(lab):
        for host in (lab.a, lab.b):
            host.system("ip", "link", "set", host.netdev, "mtu", str(mtu))

    return change


def larger_and_back(lab):
    for mtu in (3000, 1500):
        set_mtus(mtu)(lab)
        time.sleep(0.3)


def set_queues(lab, sends, receives):
    """Of the wire from a to b. The sender never has more queues than the receiver: a veth drops what has no XDP ring."""
    growing = receives > 1
    for host, kind, count in ((lab.b, "rx", receives), (lab.a, "tx", sends))[:: 1 if growing else -1]:
        host.system("ethtool", "-L", host.netdev, kind, str(count))


def other_mac(lab):
    """The host says so to its neighbours, as the kernel of a guest does that was told that it has moved."""
    for host in (lab.a, lab.b):
        host.system("sysctl", "-qw", f"net.ipv4.conf.{host.netdev}.arp_notify=1")
    lab.b.system("ip", "link", "set", lab.b.netdev, "address", "02:00:00:00:00:77")
    time.sleep(0.3)


CHANGES = [
    *(changed("link-down-and-up", io, down_and_up) for io in ("udp", "af_xdp")),
    *(changed("other-mtu", io, larger_and_back) for io in ("udp", "af_xdp")),
    *(changed("other-mac", io, other_mac) for io in ("udp", "af_xdp")),
    *(changed("more-queues", io, lambda lab: set_queues(lab, 2, 2), before=lambda lab: set_queues(lab, 1, 1)) for io in ("udp", "af_xdp")),
    # Under AF_XDP the kernel refuses to take a queue away that has a socket.
    changed("fewer-queues", "udp", lambda lab: set_queues(lab, 1, 1), before=lambda lab: set_queues(lab, 2, 2)),
]

CASES = [
    *(stopped(who, io, 0.5, 14) for who in ("server", "client") for io in ("udp", "af_xdp")),
    stopped("server", "udp", 0.5, 14, times=5),
    stopped("client", "af_xdp", 4, 17),
    stopped("both", "udp", 3, 10),
    stopped("server", "udp", 4, 10, ("--patience", 20)),
    stopped("server", "udp", 20, 18, quick=False),
    given_up("udp"),
    given_up("af_xdp"),
    *CHANGES,
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES, lambda options, mtu: Lab(options.build, mtu, queues=2)))
