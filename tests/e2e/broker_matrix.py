#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""What people run on a host with several processes, in all ways in which they share the netdev. Names of cases say
WHAT/WHO/ADDRESSES/PLANE:

  WHAT       two-pairs   two pairs of perftest at once between two hosts, and a hash-checked transfer beside them
             one-host    the same with servers and clients on one host
             ucx         two processes on each host, and two that are on one host together; every byte checked
             openmpi-8, mpich-8    8 ranks on two hosts, 4 on each; collectives and all else, every byte checked
             openmpi-4, mpich-4    4 ranks on one host
  WHO        root        root, with the broker that `uroce run` starts
             users       ordinary users, under a broker of root's
             user        an ordinary user, where nobody has privileges
  ADDRESSES  ipv4, ipv6
  PLANE      udp         UDP sockets
             af_xdp      one program of each host has the AF_XDP queues of the netdev, all others have UDP sockets. Where WHO is users
                         it is a pair of perftest beside WHAT, started by root for a user (uroce run --user). A user without
                         anybody with privileges cannot have queues.

Options: see suite.py.
"""

import itertools
import pwd
import re
import sys
from pathlib import Path

from suite import Case, check, main
from applications import ucx_exchange_several
from broker import check_ended, check_goes_on, end_brokers, endless, start_broker, the_broker, transfer
from lab import NOBODY
from mpi_job import FIRST, MPICH, OPENMPI, run_mpi

QUEUES, SOCKETS = "af_xdp", "udp"
GIDS = {"ipv4": 0, "ipv6": 1}


class Way:
    """In which way a case shares the netdev."""

    def __init__(self, who, addresses, plane):
        self.who, self.addresses, self.plane = who, addresses, plane
        self.user = who != "root"
        self.gid = GIDS[addresses]
        self.has_queues = plane == QUEUES and not self.user  # one of WHAT's own programs
        self.first = QUEUES if self.has_queues else SOCKETS  # packet I/O of the first program of a host

    def __str__(self):
        return f"{self.who}/{self.addresses}/{self.plane}"


# --- what -----------------------------------------------------------------------------------------------------------------


def pairs_at_once(lab, way, other_host):
    """Two pairs of perftest from host a to the other one and back, while a transfer comes to its end."""
    how = {"user": way.user, "gid": way.gid}
    ios = (way.first, way.first if other_host is lab.b else SOCKETS)
    pairs = [
        endless(lab, lab.a, other_host, io=ios, **how),
        endless(lab, other_host, lab.a, program="ib_read_bw", **how),
    ]
    for program, io in zip(pairs[0], ios):
        check(f"uroce: roce0: {io}" in program.output, program.output)
    told = check_ended(transfer(lab, lab.a, other_host, ["--bidirectional", "--messages", 200], **how))
    check_goes_on(pairs)
    return told


def ucx(lab, way):
    return ucx_exchange_several(lab, "rc_verbs", way.gid, way.user, way.first)


def mpi(library, ranks):
    def run(lab, way):
        # What stays on one host needs two ranks for each core at times: small messages, or it takes minutes.
        io = FIRST if way.has_queues else SOCKETS
        return run_mpi(lab, library, ranks, max_size=1 << 14, io=io, gid=way.gid, user=way.user)

    return run


WHAT = {
    "two-pairs": lambda lab, way: pairs_at_once(lab, way, lab.b),
    "one-host": lambda lab, way: pairs_at_once(lab, way, lab.a),
    "ucx": ucx,
    "openmpi-8": mpi(OPENMPI, (4, 4)),
    "openmpi-4": mpi(OPENMPI, (4, 0)),
    "mpich-8": mpi(MPICH, (4, 4)),
    "mpich-4": mpi(MPICH, (4, 0)),
}

# --- who ------------------------------------------------------------------------------------------------------------------


def check_broker(host, way):
    """Whose it is."""
    status = Path(f"/proc/{the_broker(host)}/status").read_text()
    uid = int(re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)[1])
    check(uid == (NOBODY if way.who == "user" else 0), f"the broker is of user {uid}")


def queues_of_user(lab):
    """A pair of perftest of the ordinary user that has the AF_XDP queues of both hosts; root has started it."""
    name = pwd.getpwuid(NOBODY).pw_name

    def start(host, command, io):
        return host.start([lab.uroce_for(True), "run", "--user", name, "--io", io, "--", *command], uroce=False)

    pair = endless(lab, lab.a, lab.b, io=(QUEUES, QUEUES), start=start)
    for program in pair:
        check(f"uroce: roce0: {QUEUES}" in program.output, program.output)
    return pair


def datagrams(host):
    """UDP datagrams that the host's sockets have sent, by version of IP."""
    v4 = [line.split() for line in host.system("cat", "/proc/net/snmp").splitlines() if line.startswith("Udp:")]
    v6 = re.search(r"^Udp6OutDatagrams\s+(\d+)", host.system("cat", "/proc/net/snmp6"), re.MULTILINE)
    return {"ipv4": int(dict(zip(*v4))["OutDatagrams"]), "ipv6": int(v6[1])}


# --- cases ----------------------------------------------------------------------------------------------------------------


def run_in(what, way):
    def run(lab):
        end_brokers(lab)
        brokers = [start_broker(lab, host) for host in (lab.a, lab.b)] if way.who == "users" else []
        beside = [queues_of_user(lab)] if way.plane == QUEUES and way.user else []
        before = datagrams(lab.a)
        told = WHAT[what](lab, way)
        moved = {version: count - before[version] for version, count in datagrams(lab.a).items()}
        # Few where programs of one host meet, and memory carries the rest.
        check(moved[way.addresses] > 10 * min(moved.values()), f"UDP datagrams sent: {moved}")
        check_broker(lab.a, way)
        check(all(f"user {NOBODY}" in broker.output for broker in brokers[:1]), "no user has come to root's broker")
        check_goes_on(beside)
        return told

    return run


# The others run with --full. Each of WHAT, and each way, is in some of these.
QUICK = {
    "two-pairs/root/ipv6/af_xdp",
    "one-host/user/ipv6/udp",
    "ucx/user/ipv6/udp",
    "openmpi-8/users/ipv6/udp",
    "openmpi-4/root/ipv4/af_xdp",
    "mpich-4/users/ipv4/af_xdp",
}
WAYS = [
    Way(who, addresses, plane)
    for who, addresses, plane in itertools.product(("root", "users", "user"), GIDS, (SOCKETS, QUEUES))
    if (who, plane) != ("user", QUEUES)
]
CASES = [Case(f"{what}/{way}", run_in(what, way), quick=f"{what}/{way}" in QUICK) for what in WHAT for way in WAYS]

if __name__ == "__main__":
    check(QUICK <= {case.name for case in CASES}, f"no such cases: {QUICK - {case.name for case in CASES}}")
    sys.exit(main(__doc__, CASES))
