#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Ports of DPDK on the hosts' netdevs (net_af_packet): transfers, perftest, sharing a netdev, and what is said. See suite.py."""

import fcntl
import itertools
import os
import re
import sys
from pathlib import Path

from suite import Case, check, main
from broker import check_ended, check_goes_on
from broker_af_xdp import FAULTS, GROUP, endless, start_pair, transfer
from capabilities import as_user
from lab import NOBODY, SKIPPED, wait_until
from perftest import BANDWIDTH, LATENCY, PINGPONG, Side
from perftest_matrix import JUMBO, pair_case

_ports = itertools.count(19000)
DPDK, SOCKETS, QUEUES = "dpdk", "udp", "af_xdp"
ALONE = ("--alone",)
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
    quick = {("ib_send_lat", "events")}  # the gate has one of each kind: few use DPDK
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
    """The kernel drops what the port has got, instead of taking it through its network stack; not after the port's end. Root may,
    and who has root's rights for it; else uroce says that sockets get copies."""
    wanted = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2]) >= (6, 6)
    command = ["ib_write_bw", "-n", 500, "-F", "-x", 0, "-d", lab.a.device]

    def with_io(io, *options):
        return lambda host, words: host.start(words, io=io, options=options)

    def with_rights_of_root(*options):
        return lambda host, words: as_user(lab, host, words, "--io", DPDK, *options)

    def without_bpf(host, words):
        rights = "+net_raw,+net_admin"
        only = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--inh-caps", rights, "--ambient-caps", rights]
        return host.start([*only, lab.uroce_for(True), "run", "--io", DPDK, "--", *words], uroce=False)

    def ip_packets():
        names, values = (line.split() for line in lab.a.system("cat", "/proc/net/snmp").splitlines() if line.startswith("Ip:"))
        return int(values[names.index("InReceives")])

    def while_running(start):
        """How many the kernel takes through its stack, and what uroce says of the I/O."""
        before, port = ip_packets(), next(_ports)
        server = start(lab.a, [*command, "-p", port])
        server.wait_listening(port)
        check_ended((server, start(lab.b, [*command, "-p", port, lab.a.ipv4])))
        return ip_packets() - before, server.output

    ways = [(start, wanted) for start in (with_io(DPDK), with_io(DPDK, *ALONE), with_rights_of_root(), with_rights_of_root(*ALONE))]
    for start, drops in (*ways, (without_bpf, False)):
        copied, said = while_running(start)
        check(re.search(rf"dpdk, net_af_packet, 1 queue, and sockets{'' if drops else ' with copies of all'}\b(?! with copies)", said), said)
        check((copied < 200) == drops, f"{copied} IP packets beside a port")
        through_sockets, _ = while_running(with_io(SOCKETS))
        check(through_sockets > 500, f"{through_sockets} IP packets with sockets after a port")


def netdev_stays(lab):
    """What others have set on the netdev, which the driver sets too."""
    shown = lambda: lab.a.system("ip", "link", "show", "dev", lab.a.netdev)
    for promiscuous in ("on", "off"):
        lab.a.system("ip", "link", "set", lab.a.netdev, "promisc", promiscuous)
        before = shown()
        check(("PROMISC" in before) == (promiscuous == "on"), before)
        pair = endless((lab.a, DPDK), (lab.b, DPDK))
        check(shown() == before, f"{before} is now {shown()}")
        for program in pair:
            program.kill()
        check(shown() == before, f"{before} is then {shown()}")


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
        refusal(lab, r"lacks CAP_NET_RAW, CAP_NET_ADMIN; .*(sudo|root).*udp", user=True, options=options)
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
    check(re.search(r"dpdk: .*CAP_NET_RAW is there .for ports on netdevs.*hugepages", told), told)
    check(re.search(r"io: dpdk \(as UROCE_IO says\)", told), told)
    told = lab.a.run([uroce, "doctor"], uroce=False, env={"UROCE_IO": "dpdk:net_memif0"}).stdout
    check(re.search(r"io: dpdk .*looked at 1000 to 20000 times a second", told), told)
    program = lab.a.run([lab.uroce_for(True), "doctor"], uroce=False, user=True, env={"UROCE_IO": "dpdk"})
    check("but CAP_NET_RAW, CAP_NET_ADMIN are missing" in program.output and program.process.returncode > 0, program.output)
    devices = lab.a.run([uroce, "devices"], uroce=False, env={"UROCE_IO": "dpdk"}).stdout
    check("dpdk" in devices, devices)


CASES = [
    hash_checked("transfer"),
    hash_checked("transfer-alone", options=ALONE, quick=False),
    hash_checked("transfer-ipv6", gid=1, quick=False),
    hash_checked("transfer-events", ["--events", "--messages", 200], quick=False),
    hash_checked("transfer-queues", io=("dpdk:net_af_packet0,qpairs=2", "dpdk:net_af_packet7,qpairs=4"), quick=False),
    hash_checked("transfer-qps-8", ["--bidirectional", "--qps", 8, "--messages", 100], quick=False),
    hash_checked("transfer-mtu-4096", ["--mtu", 4096, "--max-size", 1 << 20, "--messages", 100], mtu=JUMBO, quick=False),
    hash_checked("transfer-to-af_xdp", io=(QUEUES, DPDK), quick=False),
    hash_checked("faults", ["--bidirectional", "--messages", 300], faults=True),
    hash_checked("faults-alone", ["--bidirectional", "--messages", 300], faults=True, options=ALONE, quick=False),
    hash_checked("faults-udp", ["--bidirectional", "--messages", 300], io=(SOCKETS, DPDK), faults=True, quick=False),
    hash_checked("faults-mtu-4096", ["--mtu", 4096, "--messages", 200], faults=True, mtu=JUMBO, quick=False),
    hash_checked("faults-many", ["--bidirectional", "--messages", 5000], faults=True, quick=False),
    *matrix(),
    Case("several", several, quick=False),
    Case("multicast", multicast, quick=False),
    Case("copies-of-the-kernel", copies_of_the_kernel, quick=False),
    Case("netdev-stays", netdev_stays, quick=False),
    Case("killed", killed, quick=False),
    Case("hugepages", hugepages, quick=False),
    Case("loaded-when-used", loaded_when_used),
    Case("wrong-arguments", wrong_arguments, quick=False),
    Case("alone-comes-second", alone_comes_second, quick=False),
    Case("doctor", doctor),
]


def where_built(cases):
    """For suite.main: the cases, where uroce was built with DPDK."""

    def of(options):
        if not (Path(options.build) / "lib/uroce/uroce_dpdk.so").exists():
            print("skipped: uroce was built without DPDK (libdpdk-dev)")
            sys.exit(SKIPPED)
        return cases

    return of


if __name__ == "__main__":
    sys.exit(main(__doc__, where_built(CASES)))
