#!/usr/bin/env -S python3 -B
"""Programs over the distribution's own librdmacm, which opens the rdma_cm file of uroce. Names of cases say WHAT/WHERE/WHO/ADDRESSES:

  WHAT       a pair of programs (cm_programs.py)
  WHERE      hosts       server and client on two hosts
             one-host    both on one
  WHO        root        root, with the broker that `uroce run` starts
             user        ordinary users, under root's broker
             alone       root without a broker (`uroce run --alone`)
  ADDRESSES  ipv4, ipv6

life/, many/ and loss/ are others (rdma_cm_life.py).

Options: see suite.py.
"""

import itertools
import sys

import rdma_cm_life
from suite import Case, main
from broker import end_brokers, start_broker
from cm_programs import programs, run, words

# Its rconnect() says ENOENT; over Linux's own rdma_cm with rxe, too.
LEFT_OUT = {"udpong"}


def run_pair(lab, pair, where, who, version):
    server, client = lab.b, lab.b if where == "one-host" else lab.a

    def start(host, command):
        line = words(command, server, client, version, lambda name: lab.program_for(who == "user", name) if name == "cm_exchange" else name)
        return host.start(line, user=who == "user", options=["--alone"] if who == "alone" else [])

    end_brokers(lab)
    if who == "user":
        for host in {server, client}:
            start_broker(lab, host)
    run(pair, server, client, start, start, alone=who == "alone")


def cases():
    for pair, where, who in itertools.product(programs(), ("hosts", "one-host"), ("root", "user", "alone")):
        if pair.name in LEFT_OUT or (where == "one-host" and who == "alone"):
            continue
        for version in pair.versions:
            quick = pair.quick and (where, who, version) in (("hosts", "root", "ipv4"), ("one-host", "user", "ipv4"))
            quick |= pair.name == "rping" and (where, who, version) == ("hosts", "root", "ipv6")
            quick |= pair.name in ("rping", "cm_exchange") and who == "alone" and version == "ipv4"
            name = f"{pair.name}/{where}/{who}/{version}"
            yield Case(name, lambda lab, p=pair, a=where, o=who, v=version: run_pair(lab, p, a, o, v), quick=quick)


if __name__ == "__main__":
    sys.exit(main(__doc__, [*cases(), *rdma_cm_life.cases()]))
