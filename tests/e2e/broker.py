#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Several programs on one host, which share its netdev through uroced. See suite.py."""

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from suite import Case, check, main
from lab import BACKGROUND, NOBODY, Program, wait_until

_ports = itertools.count(18000)
# Of QPs. On a machine with more to do than cores a program may not run for longer than the usual one allows (14: 0.5 s).
TIMER = 17
FAULTS = "drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%"
PLACES = {"two-hosts": ("a", "b"), "same-host": ("a", "a")}


def transfer(lab, server_host, client_host, arguments=(), gid=0, faults=(None, None), user=False, options=(), env=None):
    """Starts rc_transfer, hash-checked: server and client."""
    users = user if isinstance(user, tuple) else (user, user)  # the server's, the client's
    port = next(_ports)
    own = [lab.program_for(any(users), "rc_transfer"), "--device", server_host.device, "--gid-index", gid, "--port", port]
    own += ["--ack-timeout", TIMER]
    how = dict(io="udp", options=options, env=env)
    server = server_host.start([*own, "--server"], user=users[0], faults=faults[0], **how)
    server.wait_listening(port)
    return server, client_host.start([*own, *arguments, "--client", server_host.ipv4], user=users[1], faults=faults[1], **how)


def check_ended(pair, timeout=120):
    server, client = pair
    codes = (client.wait(timeout), server.wait(10))
    check(codes == (0, 0), f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
    return client.stdout.strip().splitlines()[-1]


def endless(lab, server_host, client_host, user=False, program="ib_write_bw", gid=0, io=("udp", "udp"), timer=TIMER, start=None):
    """perftest that runs until it is ended; returns when it has begun to run. start(host, command, io): how it is started."""
    start = start or (lambda host, command, io: host.start(command, io=io, user=user, prefix=BACKGROUND))
    port = next(_ports)
    command = [program, "-d", server_host.device, "-F", "-x", gid, "-p", port, "--run_infinitely", "-D", 1, "-u", timer]
    server = start(server_host, command, io[0])
    server.wait_listening(port)
    client = start(client_host, [*command, server_host.ipv4], io[1])
    wait_until(lambda: results(client) > 0 or not client.running(), 20, "a result each second")
    check(client.running(), client.output)
    return server, client


def results(program):
    return sum(line.strip().startswith("65536") for line in program.stdout.splitlines())


def check_goes_on(programs):
    before = [results(client) for _, client in programs]
    for (server, client), seen in zip(programs, before):
        wait_until(lambda client=client, seen=seen: results(client) > seen + 1 or not client.running(), 20, "results go on")
        check(client.running() and server.running(), f"ended: {client.output}\n--- server\n{server.output}")


def broker_processes(host):
    """Process ids of the host's brokers."""
    told = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid in told.split() if command_of(pid) == "uroced"]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def the_broker(host):
    brokers = broker_processes(host)
    check(len(brokers) == 1, f"{len(brokers)} brokers")
    return brokers[0]


def kill_broker(host):
    pid = the_broker(host)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not broker_processes(host), 5, "the broker is gone")


def start_broker(lab, host, options=(), user=False):
    broker = host.start([lab.program_for(user, "uroced"), "--verbose", *options], uroce=False, user=user)
    wait_until(lambda: "@uroced" in host.system("cat", "/proc/net/unix") or not broker.running(), 10, "uroced listens")
    check(broker.running(), broker.output)
    return broker


def pairs(lab, user=False):
    """Three pairs at once, two hosts and the same host, both IP versions, under faults."""
    running = [
        transfer(lab, lab.a, lab.b, ["--bidirectional", "--messages", 300], user=user),
        transfer(lab, lab.a, lab.b, ["--messages", 300], gid=1, faults=(f"{FAULTS},seed=1", f"{FAULTS},seed=2"), user=user),
        transfer(lab, lab.a, lab.a, ["--bidirectional", "--messages", 300], gid=1, user=user),
        transfer(lab, lab.b, lab.b, ["--messages", 300], faults=(f"{FAULTS},seed=3", f"{FAULTS},seed=4"), user=user),
    ]
    for pair in running:
        check_ended(pair)
    return f"{len(running)} at once"


# As systemd starts uroced.service: the address is root's, the rest is not.
AS_A_SERVICE = """
import os, socket, sys
cgroup, *command = sys.argv[1:]
with open(f"{cgroup}/cgroup.procs", "w") as procs:
    procs.write("0")
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("\\0uroced")
listener.listen()
if listener.fileno() != 3:
    os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execvp(command[0], command)
"""


def services(lab):
    """With a user of its own, two capabilities and a cgroup of its own it serves ordinary users."""
    end_brokers(lab)
    user, capabilities = NOBODY - 1, "-all,+bpf,+net_admin"
    rights = ["setpriv", "--pdeathsig", "KILL", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
    rights += [f"--{kind}={capabilities}" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
    brokers, cgroups = [], []
    try:
        for host in (lab.a, lab.b):
            cgroups.append(cgroup := cgroup_mount() / f"{host.name}-uroced")
            cgroup.mkdir()
            for path in (cgroup, cgroup / "cgroup.procs"):
                os.chown(path, user, user)
            # Not `ip netns exec`, which hides cgroups.
            start = ["nsenter", f"--net=/run/netns/{host.name}", sys.executable, "-c", AS_A_SERVICE, str(cgroup)]
            brokers.append(lab.track(Program([*start, *rights, str(lab.program_for(True, "uroced")), "--verbose"], lab.new_log(), dict(os.environ))))
            wait_until(lambda: "@uroced" in host.system("cat", "/proc/net/unix") or not brokers[-1].running(), 10, "uroced listens")
            check(brokers[-1].running(), brokers[-1].output)
        told = pairs(lab, user=True)
        check(all(f"user {NOBODY}" in broker.output for broker in brokers), brokers[0].output)
    finally:
        for broker in brokers:
            broker.kill()
        for cgroup in cgroups:
            cgroup.rmdir()
    return told


def cgroup_mount():
    return next(Path(words[1]) for words in map(str.split, open("/proc/mounts")) if words[2] == "cgroup2")


def by_memory(user, faults):
    """Programs of one host exchange packets through memory; fault injectors and captures see them as on a wire."""
    def run(lab):
        name = lab.directory / "%p.pcapng"
        pair = transfer(lab, lab.a, lab.a, ["--bidirectional", "--messages", 300], user=user, env={"UROCE_COUNTERS": "1"},
                        faults=[faults and f"{faults},seed={seed}" for seed in (5, 6)], options=("--capture", name))
        check_ended(pair)
        told = []
        for program in pair:
            sent = re.search(r"packets sent through memory.*: (\d+)", program.output)
            check(sent and int(sent[1]) > 500, program.output)
            told.append(sent[1])
        captures = list(lab.directory.glob("*.pcapng"))
        check(len(captures) == 2, f"{captures}")
        for file in captures:
            judged = subprocess.run([lab.build / "bin/uroce", "check", file], capture_output=True, text=True, check=False)
            check(judged.returncode == 0, f"{judged.stdout[-1500:]}{judged.stderr}")
            file.unlink()
        return "packets: " + ", ".join(told)

    return run


def of_two_users(lab):
    """Root's and another user's: by memory only where the broker permits it."""
    told = []
    for options in ((), ("--memory-between-users",)):
        end_brokers(lab)
        start_broker(lab, lab.a, options)
        pair = transfer(lab, lab.a, lab.a, ["--bidirectional", "--messages", 300], user=(False, True), env={"UROCE_COUNTERS": "1"})
        check_ended(pair)
        by = [int(sent[1]) if (sent := re.search(r"packets sent through memory.*: (\d+)", program.output)) else 0 for program in pair]
        check(min(by) > 50 if options else max(by) == 0, f"{options}: {by}")
        told.append(str(by))
    end_brokers(lab)
    return "packets through memory: " + ", ".join(told)


def in_long_packets(user):
    """The same where nobody looks on: in packets longer than the path MTU. Every byte is checked."""
    def run(lab):
        told = []
        for mtu in (256, 512, 1024):
            words = ["--bidirectional", "--messages", 1000, "--max-size", 1 << 20, "--qps", 3, "--mtu", mtu]
            pair = transfer(lab, lab.a, lab.a, words, user=user, env={"UROCE_COUNTERS": "1"})
            size = int(re.search(r"(\d+) bytes", check_ended(pair))[1])
            sent = [int(re.search(r"packets sent: (\d+)", program.output)[1]) for program in pair]
            # Until the programs have met, packets are as long as on a wire.
            check(sum(sent) < size / mtu / 2,
                  "\n---\n".join([f"{sent} packets for {size} bytes at path MTU {mtu}", *(program.output for program in pair)]))
            told.append(f"{sum(sent) * mtu / size:.2f}")
        return "part of the packets that they would be on a wire: " + ", ".join(told)

    return run


def wait_for_no_broker(lab):
    for host in (lab.a, lab.b):
        wait_until(lambda host=host: not broker_processes(host), 20, "the broker of earlier cases ends")


def end_brokers(lab):
    """Those of earlier cases, which would stay for some seconds."""
    for host in (lab.a, lab.b):
        for pid in broker_processes(host):
            os.kill(pid, signal.SIGTERM)
    wait_for_no_broker(lab)


def pairs_of_a_user(lab):
    """One ordinary user, without any privilege and without anybody who has some."""
    end_brokers(lab)
    return pairs(lab, user=True)


def pairs_of_users(lab):
    """Ordinary users under root's broker."""
    end_brokers(lab)
    brokers = [start_broker(lab, host) for host in (lab.a, lab.b)]
    told = pairs(lab, user=True)
    check(all(f"user {NOBODY}" in broker.output for broker in brokers), brokers[0].output)
    return told


def perftest(place, program, arguments=()):
    def run(lab):
        server_host, client_host = (getattr(lab, name) for name in PLACES[place])
        port = next(_ports)
        command = [program, "-d", lab.a.device, "-F", "-x", 0, "-p", port, "-n", 200, *arguments]
        server = server_host.start(command, io="udp")
        server.wait_listening(port)
        client = client_host.run([*command, server_host.ipv4], timeout=60, io="udp")
        check(client.process.returncode == 0 and server.wait(10) == 0, f"{client.output}\n--- server\n{server.output}")
        return ""

    return Case(f"{place}/{program}" + "".join(f" {word}" for word in arguments), run)


def events_under_load(seconds):
    """A receiver that polls and sleeps by turns, and our thread beside it, while others want the cores: nobody sleeps for ever."""

    def run(lab):
        load = [lab.b.start(["nice", "-n", "5", "sh", "-c", "while :; do :; done"], uroce=False) for _ in range(os.cpu_count())]
        runs, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            for place in PLACES:
                perftest(place, "ib_send_bw", ("-e", "-s", 65536, "-t", 1 + runs % 8, "-n", 5000 + runs)).run(lab)
            runs += 1
        check(all(each.running() for each in load), "the load has ended")
        return f"{runs} runs of each"

    return Case(f"events-under-load-{seconds}", run, quick=False)


def broker_killed(lab):
    """kill -9 of the broker: what runs goes on, and the next broker takes it over and serves others."""
    running = [endless(lab, lab.a, lab.b), endless(lab, lab.a, lab.a)]
    for _ in range(2):
        for host in (lab.a, lab.b):
            kill_broker(host)
        check_goes_on(running)
        check_ended(transfer(lab, lab.a, lab.b, ["--messages", 50]))  # starts new ones
        check_goes_on(running)
        check_ended(transfer(lab, lab.a, lab.a, ["--messages", 50]))
        check_goes_on(running)


def client_killed(name, victims, **case):
    """kill -9 of a client: its peer gets an error, others go on. victims: the host of the client, and which of a pair is killed."""

    def run(lab):
        running = endless(lab, lab.a, lab.b)
        for client_host, side in victims:
            victim = endless(lab, lab.a, getattr(lab, client_host), timer=14)
            victim[side].kill()
            survivor = victim[1 - side]
            check(survivor.wait(60) is not None, f"the peer of a killed program does not end:\n{survivor.output}")
        check_goes_on([running])

    return Case(name, run, **case)


def open_files(program):
    return len(list(Path(f"/proc/{program.pid}/fd").iterdir()))


def connected(host, server):
    """The server has its client, and does not wait for one any more."""
    return f"pid={server.pid}," in host.system("ss", "-Htnp", "state", "established")


def shared_memory(program):
    """How many pieces of memory that the broker made (memfd) it has mapped."""
    return Path(f"/proc/{program.pid}/maps").read_text().count("/memfd:uroce")


def bpf_programs():
    """Numbers of all of uroce on this machine."""
    told = subprocess.run(["bpftool", "--json", "prog", "show"], capture_output=True, text=True, check=True).stdout
    return {program["id"] for program in json.loads(told) if program.get("name", "").startswith("uroce_")}


def files():
    """Those that programs with uroce make: /dev/shm is this script's own (netns.sh)."""
    return set(os.listdir("/dev/shm"))


def check_nothing_left(lab, pids, programs_before, files_before):
    """After the end of all programs and brokers; pids: of brokers that were killed."""
    for host in (lab.a, lab.b):
        check(":4791" not in (left := host.system("ss", "-uan")), f"sockets are left:\n{left}")
        check("uroced" not in (left := host.system("cat", "/proc/net/unix")), f"sockets are left:\n{left}")
    check(not (left := left_cgroups(pids)), f"cgroups are left: {left}")
    check(not (left := files() - files_before), f"files are left: {left}")
    # Other tests may run on this machine: theirs end some time.
    new = bpf_programs() - programs_before
    wait_until(lambda: not new & bpf_programs(), 120, f"BPF programs end, of {new}")


def left_cgroups(pids):
    return [path for path in cgroup_mount().rglob("uroce-sockets-*") if int(path.name.rsplit("-", 1)[1]) in pids]


def random_kills(steps, seed):
    """kill -9 of brokers, of clients and of both in random order, at random moments, beside two transfers that go on."""

    def run(lab):
        end_brokers(lab)
        there = bpf_programs(), files()
        draw = random.Random(seed)
        survivors = [endless(lab, lab.a, lab.b), endless(lab, lab.a, lab.a)]
        programs = [program for pair in survivors for program in pair]
        before = [open_files(program) for program in programs]
        memory_before = [shared_memory(program) for program in programs]
        check(memory_before[-1] > 0 and bpf_programs(), f"nothing is there that could be left: {memory_before}")
        killed = []

        def kill_brokers(host):
            killed.extend(brokers := broker_processes(host))
            for pid in brokers:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not set(brokers) & set(broker_processes(host)), 5, "the broker is gone")

        for step in range(steps):
            where = draw.choice((lab.a, lab.b)), draw.choice((lab.a, lab.b))
            what = draw.choice(("broker", "server", "client", "both"))
            victims = [] if what == "broker" else list(transfer(lab, *where, ["--messages", 100000]))
            if victims:
                server, client = victims
                wait_until(lambda: connected(where[0], server) or not client.running(), 20, "the client connects")
                check(client.running(), f"seed {seed}, step {step}: ended: {client.output}\n--- server\n{server.output}")
            time.sleep(draw.random() * 0.3)
            if what in ("broker", "both"):
                kill_brokers(draw.choice(where))
            for victim, side in zip(victims, ("server", "client")):
                if what in (side, "both"):
                    victim.kill()
            for victim in victims:
                check(victim.wait(30) is not None, f"seed {seed}, step {step}, {what}: a program whose peer was killed does not end:\n{victim.output}")
            if step % 10 == 9:
                check_goes_on(survivors)
        check_ended(transfer(lab, lab.a, lab.b, ["--messages", 50]))
        check_goes_on(survivors)
        after = [open_files(program) for program in programs]
        check(after == before, f"open files of those that went on: {before}, {after}")
        after = [shared_memory(program) for program in programs]
        check(after == memory_before, f"shared memory of those that went on: {memory_before}, {after}")
        for program in programs:
            program.kill()
        wait_for_no_broker(lab)
        check_nothing_left(lab, killed, *there)
        return f"{steps} steps, seed {seed}, {len(killed)} brokers killed"

    return run


def many(count, user=False):
    """So many programs at once on one netdev."""

    def run(lab):
        end_brokers(lab)
        command = ["ibv_rc_pingpong", "-d", lab.a.device, "-g", 0, "-n", 100, "-p"]
        ports = [next(_ports) for _ in range(count)]
        servers = [lab.a.start([*command, port], io="udp", user=user) for port in ports]
        for server, port in zip(servers, ports):
            server.wait_listening(port)
        for number in (0, count // 2, count - 1):
            client = lab.b.run([*command, ports[number], lab.a.ipv4], io="udp", user=user)
            check((client.process.returncode, servers[number].wait(10)) == (0, 0), f"{client.output}\n--- server\n{servers[number].output}")
        return f"{count} programs"

    return run


def late(lab):
    """A program that needs the broker long after it was started, in a shell, finds it there."""
    check_ended(transfer(lab, lab.a, lab.b, ["--messages", 20]))
    port = next(_ports)
    before = the_broker(lab.a)
    own = [lab.build / "bin/rc_transfer", "--device", lab.a.device, "--gid-index", 0, "--port", port]
    server = lab.a.start(["sh", "-c", 'sleep 7; "$@"', "sh", *own, "--server"], io="udp")
    server.wait_listening(port)
    check(the_broker(lab.a) == before, "it is another broker")
    client = lab.b.start([*own, "--messages", 20, "--client", lab.a.ipv4], io="udp")
    check_ended((server, client))


def ends_by_itself(lab):
    check_ended(transfer(lab, lab.a, lab.b, ["--messages", 20]))
    start = time.monotonic()
    for host in (lab.a, lab.b):
        wait_until(lambda host=host: not broker_processes(host), 20, "the broker ends after its last client")
    check(time.monotonic() - start > 2, "it does not linger")
    check("@uroced" not in lab.a.system("cat", "/proc/net/unix"), "a socket is left")


def alone_in_the_way(lab):
    """A program without broker has the netdev: the next one says so."""
    end_brokers(lab)
    port = next(_ports)
    command = ["ib_send_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", port, "--run_infinitely"]
    server = lab.a.start(command, io="udp", options=["--alone"])
    server.wait_listening(port)
    client = lab.b.start([*command, lab.a.ipv4], io="udp")
    wait_until(lambda: "uroce:" in server.output or not server.running(), 10, "its sockets are open")
    other = lab.a.run(["ibv_rc_pingpong", "-g", 0], io="udp")
    client.kill()
    check(other.process.returncode != 0, other.output)
    told = next((line for line in other.output.splitlines() if "4791" in line), "")
    check(f"by process {server.pid} (ib_send_bw), which has netdev roce0 without a broker; wait for its end" in told, other.output)
    return told


def strangers_are_refused(lab):
    end_brokers(lab)
    start_broker(lab, lab.a, ["--group", "daemon"])
    other = lab.a.run(["ibv_rc_pingpong", "-g", 0], io="udp", user=True)
    check(other.process.returncode != 0 and "--group" in other.output, other.output)


CASES = [
    Case("pairs", pairs),
    Case("pairs-of-a-user", pairs_of_a_user),
    Case("pairs-of-users-under-root", pairs_of_users),
    Case("services", services),
    Case("by-memory", by_memory(False, None)),
    Case("by-memory-faults", by_memory(False, FAULTS)),
    Case("of-two-users", of_two_users),
    Case("long-packets", in_long_packets(False)),
    Case("long-packets-of-a-user", in_long_packets(True)),
    *[perftest("same-host", program) for program in ("ib_send_bw", "ib_read_bw", "ib_write_lat", "ib_atomic_bw")],
    perftest("same-host", "ib_send_bw", ("-c", "UD")),
    perftest("same-host", "ib_send_lat", ("-c", "UC")),
    perftest("same-host", "ib_write_bw", ("-x", 1, "-q", 16)),
    # A receiver that polls and then sleeps on its channel, beside our thread: it slept for ever with a full ring.
    *[perftest("same-host", "ib_send_bw", ("-e", "-s", 65536, "-t", 1, "-n", count)) for count in (5000, 5001)],
    events_under_load(600),
    Case("broker-killed", broker_killed),
    client_killed("client-killed", [("b", 0), ("a", 1)]),
    client_killed("client-killed-other-side", [("b", 1), ("a", 0)], quick=False),
    Case("random-kills", random_kills(5, seed=16)),
    Case("random-kills-200", random_kills(200, seed=2026), quick=False),
    Case("many", many(64)),
    Case("many-of-a-user", many(32, user=True)),
    Case("256", many(256), quick=False),
    Case("256-of-a-user", many(256, user=True), quick=False),
    Case("late", late),
    Case("ends-by-itself", ends_by_itself),
    Case("alone-in-the-way", alone_in_the_way),
    Case("strangers", strangers_are_refused),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
