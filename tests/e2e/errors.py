#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""rc_errors (errors/README.md) between two hosts: requests that must fail do, and nothing else suffers. See suite.py."""

import itertools
import sys

from suite import Case, check, main
from perftest import io_mode

_ports = itertools.count(20500)


def errors(server_io, client_io, gid="ipv4", **case):
    def run(lab):
        port = next(_ports)
        own = [lab.build / "bin/rc_errors", "--device", lab.a.device, "--gid-index", lab.a.gid_index[gid], "--port", port]
        server = lab.a.start([*own, "--server"], io=server_io)
        server.wait_listening(port)
        client = lab.b.start([*own, "--client", lab.a.ipv4], io=client_io)
        codes = (client.wait(60), server.wait(10))
        check(codes == (0, 0), f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
        for program, expected in ((server, server_io), (client, client_io)):
            mode = io_mode(program.output)
            check(mode.startswith(expected), f"'{mode}' is not {expected}")
        return client.stdout.strip().splitlines()[-1]

    return Case(f"{client_io}-to-{server_io}-{gid}", run, **case)


CASES = [
    errors("af_xdp", "af_xdp"),
    errors("udp", "udp"),
    errors("af_xdp", "udp", gid="ipv6"),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
