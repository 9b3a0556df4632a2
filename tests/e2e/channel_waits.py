#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Programs that sleep until a message comes, in every way to wait for a completion channel (bench/events_src): none
sleeps on. Names of cases say WAY-WAIT. See suite.py.

  WAY    udp, af_xdp   between two hosts
         one-host      between two processes of one host, through memory
  WAIT   blocking      in ibv_get_cq_event
         else          for the descriptor, which does not block (bench/events_src/descriptor_wait.h)
  -write, -read        other operations than SEND
  -long                messages of 256 KiB
  -by-events           with --no-wake-by-packets
  -idle                pauses longer than uroce relies on the program for (engine/datapath/attendance.h)
"""

import json
import sys

from suite import Case, check, main

PORT = 7471
WAYS = ("udp", "af_xdp", "one-host")
WAITS = ("blocking", "epoll", "edge", "oneshot", "exclusive", "nested", "poll", "select", "io_uring")
KINDS = {"": (), "-write": ("--request", "write"), "-read": ("--request", "read", "--response-bytes", 20000),
         "-long": ("--request-bytes", 1 << 18), "-idle": ("--pause", 130_000)}
SLEPT_ON_US = 3e6  # a message that is late by so much has been found by a timer, if at all


def exchange(way, wait, kind, seconds, connections, by_packets, lab):
    command = [lab.build / "bin/events_bench", "--connections", connections, *KINDS[kind]]
    command += ["--wait", "blocking"] if wait == "blocking" else ["--wait", "epoll", "--descriptor", wait]
    io = "af_xdp" if way == "af_xdp" else "udp"
    options = () if by_packets else ("--no-wake-by-packets",)
    server = lab.a.start([*command, "--dev", lab.a.device, "server"], io=io, options=options)
    server.wait_listening(PORT)
    host = lab.a if way == "one-host" else lab.b
    client = host.start([*command, "--dev", host.device, "--peer", lab.a.ipv4, "--seconds", seconds, "client"], io=io, options=options)
    code = client.wait(60)
    check(code == 0 and server.running(), f"exit code {code} (None: hangs)\n{client.output}\n--- server\n{server.output}")
    figures = json.loads(client.stdout.strip().splitlines()[-1])
    check(figures["samples"] > 0 and figures["max_us"] < SLEPT_ON_US, f"{figures}\n{client.output}\n--- server\n{server.output}")
    server.process.terminate()
    check(server.wait(10) == 0, f"the server does not end:\n{server.output}")
    return f"{figures['per_second']} messages/s, the latest after {figures['max_us'] / 1e3:.1f} ms"


def case(way, wait, kind, seconds, quick, by_packets=True):
    connections = 1 if kind == "-idle" or wait == "blocking" else 3
    name = f"{way}-{wait}{kind}" + ("" if by_packets else "-by-events") + ("" if quick else "-all")
    return Case(name, lambda lab: exchange(way, wait, kind, seconds, connections, by_packets, lab), quick=quick)


def cases():
    """Each wait and each kind, by turns of the ways; all of them at night."""
    for number, wait in enumerate(WAITS):
        yield case(WAYS[number % 3], wait, "", 0.3, True)
    for number, kind in enumerate(KINDS):
        yield case(WAYS[number % 3], "epoll", kind, 0.5, True)
        yield case(WAYS[(number + 1) % 3], "edge", kind, 0.5, True)
        yield case(WAYS[(number + 2) % 3], "epoll", kind, 0.3, True, by_packets=False)
    for way in WAYS:
        for wait in WAITS:
            for kind in KINDS:
                yield case(way, wait, kind, 2, False)


if __name__ == "__main__":
    sys.exit(main(__doc__, list({case.name: case for case in cases()}.values())))
