#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""`uroce run --user`: AF_XDP for a program of an ordinary user, which has no capabilities left once it is open, and
follows the network all the same. See suite.py."""

import itertools
import pwd
import sys
from pathlib import Path

from suite import Case, check, main
from lab import NOBODY, wait_until

USER = pwd.getpwuid(NOBODY).pw_name
NET_ADMIN = 1 << 12
_ports = itertools.count(21000)


def as_user(lab, host, command, *options):
    """The command through `uroce run --user` on a host, started by root."""
    return host.start([lab.uroce_for(True), "run", "--user", USER, *options, "--", *command], uroce=False)


def statuses(program):
    """What the kernel says of each thread, by name."""
    for thread in Path(f"/proc/{program.pid}/task").iterdir():
        yield dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())


def capabilities(program, kind):
    """Those that any thread of the program has."""
    found = 0
    for status in statuses(program):
        found |= int(status[kind], 16)
    return found


def endless(lab, *options):
    """A perftest pair of the ordinary user over AF_XDP that runs until it is ended; packets flow."""
    port = next(_ports)
    command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", port, "-s", 4096, "--run_infinitely", "-D", 1]
    server = as_user(lab, lab.a, command, "--io", "af_xdp", *options)
    server.wait_listening(port)
    client = as_user(lab, lab.b, [*command, lab.a.ipv4], "--io", "af_xdp", *options)
    traffic_flows(lab, server, client)
    return server, client


def traffic_flows(lab, *programs):
    """A thousand packets more, and the programs live."""
    before = lab.a.packets()
    ended = lambda: next((program for program in programs if not program.running()), None)
    wait_until(lambda: lab.a.packets() > before + 1000 or ended(), 20, "RDMA packets flow")
    check(not ended(), f"ended: {ended().output if ended() else ''}")


def given_up(lab):
    """No thread has a capability left, and neighbours, MAC addresses and addresses that change are followed."""
    # Host a tells its neighbours of a new MAC address: what they send to the old one brings it to nobody's notice.
    lab.a.system("sysctl", "-qw", f"net.ipv4.conf.{lab.a.netdev}.arp_notify=1")
    server, client = endless(lab)
    for program in (server, client):
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            check(capabilities(program, kind) == 0, f"{kind}: {capabilities(program, kind):x}\n{program.output}")
        for status in statuses(program):
            check(status["Uid"].split() == [str(NOBODY)] * 4, f"Uid {status['Uid']}")
        check("keep" not in program.output and "af_xdp" in program.output, program.output)
    lab.b.system("ip", "neighbour", "flush", "dev", lab.b.netdev)
    traffic_flows(lab, server, client)
    # Its map in the XDP program has another entry then, and the peer hears of the new address.
    lab.a.system("ip", "link", "set", "dev", lab.a.netdev, "address", "02:00:00:00:00:99")
    traffic_flows(lab, server, client)
    lab.a.system("ip", "address", "add", "192.0.2.99/24", "dev", lab.a.netdev)
    lab.a.system("ip", "address", "del", "192.0.2.99/24", "dev", lab.a.netdev)
    traffic_flows(lab, server, client)
    check(lab.a.xdp_program(), "not by AF_XDP")


def kept(lab):
    """Only on request."""
    server, client = endless(lab, "--keep-capabilities")
    for program in (server, client):
        check(capabilities(program, "CapEff") & NET_ADMIN, program.output)


def of_root(lab):
    """Root's rights are root's."""
    port = next(_ports)
    command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", port, "--run_infinitely", "-D", 1]
    server = lab.a.start(command, io="af_xdp")
    server.wait_listening(port)
    client = lab.b.start([*command, lab.a.ipv4], io="af_xdp")
    traffic_flows(lab, server, client)
    check(capabilities(server, "CapEff") & NET_ADMIN, server.output)


def refused(lab):
    """Who cannot be, and who may not ask."""
    for user, by_nobody, said in (
        ("nosuchuser", False, "there is no such user"),
        ("root", False, "that is root"),
        (USER, True, "it needs root"),
    ):
        program = lab.a.run([lab.uroce_for(True), "run", "--user", user, "--", "true"], uroce=False, user=by_nobody)
        check(program.process.returncode == 1 and said in program.output, f"{program.process.returncode}: {program.output}")
    program = lab.a.run([lab.uroce_for(True), "run", "--user", USER, "--", "sh", "-c", 'echo "$HOME $USER"; id -u; id -G'], uroce=False)
    account = pwd.getpwnam(USER)
    check(program.stdout.split() == [account.pw_dir, USER, str(NOBODY), str(account.pw_gid)], program.output)


CASES = [
    Case("given-up", given_up),
    Case("kept", kept),
    Case("of-root", of_root),
    Case("refused", refused),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
