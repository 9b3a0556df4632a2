#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""rc_transfer (transfer/README.md) between two hosts: every byte right, every completion exactly once. See suite.py."""

import itertools
import sys

from suite import Case, check, main
from perftest import io_mode

FAULTS = "drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%"
JUMBO = 9000
_ports = itertools.count(19000)


def transfer(name, arguments=(), io=("af_xdp", "af_xdp"), faults="", gid=0, timeout=120, **case):
    """Seeds of the faults differ, or both sides would drop the same packets. io: server, client."""

    def run(lab):
        port = next(_ports)
        own = [lab.build / "bin/rc_transfer", "--device", lab.a.device, "--gid-index", gid, "--port", port]
        own += [word for word in arguments if word in ("--events", "--rnr")]
        plan = [word for word in arguments if word not in ("--events", "--rnr")]
        seeded = [f"{faults},seed={seed}" if faults else None for seed in (1, 2)]
        server = lab.a.start([*own, "--server"], io=io[0], faults=seeded[0])
        server.wait_listening(port)
        client = lab.b.start([*own, *plan, "--client", lab.a.ipv4], io=io[1], faults=seeded[1])
        codes = (client.wait(timeout), server.wait(10))
        check(codes == (0, 0), f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
        for program, expected in ((server, io[0]), (client, io[1])):
            mode = io_mode(program.output)
            check(mode.startswith(expected) and faults in mode, f"'{mode}' is not {expected} {faults}")
        return client.stdout.strip().splitlines()[-1]

    return Case(name, run, **case)


def self_transfer(name, io, **case):
    """Two QPs of one process, over its own GID."""

    def run(lab):
        command = [lab.build / "bin/rc_transfer", "--self", "--device", lab.a.device, "--gid-index", 0, "--messages", 300]
        program = lab.a.run(command, timeout=120, io=io)
        check(program.process.returncode == 0, program.output)
        return program.stdout.strip().splitlines()[-1]

    return Case(name, run, **case)


CASES = [
    transfer("plain"),
    transfer("bidirectional-qps-8", ["--bidirectional", "--qps", 8, "--messages", 200]),
    transfer("events", ["--events", "--messages", 300]),
    transfer("unsignaled", ["--unsignaled"], quick=False),
    transfer("rnr", ["--rnr", "--mix", "send,send_imm,write_imm", "--messages", 200, "--max-size", 20000]),
    transfer("ipv6", gid=1, quick=False),
    transfer("mtu-256", ["--mtu", 256], quick=False),
    transfer("mtu-4096", ["--mtu", 4096, "--max-size", 1 << 20, "--messages", 100], mtu=JUMBO),
    transfer("udp", io=("udp", "udp")),
    transfer("af_xdp-to-udp", ["--bidirectional"], io=("udp", "af_xdp")),
    transfer("faults", ["--bidirectional", "--messages", 300], faults=FAULTS),
    transfer("faults-qps-8", ["--qps", 8, "--messages", 100], faults=FAULTS, quick=False),
    transfer("faults-udp", ["--bidirectional", "--messages", 300], io=("udp", "udp"), faults=FAULTS),
    transfer("faults-events-unsignaled", ["--events", "--unsignaled", "--messages", 200], faults=FAULTS, quick=False),
    transfer("faults-mtu-4096", ["--mtu", 4096, "--messages", 200], faults=FAULTS, mtu=JUMBO, quick=False),
    transfer("faults-many", ["--bidirectional", "--messages", 5000], faults=FAULTS, timeout=600, quick=False),
    self_transfer("self-af_xdp", "af_xdp"),
    self_transfer("self-udp", "udp"),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
