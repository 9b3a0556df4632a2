#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""What people look at a device with: ibv_devices, ibv_devinfo -v, ibv_asyncwatch. Options: see suite.py."""

import re
import sys

from suite import Case, check, main
from lab import wait_until


def devices(lab):
    program = lab.a.run(["ibv_devices"])
    check(program.process.returncode == 0, program.output)
    mac = lab.a.system("cat", f"/sys/class/net/{lab.a.netdev}/address").strip().split(":")
    guid = f"{int(mac[0], 16) ^ 2:02x}{mac[1]}{mac[2]}fffe{mac[3]}{mac[4]}{mac[5]}"
    check(re.search(rf"^\s+{lab.a.device}\s+{guid}$", program.stdout, re.MULTILINE), f"no {guid}:\n{program.output}")


def devinfo(lab):
    program = lab.a.run(["ibv_devinfo", "-v", "-d", lab.a.device])
    check(program.process.returncode == 0, program.output)
    for field, value in (
        ("transport", r"InfiniBand \(0\)"),
        ("state", r"PORT_ACTIVE \(4\)"),
        ("phys_state", r"LINK_UP \(5\)"),
        ("active_mtu", r"1024 \(3\)"),
        ("link_layer", "Ethernet"),
        ("max_qp", "16384"),
        ("max_srq_wr", "32768"),
        ("max_mcast_grp", lab.a.system("sysctl", "-n", "net.ipv4.igmp_max_memberships").strip()),
        ("atomic_cap", r"ATOMIC_HCA \(1\)"),
        (r"GID\[  0\]", rf"::ffff:{re.escape(lab.a.ipv4)}, RoCE v2"),
    ):
        check(re.search(rf"^\s*{field}:\s*{value}$", program.stdout, re.MULTILINE), f"{field}:\n{program.output}")
    for flag in ("XRC", "SRQ_RESIZE", "MEM_WINDOW", "MEM_WINDOW_TYPE_2B", "ODP_SUPPORT_IMPLICIT"):
        check(re.search(rf"^\s+{flag}$", program.stdout, re.MULTILINE), f"{flag}:\n{program.output}")
    check("error" not in program.output.lower(), program.output)


def asyncwatch(lab):
    watch = lab.a.start(["stdbuf", "-oL", "ibv_asyncwatch", "-d", lab.a.device])
    wait_until(lambda: "async event FD" in watch.output or not watch.running(), 10, "ibv_asyncwatch watches")
    for command, event in (
        (["ip", "address", "add", "198.51.100.1/24", "dev", lab.a.netdev], "IBV_EVENT_GID_CHANGE"),
        (["ip", "link", "set", lab.a.netdev, "down"], "IBV_EVENT_PORT_ERR"),
        (["ip", "link", "set", lab.a.netdev, "up"], "IBV_EVENT_PORT_ACTIVE"),
    ):
        lab.a.system(*command)
        wait_until(lambda: event in watch.output or not watch.running(), 10, f"'{event}' in\n{watch.output}")
        check(event in watch.output, f"no '{event}':\n{watch.output}")


def named(lab):
    """A device that is called as the program insists; its peer's is not. By verbs, by files and by rdma_cm."""
    name = "mlx5_0"
    called = ("--name", f"other0=rxe0,{lab.a.netdev}={name}")
    program = lab.a.run(["ibv_devices"], options=called)
    check(re.search(rf"^\s+{name}\s", program.stdout, re.MULTILINE) and lab.a.device not in program.stdout, program.output)
    program = lab.a.run(["sh", "-c", "cd /sys/class/infiniband && ls && cat */node_desc /sys/class/infiniband_verbs/*/ibdev"], options=called)
    check(program.stdout.split() == [name] * 3, program.output)
    perftest = ["ib_write_bw", "-F", "-x", 0, "-n", 100, "-d"]
    server = lab.a.start([*perftest, name], options=called)
    server.wait_listening(18515)
    client = lab.b.run([*perftest, lab.b.device, lab.a.ipv4])
    check(client.process.returncode == 0 and server.wait(10) == 0, f"{client.output}\n--- server\n{server.output}")
    server = lab.a.start(["rping", "-s", "-a", lab.a.ipv4, "-C", 3], options=called)
    wait_until(lambda: lab.b.run(["rping", "-c", "-a", lab.a.ipv4, "-C", 3]).process.returncode == 0, 20, "rping")
    check(server.wait(10) == 0, server.output)


CASES = [Case("named", named), Case("ibv_devices", devices), Case("ibv_devinfo", devinfo), Case("ibv_asyncwatch", asyncwatch)]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
