#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""uroce beside everything else on the host: other traffic flows while it runs, nothing is left when it is gone, and it
takes no CPU when idle. See suite.py."""

import json
import subprocess
import sys
import time
from pathlib import Path

from suite import Case, check, main
from lab import NETNS, wait_until

PORT = 20000
IDLE_SECONDS = 3
IDLE_SHARE = 0.01  # of one core


def start_endless(lab, port):
    """ib_write_bw that runs until it is ended; returns when packets flow."""
    command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", port, "--run_infinitely", "-D", 1]
    server = lab.a.start(command, io="af_xdp")
    server.wait_listening(port)
    client = lab.b.start([*command, lab.a.ipv4], io="af_xdp")
    wait_until(lambda: lab.b.xdp_program() and lab.a.xdp_program(), 10, "both sides have attached their XDP programs")
    before = received_packets(lab.a)
    wait_until(lambda: received_packets(lab.a) > before + 1000, 10, "RDMA packets flow")
    return server, client


def received_packets(host):
    return json.loads(host.system("ip", "-json", "-stats", "link", "show", "dev", host.netdev))[0]["stats64"]["rx"]["packets"]


def ping(lab):
    programs = start_endless(lab, PORT)
    for address in (lab.a.ipv4, lab.a.ipv6):
        output = lab.b.system("ping", "-c", "10", "-i", "0.05", "-W", "1", address)
        check(" 0% packet loss" in output, output)
    check(all(p.running() for p in programs), "ib_write_bw ended meanwhile:\n" + programs[1].output)


def iperf(lab):
    programs = start_endless(lab, PORT + 1)
    server = lab.a.start(["iperf3", "--server", "--one-off", "--port", "5201"], uroce=False)
    server.wait_listening(5201)
    client = lab.b.run(["iperf3", "--client", lab.a.ipv4, "--time", "2", "--json"], uroce=False)
    check(client.process.returncode == 0, client.output)
    rate = json.loads(client.stdout)["end"]["sum_received"]["bits_per_second"]
    check(rate > 1e6, f"{rate} bit/s")
    before = received_packets(lab.a)
    wait_until(lambda: received_packets(lab.a) > before + 1000, 10, "RDMA packets still flow")
    check(all(p.running() for p in programs), "ib_write_bw ended meanwhile:\n" + programs[1].output)
    return f"TCP {rate / 1e9:.2f} Gb/s beside it"


def killed(lab):
    """kill -9 in full flight: the kernel detaches the XDP program, and the next process starts as if nothing had been."""
    for attempt in range(2):
        programs = start_endless(lab, PORT + 2 + attempt)
        for program in programs:
            program.kill()
        for host in (lab.a, lab.b):
            wait_until(lambda host=host: host.xdp_program() is None, 1, "no XDP program after kill -9")
            check(not json.loads(host.system("bpftool", "--json", "net"))[0]["xdp"], host.system("bpftool", "net"))


def script_killed(lab):
    """kill -9 of a script that uses a Lab: its network namespaces and programs vanish."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import lab\n"
        "with lab.Lab(sys.argv[2]) as two:\n"
        "    child = two.a.start(['sleep', '1000'], uroce=False)\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    argv = [NETNS, "private", sys.executable, "-B", "-c", script, str(NETNS.parent), str(lab.build)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child = int(process.stdout.readline())
    wait_until(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n", 5, "the child runs")
    namespace = Path(f"/proc/{child}/ns/net").readlink()
    process.kill()
    process.wait()
    wait_until(lambda: not network_namespace_exists(namespace), 5, "the network namespace is gone")


def network_namespace_exists(namespace):
    """Some process is in it. Names (mounts) of it were in a mount namespace that ended with its last process."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns/net").readlink() == namespace:
                return True
        except OSError:
            continue
    return False


def idle(lab, io, port):
    """A connected pair that waits (perftest sleeps before it destroys its QPs) takes under 1 % of a core."""
    command = ["ib_send_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", port, "-n", 100, "--wait_destroy", 30]
    server = lab.a.start(command, io=io)
    server.wait_listening(port)
    programs = (server, lab.b.start([*command, lab.a.ipv4], io=io))
    for program in programs:
        sleeping = Path(f"/proc/{program.pid}/wchan")
        wait_until(lambda: sleeping.read_text() == "hrtimer_nanosleep", 10, "the program sleeps with its QP connected")
    time.sleep(0.5)  # the engine's background thread comes to rest
    before = [p.cpu_seconds() for p in programs]
    time.sleep(IDLE_SECONDS)
    shares = [(p.cpu_seconds() - start) / IDLE_SECONDS for p, start in zip(programs, before)]
    check(max(shares) < IDLE_SHARE, f"{[f'{share:.2%}' for share in shares]} of a core")
    return f"{max(shares):.3%} of a core"


CASES = [
    Case("ping-beside", ping),
    Case("iperf3-beside", iperf),
    Case("kill-9", killed),
    Case("script-kill-9", script_killed),
    Case("idle-af_xdp", lambda lab: idle(lab, "af_xdp", PORT + 10)),
    Case("idle-udp", lambda lab: idle(lab, "udp", PORT + 11)),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
