#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Processes that stand still in the middle of a transfer (SIGSTOP, SIGCONT), and netdevs that change under one: every byte
is right afterwards. Who is away for longer than the attributes allow is given up in order, and a new connection works.
See suite.py."""

import itertools
import json
import re
import signal
import sys
import time

from suite import Case, check, main
from lab import Lab, LabError, wait_until

# Per QP and direction: for longer than it takes on a busy machine to find out that packets flow.
MESSAGES = 10000
LONGER = 30000  # for faults that take seconds
ENDLESS = 10**9
RETRY_EXCEEDED, FLUSHED = 12, 5  # ibv_wc_status
_ports = itertools.count(22300)


def flow(host, program):
    """Whether packets flow: their number grows at three looks in a row. (It may jump when an XDP program comes or goes.)"""
    seen, growing = host.packets(), 0

    def look():
        nonlocal seen, growing
        now = host.packets()
        seen, growing = now, growing + 1 if now > seen + 20 else 0
        return growing == 3 or not program.running()

    return look


def start(lab, io, ack_timeout, messages, options=(), own=(), under_way=True):
    """A transfer in both directions that is well under way, or perhaps over: server on host a, client on host b."""
    port = next(_ports)
    command = [lab.build / "bin/rc_transfer", "--device", lab.a.device, "--gid-index", 0, "--port", port, "--ack-timeout", ack_timeout, *own]
    how = {"io": io, "options": options, "env": {"UROCE_COUNTERS": "1"}}
    server = lab.a.start([*command, "--server"], **how)
    server.wait_listening(port)
    client = lab.b.start([*command, "--client", lab.a.ipv4, "--bidirectional", "--messages", messages, "--qps", 2], **how)
    if not under_way:
        return server, client
    wait_until(flow(lab.b, client), 20, "packets flow")
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
        server, client = start(lab, io, ack_timeout, MESSAGES if times == 1 else LONGER, options)
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


def given_up(io, **case):
    """Away for longer than the attributes allow: both sides end in order, and a new connection works."""

    def run(lab):
        server, client = start(lab, io, 10, ENDLESS)  # 0.13 s in all
        for _ in range(5):  # the client may have nothing outstanding, and wait for what the server's program does next
            stop_for(server, 3)
            if client.wait(1) is not None:
                break
        for program in (client, server):
            code = program.wait(40)
            check(code not in (None, 0), f"exit code {code} (None: hangs)\n{program.output}")
        said = f"{client.output}\n--- server\n{server.output}"
        check(re.search(rf"status ({RETRY_EXCEEDED}|{FLUSHED})\b", said), f"no error completion\n{said}")
        return "given up; then " + expect_whole(*start(lab, io, 14, 200, under_way=False))

    return Case(f"given-up-{io}", run, **case)


# --- netdevs that change, as they may where a virtual machine has moved to ------------------------------------------------


def changed(name, io, change, before=lambda lab: None, alone=False, says=(), **case):
    """change(lab) in the middle of a transfer, whose queue pairs stay. `says`: what uroce says on either side, at least."""

    def run(lab):
        before(lab)
        server, client = start(lab, io, 16, LONGER, ["--alone"] if alone else (), own=["--port-changes"])
        change(lab)
        for text in says:
            for program in (server, client):
                wait_until(lambda text=text, program=program: text in program.output or not program.running(), 20, text)
        packets = lab.b.packets()
        wait_until(lambda: lab.b.packets() > packets + 500 or not client.running(), 20, "packets flow again")
        whole = expect_whole(server, client)
        for program in (server, client):
            missing = [text for text in says if text not in program.output]
            check(not missing, f"not said: {missing}\n{program.output}")
        return whole

    def restored(lab):
        try:
            return run(lab)
        finally:
            lab.stop_programs()
            set_mtus(lab.mtu)(lab)
            set_queues(lab, lab.queues)

    return Case(f"{name}-{io}" + ("-alone" if alone else ""), restored, **case)


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
    for mtu in (9000, 1500):
        set_mtus(mtu)(lab)
        time.sleep(1)


def queues_of(host):
    now = host.system("ethtool", "-l", host.netdev).split("Current")[1]
    return {kind: int(re.search(rf"^{kind.upper()}:\s*(\d+)$", now, re.M)[1]) for kind in ("rx", "tx")}


def set_queues(lab, count):
    """Of both ends. Who sends never has more queues than the other end receives with: a veth drops what has no XDP ring."""
    for growing in (True, False):
        for kind in ("rx", "tx") if growing else ("tx", "rx"):
            for host in (lab.a, lab.b):
                now = queues_of(host)[kind]
                if now != count and (now < count) == growing:
                    host.system("ethtool", "-L", host.netdev, kind, str(count))


def more_and_back(lab, back_is_refused):
    """4 queues, and 1 again: the kernel refuses that while AF_XDP sockets are on them."""
    set_queues(lab, 4)
    time.sleep(1)
    refused = False
    try:
        set_queues(lab, 1)
    except LabError:
        refused = True
    check(refused == back_is_refused, f"fewer queues: {'refused' if refused else 'taken'}")


def detach(lab):
    """Somebody detaches the XDP programs of both hosts by force."""
    for host in (lab.a, lab.b):
        program = host.xdp_program()["prog"]["id"]
        for link in json.loads(host.system("bpftool", "-j", "link")):
            if link.get("prog_id") == program:
                host.system("bpftool", "link", "detach", "id", str(link["id"]))
        check(not host.xdp_program(), f"still there: {host.xdp_program()}")


def other_mac(lab):
    """The host says so to its neighbours, as the kernel of a guest does that was told that it has moved."""
    for host in (lab.a, lab.b):
        host.system("sysctl", "-qw", f"net.ipv4.conf.{host.netdev}.arp_notify=1")
    lab.b.system("ip", "link", "set", lab.b.netdev, "address", "02:00:00:00:00:77")
    time.sleep(0.3)


def given_up_detached(lab):
    """Without sockets beside nothing arrives any more: said at once, and the program ends in order."""
    server, client = start(lab, "af_xdp", 14, ENDLESS, ["--alone"])
    detach(lab)
    for program in (client, server):
        code = program.wait(40)
        check(code not in (None, 0), f"exit code {code} (None: hangs)\n{program.output}")
        check("somebody has detached uroce's XDP program" in program.output, f"not said\n{program.output}")
    return "said and given up"


# With a broker and alone.
PLANES = [("udp", False), ("af_xdp", False), ("af_xdp", True)]
CHANGES = [
    *(changed("link-down-and-up", io, down_and_up, alone=alone, quick=not alone) for io, alone in PLANES),
    changed("other-mtu", "udp", larger_and_back, quick=False),
    *(
        changed("other-mtu", "af_xdp", larger_and_back, alone=alone, says=["now 9000): opened anew"], quick=not alone)
        for alone in (False, True)
    ),
    *(changed("other-mac", io, other_mac, quick=io == "af_xdp") for io in ("udp", "af_xdp")),
    changed("other-queues", "udp", lambda lab: more_and_back(lab, False), before=lambda lab: set_queues(lab, 1), quick=False),
    *(
        changed("other-queues", "af_xdp", lambda lab: more_and_back(lab, True), before=lambda lab: set_queues(lab, 1), alone=alone, says=["4 queues"],
                quick=alone)
        for alone in (False, True)
    ),
    changed("detached", "af_xdp", detach, says=["somebody has detached uroce's XDP program", "through sockets"]),
    Case("detached-af_xdp-alone", given_up_detached, quick=False),
]

CASES = [
    *(stopped(who, io, 0.5, 14, quick=(who, io) in (("server", "udp"), ("client", "af_xdp"))) for who in ("server", "client") for io in ("udp", "af_xdp")),
    stopped("server", "udp", 0.5, 14, times=5),
    stopped("client", "af_xdp", 4, 17),
    stopped("both", "udp", 3, 10),
    stopped("server", "udp", 4, 10, ("--patience", 20)),
    stopped("server", "udp", 20, 18, quick=False),
    given_up("udp"),
    given_up("af_xdp", quick=False),
    *CHANGES,
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES, lambda options, mtu: Lab(options.build, mtu, queues=4)))
