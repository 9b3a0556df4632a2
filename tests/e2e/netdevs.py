#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Netdevs without MAC addresses: `lo` on a host that has nothing else, and a tunnel (tun). See suite.py."""

import ctypes
import fcntl
import itertools
import os
import re
import select
import struct
import subprocess
import sys

from suite import Case, check, main
import cm_programs
from broker import end_brokers, start_broker
from carried import COUNTED, ucx_environment
from lab import Host, Lab
from perftest import Side, describe, run_pair

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
CLONE_NEWNET = 0x40000000
_ports = itertools.count(23100)


class Loopback(Host):
    """A host with `lo` alone; both ends of each pair."""

    netdev, device = "lo", "uroce_lo"
    gid_index = {"ipv4": 0, "ipv6": 1}

    def __init__(self, lab, name):
        super().__init__(lab, name, 1)
        self.ipv4, self.ipv6 = "127.0.0.1", "::1"


class Lone:
    """The lab as run_pair() wants it, with both ends on one host."""

    def __init__(self, lab, host):
        self.a = self.b = host
        self.build, self.stop_programs = lab.build, lab.stop_programs


class NetdevLab(Lab):
    """`a` and `b`, which a tunnel joins; `lo`, which has nothing else."""

    def __init__(self, build, mtu):
        super().__init__(build, mtu)
        self.lo = Loopback(self, f"uroce-lo-{os.getpid()}")
        for host in (self.a, self.b):
            host.netdev, host.device = "tun0", "uroce_tun0"
        self.tunnel = None

    def make_hosts(self):
        for host in (self.a, self.b, self.lo):
            subprocess.run(["ip", "netns", "add", host.name], check=True)
            subprocess.run(["ip", "-n", host.name, "link", "set", "lo", "up"], check=True)
        self.tunnel = subprocess.Popen([sys.executable, "-B", __file__, "--tunnel", self.a.name, self.b.name], stdout=subprocess.PIPE)
        check(self.tunnel.stdout.readline() == b"ready\n", "no tunnel")
        for host, number in ((self.a, 1), (self.b, 2)):
            host.system("ip", "address", "add", f"192.0.2.{number}/24", "dev", "tun0")
            host.system("ip", "address", "add", f"fd00:192:0:2::{number}/64", "dev", "tun0", "nodad")
            host.system("ip", "link", "set", "tun0", "mtu", str(self.mtu), "up")

    def __exit__(self, *exception):
        super().__exit__(*exception)
        if self.tunnel:
            self.tunnel.kill()
            self.tunnel.wait()
        subprocess.run(["ip", "netns", "delete", self.lo.name], stderr=subprocess.DEVNULL)


def tunnel(*hosts):
    """A program of its own: a tun device in each network namespace, and what one has to send the other one receives."""
    ends = []
    for name in hosts:
        with open(f"/run/netns/{name}") as namespace:
            check(ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET) == 0, name)
        ends.append(os.open("/dev/net/tun", os.O_RDWR))
        fcntl.ioctl(ends[-1], TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TUN | IFF_NO_PI))
    print("ready", flush=True)
    while True:
        for end in select.select(ends, [], [])[0]:
            packet = os.read(end, 65536)
            try:
                os.write(ends[1 - ends.index(end)], packet)
            except OSError:  # that end is down
                pass


# --- cases ----------------------------------------------------------------------------------------------------------------


def ends_of(where, lab):
    """(server, client)"""
    return (lab.lo, lab.lo) if where == "lo" else (lab.a, lab.b)


def perftest(where, program, *arguments, gid="ipv4", name="", **sides):
    def run(lab):
        result = run_pair(Lone(lab, lab.lo) if where == "lo" else lab, program, arguments, gid=gid, **sides)
        check(not result.problem, f"{result.problem}\n{result.report()}")
        check(all(mode.startswith("udp") for mode in result.io_modes), f"{result.io_modes}\n{result.report()}")
        return describe(result.rows[0])

    return Case("/".join([where, " ".join([program, *map(str, arguments)]), gid, *([name] if name else [])]), run)


CONNECTED = {pair.name: pair for pair in cm_programs.programs()}


def connected(where, name, version="ipv4", user=False, alone=False):
    """A pair of cm_programs.py."""

    def run(lab):
        server, client = ends_of(where, lab)
        if alone:
            end_brokers(lab)

        def start(host, command):
            return host.start(cm_programs.words(command, server, client, version, path_of), user=user, options=["--alone"] if alone else [])

        def path_of(program):
            return lab.program_for(user, program) if program == "cm_exchange" else program

        cm_programs.run(CONNECTED[name], server, client, start, start, alone=alone)

    return Case("/".join([where, name, version, *(["user"] if user else []), *(["alone"] if alone else [])]), run)


def transfer(lab, server, client, users=(False, False), arguments=(), env=None):
    """rc_transfer, every byte verified."""
    port = next(_ports)
    plans = [[lab.program_for(user, "rc_transfer"), "--device", host.device, "--gid-index", 0, "--port", port, "--ack-timeout", 17]
             for host, user in zip((server, client), users)]
    serving = server.start([*plans[0], "--server"], user=users[0], env=env)
    serving.wait_listening(port)
    calling = client.start([*plans[1], "--client", server.ipv4, "--messages", 200, "--bidirectional", *arguments], user=users[1], env=env)
    codes = [calling.wait(60), serving.wait(20)]
    check(codes == [0, 0], f"exit codes {codes} (None: hangs)\n{calling.output}\n--- server\n{serving.output}")
    return serving, calling


def by_memory(lab):
    """Two programs of one user exchange through memory, and no packet is on lo."""
    end_brokers(Lone(lab, lab.lo))
    server, client = transfer(lab, lab.lo, lab.lo, env=COUNTED)
    for program in (server, client):
        count = re.search(r"packets sent through memory.*: (\d+)", program.output)
        check(count and int(count[1]) > 200, program.output)


def two_users(lab):
    """Under root's broker."""
    end_brokers(Lone(lab, lab.lo))
    start_broker(lab, lab.lo)
    transfer(lab, lab.lo, lab.lo, users=(True, False))
    transfer(lab, lab.lo, lab.lo, users=(True, True))


def lossy(lab):
    end_brokers(Lone(lab, lab.lo))
    return transfer(lab, lab.lo, lab.lo, env={"UROCE_FAULTS": "drop=1%,dup=1%,reorder=1%,seed=5"})[1].stdout.strip().splitlines()[-1]


def ucx(lab):
    port = next(_ports)
    plan = ["ucx_perftest", "-p", port, "-t", "tag_bw", "-s", 65536, "-n", 200, "-w", 10]
    env = ucx_environment(lab.lo, "rc_verbs")
    server = lab.lo.start(plan, env=env)
    server.wait_listening(port)
    client = lab.lo.start([*plan, lab.lo.ipv4], env=env)
    check(client.wait(60) == 0 and "Final:" in client.output, f"{client.output}\n--- server\n{server.output}")


def mpi(lab):
    """As people type it: nothing but mpirun with `uroce run` in front, and no address on any NIC."""
    env = {**ucx_environment(lab.lo, "rc_verbs"), "OMPI_MCA_orte_tmpdir_base": str(lab.directory)}
    settings = {"pml": "ucx", "osc": "ucx", "btl": "self", "hwloc_base_binding_policy": "none"}
    command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", 2, *(word for pair in settings.items() for word in ("--mca", *pair))]
    program = lab.lo.start([*command, lab.build / "bin/mpi_exchange", 2026, 1 << 14], env=env)
    code = program.wait(60)
    told = re.search(r"mpi_exchange: (\d+ ranks, .*)", program.stdout)
    check(code == 0 and told, f"exit code {code} (None: hangs)\n{program.output}")
    return told[1]


UNSHARED = """ip link set lo up
uroce=$1
$uroce run --quiet ib_write_bw -F -x 0 -n 100 >/dev/null &
for i in $(seq 100); do grep -q ':4853 0*:0000 0A' /proc/net/tcp /proc/net/tcp6 && break; sleep 0.1; done
$uroce run --quiet ib_write_bw -F -x 0 -n 100 127.0.0.1
wait $!
$uroce run --quiet ucmatose -b ::1 & server=$!
until $uroce run --quiet ucmatose -s ::1; do kill -0 $server; sleep 0.1; done
"""


def unshared(lab):
    """An ordinary user makes a network namespace with lo in it, and needs no more."""
    script = lab.directory / "unshared"
    script.write_text(UNSHARED)
    script.chmod(0o644)
    program = lab.lo.start(["unshare", "-rn", "sh", "-e", script, lab.uroce_for(True)], user=True, uroce=False)
    code = program.wait(60)
    check("Operation not permitted" not in program.output or code == 0, f"user namespaces are not allowed here: {program.output}")
    check(code == 0 and re.search(r"^ 65536 +100 ", program.output, re.MULTILINE) and "return status 0" in program.output, f"{code}: {program.output}")


def refused(lab):
    """What carries frames, and a netdev that is not there."""
    for options, says in ((["--io", "af_xdp"], "leads to this network namespace only; use UDP sockets: --io udp"), (["--netdev", "eth7"], "no usable netdev 'eth7'; there are: lo")):
        program = lab.lo.run(["ibv_rc_pingpong", "-g", "0"], options=options)
        check(program.process.returncode > 0 and says in program.output, f"{program.process.returncode}: {program.output}")
    program = lab.a.run(["ibv_rc_pingpong", "-g", "0"], options=["--io", "af_xdp"])
    check(program.process.returncode > 0 and "tun0 has no MAC address; use UDP sockets" in program.output, program.output)


def listed(lab):
    """Where there is another device, lo is one only if it is named."""
    for host, options, devices in ((lab.lo, [], ["uroce_lo"]), (lab.a, [], ["uroce_tun0"]), (lab.a, ["--netdev", "*"], ["uroce_tun0"]), (lab.a, ["--netdev", "lo,tun0"], ["uroce_tun0", "uroce_lo"])):
        told = host.run(["ibv_devices"], options=options).stdout
        check(re.findall(r"uroce_\w+", told) == devices, f"{options}: {told}")
    guids = [host.run(["ibv_devices"]).stdout.split()[-1] for host in (lab.a, lab.b, lab.lo)]
    check(len(set(guids)) == 3 and "0" * 16 not in guids, guids)


def no_device(lab):
    """As with other RDMA devices, 127.0.0.1 says nothing where lo is none."""
    program = lab.a.run(["rping", "-c", "-a", "127.0.0.1", "-C", "1"])
    check(program.process.returncode > 0 and "rdma_resolve_route: No such device" in program.output, program.output)
    program = lab.a.run(["rping", "-c", "-I", "127.0.0.1", "-a", lab.b.ipv4, "-C", "1"], options=["--netdev", "lo,tun0"])
    check(program.process.returncode > 0 and "Network is unreachable" in program.output, program.output)


CASES = [
    Case("listed", listed),
    Case("refused", refused),
    Case("no-device", no_device),
    Case("lo/unshared", unshared),
    perftest("lo", "ib_write_bw", "-n", 500),
    perftest("lo", "ib_write_lat", "-n", 500, gid="ipv6"),
    perftest("lo", "ib_send_lat", "-e", "-n", 500),
    perftest("lo", "ib_send_bw", "-c", "UD", "-n", 500),
    perftest("lo", "ib_read_bw", "-n", 200, name="users", server=Side(user=True), client=Side(user=True)),
    *(connected("lo", name) for name in ("rping", "ucmatose", "udaddy", "rstream-async", "cm_exchange", "ib_send_bw")),
    connected("lo", "rping", "ipv6", user=True),
    Case("lo/by-memory", by_memory),
    Case("lo/two-users", two_users),
    Case("lo/lossy", lossy),
    Case("lo/ucx", ucx),
    Case("lo/mpi", mpi),
    perftest("tun", "ib_write_bw", "-n", 200),
    perftest("tun", "ib_send_lat", "-e", "-n", 200, gid="ipv6"),
    perftest("tun", "ib_send_bw", "-c", "UD", "-n", 200),
    connected("tun", "rping"),
    connected("tun", "rping", "ipv6", alone=True),
    connected("tun", "cm_exchange"),
    Case("tun/transfer", lambda lab: transfer(lab, lab.a, lab.b)[1].stdout.strip().splitlines()[-1]),
]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--tunnel"]:
        tunnel(*sys.argv[2:])
    sys.exit(main(__doc__, CASES, lambda options, mtu: NetdevLab(options.build, mtu)))
