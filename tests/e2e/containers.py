#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Containers, made of the namespaces that container engines make theirs of, as docs/broker.md tells people to use them. See suite.py.

  own network       user, network, mount and pid namespace: has a broker of its own
  host's network    user, mount and pid namespace: names the host's broker, or has its socket mounted
  root's            mount and pid namespace, without a user namespace: finds the host's broker, or starts it
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from suite import Case, check, main
from broker import broker_processes, check_ended, check_goes_on, command_of, end_brokers, endless, kill_broker, start_broker, transfer
from lab import NETNS, NOBODY, UNPRIVILEGED, Host, wait_until

OWN_USERS = ("--user", "--map-root-user")
MOUNTED = Path("/mnt")  # where a directory of the host is in a container
SOCKET = "uroced.sock"


class Container(Host):
    """A host whose programs run in a container of another one, as its root. Its first process sleeps."""

    def __init__(self, lab, outside, namespaces, setup="true", options=()):
        super().__init__(lab, outside.name, 0)
        self.ipv4, self.ipv6 = outside.ipv4, outside.ipv6
        self.options = options  # of each `uroce run`
        self.rights_of_user = ()  # its root is the ordinary user of its host, or root
        user = "--user" in namespaces
        command = ["unshare", *namespaces, "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation", "private"]
        engine = outside.start([*command, "sh", "-c", f"{setup} && echo ready && exec sleep infinity"], uroce=False, user=user)
        wait_until(lambda: "ready" in engine.stdout or not engine.running(), 10, "the container is there")
        check(engine.running(), engine.output)
        self.engine = engine
        self.init = int(Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text())
        entered = [name for name in ("--user", "--net") if name in namespaces]
        self.enter = ("nsenter", "--target", str(self.init), "--mount", "--pid", *entered)
        if user:
            self.enter = ("setpriv", *UNPRIVILEGED, *self.enter, "--preserve-credentials")
        if "--net" not in namespaces:
            self.enter = (*outside.enter, *self.enter)

    def start(self, command, options=(), uroce=True, **how):
        return super().start(command, options=[*self.options, *options], uroce=uroce, **how)

    def end(self):
        """As the engine ends a container: its first process is killed, and the kernel kills all others."""
        self.engine.kill()
        wait_until(lambda: not Path(f"/proc/{self.init}").exists(), 5, "the container is gone")


@contextlib.contextmanager
def joined(lab, *names):
    """Containers with a network of their own, and a veth pair between the two."""
    # Their /sys shows the netdevs of their own network.
    containers = [Container(lab, lab.a, (*OWN_USERS, "--net"), "mount -t sysfs sysfs /sys") for _ in names]
    try:
        for number, (container, name) in enumerate(zip(containers, names), 1):
            container.name = f"{name}-{os.getpid()}"
            container.ipv4, container.ipv6 = f"192.0.2.{number}", f"fd00:192:0:2::{number}"
            subprocess.run(["ip", "netns", "attach", container.name, str(container.init)], check=True)
        made = subprocess.run([NETNS, "join", *(c.name for c in containers), str(lab.mtu)], capture_output=True, text=True, check=False)
        check(made.returncode == 0, made.stderr)
        yield containers
    finally:
        for container in containers:
            container.end()
            subprocess.run(["ip", "netns", "delete", container.name], stderr=subprocess.DEVNULL, check=False)


def user_of(pid):
    return int(re.search(r"^Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1])


def seen_by(host, *options):
    """Process ids that `uroce stat` shows, as the broker knows them, with names of programs."""
    program = host.run([host.lab.uroce_for(True), "stat", "--json", "--interval", 0, *options], uroce=False, user=True)
    check(program.process.returncode == 0, program.output)
    return {process["pid"]: process["program"] for process in json.loads(program.stdout)["processes"]}


def refusal(host, **how):
    program = host.run(["ibv_rc_pingpong", "-d", host.device, "-g", 0], io="udp", user=True, **how)
    check(program.process.returncode != 0, f"it got a device\n{program.output}")
    return program.output


def inner_pid(program):
    """The program itself, as its host sees it: in front of it is the nsenter that waits for it."""
    return int(Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text())


def check_by_memory(pair):
    """They have met; how early in the transfer depends on what else the machine does."""
    for program in pair:
        check(re.search(r"packets sent through memory.*: [1-9]", program.output), program.output)


def both_ways(lab, *places, **how):
    """Hash-checked transfers between all these pairs of hosts at once, over IPv4 and then IPv6; the programs of the former."""
    arguments = ["--bidirectional", "--messages", 200]
    ended = []
    for gid in (0, 1):
        pairs = [transfer(lab, *place, arguments, gid=gid, user=True, env={"UROCE_COUNTERS": "1"}, **how) for place in places]
        for pair in pairs:
            check_ended(pair)
        ended.append(pairs)
    return ended[0]


# --- a network of their own ---------------------------------------------------------------------------------------------


def own_network(lab):
    """Each has a broker, which its own `uroce run` starts, beside that of the host."""
    end_brokers(lab)
    with joined(lab, "one", "two") as (one, two):
        running = [endless(lab, lab.a, lab.b), endless(lab, one, two, user=True), endless(lab, one, one, user=True)]
        remote, local = both_ways(lab, (one, two))[0], both_ways(lab, (two, two))[0]
        check_by_memory(local)
        check("through memory" not in remote[0].output, remote[0].output)
        for host, user in ((lab.a, 0), (one, NOBODY), (two, NOBODY)):
            users = [user_of(pid) for pid in broker_processes(host)]
            check(users == [user], f"brokers of users {users} instead of one of {user}")
        check(len(seen_by(one)) == 3 and len(seen_by(two)) == 1, f"{seen_by(one)} {seen_by(two)}")
        # kill -9 of the broker of one: the next program there starts another one, and nothing ends.
        kill_broker(one)
        both_ways(lab, (one, two))
        check_goes_on(running)
        pids = broker_processes(one)
        one.end()
        check(not [pid for pid in pids if command_of(pid) == "uroced"], "its broker is still there")
        check_goes_on(running[:1])


def broker_of_another_network(lab):
    """A broker's socket that is mounted into a container with a network of its own is of no use there, and the broker says so."""
    end_brokers(lab)
    with shared_directory(lab) as (directory, _), joined(lab, "one", "two") as (one, _):
        told = refusal(one, options=["--broker", directory / SOCKET])
        check("it serves another network namespace; start an uroced in this one" in told, told)


# --- the host's network ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def shared_directory(lab):
    """A directory of the host a with a socket of its broker, and that broker."""
    directory = lab.directory / "shared"
    directory.mkdir(exist_ok=True)
    broker = start_broker(lab, lab.a, ["--socket", directory / SOCKET])
    wait_until((directory / SOCKET).exists, 10, "the socket is there")
    try:
        yield directory, broker
    finally:
        broker.kill()


def by_mounted_socket(lab):
    """It sees the broker's socket as a file, in a directory that is mounted into it."""
    end_brokers(lab)
    with shared_directory(lab) as (directory, broker):
        inside = Container(lab, lab.a, OWN_USERS, f"mount --bind {directory} {MOUNTED}", ["--broker", MOUNTED / SOCKET])
        works_with_the_hosts(lab, inside, broker)
        seen = seen_by(inside, "--broker", MOUNTED / SOCKET)
        check(not seen, f"programs that have ended: {seen}")
        running = [endless(lab, inside, lab.b, user=True), endless(lab, inside, lab.a, user=True)]
        seen = seen_by(inside, "--broker", MOUNTED / SOCKET)
        expected = {inner_pid(running[0][0]), inner_pid(running[1][0]), running[1][1].pid}
        check(set(seen) == expected, f"{seen}, not {expected}")
        # The next broker makes the socket anew, and is found in the same directory.
        broker.kill()
        with shared_directory(lab) as (_, following):
            check_goes_on(running)
            wait_until(lambda: following.output.count("keeps QP numbers") == len(expected), 10, "the programs come to the next broker")
            both_ways(lab, (inside, lab.b), (inside, lab.a))
            check_goes_on(running)


def wait_for_no_broker_on(host):
    wait_until(lambda: not broker_processes(host), 20, "the broker is gone")


def works_with_the_hosts(lab, inside, broker):
    pairs = both_ways(lab, (inside, lab.b), (lab.b, inside), (inside, lab.a), (inside, inside))
    for pair in pairs[2:]:
        check_by_memory(pair)
    check(f"user {NOBODY}" in broker.output, broker.output)
    check(broker_processes(lab.a) == [broker.pid], "there is another broker")


def by_name(lab):
    """It names the broker, whose user it does not know; without that it is told how."""
    end_brokers(lab)
    broker = start_broker(lab, lab.a)
    inside = Container(lab, lab.a, OWN_USERS)
    told = refusal(inside)
    check("--broker @uroced" in told, told)
    check(broker_processes(lab.a) == [broker.pid], "there is another broker")
    inside.options = ["--broker", "@uroced"]
    works_with_the_hosts(lab, inside, broker)
    return next(line for line in told.splitlines() if "@uroced" in line)


# --- root's, without a user namespace ---------------------------------------------------------------------------------------


def of_root(first_inside):
    """It finds the host's broker. Where it starts that, the host uses it, and goes on when the container ends."""

    def run(lab):
        end_brokers(lab)
        inside = Container(lab, lab.a, ())
        before = [endless(lab, lab.a, lab.b)] if not first_inside else [endless(lab, inside, lab.b)]
        running = [endless(lab, lab.a, lab.b), endless(lab, lab.a, inside, timer=14)]
        check(len(broker_processes(lab.a)) == 1, "there is not one broker")
        check_goes_on([*before, *running])
        inside.end()
        if first_inside:
            wait_for_no_broker_on(lab.a)
        check(running[1][0].wait(60) is not None, "the peer of a program in the container does not end")
        check_goes_on(running[:1])
        check_ended(transfer(lab, lab.a, lab.b, ["--messages", 50]))
        check_goes_on(running[:1])

    return run


CASES = [
    Case("own-network", own_network),
    Case("broker-of-another-network", broker_of_another_network),
    Case("mounted-socket", by_mounted_socket),
    Case("by-name", by_name),
    Case("of-root", of_root(True)),
    Case("of-root-second", of_root(False), quick=False),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
