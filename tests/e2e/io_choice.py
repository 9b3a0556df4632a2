#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""What programs get without --io (docs/packet-io.md), and that doctor and devices say it before. See suite.py."""

import contextlib
import json
import re
import sys

from suite import Case, check, main
from lab import wait_until
from perftest import PINGPONG, io_mode

UDP = "udp (tx-udp-segmentation is on)"
UDP_ALL_THE_SAME = "udp (a virtual netdev, where AF_XDP ends segmentation offload for others or loses runs)"
PORT = 18515


def opened(host, **how):
    """What a program that creates a QP says about its packet I/O."""
    server = host.start([PINGPONG, "-d", host.device, "-g", "0"], **how)
    server.wait_listening(PORT)
    server.kill()
    return io_mode(server.output)


def said(host, command, **how):
    """What `uroce doctor` or `uroce devices` says as JSON."""
    program = host.run([host.lab.uroce_for(how.get("user", False)), command, "--json"], uroce=False, **how)
    return json.loads(program.stdout)


def findings(host, **how):
    """Those of doctor about the netdev and the host, by name."""
    return {f["name"]: f for section in said(host, "doctor", **how)["sections"] for f in section["findings"]}


def agreed(host, expected, **how):
    """Doctor and devices foretell what a program gets; the choice and the reason."""
    device = next(d for d in said(host, "devices", **how) if d["netdev"] == host.netdev)
    told = findings(host, **how)["io"]["text"]
    check(told == expected or told.startswith(expected), f"doctor says '{told}', not '{expected}'")
    check(expected.startswith(device["io"]) and device["why"] in told, f"devices says {device}, doctor '{told}'")
    mode = opened(host, **how)
    if device["io"] == "udp":
        check(told == mode or told.startswith(f"{mode};"), f"the engine says '{mode}', doctor '{told}'")
    else:
        check(mode.startswith(told.split(" (")[0]), f"the engine says '{mode}', doctor '{told}'")


@contextlib.contextmanager
def without_segmentation(host):
    host.system("ethtool", "-K", host.netdev, "tx-udp-segmentation", "off")
    try:
        yield
    finally:
        host.system("ethtool", "-K", host.netdev, "tx-udp-segmentation", "on")


@contextlib.contextmanager
def af_xdp_at(host, *options):
    """A program on the host uses AF_XDP."""
    server = host.start([PINGPONG, "-d", host.device, "-g", "0"], io="af_xdp", options=options)
    wait_until(host.xdp_program, 10, "the XDP program is attached")
    try:
        yield
    finally:
        server.kill()
        wait_until(lambda: host.xdp_program() is None, 5, "the XDP program is gone")


def over_veth(lab):
    for user in (False, True):
        agreed(lab.a, UDP, user=user)


def without_offload(lab):
    with without_segmentation(lab.a):
        for user in (False, True):
            agreed(lab.a, UDP_ALL_THE_SAME, user=user)
        told = findings(lab.a)["segmentation"]
        check(told["status"] == "warn" and told["remedy"] == "ethtool -K roce0 tx-udp-segmentation on", told)


def xdp_at_the_other_end(lab):
    with af_xdp_at(lab.b):
        agreed(lab.a, UDP_ALL_THE_SAME)
        told = findings(lab.a)["segmentation"]
        check(told["status"] == "warn" and "other end of the veth pair has native XDP" in told["text"], told)
    agreed(lab.a, UDP)


def taken(lab):
    """Another process has the netdev's packets, or those for some QP numbers."""
    with af_xdp_at(lab.a):
        check(findings(lab.a)["io"]["text"] == UDP, findings(lab.a)["io"])
    with af_xdp_at(lab.a, "--alone"):
        told = findings(lab.a)["io"]
        check(told["status"] == "fail" and re.match(r"none \(another uroce process uses AF_XDP on roce0", told["text"]), told)
        program = lab.a.run([PINGPONG, "-d", lab.a.device, "-g", "0"])
        check(program.process.returncode > 0 and "another uroce process" in program.output, program.output)


def receive_buffer(lab):
    """Root has a large one whatever net.core.rmem_max says, an ordinary user what that allows."""
    check(findings(lab.a)["udp buffer"]["status"] == "ok", findings(lab.a)["udp buffer"])
    told = findings(lab.a, user=True)["udp buffer"]
    with open("/proc/sys/net/core/rmem_max") as file:
        enough = int(file.read()) >= 8 << 20
    check(told["status"] == ("ok" if enough else "warn"), told)
    check(enough or "sysctl -w net.core.rmem_max=8388608" in told["remedy"], told)


CASES = [
    Case("veth", over_veth),
    Case("segmentation-off", without_offload),
    Case("xdp-at-the-other-end", xdp_at_the_other_end),
    Case("taken", taken),
    Case("receive-buffer", receive_buffer),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES))
