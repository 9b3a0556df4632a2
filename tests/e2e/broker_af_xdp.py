#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""One program with the AF_XDP queues of a netdev, and others with UDP sockets on it at the same time. See suite.py."""

import itertools
import sys

from suite import Case, check, main
from broker import FAULTS, check_ended, check_goes_on, kill_broker, results, start_broker, the_broker, wait_for_no_broker
from lab import BACKGROUND, wait_until

_ports = itertools.count(19000)
QUEUES, SOCKETS = "af_xdp", "udp"
GROUP = ("-g", "-M", "0:0:0:0:0:0:0:0:0:0:255:255:239:77:1:1")


def start_server(command, host, io, **how):
    port = next(_ports)
    server = host.start([*command, "--port", port], io=io, **how)
    server.wait_listening(port)
    return server, port


def start_pair(program, arguments, server, client, gid=0, **how):
    """perftest; server, client: (host, io)."""
    command = [program, "-d", server[0].device, "-F", "-x", gid, *arguments]
    running, port = start_server(command, *server, **how)
    return running, client[0].start([*command, "--port", port, server[0].ipv4], io=client[1], **how)


def endless(server, client, program="ib_write_bw", timer=17):
    """perftest that runs until it is ended; returns when it has begun to run."""
    # On a machine with more to do than cores a program may not run for longer than perftest's timers allow (0.5 s).
    pair = start_pair(program, ["--run_infinitely", "-D", 1, "-u", timer], server, client, prefix=BACKGROUND)
    wait_until(lambda: results(pair[1]) > 0 or not pair[1].running(), 20, "a result each second")
    check(pair[1].running(), pair[1].output)
    for running, (host, io) in zip(pair, (server, client)):
        check(f"uroce: {host.netdev}: {io}" in running.output, running.output)
    return pair


def transfer(lab, server, client, gid, arguments=("--bidirectional", "--messages", 200), faults=(None, None)):
    """rc_transfer, hash-checked."""
    own = [lab.build / "bin/rc_transfer", "--device", lab.a.device, "--gid-index", gid]
    running, port = start_server([*own, "--server"], *server, faults=faults[0])
    command = [*own, *arguments, "--port", port, "--client", server[0].ipv4]
    return running, client[0].start(command, io=client[1], faults=faults[1])


def places(lab):
    """Where the ends of a connection with one AF_XDP user on host a are."""
    return {
        "server-remote": ((lab.a, QUEUES), (lab.b, SOCKETS)),
        "client-remote": ((lab.b, QUEUES), (lab.a, QUEUES)),
        "server-here": ((lab.a, QUEUES), (lab.a, SOCKETS)),
        "client-here": ((lab.a, SOCKETS), (lab.a, QUEUES)),
    }


def all_at_once(lab):
    """Transfers with faults by whoever has the queues, one after the other, and two sockets programs beside it all the time."""
    others = [endless((lab.a, SOCKETS), (lab.b, SOCKETS)), endless((lab.a, SOCKETS), (lab.a, SOCKETS), "ib_read_bw")]
    for gid in (0, 1):
        for name, (server, client) in places(lab).items():
            faults = (f"{FAULTS},seed=1", f"{FAULTS},seed=2") if gid == 0 else (None, None)
            check_ended(transfer(lab, server, client, gid, faults=faults))
            for host in (lab.a, lab.b):
                check(host.xdp_program() is None, f"{name}: an XDP program stays")
    check_goes_on(others)
    return f"{2 * len(places(lab))} transfers"


def perftest(program, *arguments):
    def run(lab):
        told = []
        for name, (server, client) in places(lab).items():
            pair = start_pair(program, ["-n", 200, *arguments], server, client, gid=len(told) % 2)
            check_ended(pair)
            check(QUEUES in pair[0].output + pair[1].output, pair[0].output)
            told.append(name)
        return ", ".join(told)

    return Case(" ".join(map(str, (program, *arguments))), run)


def multicast(lab):
    """Members behind sockets and queues, on this host and another one, each way."""
    for server, client in places(lab).values():
        check_ended(start_pair("ib_send_lat", ["-c", "UD", *GROUP, "-n", 200], server, client))


def killed(name, peers, **case):
    """kill -9 of the program with the queues, whose peer is on the host a or b: nothing stays, others go on, the next one gets
    the queues."""

    def run(lab):
        others = [endless((lab.a, SOCKETS), (lab.b, SOCKETS)), endless((lab.a, SOCKETS), (lab.a, SOCKETS))]
        for peer in peers:
            server, client = endless((lab.a, QUEUES), (getattr(lab, peer), SOCKETS), timer=14)
            server.kill()
            check_ended(transfer(lab, (lab.a, QUEUES), (lab.b, SOCKETS), 0))  # at once
            check(client.wait(60) is not None, f"the peer of a killed program does not end:\n{client.output}")
            check_goes_on(others)
        wait_until(lambda: lab.a.xdp_program() is None, 5, "the XDP program is gone")

    return Case(name, run, **case)


def broker_killed(lab):
    """The next broker knows who has the queues."""
    running = [endless((lab.a, QUEUES), (lab.b, SOCKETS)), endless((lab.a, SOCKETS), (lab.b, SOCKETS))]
    kill_broker(lab.a)
    check_goes_on(running)
    check_ended(transfer(lab, (lab.a, SOCKETS), (lab.b, SOCKETS), 0))
    told = refusal(lab, QUEUES)
    check(f"process {running[0][0].pid} (ib_write_bw)" in told, told)
    check_goes_on(running)


def refusal(lab, io, **how):
    program = lab.a.run(["ibv_rc_pingpong", "-d", lab.a.device, "-g", 0], io=io, **how)
    check(program.process.returncode > 0, program.output)
    return program.output


def second(lab):
    """Of two programs that ask for the queues one is refused, and learns who has them."""
    server, _ = endless((lab.a, QUEUES), (lab.b, SOCKETS))
    told = refusal(lab, QUEUES)
    check(f"process {server.pid} (ib_write_bw) uses AF_XDP" in told and "UROCE_IO=udp" in told, told)


def alone_in_the_way(lab):
    """A program without broker has all packets of the netdev: whoever comes next says so, also one that cannot see it."""
    wait_for_no_broker(lab)
    command = ["ib_send_bw", "-d", lab.a.device, "-F", "-x", 0]
    server, port = start_server(command, lab.a, QUEUES, options=["--alone"])
    client = lab.b.start([*command, "--port", port, "--run_infinitely", lab.a.ipv4], io=SOCKETS)
    wait_until(lambda: lab.a.xdp_program() or not server.running(), 10, "the XDP program is attached")
    broker = start_broker(lab, lab.a, ["--group", "nogroup"])
    for io, user in ((QUEUES, False), (SOCKETS, False), (SOCKETS, True)):
        told = refusal(lab, io, user=user)
        check("without broker (XDP program id" in told, told)
    client.kill()
    server.kill()
    wait_until(lambda: lab.a.xdp_program() is None, 5, "the XDP program is gone")
    check_ended(transfer(lab, (lab.a, QUEUES), (lab.b, SOCKETS), 0))
    check(the_broker(lab.a) and broker.running(), broker.output)


def alone_comes_second(lab):
    """A program without broker does not take the packets of those who are there."""
    running = [endless((lab.a, SOCKETS), (lab.b, SOCKETS))]
    told = refusal(lab, QUEUES, options=["--alone"])
    check("port 4791 on roce0: Address already in use" in told and "--alone" in told, told)
    check_goes_on(running)


CASES = [
    Case("all-at-once", all_at_once),
    Case("all-at-once-jumbo", all_at_once, mtu=9000, quick=False),
    *[perftest(*command) for command in (("ib_send_bw",), ("ib_read_lat",), ("ib_atomic_lat",))],
    *[perftest(program, "-c", transport) for program, transport in (("ib_send_lat", "UD"), ("ib_write_lat", "UC"))],
    perftest("ib_write_bw", "-q", 16, "-s", 1 << 16),
    Case("multicast", multicast),
    killed("killed", "b"),
    killed("killed-thrice", "bab", quick=False),
    Case("broker-killed", broker_killed),
    Case("second", second),
    Case("alone-in-the-way", alone_in_the_way),
    Case("alone-comes-second", alone_comes_second),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
