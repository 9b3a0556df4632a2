#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""uroce against an endpoint that it did not write: unmodified programs and our data-checking ones, in both directions.

The peer is Linux Soft-RoCE (rxe) in a virtual machine that the script boots, or with --peer a machine that you have, such
as one with a ConnectX. Names of cases: PROGRAM/WAY-DIRECTION, where "to-peer" means that the client is here.

  sudo tools/interop                                       the short form, three minutes
  sudo tools/interop --full                                all of it
  sudo tools/interop --filter ib_send --list
  sudo tools/interop --peer HOST --peer-device mlx5_0 --peer-address 198.51.100.2 --netdev eth1 --address 198.51.100.1
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tools/lib")]

import bad_peers
import cm_cases
import guest_netdevs
import inside_guest
import storage_cases
from cases import DEFAULT_MIX, DIRECTIONS, FAULTS, errors, pair, transfer
from interop_lab import JUMBO, GuestLab, PeerLab
from lab import SKIPPED, LabError, Unavailable
from perftest import BANDWIDTH, LATENCY, PINGPONGS
from suite import main

PROGRAMS = BANDWIDTH + LATENCY
SEND = ("ib_send_bw", "ib_send_lat")
UC = ("ib_write_bw", "ib_write_lat", *SEND)
# Nothing paces an unreliable sender, and perftest waits for every message.
UNPACED = ["--rate_limit", "0.02", "--rate_units", "g", "--rate_limit_type", "SW", "--burst_size", "4"]
# Without READs of zero bytes: when one is repeated, rxe refuses it with a NAK for the rkey, which nobody gave (docs/interop.md).
EVERYTHING = "send,send_imm,send_inv,write,write_imm,read,cas,faa,inline,multi-sge"
PLAIN = ["--messages", 200]
FENCED = [*PLAIN, "--mix", f"{DEFAULT_MIX},fence"]
KINDS = EVERYTHING.split(",")[:8]


# perftest asks each side for as many outstanding READs and atomics as the other one's device can do, which only works
# between devices of one kind: rxe can do 128, uroce as a ConnectX 16.
OUTSTANDING = ["-o", "16"]


# Of our side alone: rxe of 6.1 tells a program of a completion too few, about once in 200 runs of ib_send_lat (docs/interop.md).
EVENTS = ["-e"]


def iterations(program):
    count = ["-n", "200" if program in BANDWIDTH else "500"]
    return [*count, *OUTSTANDING] if program.startswith(("ib_read", "ib_atomic")) else count


def both(make, *arguments, quick=True, **how):
    """The case in both directions; quick: whether the short form has them, or the direction that it has."""
    return [make(*arguments, direction=direction, quick=quick in (True, direction), **how) for direction in DIRECTIONS]


def perftest():
    for program in PROGRAMS:
        yield from both(pair, program, "rc", iterations(program), quick="to-peer" if program in BANDWIDTH else "from-peer")
        yield from both(pair, program, "rc-ipv6", iterations(program), gid="ipv6", quick=program == "ib_send_bw" and "from-peer")
        if not program.startswith("ib_write"):
            yield from both(pair, program, "events", iterations(program), own=EVENTS, quick=program == "ib_send_lat")
        if program in BANDWIDTH:
            yield from both(pair, program, "qps-8", [*iterations(program), "-q", "8"], quick=False)
        if program.startswith(("ib_write", "ib_send")):
            yield from both(pair, program, "inline", ["-I", "64", "-s", "64", *iterations(program)], quick=False)
        if not program.startswith("ib_atomic"):
            for size, count in ((1, 200), (4 << 20, 5)):
                yield from both(pair, program, f"size-{size}", [*iterations(program), "-s", size, "-n", count], quick=False)


def unreliable():
    for program in UC:
        arguments = ["-c", "UC", *(["-n", "50", *UNPACED] if program in BANDWIDTH else iterations(program))]
        yield from both(pair, program, "uc", arguments, quick={"ib_write_bw": "to-peer", "ib_send_bw": "from-peer"}.get(program, False))
    for program in SEND:
        arguments = ["-c", "UD", *(["-n", "200", *UNPACED] if program in BANDWIDTH else iterations(program))]
        yield from both(pair, program, "ud", arguments, quick=program in BANDWIDTH)
        yield from both(pair, program, "ud-ipv6", arguments, gid="ipv6", quick=False)


def pingpongs():
    for program in PINGPONGS[:-1]:  # rxe has no XRC
        check = [] if "ud" in program else ["-c"]
        yield from both(pair, program, "ipv4", [*check, "-n", "300"], quick="to-peer")
        yield from both(pair, program, "events", [*check, "-n", "300"], own=EVENTS, quick=False)


def path_mtus():
    for mtu in (256, 512, 1024):
        yield from both(transfer, f"mtu-{mtu}", ["--mtu", mtu, "--messages", 100], quick=mtu == 256)
    for mtu in (2048, 4096):
        yield from both(transfer, f"mtu-{mtu}", ["--mtu", mtu, "--messages", 100, "--max-size", 1 << 20], mtu=JUMBO, quick=False)
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            yield from both(pair, program, f"mtu-{mtu}", [*iterations(program), "-m", mtu], mtu=JUMBO, quick=False)


def transfers():
    yield from both(transfer, "everything", ["--mix", EVERYTHING, "--messages", 300])
    yield from both(transfer, "fences", FENCED, quick="from-peer")
    yield from both(transfer, "zero", ["--mix", "send,send_imm,write,write_imm,zero", "--messages", 200], quick=False)
    yield from both(transfer, "bidirectional", ["--bidirectional", "--qps", 4, "--messages", 100], quick="from-peer")
    yield from both(transfer, "ipv6", ["--messages", 200], gid="ipv6", quick="to-peer")
    yield from both(transfer, "events", ["--events", "--messages", 200], quick="to-peer")
    yield from both(transfer, "unsignaled", ["--unsignaled", "--messages", 200], quick=False)
    yield from both(transfer, "rnr", ["--rnr", "--mix", "send,send_imm,write_imm", "--messages", 100, "--max-size", 20000], quick="from-peer")
    yield from both(transfer, "long", ["--mix", EVERYTHING, "--bidirectional", "--messages", 5000], timeout=600, quick=False)
    for kind in KINDS:
        yield from both(transfer, f"only-{kind}", ["--mix", kind, "--messages", 300], quick=False)


def faults():
    yield from both(transfer, "faults", PLAIN, faults=FAULTS)
    yield transfer("faults-fences", FENCED, "to-peer", faults=FAULTS)
    yield from both(transfer, "faults-bidirectional", [*PLAIN, "--bidirectional", "--qps", 2], faults=FAULTS, quick="to-peer")
    for fault in ("drop=3%", "reorder=5%", "dup=5%", "corrupt=3%"):
        yield from both(transfer, fault.split("=")[0], PLAIN, faults=fault, quick=False)
    yield from both(transfer, "faults-ipv6", PLAIN, faults=FAULTS, gid="ipv6", quick=False)
    for program in BANDWIDTH:
        yield from both(pair, program, "faults", iterations(program), faults=FAULTS, timeout=120, quick=False)


def over_udp():
    """Runs leave, which rxe takes, and packets come one by one."""
    how = {"io": "udp", "runs": True}
    yield from both(transfer, "udp", ["--mix", EVERYTHING, "--messages", 200], **how)
    yield from both(transfer, "udp-ipv6", PLAIN, gid="ipv6", **how, quick=False)
    yield from both(transfer, "udp-mtu-4096", ["--mtu", 4096, "--messages", 100, "--max-size", 1 << 20], mtu=JUMBO, **how, quick=False)
    yield from both(transfer, "udp-bidirectional", [*PLAIN, "--bidirectional", "--qps", 4], **how, quick=False)
    yield from both(transfer, "udp-faults", PLAIN, faults=FAULTS, quick="to-peer", **how)
    for fault in ("drop=3%", "reorder=5%", "dup=5%", "corrupt=3%"):
        yield from both(transfer, f"udp-{fault.split('=')[0]}", PLAIN, faults=fault, **how, quick=False)
    for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
        yield from both(pair, program, "udp", iterations(program), io="udp", quick=False)
        yield from both(pair, program, "udp-faults", iterations(program), faults=FAULTS, io="udp", timeout=120, quick=False)
    for transport in ("UC", "UD"):  # rxe is asked whether it takes runs, and does not answer
        yield from both(pair, "ib_send_bw", f"{transport.lower()}-udp", ["-c", transport, "-n", "200", *UNPACED], io="udp", quick=False)


def failing_requests():
    yield from both(errors, "ipv4", quick="to-peer")
    yield from both(errors, "udp", io="udp", quick=False)


def cases(options):
    chosen = [*perftest(), *unreliable(), *pingpongs(), *path_mtus(), *transfers(), *faults(), *over_udp(), *failing_requests()]
    if options.peer and not (options.address6 and options.peer_address6):
        chosen = [case for case in chosen if "ipv6" not in case.name]
    return chosen if options.peer else [*chosen, *cm_cases.cases(), *storage_cases.cases(), *inside_guest.cases(), *guest_netdevs.cases(), *bad_peers.cases()]


def add_options(parser):
    parser.add_argument("--accel", action="append", metavar="NAME", help="QEMU's accelerator (tcg,thread=multi), e.g. kvm")
    remote = parser.add_argument_group("another machine instead of the virtual one")
    remote.add_argument("--peer", metavar="HOST", help="where ssh goes, as a user that may use its RDMA device")
    remote.add_argument("--peer-device", metavar="NAME", help="its device, e.g. mlx5_0")
    remote.add_argument("--peer-address", metavar="IPv4", help="its address on the RoCE network")
    remote.add_argument("--peer-address6", metavar="IPv6", default="", help="likewise; without it no IPv6 cases")
    remote.add_argument("--netdev", metavar="NAME", help="the netdev here that reaches it")
    remote.add_argument("--address", metavar="IPv4", help="the address of the netdev")
    remote.add_argument("--address6", metavar="IPv6", default="", help="likewise")
    remote.add_argument("--ssh", default="ssh -o BatchMode=yes", metavar="COMMAND", help="(ssh -o BatchMode=yes)")


def make_lab(options, mtu):
    if not options.peer:
        return GuestLab(options.build, mtu, options.accel or ["tcg,thread=multi"])
    missing = [name for name in ("peer_device", "peer_address", "netdev", "address") if getattr(options, name) is None]
    if missing:
        raise LabError("--peer needs " + ", ".join("--" + name.replace("_", "-") for name in missing))
    return PeerLab(options.build, mtu, options)


if __name__ == "__main__":
    try:
        sys.exit(main(__doc__, cases, make_lab, add_options))
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    except LabError as error:
        print(f"interop: {error}", file=sys.stderr)
        sys.exit(1)
