#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Programs over the distribution's own librdmacm, which opens the rdma_cm file of uroce. Names of cases say WHAT/WHERE/WHO/ADDRESSES, and
where it matters /IO and /lossy:

  WHAT       a pair of programs (cm_programs.py), or a larger one (rdma_cm_apps.py)
  WHERE      hosts       server and client on two hosts
             one-host    both on one
  WHO        root        root, with the broker that `uroce run` starts
             user        ordinary users, under root's broker
             alone       root without a broker (`uroce run --alone`)
  ADDRESSES  ipv4, ipv6
  IO         af_xdp; else UDP sockets, as these netdevs (veth) have it by default
  lossy      packets are lost, come twice and late, management datagrams too

life/, many/ and loss/ are others (rdma_cm_life.py).

Options: see suite.py.
"""

import sys

import rdma_cm_apps
import rdma_cm_life
from suite import Case, main
from cm_programs import programs, run, words
from rdma_cm_place import Place, places

# Datagrams of rsocket are not for RoCE (docs/rdma-cm.md).
LEFT_OUT = {"udpong"}
# What is lost of datagrams, these programs wait for in vain.
NOT_LOSSY = {"cm_exchange", "udaddy", "mckey"}


def run_pair(lab, pair, place):
    server, client = place.prepare(lab)

    def start(host, command):
        def path_of(name):
            return place.path_of(lab, name) if name == "cm_exchange" else name

        return place.start(host, words(command, server, client, place.version, path_of))

    run(pair, server, client, start, start, seconds=240 if place.lossy else None, alone=place.who == "alone",
        lossy=place.lossy)


def is_quick(pair, place):
    if place.io or place.lossy:
        return False
    what = (place.where, place.who, place.version)
    quick = pair.quick and what in (("hosts", "root", "ipv4"), ("one-host", "user", "ipv4"))
    quick |= pair.name == "rping" and what == ("hosts", "root", "ipv6")
    return quick or (pair.name in ("rping", "cm_exchange") and what == ("hosts", "alone", "ipv4"))


def places_of(pair):
    """Variants of perftest, of which there are many, run as root only."""
    yield from (place for place in places() if not pair.variant or place.who == "root")
    yield from (Place(version=version, io="af_xdp") for version in ("ipv4", "ipv6"))
    if not pair.datagrams and pair.name not in NOT_LOSSY:
        yield Place(lossy=True)
        yield Place(io="af_xdp", lossy=True)


def cases():
    for pair in programs():
        if pair.name in LEFT_OUT:
            continue
        for place in places_of(pair):
            if place.version in pair.versions:
                name, quick = f"{pair.name}/{place.name}", is_quick(pair, place)
                yield Case(name, lambda lab, p=pair, at=place: run_pair(lab, p, at), quick=quick)


if __name__ == "__main__":
    sys.exit(main(__doc__, [*cases(), *rdma_cm_apps.cases(), *rdma_cm_life.cases()]))
