#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Ports of DPDK on the hosts' netdevs (net_af_packet): transfers, perftest, sharing a netdev, and what is said. See suite.py."""

import fcntl
import itertools
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

from suite import Case, check, main
from broker import check_ended, check_goes_on
from broker_af_xdp import FAULTS, GROUP, endless, start_pair, transfer
from cm_programs import exit_code_of_rping
from lab import NOBODY, SKIPPED, wait_until
from perftest import BANDWIDTH, LATENCY, PINGPONG, Side
from perftest_matrix import JUMBO, pair_case

_ports = itertools.count(19000)
DPDK, SOCKETS, QUEUES = "dpdk", "udp", "af_xdp"
ALONE = ("--alone",)
# Retries take 17 s: ports are joined when both programs have theirs, and then these may already send.
PATIENT, PATIENT_PERFTEST = ("--ack-timeout", 17), ("-u", 17)
NEEDS_QP = [PINGPONG, "-d", "uroce_roce0", "-g", "0"]  # as server


def hash_checked(name, arguments=("--bidirectional", "--messages", 200), io=(DPDK, DPDK), faults=False, gid=0, options=(), **case):
    """rc_transfer; io: server, client."""

    def run(lab):
        port = next(_ports)
        own = [lab.build / "bin/rc_transfer", "--device", lab.a.device, "--gid-index", gid, "--port", port]
        own += [word for word in arguments if word == "--events"]
        seeded = [f"{FAULTS},seed={seed}" if faults else None for seed in (1, 2)]
        server = lab.a.start([*own, "--server"], io=io[0], faults=seeded[0], options=options)
        server.wait_listening(port)
        plan = [word for word in arguments if word != "--events"]
        client = lab.b.start([*own, *plan, "--client", lab.a.ipv4], io=io[1], faults=seeded[1], options=options)
        said = check_ended((server, client))
        for program, wanted in zip((server, client), io):
            check(f"uroce: roce0: {wanted.split(':')[0]}" in program.output, program.output)
        return said

    return Case(name, run, **case)


# --- ports that the kernel does not see ---

MEMIF = "dpdk:net_memif0,role={role},socket={socket},socket-abstract=no,bsize={bsize}"


class OwnPorts:
    """A port of each host, joined by shared memory (net_memif), with addresses of their own."""

    device = "uroce_port0"
    drivers = ("net_memif", "net_memif")
    of_server = ("10.9.0.1", "fd00:9::1")

    def __init__(self, lab, mtu=1500):
        self.lab = lab
        number = next(_ports)
        self.socket = lab.directory / f"memif-{number}"
        self.files = []
        for host, last in ((lab.a, 1), (lab.b, 2)):
            file = lab.directory / f"port-{number}-{last}"
            file.write_text(f"name port0\nmac 02:00:00:00:00:0{last}\nmtu {mtu}\naddress 10.9.0.{last}/24\naddress fd00:9::{last}/64\n")
            self.files.append(file)
        self.bsize = 2048 if mtu == 1500 else 8192

    def io(self, side):
        return MEMIF.format(role=("server", "client")[side], socket=self.socket, bsize=self.bsize)

    def start(self, side, command, options=(), **how):
        """side: 0 or 1."""
        host = (self.lab.a, self.lab.b)[side]
        return host.start(command, io=self.io(side), options=("--dpdk-addresses", self.files[side], *options), **how)

    def join(self, server):
        """What there is to do once both programs have been started."""


class TapPorts(OwnPorts):
    """net_tap on one host, whose netdev the kernel bridges to a veth pair; at the other end of that net_af_packet. The kernel has no
    addresses there."""

    drivers = ("net_tap", "net_af_packet")

    def __init__(self, lab, mtu=1500):
        super().__init__(lab, mtu)
        number = next(_ports)
        self.tap, self.wires, self.bridge = f"t{number}", (f"wa{number}", f"wb{number}"), f"br{number}"
        lab.a.system("ip", "link", "add", self.wires[0], "mtu", str(mtu), "type", "veth", "peer", "name", self.wires[1], "mtu", str(mtu),
                     "netns", lab.b.name)
        lab.a.system("ip", "link", "add", self.bridge, "mtu", str(mtu), "type", "bridge")
        lab.a.system("ip", "link", "set", self.wires[0], "master", self.bridge)
        for host, netdev in ((lab.a, self.bridge), (lab.a, self.wires[0]), (lab.b, self.wires[1])):
            host.system("ip", "link", "set", netdev, "up")

    def io(self, side):
        return (f"dpdk:net_tap0,iface={self.tap}", f"dpdk:net_af_packet0,iface={self.wires[1]}")[side]

    def join(self, server):
        wait_until(lambda: "uroce: port0: dpdk" in server.output or not server.running(), 20, "net_tap's port, with its netdev")
        # A bridge keeps frames to its netdevs' own addresses, and the driver gives the netdev that of the port.
        self.lab.a.system("ip", "link", "set", self.tap, "address", "02:00:00:00:ff:01")
        self.lab.a.system("ip", "link", "set", self.tap, "master", self.bridge, "up")


class PathPorts(OwnPorts):
    """A memif, and a tap of each host's kernel that has its addresses and all other traffic."""

    def __init__(self, lab, mtu=1500, user=None):
        super().__init__(lab, mtu)
        number = next(_ports)
        self.tap = f"t{number}"
        self.device = f"uroce_{self.tap}"
        self.hosts = (lab.a, lab.b)
        net_v4, net_v6 = f"10.8.{number % 250}", f"fd00:8:{number:x}:"
        self.of_server = (f"{net_v4}.1", f"{net_v6}:1")
        for host, last in zip(self.hosts, (1, 2)):
            host.system("ip", "tuntap", "add", "dev", self.tap, "mode", "tap", *(("user", str(user)) if user else ()))
            host.system("ip", "link", "set", self.tap, "address", f"02:00:00:00:01:0{last}", "mtu", str(mtu), "addrgenmode", "none")
            host.system("ip", "address", "add", f"{net_v4}.{last}/24", "dev", self.tap)
            for address in (f"{net_v6}:{last}/64", f"fe80::{last}/64"):  # the kernel asks for neighbours by the second
                host.system("ip", "address", "add", address, "dev", self.tap, "nodad")
            host.system("ip", "link", "set", self.tap, "up")

    def start(self, side, command, options=(), **how):
        return self.hosts[side].start(command, io=self.io(side), options=("--dpdk-tap", self.tap, *options), **how)


class VlanPorts(OwnPorts):
    """All frames are tagged."""

    def __init__(self, lab, mtu=1500):
        super().__init__(lab, mtu)
        for file in self.files:
            file.write_text(file.read_text() + "vlan 42\n")


def own_ports(name, program, *arguments, faults=False, gid=0, mtu=1500, kind=OwnPorts, options=(), **case):
    """rc_transfer, hash-checked, or perftest."""

    def run(lab):
        ports, port = kind(lab, mtu), next(_ports)
        seeded = [f"{FAULTS},seed={seed}" if faults else None for seed in (1, 2)]
        if program == "rc_transfer":
            own = [lab.build / "bin/rc_transfer", "--device", ports.device, "--gid-index", gid, "--port", port, *PATIENT]
            server_command, client_command = [*own, "--server"], [*own, *arguments, "--client", lab.a.ipv4]
        else:
            own = [program, "-d", ports.device, "-F", "-x", gid, "-p", port, *PATIENT_PERFTEST, *arguments]
            server_command, client_command = own, [*own, lab.a.ipv4]
        server = ports.start(0, server_command, faults=seeded[0], options=options)
        server.wait_listening(port)
        client = ports.start(1, client_command, faults=seeded[1], options=options)
        ports.join(server)
        said = check_ended((server, client))
        for program_of, driver in zip((server, client), ports.drivers):
            polled = ", polled" if driver == "net_memif" else ""
            netdev = ports.device[len("uroce_"):]
            check(f"uroce: {netdev}: dpdk, {driver}{polled}, 1 queue" in program_of.output, program_of.output)
        return said if program == "rc_transfer" else ""

    return Case(name, run, **case)


def own_ports_killed(lab):
    """kill -9 of one side: the other one's QP ends, and the port works for the next one."""
    ports, port = OwnPorts(lab), next(_ports)
    command = ["ib_write_bw", "-d", ports.device, "-F", "-x", 0, "--run_infinitely", "-D", 1, "-p", port]
    server = ports.start(0, command)
    server.wait_listening(port)
    client = ports.start(1, [*command, lab.a.ipv4])
    wait_until(lambda: "65536" in client.stdout or not client.running(), 20, "a result")
    check(client.running(), client.output)
    server.kill()
    check(client.wait(60) is not None, f"the peer of a killed program does not end:\n{client.output}")
    own_ports("", "rc_transfer", "--messages", 100).run(lab)


def own_ports_held(lab):
    """A port is one process's: the next one is told whose, and has it when that one has been killed."""
    ports, port = OwnPorts(lab), next(_ports)
    command = ["ib_write_bw", "-d", ports.device, "-F", "-x", 0, "--run_infinitely", "-D", 1, "-p", port]
    server = ports.start(0, command)
    server.wait_listening(port)
    client = ports.start(1, [*command, lab.a.ipv4])
    wait_until(lambda: "65536" in client.stdout or not client.running(), 20, "a result")
    for side, holder in ((0, server), (1, client)):
        second = ports.start(side, [PINGPONG, "-d", ports.device, "-g", "0"])
        check(second.wait(20) not in (None, 0), second.output)
        check(re.search(rf"process {holder.pid} \(ib_write_bw\) has this DPDK port, .*net_memif", second.output), second.output)
    check(client.running() and server.running(), client.output)
    client.kill()
    server.kill()
    port = next(_ports)
    command = [lab.build / "bin/rc_transfer", "--device", ports.device, "--gid-index", 0, "--port", port]
    server = ports.start(0, [*command, "--server"])
    server.wait_listening(port)
    check_ended((server, ports.start(1, [*command, "--messages", 100, "--client", lab.a.ipv4])))


def path_of_the_kernel(lab):
    """Beside a transfer the kernels ping, exchange bytes by TCP, and lose the port with its processes."""
    for mtu in (1500, 8174):  # the most that ports carry
        ports, port = PathPorts(lab, mtu), next(_ports)
        command = ["ib_write_bw", "-d", ports.device, "-F", "-x", 0, "--run_infinitely", "-D", 1, "-p", port]
        server = ports.start(0, command)
        server.wait_listening(port)
        client = ports.start(1, [*command, ports.of_server[0]])  # whose TCP is the port's as well
        wait_until(lambda: "65536" in client.stdout or not client.running(), 20, "a result")
        check(client.running(), client.output)
        for target in ports.of_server:
            told = lab.b.system("ping", "-c", "20", "-i", "0.02", "-s", str(mtu - 48), "-M", "do", target)
            check(" 0% packet loss" in told, told)
        check("LOWER_UP" in lab.a.system("ip", "link", "show", ports.tap), "the tap has no carrier")
        second = ports.start(0, [PINGPONG, "-d", ports.device, "-g", "0"])
        check(second.wait(20) not in (None, 0), second.output)
        check(re.search(rf"tap {ports.tap}: another process has it", second.output), second.output)
        client.kill()
        server.kill()
        wait_until(lambda: "NO-CARRIER" in lab.a.system("ip", "link", "show", ports.tap), 20, "the tap is free")
        own_ports("", "rc_transfer", "--messages", 100, mtu=mtu, kind=lambda *_: ports).run(lab)


def connection_manager(lab):
    """rdma_cm over ports that the kernel does not see: addresses are resolved before there is a QP."""
    for kind in (PathPorts, OwnPorts):
        ports = kind(lab)
        for address in ports.of_server:
            server = ports.start(0, ["rping", "-s", "-a", address, "-C", 20])
            wait_until(lambda server=server: ports.device[len("uroce_"):] in server.output or not server.running(), 20, "the server's port")
            client = ports.start(1, ["rping", "-c", "-v", "-a", address, "-C", 20])
            codes = (exit_code_of_rping(client, 60), exit_code_of_rping(server, 20))
            said = f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}"
            check(codes == (0, 0) and "rdma-ping-19" in client.output, said)


def let_everybody_make_taps(lab):
    """As Debian's udev does, which small virtual machines do not have. For this test's mount namespace only."""
    device = Path("/dev/net/tun")
    if device.stat().st_mode & 0o666 == 0o666:
        return
    own = lab.directory / "tun"
    os.mknod(own, stat.S_IFCHR, device.stat().st_rdev)
    own.chmod(0o666)
    subprocess.run(["mount", "--bind", own, device], check=True)


def path_of_an_owner(lab):
    """Without privileges, on a tap that is the user's; and one that is another's."""
    let_everybody_make_taps(lab)
    ports, port = PathPorts(lab, user=NOBODY), next(_ports)
    lab.directory.chmod(0o777)  # for the memif's socket
    program = [lab.program_for(True, "rc_transfer"), "--device", ports.device, "--gid-index", 0, "--port", port]
    server = ports.start(0, [*program, "--server"], user=True)
    server.wait_listening(port)
    check_ended((server, ports.start(1, [*program, "--messages", 100, "--client", lab.a.ipv4], user=True)))
    others = PathPorts(lab, user=NOBODY + 1)
    refusal(lab, r"has MTU 9000, and ports carry 8174; sudo ip link set t\d+ mtu 8174", ports.io(0),
            [PINGPONG, "-d", (large := PathPorts(lab, 9000)).device, "-g", "0"], options=("--dpdk-tap", large.tap))
    refused = others.start(0, [PINGPONG, "-d", others.device, "-g", "0"], user=True)
    check(refused.wait(20) not in (None, 0) and "it is another user's" in refused.output, refused.output)


def with_an_end_only(lab):
    """Drivers whose ports lead to no other process: opened, used, closed."""
    ports = OwnPorts(lab)
    written = [lab.directory / f"written-{side}.pcap" for side in (0, 1)]
    for io, driver in (("dpdk:net_null0,no-rx=1", "net_null"), ("dpdk:net_null0", "net_null"), ("dpdk:net_ring0", "net_ring"),
                       ("dpdk:net_pcap0,tx_pcap={}", "net_pcap")):
        port = next(_ports)
        command = [PINGPONG, "-d", ports.device, "-g", "0", "-p", port]
        how = [{"io": io.format(written[side]), "options": ("--dpdk-addresses", ports.files[side])} for side in (0, 1)]
        server = lab.a.start(command, **how[0])
        server.wait_listening(port)
        client = lab.b.start([*command, lab.a.ipv4], **how[1])
        for program in (server, client):
            wait_until(lambda program=program: f"uroce: port0: dpdk, {driver}, polled" in program.output or not program.running(), 20, driver)
            check(program.running(), program.output)
        if driver == "net_pcap":
            wait_until(lambda: b"\x08\x06" in written[1].read_bytes(), 20, "a question by ARP")
        server.kill()
        client.kill()


def own_ports_wrong(lab):
    file = lab.directory / "wrong"
    good = "name port0\nmac 02:00:00:00:00:01\naddress 10.9.0.1/24\n"
    for text, io, pattern in (("name x", "dpdk:net_null0", r"there is no mac"), (good + "address x", "dpdk:net_null0", r"line 4: an address"),
                              (good, "dpdk", r"only with --io dpdk:PORT"), (good, "udp", r"only with --io dpdk:PORT")):
        file.write_text(text)
        program = lab.a.run(NEEDS_QP, io=io, options=("--dpdk-addresses", file))
        check(program.process.returncode > 0 and re.search(pattern, program.output), program.output)
    file.write_text(good)
    command = [PINGPONG, "-d", "uroce_port0", "-g", "0"]
    for io, pattern in (("dpdk:net_memif0,role=king", r"net_memif0,role=king: "), ("dpdk:net_pcap0,rx_pcap=/nosuch", r"net_pcap0")):
        refusal(lab, pattern, io, command, options=("--dpdk-addresses", file))


def matrix():
    side = Side(io=DPDK)
    ways = {
        "plain": ((), {}),
        "ipv6": ((), {"gid": 1}),
        "events": (("-e",), {}),
        "mtu-4096": (("-m", 4096), {"mtu": JUMBO}),
        "faults": ((), {"server": Side(io=DPDK, faults=f"{FAULTS},seed=1"), "client": Side(io=DPDK, faults=f"{FAULTS},seed=2"), "timeout": 180}),
        "from-udp": ((), {"client": Side(io=SOCKETS)}),
        "to-udp": ((), {"server": Side(io=SOCKETS)}),
        "from-af_xdp": ((), {"client": Side(io=QUEUES)}),
        "user": ((), {"client": Side(user=True)}),
    }
    quick = {("ib_write_bw", "plain"), ("ib_send_lat", "plain"), ("ib_read_bw", "ipv6"), ("ib_send_lat", "events"), ("ib_write_bw", "mtu-4096"),
             ("ib_atomic_lat", "plain"), ("ib_read_bw", "faults"), ("ib_send_bw", "from-udp"), ("ib_write_bw", "to-udp"), ("ib_send_bw", "from-af_xdp")}
    for program in BANDWIDTH + LATENCY:
        for way, (arguments, how) in ways.items():
            if program.startswith("ib_write") and way == "events":
                continue
            how = {"server": side, "client": side, **how, "quick": (program, way) in quick}
            yield pair_case(program, way, ["-n", 200 if program in BANDWIDTH else 1000, *arguments], **how)
    for transport, program in (("UD", "ib_send_bw"), ("UD", "ib_send_lat"), ("UC", "ib_write_lat"), ("XRC", "ib_send_bw")):
        yield pair_case(program, transport, ["-n", 200, "-c", transport], server=side, client=side)
    yield pair_case("ib_write_bw", "qps-64", ["-n", 100, "-q", 64], server=side, client=side, timeout=120)


def several(lab):
    """Programs of one host with ports on one netdev, and others beside them with sockets and queues."""
    others = [endless((lab.a, SOCKETS), (lab.b, SOCKETS)), endless((lab.a, DPDK), (lab.b, DPDK), "ib_read_bw")]
    for gid in (0, 1):
        for server, client in (((lab.a, DPDK), (lab.b, SOCKETS)), ((lab.b, SOCKETS), (lab.a, DPDK)), ((lab.a, DPDK), (lab.a, SOCKETS)),
                               ((lab.a, DPDK), (lab.a, DPDK)), ((lab.b, QUEUES), (lab.a, DPDK))):
            check_ended(transfer(lab, server, client, gid))
    check_goes_on(others)


def multicast(lab):
    """Members on this host and another one, each way."""
    for server, client in (((lab.a, DPDK), (lab.b, DPDK)), ((lab.a, DPDK), (lab.b, SOCKETS)), ((lab.a, SOCKETS), (lab.a, DPDK)),
                           ((lab.a, DPDK), (lab.a, DPDK))):
        check_ended(start_pair("ib_send_lat", ["-c", "UD", *GROUP, "-n", 200], server, client))


def copies_of_the_kernel(lab):
    """The kernel drops what the port has got, instead of taking it through its network stack; not for others, and not after its end."""
    wanted = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2]) >= (6, 6)

    def ip_packets():
        names, values = (line.split() for line in lab.a.system("cat", "/proc/net/snmp").splitlines() if line.startswith("Ip:"))
        return int(values[names.index("InReceives")])

    def while_running(server, client, options=()):
        before = ip_packets()
        check_ended(start_pair("ib_write_bw", ["-n", 500, "-F"], server, client, options=options))
        return ip_packets() - before

    for options in ((), ALONE):
        ordinary = while_running((lab.a, SOCKETS), (lab.b, SOCKETS), options)
        check(ordinary > 500, f"{ordinary} IP packets with sockets")
        copied = while_running((lab.a, DPDK), (lab.b, DPDK), options)
        check(not wanted or copied < 200, f"{copied} IP packets beside a port, {ordinary} with sockets")
        again = while_running((lab.a, SOCKETS), (lab.b, SOCKETS), options)
        check(again > 500, f"{again} IP packets with sockets after a port")


def killed(lab):
    """kill -9: nothing stays, and the next one works at once."""
    for options in ((), ALONE):
        command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "--run_infinitely", "-D", 1]
        port = next(_ports)
        server = lab.a.start([*command, "-p", port], io=DPDK, options=options)
        server.wait_listening(port)
        client = lab.b.start([*command, "-p", port, lab.a.ipv4], io=DPDK, options=options)
        wait_until(lambda: "65536" in client.stdout or not client.running(), 20, "a result")
        check(client.running(), client.output)
        server.kill()
        if options:  # has the peer's port 4791 until it ends
            client.kill()
        hash_checked("", options=options).run(lab)
        check(client.wait(60) is not None, f"the peer of a killed program does not end:\n{client.output}")
        sockets = lab.a.system("ss", "--packet", "--no-header") + lab.a.system("ss", "-lunH", "sport", "=", ":4791")
        check("roce0" not in sockets, f"left behind: {sockets}")


def hugepages(lab):
    """Memory of DPDK in hugepages: those of both ports, of one although both look at the same time, of none."""
    reserved = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    enough = 128  # for a port (engine/io/dpdk/module/eal.cc)

    def reserve(pages):
        with open("/proc/sys/vm/nr_hugepages", encoding="ascii") as lock:  # not while other tests' programs count on some
            fcntl.flock(lock, fcntl.LOCK_EX)
            reserved.write_text(str(pages))

    try:
        before = int(reserved.read_text())
        reserve(4 * enough)
    except OSError as error:
        return f"no hugepages here: {error}"
    try:
        for pages in (4 * enough, 2 * enough - 1, enough - 1):
            reserve(pages)
            there = int(reserved.read_text())
            pair = endless((lab.a, DPDK), (lab.b, DPDK))
            with_them = sum(", hugepages," in program.output for program in pair)
            # Twice as many as both need, so that other tests may take some; memory may be too fragmented for all.
            check(with_them <= there // enough and (there < 4 * enough or with_them == 2), f"{there} hugepages, {with_them} of 2 ports have some")
            check_goes_on([pair])
            for program in pair:
                program.kill()
    finally:
        reserve(before)
    return None


def loaded_libraries(program):
    return set(re.findall(r"/\S+\.so\S*", Path(f"/proc/{program.pid}/maps").read_text()))


def loaded_when_used(lab):
    """No DPDK where nobody asks for it."""
    for io in (SOCKETS, QUEUES, DPDK):
        server, client = endless((lab.a, io), (lab.b, SOCKETS))
        modules = [path for path in loaded_libraries(server) if "dpdk" in Path(path).name or "librte" in path]
        check(bool(modules) == (io == DPDK), f"{io}: {modules}")
        server.kill()
        client.kill()


def refusal(lab, pattern, io=DPDK, command=NEEDS_QP, **how):
    """The command fails by itself, with one line of uroce that matches."""
    program = lab.a.run(command, timeout=20, io=io, **how)
    said = program.output.splitlines()
    ours = [line for line in said if line.startswith("uroce: ") and "waiting for uroced" not in line or "EAL: F" in line]
    check(program.process.returncode > 0, f"exit code {program.process.returncode}\n{program.output}")
    check(len(ours) == 1 and re.search(pattern, ours[0]), f"/{pattern}/ is not the one line\n{program.output}")


def wrong_arguments(lab):
    for options in ((), ALONE):
        refusal(lab, r"net_nosuch0: .*failed to parse device", "dpdk:net_nosuch0", options=options)
        refusal(lab, r"No such device", "dpdk:net_af_packet0,iface=nosuch", options=options)
        refusal(lab, r"it is netdev lo, and the device is on roce0", "dpdk:net_af_packet0,iface=lo", options=options)
        refusal(lab, r"net_af_packet0,nosuch=1", "dpdk:net_af_packet0,nosuch=1", options=options)
        refusal(lab, r"no netdev of the kernel", "dpdk:net_null0", options=options)
        refusal(lab, r"CAP_NET_RAW.*(sudo|root).*udp", user=True, options=options)
        refusal(lab, r"0000:ff:1f\.7", "dpdk:0000:ff:1f.7", options=options)
    for wrong in ("dpdk:", "dpdk:--huge-dir=/", "dpdk:net_null0,queues=99", "dpdkx"):
        program = lab.a.run(NEEDS_QP, io=wrong)
        check(program.process.returncode > 0 and "is none of auto, af_xdp, udp, dpdk" in program.output, program.output)


def alone_comes_second(lab):
    """A program without broker does not take the packets of those who are there."""
    running = [endless((lab.a, SOCKETS), (lab.b, SOCKETS))]
    refusal(lab, r"port 4791 on roce0: Address already in use", options=ALONE)
    check_goes_on(running)


def doctor(lab):
    uroce = lab.build / "bin/uroce"
    told = lab.a.run([uroce, "doctor"], uroce=False, env={"UROCE_IO": "dpdk"}).stdout
    check(re.search(r"dpdk: .*CAP_NET_RAW for ports on netdevs is there.*hugepages", told), told)
    check(re.search(r"io: dpdk \(as UROCE_IO says\)", told), told)
    told = lab.a.run([uroce, "doctor"], uroce=False, env={"UROCE_IO": "dpdk:net_memif0"}).stdout
    check(re.search(r"io: dpdk .*looked at 1000 to 20000 times a second", told), told)
    program = lab.a.run([lab.uroce_for(True), "doctor"], uroce=False, user=True, env={"UROCE_IO": "dpdk"})
    check("but CAP_NET_RAW is missing" in program.output and program.process.returncode > 0, program.output)
    devices = lab.a.run([uroce, "devices"], uroce=False, env={"UROCE_IO": "dpdk"}).stdout
    check("dpdk" in devices, devices)


CASES = [
    hash_checked("transfer"),
    hash_checked("transfer-alone", options=ALONE),
    hash_checked("transfer-ipv6", gid=1),
    hash_checked("transfer-events", ["--events", "--messages", 200]),
    hash_checked("transfer-queues", io=("dpdk:net_af_packet0,qpairs=2", "dpdk:net_af_packet7,qpairs=4")),
    hash_checked("transfer-qps-8", ["--bidirectional", "--qps", 8, "--messages", 100]),
    hash_checked("transfer-mtu-4096", ["--mtu", 4096, "--max-size", 1 << 20, "--messages", 100], mtu=JUMBO),
    hash_checked("transfer-to-af_xdp", io=(QUEUES, DPDK)),
    hash_checked("faults", ["--bidirectional", "--messages", 300], faults=True),
    hash_checked("faults-alone", ["--bidirectional", "--messages", 300], faults=True, options=ALONE),
    hash_checked("faults-udp", ["--bidirectional", "--messages", 300], io=(SOCKETS, DPDK), faults=True),
    hash_checked("faults-mtu-4096", ["--mtu", 4096, "--messages", 200], faults=True, mtu=JUMBO),
    hash_checked("faults-many", ["--bidirectional", "--messages", 5000], faults=True, quick=False),
    *matrix(),
    own_ports("memif", "rc_transfer", "--bidirectional", "--messages", 200),
    own_ports("memif-ipv6", "rc_transfer", "--bidirectional", "--messages", 200, gid=1),
    own_ports("memif-faults", "rc_transfer", "--bidirectional", "--messages", 300, faults=True),
    own_ports("memif-mtu-4096", "rc_transfer", "--mtu", 4096, "--messages", 100, mtu=9000),
    own_ports("memif-ib_write_bw", "ib_write_bw", "-n", 500),
    own_ports("memif-ib_send_lat", "ib_send_lat", "-n", 500),
    own_ports("memif-ib_send_lat-events", "ib_send_lat", "-n", 200, "-e"),
    own_ports("memif-ib_read_lat", "ib_read_lat", "-n", 200),
    own_ports("memif-ib_send_lat-UD", "ib_send_lat", "-n", 200, "-c", "UD"),
    own_ports("memif-alone", "rc_transfer", "--messages", 100, options=ALONE),
    own_ports("memif-vlan", "rc_transfer", "--messages", 100, kind=VlanPorts),
    own_ports("tap", "rc_transfer", "--bidirectional", "--messages", 200, kind=TapPorts),
    own_ports("tap-ipv6-faults", "rc_transfer", "--bidirectional", "--messages", 100, faults=True, gid=1, kind=TapPorts),
    *(own_ports(f"{name}-{program}-full", program, "-n", 200, kind=kind, quick=False)
      for name, kind in (("memif", OwnPorts), ("tap", TapPorts), ("memif-vlan", VlanPorts)) for program in BANDWIDTH + LATENCY),
    own_ports("path", "rc_transfer", "--bidirectional", "--messages", 200, kind=PathPorts),
    own_ports("path-ipv6-faults", "rc_transfer", "--bidirectional", "--messages", 200, faults=True, gid=1, kind=PathPorts),
    own_ports("path-ib_send_lat-events", "ib_send_lat", "-n", 200, "-e", kind=PathPorts),
    own_ports("path-ib_send_lat-UD", "ib_send_lat", "-n", 200, "-c", "UD", kind=PathPorts),
    own_ports("path-ipv6", "rc_transfer", "--bidirectional", "--messages", 200, gid=1, kind=PathPorts),
    own_ports("path-faults", "rc_transfer", "--bidirectional", "--messages", 200, faults=True, kind=PathPorts),
    own_ports("path-alone", "rc_transfer", "--messages", 100, options=ALONE, kind=PathPorts),
    Case("path-kernel", path_of_the_kernel),
    Case("path-owner", path_of_an_owner),
    Case("connection-manager", connection_manager),
    Case("memif-killed", own_ports_killed),
    Case("memif-held", own_ports_held),
    Case("with-an-end-only", with_an_end_only),
    Case("memif-wrong", own_ports_wrong),
    Case("several", several),
    Case("multicast", multicast),
    Case("copies-of-the-kernel", copies_of_the_kernel),
    Case("killed", killed),
    Case("hugepages", hugepages),
    Case("loaded-when-used", loaded_when_used),
    Case("wrong-arguments", wrong_arguments),
    Case("alone-comes-second", alone_comes_second),
    Case("doctor", doctor),
]


def cases(options):
    if not (Path(options.build) / "lib/uroce/uroce_dpdk.so").exists():
        print("skipped: uroce was built without DPDK (libdpdk-dev)")
        sys.exit(SKIPPED)
    return CASES


if __name__ == "__main__":
    sys.exit(main(__doc__, cases))
