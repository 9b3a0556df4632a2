# SPDX-License-Identifier: BSD-2-Clause
"""Cases of rdma_cm.py about the life of programs and brokers, and about loss: who ends how, and what is left of it."""

import json
import re

from broker import end_brokers, start_broker
from cm_programs import RPINGS_RACE, listens
from lab import wait_until
from suite import Case, check

ENDLESS = ["-C", "100000000"]


def cm_ids(lab, host):
    """The ids that the host's broker knows: (state, client's process id or None)."""
    told = json.loads(host.run([lab.build / "bin/uroce", "stat", "--json", "--interval", "0"], uroce=False).stdout)
    return [(known["state"], known["client"]) for known in told["connections"]["ids"]]


def in_state(lab, host, state):
    return sum(known == state for known, _ in cm_ids(lab, host))


def brokers(lab, *options):
    end_brokers(lab)
    return [start_broker(lab, host, options) for host in (lab.a, lab.b)]


def endless_rping(lab):
    server = lab.b.start(["rping", "-s", "-P", "-a", lab.b.ipv4], io="udp")
    wait_until(lambda: listens(lab.b, server), 20, "rping listens")
    client = lab.a.start(["rping", "-c", "-a", lab.b.ipv4, *ENDLESS], io="udp")
    wait_until(lambda: in_state(lab, lab.b, "established") == 1, 20, "the connection")
    return server, client


def short_rping(lab):
    program = lab.a.run(["rping", "-c", "-a", lab.b.ipv4, "-C", "5", "-V"], io="udp")
    check(program.process.returncode == 0 or RPINGS_RACE in program.output, program.output)


def client_dies(lab):
    """Its peer is told, at once, and goes on with others."""
    brokers(lab)
    server, client = endless_rping(lab)
    client.kill()
    wait_until(lambda: in_state(lab, lab.b, "established") == 0, 5, "the server's side is told")
    check(server.running(), server.output)
    short_rping(lab)
    nothing_left(lab, server)


def server_dies(lab):
    brokers(lab)
    server, client = endless_rping(lab)
    server.kill()
    wait_until(lambda: not client.running(), 10, "the client is told and ends")
    check("DISCONNECT EVENT" in client.output, client.output)
    check(in_state(lab, lab.b, "listen") == 0, "the dead server listens")


def broker_dies(lab):
    """Connections go on, and the next broker knows them and the listener."""
    old = brokers(lab)
    server, client = endless_rping(lab)
    for broker in old:
        broker.kill()
    for host in (lab.a, lab.b):
        start_broker(lab, host)
    for host in (lab.a, lab.b):
        wait_until(lambda where=host: in_state(lab, where, "established") == 1, 10, "the next broker knows the connection")
    check(client.running(), client.output)
    short_rping(lab)
    client.kill()
    wait_until(lambda: in_state(lab, lab.b, "established") == 0, 5, "the server's side is told by the next broker")
    nothing_left(lab, server)


def netdev_goes(lab):
    """Both sides are told that their device is gone; nobody hangs, and the brokers live."""
    living = brokers(lab)
    programs = endless_rping(lab)
    lab.b.system("ip", "link", "delete", "dev", lab.b.netdev)  # of a veth pair: the other one goes with it
    for program in programs:
        wait_until(lambda who=program: "detected device removal" in who.output, 10, "RDMA_CM_EVENT_DEVICE_REMOVAL")
        program.kill()
    for host, broker in zip((lab.a, lab.b), living):
        check(broker.running(), broker.output)
        # What is left of connections has nobody any more, and is given up when nobody has answered for long enough.
        wait_until(lambda where=host: all(client is None for _, client in cm_ids(lab, where)), 15, "the programs' ids are gone")


def nothing_left(lab, server):
    """Of connections, once TIMEWAIT is over; the server listens."""
    wait_until(lambda: [state for state, _ in cm_ids(lab, lab.b)] == ["listen"], 15, "all ids but the listener are gone")
    server.kill()
    for host in (lab.a, lab.b):
        wait_until(lambda where=host: not cm_ids(lab, where), 15, "all ids are gone")


def many(count):
    def run(lab):
        brokers(lab)
        server = lab.b.start(["cmtime", "-b", lab.b.ipv4, "-c", count], io="udp")
        wait_until(lambda: listens(lab.b, server), 20, "cmtime listens")
        client = lab.a.run(["cmtime", "-s", lab.b.ipv4, "-c", count], timeout=120, io="udp")
        check(client.process.returncode == 0, client.output)
        times = dict(re.findall(r"^(\w+)\s*(?:addr|route|id|qp)?\s*:\s+([\d.]+)", client.stdout, re.M))
        server.kill()
        for host in (lab.a, lab.b):
            wait_until(lambda where=host: not cm_ids(lab, where), 30, "all ids are gone")
        return ", ".join(f"{step} {time} ms" for step, time in times.items() if step in ("connect", "disconnect"))

    return run


def loss(lab):
    """Of each ten management datagrams one is lost, one comes twice and one late, each way: all connect, and end."""
    brokers(lab, "--faults", "drop=10%,dup=10%,reorder=10%")
    many = ["-c", "30", "-m", "-C", "10"]
    server = lab.b.start(["ucmatose", *many, "-b", lab.b.ipv4], io="udp")
    wait_until(lambda: listens(lab.b, server), 20, "ucmatose listens")
    client = lab.a.run(["ucmatose", "-s", lab.b.ipv4, *many], timeout=240, io="udp")
    check(client.process.returncode == 0 and "return status 0" in client.stdout, client.output)
    check(server.wait(120) == 0, server.output)


def cases():
    yield Case("life/client-dies", client_dies)
    yield Case("life/server-dies", server_dies)
    yield Case("life/broker-dies", broker_dies)
    yield Case("life/netdev-goes", netdev_goes, mtu=2048)  # the only one on these hosts
    yield Case("many/1000", many(1000))
    yield Case("many/10000", many(10000), quick=False)
    yield Case("loss/one-in-ten", loss, quick=False)
