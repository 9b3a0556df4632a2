#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Paths that do not take all that leaves by UDP sockets. The MTU shrinks under a transfer, so that its packets do not
leave any more: that is said once; the transfer goes on when the MTU grows again in time, and ends with an error
completion otherwise. The peer is an AF_XDP socket in generic mode, which gets packets and no runs: that is said once as
well, and the transfer goes on; UC and UD notice nothing and so ask first. Packets come in on another netdev of the host. See suite.py."""

import re
import sys

from suite import Case, check, main
from lab import wait_until
from transports_matrix import UNPACED

PORT = 22100
SAID = "are longer than the path takes now"
SHRUNK, LARGE = 1500, 4200  # a packet of path MTU 2048 fits only the latter
RETRY_EXCEEDED = 12  # ibv_wc_status


def transfer(lab, timeout):
    """A server on host a and a client on host b, packets of whose WRITEs are under way. `timeout`: the QP's, with
    seven retries."""
    command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", PORT, "-m", 2048, "-u", timeout, "-D", 3]
    server = lab.a.start(command, io="udp")
    server.wait_listening(PORT)
    client = lab.b.start([*command, lab.a.ipv4], io="udp", env={"UROCE_COUNTERS": "1"})
    before = lab.b.packets()
    wait_until(lambda: lab.b.packets() > before + 1000, 20, "packets flow")
    return server, client


def set_mtu(host, mtu):
    host.system("ip", "link", "set", host.netdev, "mtu", str(mtu))


def shrink(lab, client):
    set_mtu(lab.b, SHRUNK)
    wait_until(lambda: SAID in client.output, 20, "the client says that its packets are too long")


def grows_again(lab):
    server, client = transfer(lab, 19)  # 2 s
    shrink(lab, client)
    set_mtu(lab.b, LARGE)
    codes = [client.wait(60), server.wait(60)]
    check(codes == [0, 0], f"exit codes {codes}\n{client.output}\n--- server\n{server.output}")
    check(client.output.count(SAID) == 1, f"not said once\n{client.output}")


def stays(lab):
    _, client = transfer(lab, 14)  # 67 ms
    shrink(lab, client)
    code = client.wait(60)
    set_mtu(lab.b, LARGE)
    check(code not in (None, 0), f"exit code {code}\n{client.output}")
    check(re.search(rf"status {RETRY_EXCEEDED}\b", client.output), f"no error completion\n{client.output}")
    check(client.output.count(SAID) == 1, f"not said once\n{client.output}")
    check("packets the kernel refused to send" in client.output, f"not counted\n{client.output}")


def runs_are_lost(lab, program):
    """Runs of WRITEs to the server, runs of READ responses to the client."""
    command = [program, "-d", lab.a.device, "-F", "-x", 0, "-p", PORT, "-m", 1024, "-n", 300]
    generic, sockets = {"io": "af_xdp", "options": ["--xdp-mode", "generic"]}, {"io": "udp"}
    to_server = program == "ib_write_bw"
    server = lab.a.start(command, **(generic if to_server else sockets))
    server.wait_listening(PORT)
    client = lab.b.start([*command, lab.a.ipv4], **(sockets if to_server else generic))
    codes = [client.wait(60), server.wait(60)]
    check(codes == [0, 0], f"exit codes {codes}\n{client.output}\n--- server\n{server.output}")
    said = (client if to_server else server).output
    check(said.count("does not get runs of packets") == 1, f"not said once\n{said}")


def unreliable(lab, transport, server_io):
    """Messages of UC and UD leave in runs to a peer that says that it takes them, and one by one to any other. Not one of
    them is lost, or the server would wait for it."""
    size, count = (1024, 2000) if transport == "UD" else (65536, 100)
    command = ["ib_send_bw", "-c", transport, "-d", lab.a.device, "-F", "-x", 0, "-p", PORT, "-m", 1024, "-s", size, "-n", count, *UNPACED]
    options = ["--xdp-mode", "generic"] if server_io == "af_xdp" else []
    server = lab.a.start(command, io=server_io, options=options)
    server.wait_listening(PORT)
    client = lab.b.start([*command, lab.a.ipv4], io="udp", env={"UROCE_COUNTERS": "1"})
    codes = [client.wait(60), server.wait(60)]
    check(codes == [0, 0], f"exit codes {codes}\n{client.output}\n--- server\n{server.output}")
    in_runs = re.search(r"packets sent in runs: (\d+)", client.output)
    packets = int(in_runs[1]) if in_runs else 0
    enough = packets > size * count // 1024 // 2 if server_io == "udp" else packets == 0
    check(enough, f"{packets} packets left in runs\n{client.output}")


def other_netdev(lab):
    """Two netdevs of a host in one subnet, and the peer has learnt the MAC address of the wrong one (ARP flux): said, with a remedy, and
    seen by doctor."""
    server_host, client_host, address = lab.b, lab.a, "192.0.2.77"
    try:
        server_host.system("ip", "link", "add", "roce1", "type", "veth", "peer", "name", "roce1far")
        for netdev in ("roce1", "roce1far"):
            server_host.system("ip", "link", "set", netdev, "up")
        server_host.system("ip", "address", "add", f"{address}/24", "dev", "roce1")
        mac = server_host.system("cat", f"/sys/class/net/{server_host.netdev}/address").strip()
        client_host.system("ip", "neighbour", "replace", address, "lladdr", mac, "dev", client_host.netdev, "nud", "permanent")
        command = ["ib_write_bw", "-F", "-x", 0, "-p", PORT, "-u", 15, "-n", 100]
        server = server_host.start([*command, "-d", "uroce_roce1"], io="udp")
        server.wait_listening(PORT)
        client = client_host.start([*command, "-d", client_host.device, address], io="udp")
        wait_until(lambda: f"packets to {address} come in on roce0, and are dropped" in server.output, 20, "the server says so")
        stat = server_host.run([lab.build / "bin/uroce", "stat"], uroce=False).stdout
        check(re.search(r"wrong_netdev \(.*arp_ignore=1", stat), stat)
        code = client.wait(60)
        check(code not in (None, 0), f"exit code {code} (None: hangs)\n{client.output}\n--- server\n{server.output}")
        check(server.output.count("come in on") == 1 and "arp_ignore=1" in server.output, f"not said once\n{server.output}")
        doctor = server_host.run([lab.build / "bin/uroce", "doctor", "--netdev", "roce1"], uroce=False).stdout
        check(re.search(r"\[warn\] subnet: shared with roce0: each answers.*\n.*arp_ignore=1", doctor), doctor)
    finally:
        lab.stop_programs()
        client_host.system("ip", "neighbour", "flush", "dev", client_host.netdev)
        server_host.system("ip", "link", "delete", "roce1")


UNRELIABLE = [Case(f"{transport.lower()}-to-{io}", lambda lab, t=transport, io=io: unreliable(lab, t, io), LARGE)
              for transport in ("UC", "UD") for io in ("udp", "af_xdp")]
LOSING_RUNS = [Case(f"runs-are-lost/{p}", lambda lab, p=p: runs_are_lost(lab, p), LARGE) for p in ("ib_write_bw", "ib_read_bw")]

if __name__ == "__main__":
    sys.exit(main(__doc__, [Case("mtu-shrinks-and-grows", grows_again, LARGE), Case("mtu-shrinks", stays, LARGE), *LOSING_RUNS, *UNRELIABLE, Case("other-netdev", other_netdev)]))
