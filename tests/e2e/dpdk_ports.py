#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Ports of DPDK that the kernel does not see (net_memif, net_tap and others), with addresses from a file or a tap: transfers, perftest,
rdma_cm, and what is said. See suite.py."""

import itertools
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

from suite import Case, check, main
from broker import check_ended
from broker_af_xdp import FAULTS
from cm_programs import exit_code_of_rping
from dpdk import ALONE, NEEDS_QP, refusal, where_built
from lab import NOBODY, wait_until
from perftest import BANDWIDTH, LATENCY, PINGPONG

_ports = itertools.count(19500)
# Retries take 17 s: ports are joined when both programs have theirs, and then these may already send.
PATIENT, PATIENT_PERFTEST = ("--ack-timeout", 17), ("-u", 17)
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


def endless(ports, server_address):
    """perftest on both ports that runs until it is ended; returns when it has begun to run."""
    command = ["ib_write_bw", "-d", ports.device, "-F", "-x", 0, "--run_infinitely", "-D", 1, "-p", port := next(_ports)]
    server = ports.start(0, command)
    server.wait_listening(port)
    client = ports.start(1, [*command, server_address])
    wait_until(lambda: "65536" in client.stdout or not client.running(), 20, "a result")
    check(client.running(), client.output)
    return server, client


def own_ports_killed(lab):
    """kill -9 of one side: the other one's QP ends, and the port works for the next one."""
    ports = OwnPorts(lab)
    server, client = endless(ports, lab.a.ipv4)
    server.kill()
    check(client.wait(60) is not None, f"the peer of a killed program does not end:\n{client.output}")
    own_ports("", "rc_transfer", "--messages", 100).run(lab)


def own_ports_held(lab):
    """A port is one process's: the next one is told whose, and has it when that one has been killed."""
    ports = OwnPorts(lab)
    server, client = endless(ports, lab.a.ipv4)
    for side, holder in ((0, server), (1, client)):
        second = ports.start(side, [PINGPONG, "-d", ports.device, "-g", "0"])
        check(second.wait(20) not in (None, 0), second.output)
        check(re.search(rf"process {holder.pid} \(ib_write_bw\) has this DPDK port, .*net_memif", second.output), second.output)
    check(client.running() and server.running(), client.output)
    client.kill()
    server.kill()
    own_ports("", "rc_transfer", "--messages", 100, kind=lambda *_: ports).run(lab)


def path_of_the_kernel(lab):
    """Beside a transfer the kernels ping, exchange bytes by TCP, and lose the port with its processes."""
    for mtu in (1500, 8174):  # the most that ports carry
        ports = PathPorts(lab, mtu)
        server, client = endless(ports, ports.of_server[0])  # whose TCP is the port's as well
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


CASES = [
    own_ports("memif", "rc_transfer", "--bidirectional", "--messages", 200),
    own_ports("memif-ipv6", "rc_transfer", "--bidirectional", "--messages", 200, gid=1, quick=False),
    own_ports("memif-faults", "rc_transfer", "--bidirectional", "--messages", 300, faults=True, quick=False),
    own_ports("memif-mtu-4096", "rc_transfer", "--mtu", 4096, "--messages", 100, mtu=9000, quick=False),
    own_ports("memif-ib_write_bw", "ib_write_bw", "-n", 500, quick=False),
    own_ports("memif-ib_send_lat", "ib_send_lat", "-n", 500, quick=False),
    own_ports("memif-ib_send_lat-events", "ib_send_lat", "-n", 200, "-e", quick=False),
    own_ports("memif-ib_read_lat", "ib_read_lat", "-n", 200, quick=False),
    own_ports("memif-ib_send_lat-UD", "ib_send_lat", "-n", 200, "-c", "UD", quick=False),
    own_ports("memif-alone", "rc_transfer", "--messages", 100, options=ALONE, quick=False),
    own_ports("memif-vlan", "rc_transfer", "--messages", 100, kind=VlanPorts, quick=False),
    own_ports("tap", "rc_transfer", "--bidirectional", "--messages", 200, kind=TapPorts, quick=False),
    own_ports("tap-ipv6-faults", "rc_transfer", "--bidirectional", "--messages", 100, faults=True, gid=1, kind=TapPorts, quick=False),
    *(own_ports(f"{name}-{program}-full", program, "-n", 200, kind=kind, quick=False)
      for name, kind in (("memif", OwnPorts), ("tap", TapPorts), ("memif-vlan", VlanPorts)) for program in BANDWIDTH + LATENCY),
    own_ports("path", "rc_transfer", "--bidirectional", "--messages", 200, kind=PathPorts, quick=False),
    own_ports("path-ipv6-faults", "rc_transfer", "--bidirectional", "--messages", 200, faults=True, gid=1, kind=PathPorts, quick=False),
    own_ports("path-ib_send_lat-events", "ib_send_lat", "-n", 200, "-e", kind=PathPorts, quick=False),
    own_ports("path-ib_send_lat-UD", "ib_send_lat", "-n", 200, "-c", "UD", kind=PathPorts, quick=False),
    own_ports("path-ipv6", "rc_transfer", "--bidirectional", "--messages", 200, gid=1, kind=PathPorts, quick=False),
    own_ports("path-faults", "rc_transfer", "--bidirectional", "--messages", 200, faults=True, kind=PathPorts, quick=False),
    own_ports("path-alone", "rc_transfer", "--messages", 100, options=ALONE, kind=PathPorts, quick=False),
    Case("path-kernel", path_of_the_kernel),
    Case("path-owner", path_of_an_owner, quick=False),
    Case("connection-manager", connection_manager, quick=False),
    Case("memif-killed", own_ports_killed, quick=False),
    Case("memif-held", own_ports_held),
    Case("with-an-end-only", with_an_end_only, quick=False),
    Case("memif-wrong", own_ports_wrong),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, where_built(CASES)))
