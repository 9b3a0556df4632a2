#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""`tools/interop --peer` against a "machine" that is a network namespace with uroce as its RDMA device, and a script in the
place of ssh: what a person with a ConnectX types is tried without one."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tools/lib")]

from lab import clean_environment
from suite import Case, Failure, check, main

# As ssh: OPTION... HOST COMMAND, and the command is for a shell.
SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
[ "$1" = peer.example ] || {{ echo "no route to $1" >&2; exit 255; }}
PATH=$PATH:{build}/bin exec nsenter --net=/proc/{pid}/ns/net {build}/bin/uroce run --quiet -- sh -c "$2"
"""
CHOSEN = "(ib_write_bw|ib_send_lat)/rc-|ibv_rc_pingpong|rc_transfer/everything|rc_errors/ipv4"


def matrix(lab, peer="peer.example", chosen=CHOSEN, ipv6=True):
    """The matrix as host a runs it; (exit code, what it prints)."""
    with tempfile.TemporaryDirectory() as scratch:  # the lab's own directory is not visible in there
        return run_matrix(lab, peer, chosen, ipv6, scratch)


def run_matrix(lab, peer, chosen, ipv6, scratch):
    inhabitant = lab.b.start(["sleep", "300"], uroce=False)
    ssh = Path(scratch) / "ssh"
    ssh.write_text(SSH.format(build=lab.build, pid=inhabitant.pid))
    ssh.chmod(0o755)
    command = [ROOT / "tests/interop/matrix.py", "--build", lab.build, "--filter", chosen, "--ssh", ssh]
    command += ["--peer", peer, "--peer-device", lab.b.device, "--peer-address", lab.b.ipv4]
    command += ["--netdev", lab.a.netdev, "--address", lab.a.ipv4]
    command += ["--peer-address6", lab.b.ipv6, "--address6", lab.a.ipv6] if ipv6 else []
    try:
        done = subprocess.run([*lab.a.enter, *map(str, command)], capture_output=True, text=True, timeout=250, env=clean_environment())
    except subprocess.TimeoutExpired as error:
        raise Failure(f"no end\n{(error.stdout or b'').decode()}") from error
    return done.returncode, done.stdout + done.stderr


def passes(lab):
    code, output = matrix(lab)
    check(code == 0 and re.search(r"^([6-9]|1\d) of \1 passed", output, re.MULTILINE), f"exit code {code}\n{output}")
    return output.splitlines()[-1]


def ipv4_only(lab):
    code, output = matrix(lab, chosen="rc_transfer/(ipv6|everything)", ipv6=False)
    check(code == 0 and "2 of 2 passed" in output, f"exit code {code}\n{output}")


def unreachable(lab):
    code, output = matrix(lab, "elsewhere.example")
    check(code == 1 and "interop: on elsewhere.example: " in output and "no route" in output, f"exit code {code}\n{output}")


if __name__ == "__main__":
    sys.exit(main(__doc__, [Case("peer/passes", passes), Case("peer/ipv4-only", ipv4_only), Case("peer/unreachable", unreachable)]))
