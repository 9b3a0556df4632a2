#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""A key-value server that sleeps in epoll (bench/kv_src), as Valkey and others do: one thread, requests into a ring by WRITE
with immediate data. Its clients check that answers come in order and say all of what was set last, and that none is late for
10 s. Names of cases say WAY-WHAT. See suite.py.

  WAY     udp, af_xdp   between two hosts
          one-host      between two processes of one host, through memory
          tcp           over TCP: whether the program is right
  -each   a completion channel for each connection, as Valkey has it; else one for all
  -long   values of 1 MiB
  -churn  clients come and go, each after a few requests
  -killed clients are killed at any moment (SIGKILL), while another one goes on
  -server the server is killed: its client learns of it
"""

import json
import random
import sys
import time

from suite import Case, check, main

PORT = 7472
WAYS = ("udp", "af_xdp", "one-host")


class Pair:
    """A server, and what starts clients of it."""

    def __init__(self, lab, way, each):
        self.lab = lab
        self.host = lab.a if way in ("one-host", "tcp") else lab.b
        self.over_verbs = way != "tcp"
        self.io = {"af_xdp": "af_xdp", "tcp": None}.get(way, "udp")
        self.common = ["--over", "verbs" if self.over_verbs else "tcp"] + (["--channel-each"] if each else [])
        self.server = self.start(lab.a, "server")
        self.server.wait_listening(PORT)

    def start(self, host, *arguments, io=None):
        device = ("--dev", host.device) if self.over_verbs else ()
        return host.start([self.lab.build / "bin/kv_bench", *self.common, *device, *arguments], io=io or self.io, uroce=self.over_verbs)

    def client(self, *arguments, io=None):
        return self.start(self.host, "--peer", self.lab.a.ipv4, "--check-all", *arguments, "client", io=io)

    def figures(self, client, seconds):
        code = client.wait(seconds + 30)
        check(code == 0 and self.server.running(), f"exit code {code} (None: hangs)\n{client.output}\n--- server\n{self.server.output}")
        return json.loads(client.stdout.strip().splitlines()[-1])

    def end(self):
        """What the server says at its end; its clients have ended."""
        time.sleep(0.2)
        self.server.process.terminate()
        check(self.server.wait(20) == 0, f"the server does not end:\n{self.server.output}")
        said = json.loads(self.server.stdout.strip().splitlines()[-1])
        check(said["open"] == 0, f"connections are left: {said}\n{self.server.output}")
        return said


def steady(pair, seconds, *arguments):
    figures = pair.figures(pair.client("--seconds", seconds, *arguments), seconds)
    check(figures["samples"] > 0, str(figures))
    pair.end()
    return f"{figures['per_second']} requests/s, the latest after {figures['max_us'] / 1e3:.1f} ms"


def churn(pair, seconds):
    figures = pair.figures(pair.client("--seconds", seconds, "--connections", 16, "--window", 2, "--requests-each", 6, "--gets", 50), seconds)
    check(figures["connections"] > 32, f"only the first ones: {figures}")
    said = pair.end()
    check(said["connections"] >= figures["connections"], f"{said} {figures}")
    return f"{figures['connections']} connections"


def killed(pair, rounds):
    chance = random.Random(rounds)
    stays = pair.client("--seconds", 600, "--connections", 2, "--gets", 50)
    deadline = time.monotonic() + 20
    while "ready" not in stays.stdout:
        check(stays.running() and time.monotonic() < deadline, f"{stays.output}\n--- server\n{pair.server.output}")
        time.sleep(0.01)
    for _ in range(rounds):
        victim = pair.client("--seconds", 60, "--connections", 5, "--window", 4, "--value-bytes", chance.choice((64, 5000, 200_000)), "--gets", 50,
                             io="udp")  # AF_XDP has one process
        time.sleep(chance.uniform(0.05, 0.4))
        victim.process.kill()
        victim.wait(10)
    check(stays.running() and pair.server.running(), f"{stays.output}\n--- server\n{pair.server.output}")
    stays.process.terminate()
    figures = pair.figures(stays, 10)
    check(figures["requests"] > 0, str(figures))
    said = pair.end()
    check(said["connections"] > 2, f"no other client got so far: {said}")
    return f"{said['connections']} connections, {figures['requests']} requests of the one that stayed, the latest after {figures['max_us'] / 1e3:.1f} ms"


def without_server(pair):
    client = pair.client("--seconds", 60)
    time.sleep(0.5)
    pair.server.process.kill()
    code = client.wait(40)
    check(code == 1 and "the server has ended a connection" in client.output, f"exit code {code} (None: hangs)\n{client.output}")


def case(way, what, run, *arguments, each=False, quick=True):
    def whole(lab):
        return run(Pair(lab, way, each), *arguments)
    return Case(f"{way}-{what}{'-each' if each else ''}{'' if quick else '-all'}", whole, quick=quick)


def cases():
    some = ("--connections", 8, "--window", 4, "--value-bytes", 1000, "--gets", 50)
    long = ("--connections", 3, "--window", 2, "--value-bytes", 1 << 20, "--gets", 70)
    yield case("tcp", "churn", churn, 0.5)
    for way in WAYS:
        yield case(way, "steady", steady, 0.5, *some, each=way == "af_xdp")
        yield case(way, "churn", churn, 1, each=way == "udp")
        yield case(way, "killed", killed, 5, each=way == "one-host")
        yield case(way, "server", without_server)
    yield case("one-host", "steady", steady, 0.5, *some, each=True)
    yield case("one-host", "long", steady, 0.5, *long, each=True)
    yield case("udp", "long", steady, 0.5, *long)
    for way in WAYS:
        for each in (False, True):
            yield case(way, "steady", steady, 5, *some, each=each, quick=False)
            yield case(way, "long", steady, 5, *long, each=each, quick=False)
            yield case(way, "churn", churn, 30, each=each, quick=False)
            yield case(way, "killed", killed, 50, each=each, quick=False)


if __name__ == "__main__":
    sys.exit(main(__doc__, cases()))
