#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""What is said when AF_XDP cannot be had: exactly one line with the remedy, no crash, nothing left behind. See suite.py."""

import re
import subprocess
import sys

from suite import Case, check, main
from perftest import PINGPONG

# A program that needs a QP before it does anything else, as server.
NEEDS_QP = [PINGPONG, "-d", "uroce_roce0", "-g", "0"]


def expect_refusal(lab, pattern, command=NEEDS_QP, io="af_xdp", **how):
    """The command fails by itself, with one line of uroce that matches, and leaves no XDP program of ours."""
    program = lab.a.run(command, timeout=20, io=io, **how)
    said = [line for line in program.output.splitlines() if line.startswith("uroce: ")]
    check(program.process.returncode > 0, f"exit code {program.process.returncode}\n{program.output}")
    check(len(said) == 1, f"{len(said)} lines of uroce\n{program.output}")
    check(re.search(pattern, said[0]), f"/{pattern}/ does not match\n{program.output}")
    attached = lab.a.system("bpftool", "net")
    check("roce_steer" not in attached, f"left attached:\n{attached}")
    return said[0]


def as_user_by_run(lab):
    return expect_refusal(lab, r"CAP_NET_RAW.*(sudo|root).*udp", user=True)


def as_user_by_preload(lab):
    """Without the checks of `uroce run`: the engine itself says it."""
    library = lab.uroce_for(True).parents[1] / "lib/uroce/liburoce.so"
    how = {"uroce": False, "io": None, "env": {"LD_PRELOAD": str(library), "UROCE_IO": "af_xdp"}}
    return expect_refusal(lab, r"CAP_NET_RAW.*udp", user=True, **how)


def netdev_down(lab):
    lab.a.system("ip", "link", "set", "dev", lab.a.netdev, "down")
    try:
        return expect_refusal(lab, r"roce0 is down.*ip link set dev roce0 up")
    finally:
        lab.a.system("ip", "link", "set", "dev", lab.a.netdev, "up")
        lab.a.system("ip", "address", "replace", f"{lab.a.ipv6}/64", "dev", lab.a.netdev, "nodad")


def no_such_netdev(lab):
    return expect_refusal(lab, r"no usable netdev 'nosuch0'.*roce0", options=["--netdev", "nosuch0"])


def memlock_low(lab):
    # Root without CAP_IPC_LOCK: the limit counts.
    prefix = ["prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]
    return expect_refusal(lab, r"RLIMIT_MEMLOCK.*ulimit -l", prefix=prefix)


def foreign_program(lab):
    source = lab.directory / "pass.c"
    source.write_text('__attribute__((section("xdp"), used)) int foreign_pass(void* packet) { return 2; }\n')
    compiled = lab.directory / "pass.o"
    subprocess.run(["clang-14", "-target", "bpf", "-O2", "-c", source, "-o", compiled], check=True)
    lab.a.system("ip", "link", "set", "dev", lab.a.netdev, "xdpdrv", "object", str(compiled), "section", "xdp")
    try:
        before = lab.a.xdp_program()
        said = expect_refusal(lab, r"another XDP program.*xdp off")
        check(lab.a.xdp_program() == before, f"the foreign program is not as it was: {lab.a.xdp_program()}")
        return said
    finally:
        lab.a.system("ip", "link", "set", "dev", lab.a.netdev, "xdpdrv", "off")


CASES = [
    Case("no-privileges", as_user_by_run),
    Case("no-privileges-preload", as_user_by_preload),
    Case("netdev-down", netdev_down),
    Case("no-such-netdev", no_such_netdev),
    Case("memlock-low", memlock_low),
    Case("foreign-program", foreign_program),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
