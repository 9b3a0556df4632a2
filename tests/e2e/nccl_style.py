#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""nccl_style (nccl_style/main.cc), which uses libibverbs as NCCL's network does, between two hosts, and by the private
directory alone. Options: see suite.py."""

import re
import sys

from suite import Case, check, main
from carried import COUNTED, packets_sent
from lab import wait_until

PORT = 22300
LEAST_PACKETS = 15000  # each way 71 MB, in packets of 4096 bytes at most
GIDS = {"": 0, "AF_INET6": 1}


def start(lab, host, arguments, io, env=None, options=(), user=False):
    return host.start([lab.program_for(user, "nccl_style"), *arguments, PORT], io=io, user=user, options=options, env={**COUNTED, **(env or {})})


def ended_well(lab, programs, gid):
    for host, program in programs:
        code = program.wait(60)
        check(code == 0, f"exit code {code} (None: hangs)\n{program.output}")
        check(re.search(r"^nccl_style: 400 messages, \d+ bytes each way$", program.stdout, re.MULTILINE), program.output)
        check(re.search(rf"^nccl_style: {host.device} port 1, [1-9]\d* Mb/s, path .*, DMA buffers, by .*/lib/uroce/", program.stdout, re.MULTILINE), program.output)
        check(f"nccl_style: {host.device} with GID {gid}\n" in program.stdout, program.output)
        check(sum(packets_sent(program.output)) > LEAST_PACKETS, f"not over uroce\n{program.output}")


def exchange(lab, io="udp", family="", arguments=(), options=(), user=False):
    env = {"NCCL_IB_ADDR_FAMILY": family} if family else {}
    server = start(lab, lab.a, arguments, io, env, options, user)
    server.wait_listening(PORT)
    client = start(lab, lab.b, [*arguments, lab.a.ipv4], io, env, options, user)
    ended_well(lab, ((lab.a, server), (lab.b, client)), GIDS[family])


def device_path(lab):
    """Where its topology begins: what /sys/class/infiniband/NAME/device leads to can be read."""
    server = start(lab, lab.a, (), "udp")
    server.wait_listening(PORT)
    path = re.search(r", path (\S*?), ", server.stdout)[1]
    check(path.startswith("/sys/"), server.output)
    seen = lab.a.run(["cat", f"{path}/numa_node", f"{path}/vendor"], io="udp")
    check(seen.stdout == "-1\n0x0000\n", seen.output)


def events(lab):
    """They reach the thread that waits for them, while nothing else happens."""
    server = start(lab, lab.a, (), "udp")
    server.wait_listening(PORT)
    lab.a.system("ip", "address", "add", "198.51.100.7/24", "dev", lab.a.netdev)
    wait_until(lambda: "event: GID table change" in server.output or not server.running(), 10, f"the event\n{server.output}")
    check(server.running(), server.output)
    lab.a.system("ip", "address", "del", "198.51.100.7/24", "dev", lab.a.netdev)


def drop_in(lab):
    """Without `uroce run`. There is no /sys/class/infiniband then, so the GID has to be named."""
    env = {"LD_LIBRARY_PATH": str(lab.build / "lib/uroce"), "UROCE_IO": "udp", "NCCL_IB_GID_INDEX": "0", **COUNTED}
    command = [lab.program_for(False, "nccl_style"), PORT]
    server = lab.a.start(command, uroce=False, env=env)
    server.wait_listening(PORT)
    client = lab.b.start([command[0], lab.a.ipv4, PORT], uroce=False, env=env)
    ended_well(lab, ((lab.a, server), (lab.b, client)), 0)
    chosen = lab.a.run(command, uroce=False, env={name: value for name, value in env.items() if name != "NCCL_IB_GID_INDEX"})
    check(chosen.process.returncode == 1 and "no GID with RoCE v2" in chosen.output, chosen.output)


CASES = [
    Case("udp", exchange),
    Case("udp-mtu-4200", exchange, mtu=4200),
    Case("af_xdp", lambda lab: exchange(lab, "af_xdp")),
    Case("ipv6", lambda lab: exchange(lab, family="AF_INET6")),
    Case("dmabuf", lambda lab: exchange(lab, arguments=["--dmabuf"])),
    Case("user", lambda lab: exchange(lab, user=True)),
    Case("losses", lambda lab: exchange(lab, options=["--faults", "drop=0.5%,reorder=0.5%,dup=0.5%"])),
    Case("device-path", device_path),
    Case("events", events),
    Case("drop-in", drop_in),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
