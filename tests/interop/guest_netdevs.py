# SPDX-License-Identifier: BSD-2-Clause
"""uroce over netdevs that the kernels of test machines do not always have: tunnels without MAC addresses, and a VRF. Two network
namespaces of the guest, joined by a veth pair; uroce in both.
"""

import base64
import re

from cases import captured
from suite import Case, check

PORT = 18000
# The ends: their namespaces, and the last byte of their addresses on the wire (10.9.0), in the tunnel (10.8.0, fd08::) and on a second
# wire, over which rc_transfer's ends talk to each other (10.7.0).
ENDS = (("one", 1), ("two", 2))
JOINED = """set -e
for one in one two; do ip netns add $one; ip -n $one link set lo up; done
for wire in w0 w1; do ip link add $wire netns one type veth peer name $wire netns two; done
for end in one/1 two/2; do
  ip -n ${end%/*} address add 10.9.0.${end#*/}/24 dev w0
  ip -n ${end%/*} address add 10.7.0.${end#*/}/24 dev w1
  for wire in w0 w1; do ip -n ${end%/*} link set $wire up; done
done
"""
# For each end, with its number in $n, the other one's in $m and its namespace in $ns.
TUNNELS = {
    "ipip": "ip -n $ns link add t0 type ipip local 10.9.0.$n remote 10.9.0.$m",
    "gre": "ip -n $ns link add t0 type gre local 10.9.0.$n remote 10.9.0.$m",
    "wireguard": """ip -n $ns link add t0 type wireguard
wg genkey >/tmp/key$n
ip netns exec $ns wg set t0 private-key /tmp/key$n listen-port 5000
wg pubkey </tmp/key$n >/tmp/public$n""",
}
MODULES = {"gre": "ip_gre"}
PEERS = {"wireguard": "ip netns exec $ns wg set t0 peer $(cat /tmp/public$m) endpoint 10.9.0.$m:5000 allowed-ips 10.8.0.$m/32,fd08::$m/128"}
ADDRESSES = """ip -n $ns address add 10.8.0.$n/24 dev t0
ip -n $ns link set t0 up"""
ADDRESS_V6 = "ip -n $ns address add fd08::$n/64 dev t0 nodad"  # not of a tunnel that carries IPv4 alone
VRF = """ip -n $ns link add blue type vrf table 10
ip -n $ns link set blue up
ip -n $ns link set w0 master blue"""


def at_both_ends(script):
    return "".join(f"n={n} m={3 - n} ns={ns}\n{script}\n" for ns, n in ENDS)


def join(lab, modules, script):
    """Makes the ends."""
    script = "\n".join([f"modprobe {module}" for module in modules] + [JOINED, script])
    text = base64.b64encode(script.encode()).decode()  # a command is one line
    program = lab.track(lab.vm.start(["sh", "-c", f"echo {text} | base64 -d | sh"], ()))
    code = program.wait(60)
    check(code == 0, f"exit code {code} (None: hangs): {program.output}\n{script}")


def end(lab):
    """Namespaces take their netdevs along. A program that is still there keeps its own."""
    lab.stop_programs()
    lab.vm.run(["sh", "-c", "for ns in one two; do ip netns pids $ns | xargs -r kill -9; ip netns delete $ns; done; true"])


def start(lab, ns, netdev, command, options):
    words = ["/opt/uroce/bin/uroce", "run", "--netdev", netdev, *options, "--", *command]
    return lab.track(lab.vm.start(words, ("ip", "netns", "exec", ns)))


def transfer(lab, netdev, gid=0, options=()):
    """rc_transfer, each byte verified; what uroce says of the packet I/O."""
    command = ["rc_transfer", "--device", f"uroce_{netdev}", "--gid-index", gid, "--ack-timeout", 17, "--port", PORT]
    server = start(lab, "one", netdev, [*command, "--server"], options)
    server.wait_listening(PORT)
    client = start(lab, "two", netdev, [*command, "--client", "10.7.0.1", "--messages", 100, "--bidirectional"], options)
    codes = [client.wait(60), server.wait(20)]
    check(codes == [0, 0], f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
    return re.search(rf"^uroce: {netdev}: (.*)$", client.output, re.MULTILINE)[1]


def tunnel(kind):
    def run(lab):
        with captured(lab, f"guest-netdev/{kind}"), lab.without_rxe():
            try:
                v6 = kind != "ipip"
                join(lab, [MODULES.get(kind, kind)], at_both_ends(TUNNELS[kind]) + at_both_ends("\n".join([PEERS.get(kind, ""), ADDRESSES, ADDRESS_V6 if v6 else ""])))
                how = transfer(lab, "t0")
                check("has no MAC address" in how, how)
                transfer(lab, "t0", options=("--alone",))
                if v6:
                    transfer(lab, "t0", gid=1)  # its GID is that of IPv6
                return how
            finally:
                end(lab)

    return Case(f"guest-netdev/{kind}", run, quick=False)  # of the short form: e2e_netdevs has a tun


def vrf(lab):
    """The netdev stays a device when it comes into a VRF, and packets take that one's routes."""
    with captured(lab, "guest-netdev/vrf"), lab.without_rxe():
        try:
            join(lab, ["vrf"], at_both_ends(VRF))
            transfer(lab, "w0", options=("--alone",))
            devices = lab.vm.run(["sh", "-c", "ip netns exec one /opt/uroce/bin/uroce devices"])
            check("uroce_w0" in devices and "blue" not in devices, devices)
            refused = start(lab, "one", "w0", ["ibv_rc_pingpong", "-d", "uroce_w0", "-g", "0"], ())
            code = refused.wait(30)
            check(code not in (0, None) and "udp_l3mdev_accept=1" in refused.output, f"{code}: {refused.output}")
            lab.vm.run(["sh", "-c", "for ns in one two; do ip netns exec $ns sysctl -w net.ipv4.udp_l3mdev_accept=1; done"])
            return transfer(lab, "w0")
        finally:
            end(lab)


def cases():
    yield from map(tunnel, TUNNELS)
    yield Case("guest-netdev/vrf", vrf)
