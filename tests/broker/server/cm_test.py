#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Two brokers on two hosts (network namespaces, joined by a veth pair), and programs that make connections by their connection
managers (cm_peer): over IPv4, IPv6 and link-local addresses, as root and as an ordinary user, with loss, and when programs and
brokers are killed.

As root; skips itself otherwise. Usage: cm_test.py DIRECTORY_OF_PROGRAMS [unittest arguments]
With --rate: connections per second, and nothing else.
"""
import contextlib
import json
import os
import pwd
import re
import select
import signal
import subprocess
import sys
import time
import unittest

SKIPPED = 77
USER = pwd.getpwnam("daemon")
AS_USER = ["setpriv", "--reuid", str(USER.pw_uid), "--regid", str(USER.pw_gid), "--clear-groups"]
NETDEV, PORT, PATIENCE = "veth0", "7471", 60
# Loss, and what comes twice or late: a message waits 4 to 6 s for its answer.
FAULTS = "drop=10%,dup=5%,reorder=10%,seed="
programs = ""


class Host:
    def __init__(self, number, user):
        self.number, self.user = number, user
        self.name = f"uroce-cm-{os.getpid()}-{number}"
        self.v4, self.v6, self.link_local = f"10.77.0.{number}", f"fd77::{number}", f"fe80::{number}"
        self.broker = None

    def command(self, *arguments):
        return ["ip", "netns", "exec", self.name, *(AS_USER if self.user else []), *arguments]

    def ip(self, *arguments):
        subprocess.run(["ip", "-n", self.name, *arguments], check=True)

    def configure(self):
        self.ip("link", "set", "lo", "up")
        self.ip("link", "set", NETDEV, "addrgenmode", "none")
        for address in (f"{self.v4}/24", f"{self.v6}/64", f"{self.link_local}/64"):
            self.ip("address", "add", address, "dev", NETDEV, *(["nodad"] if ":" in address else []))
        self.ip("link", "set", NETDEV, "up")

    def start_broker(self, *options):
        readable, writable = os.pipe()
        self.broker = subprocess.Popen(self.command(f"{programs}/uroced", "--ready", str(writable), *options),
                                       pass_fds=[writable], stderr=subprocess.DEVNULL)
        os.close(writable)
        with open(readable, encoding="ascii") as ready:
            line = ready.readline()
        if line != "\n":
            raise AssertionError(f"no broker: {line!r}")

    def end_broker(self, how=signal.SIGTERM):
        if self.broker is not None:
            self.broker.send_signal(how)
            self.broker.wait(20)
        self.broker = None


class Program:
    """cm_peer; what it says is read line by line."""

    def __init__(self, host, *arguments):
        self.process = subprocess.Popen(host.command(f"{programs}/cm_peer", *map(str, arguments)), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.said = []

    def hear(self, pattern, patience=PATIENCE):
        """The next line that matches; others are passed over."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if not select.select([self.process.stdout], [], [], 0.2)[0]:
                continue
            line = self.process.stdout.readline()
            if not line:
                break
            self.said.append(line.strip())
            found = re.fullmatch(pattern, line.strip())
            if found:
                return found
        raise AssertionError(f"no line like {pattern!r}: {self.said}")

    def finish(self):
        """Ends its standard input."""
        self.process.stdin.close()

    def kill(self):
        self.process.kill()
        self.process.wait(20)
        self.process.stdout.close()


@contextlib.contextmanager
def two_hosts(user=False, faults=None):
    hosts = [Host(1, user), Host(2, user)]
    try:
        for host in hosts:
            subprocess.run(["ip", "netns", "add", host.name], check=True)
        hosts[0].ip("link", "add", NETDEV, "type", "veth", "peer", "name", NETDEV, "netns", hosts[1].name)
        for host in hosts:
            host.configure()
        for host in hosts:
            host.start_broker(*(["--faults", f"{faults}{host.number}"] if faults else []))
        yield hosts
    finally:
        for host in hosts:
            host.end_broker()
            subprocess.run(["ip", "netns", "del", host.name], check=False)


@contextlib.contextmanager
def program(host, *arguments):
    started = Program(host, *arguments)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.process.wait(20)
        started.process.stdout.close()
        if not started.process.stdin.closed:
            started.process.stdin.close()


@contextlib.contextmanager
def serving(host):
    with program(host, "serve", NETDEV, host.v4, PORT) as server:
        server.hear("ready")
        yield server


def stat(host, *options):
    return subprocess.run(host.command(f"{programs}/uroce", "stat", "--interval", "0", *options), capture_output=True, text=True,
                          timeout=20, check=True)


def sockets_of(broker):
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


class Connections(unittest.TestCase):
    def connect_all(self, hosts, count=50, patience=PATIENCE):
        here, there = hosts
        with serving(there) as server:
            for local, remote in ((here.v4, there.v4), (here.v6, there.v6), (here.link_local, there.link_local)):
                with program(here, "connect", NETDEV, local, remote, PORT, count, count) as client:
                    client.hear(f"connected {count} rejected 0 unreachable 0 rate .*", patience)
                    self.assertEqual(client.process.wait(20), 0)
            server.finish()
            server.hear(f"accepted {3 * count} established {3 * count} ended {3 * count} open 0")

    def test_as_root(self):
        with two_hosts() as hosts:
            self.connect_all(hosts)

    def test_as_a_user(self):
        with two_hosts(user=True) as hosts:
            self.connect_all(hosts)

    def test_with_loss(self):
        """All connect; the end of some may be lost for good, with as many repetitions as that takes."""
        with two_hosts(faults=FAULTS) as (here, there), serving(there):
            with program(here, "connect", NETDEV, here.v4, there.v4, PORT, 300, 300) as client:
                client.hear("connected 300 rejected 0 unreachable 0 rate .*", 400)  # an MRA may put the next REP off by 69 s

    def test_within_a_host(self):
        with two_hosts() as (here, _), serving(here):
            with program(here, "connect", NETDEV, here.v4, here.v4, PORT, 50, 50) as client:
                client.hear("connected 50 rejected 0 unreachable 0 rate .*")

    def test_nobody_listens(self):
        with two_hosts() as (here, there):
            with program(here, "connect", NETDEV, here.v4, there.v4, PORT, 5, 5) as client:
                client.hear("connected 0 rejected 5 unreachable 0 rate .*")

    def test_a_killed_program_ends_its_connections(self):
        with two_hosts() as (here, there), serving(there) as server:
            with program(here, "connect", NETDEV, here.v4, there.v4, PORT, 100, 100, "hold") as client:
                client.hear("open 100")
                server.hear("all established: 100")
                client.kill()
            server.hear("all ended: 100", 3)  # by DREQs, none of which has to be repeated

    def test_a_killed_listener_ends_its_connections(self):
        with two_hosts() as (here, there), serving(there) as server:
            with program(here, "connect", NETDEV, here.v4, there.v4, PORT, 100, 100, "hold") as client:
                client.hear("open 100")
                server.hear("all established: 100")  # whoever ends before has rejected
                server.kill()
                client.hear("connected 100 rejected 0 unreachable 0 rate .*")
                with serving(there):  # the port is free
                    pass

    def killed_broker(self, user):
        with two_hosts(user=user) as hosts:
            here, there = hosts
            with serving(there) as server, program(here, "connect", NETDEV, here.v4, there.v4, PORT, 100, 100, "hold") as client:
                client.hear("open 100")
                server.hear("all established: 100")
                for host, its_program in ((here, client), (there, server)):
                    host.end_broker(signal.SIGKILL)
                    its_program.hear("lost")
                    host.start_broker()
                    its_program.hear("adopted 100")
                client.finish()
                client.hear("connected 100 rejected 0 unreachable 0 rate .*")
                server.finish()
                server.hear("accepted 100 established 100 ended 100 open 0")

    def test_stat_lists_listeners_and_connections(self):
        with two_hosts() as (here, there), serving(there) as server:
            with program(here, "connect", NETDEV, here.v4, there.v4, PORT, 3, 3, "hold") as client:
                client.hear("open 3")
                seen = json.loads(stat(there, "--json").stdout)["connections"]
                states = sorted(each["state"] for each in seen["ids"])
                self.assertEqual(states, ["established"] * 3 + ["listen"])
                self.assertEqual(seen["id_count"], 4)
                self.assertEqual(seen["counters"]["requests"], 3)
                self.assertEqual(seen["counters"]["gsi_received"], 6)
                self.assertEqual({each["remote"] for each in seen["ids"]}, {None, here.v4})
                text = stat(there).stdout
                self.assertIn("4 CM ids", text)
                self.assertEqual(len(re.findall(rf"rc +established +tcp:{PORT} +{there.v4} +{here.v4} ", text)), 3, text)
                self.assertEqual(len(re.findall(rf"rc +listen +tcp:{PORT} +\* ", text)), 1, text)
                self.assertIn('uroce_cm_ids{state="established",transport="rc"} 3', stat(there, "--prometheus").stdout)
                client.finish()
                client.hear("connected 3 .*")
            server.finish()
            server.hear("accepted 3 .*")

    def test_a_killed_broker_is_followed_by_one_that_adopts(self):
        self.killed_broker(user=False)

    def test_likewise_as_a_user(self):
        self.killed_broker(user=True)

    def test_ten_thousand_and_nothing_is_left(self):
        with two_hosts() as (here, there), serving(there) as server:
            before = [sockets_of(host.broker) for host in (here, there)]
            with program(here, "connect", NETDEV, here.v4, there.v4, PORT, 10000, 1000) as client:
                client.hear("connected 10000 rejected 0 unreachable 0 rate .*", 120)
                self.assertEqual(client.process.wait(20), 0)
            server.finish()
            server.hear("accepted 10000 established 10000 ended 10000 open 0")
            server.process.wait(20)
            time.sleep(0.5)  # nothing tells when a broker has seen a program's end
            after = [sockets_of(host.broker) for host in (here, there)]
            self.assertLessEqual(after[0], before[0])
            self.assertLess(after[1], before[1], "the server's connection is closed")


def rate():
    with two_hosts() as (here, there), serving(there):
        for local, remote in ((here.v4, there.v4), (here.v6, there.v6)):
            with program(here, "connect", NETDEV, local, remote, PORT, 10000, 1000) as client:
                print(client.hear("connected 10000 .*")[0], flush=True)


def main():
    global programs
    programs = os.path.abspath(sys.argv[1])
    if os.geteuid() != 0:
        print("skipped: needs root")
        return SKIPPED
    if sys.argv[2:] == ["--rate"]:
        return rate()
    return unittest.main(argv=[sys.argv[0], *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
