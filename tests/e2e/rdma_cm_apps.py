# SPDX-License-Identifier: BSD-2-Clause
"""Cases of rdma_cm.py: larger programs over rdma_cm, and programs over TCP sockets that librspreload puts onto it."""

import filecmp
import itertools
import os
import re
import shutil
from pathlib import Path

from carried import COUNTED, check_carried, ucx_environment
from cm_programs import listens
from lab import Unavailable, wait_until
from rdma_cm_place import Place, places
from suite import Case, check

_ports = itertools.count(24000)
RSPRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"


def needed(program):
    if not shutil.which(program) and not Path(program).exists():
        raise Unavailable(f"{program} is not installed (tools/deps)")
    return program


def serve(lab, place, host, command, env=None, tcp=None):
    """A server that listens: by rdma_cm, or at a TCP port."""
    server = place.start(host, command, env)
    if tcp:
        server.wait_listening(tcp)
    else:
        wait_until(lambda: listens(host, server, place.who == "alone"), 20, f"{command} listens")
    return server


def finish(client, server, seconds=60, server_ends=True):
    """Both end well. What both have printed, the client first."""
    code = client.wait(seconds)
    report = f"client: {code} (None: hangs)\n{client.output}\n--- server\n"
    check(code == 0, report + server.output)
    if server_ends:
        ended = server.wait(20)
        check(ended == 0, f"server: {ended} (None: hangs)\n{report}{server.output}")
    else:
        check(server.running(), f"the server has ended\n{report}{server.output}")
        server.kill()
    return client.output, server.output


def address(host, place):
    return getattr(host, place.version)


# --- programs that know of rdma_cm ---------------------------------------------------------------------------------------


def ucx(lab, place, transport="rc_verbs", arguments=()):
    """Endpoints that UCX connects by itself; every byte verified, both ways."""
    server_host, client_host = place.prepare(lab)
    port = next(_ports)
    plan = [place.path_of(lab, "ucx_exchange"), "--by-address", "--port", port, "--seed", port, "--max-size", 1 << 18, *arguments]
    env = {**ucx_environment(server_host, transport), **COUNTED, "UCX_SOCKADDR_TLS_PRIORITY": "rdmacm"}
    server = serve(lab, place, server_host, plan, env, tcp=port)
    outputs = finish(place.start(client_host, [*plan, server_host.ipv4], env), server, 120)
    results = [re.search(r"^ucx_exchange: .* bytes, hash \w+$", output, re.MULTILINE) for output in outputs]
    check(all(results) and results[0][0] == results[1][0], f"no result, or two\n{outputs[0]}\n{outputs[1]}")
    for output in outputs:
        check_carried(output, 100, "ucx_exchange")
    return results[0][0].split(": ")[1]


def fabric(lab, place, endpoint="msg", provider="verbs"):
    """fi_pingpong compares what comes back with what it has sent (-c)."""
    server_host, client_host = place.prepare(lab)
    port = next(_ports)
    plan = ["fi_pingpong", "-p", provider, "-e", endpoint, "-d", server_host.device, "-c", "-I", 20, "-B", port]
    plan = [needed(plan[0]), *plan[1:]]
    server = serve(lab, place, server_host, plan, COUNTED, tcp=port)
    client = place.start(client_host, [*plan[:-2], "-P", port, address(server_host, place)], COUNTED)
    for output in finish(client, server):
        check_carried(output, 20, "fi_pingpong")


def qperf(lab, place, tests=("rc_bw", "rc_lat", "rc_rdma_write_bw", "rc_rdma_read_bw")):
    """Not of datagrams: its server makes an address handle of a CONNECT_REQUEST, in which Linux tells none either."""
    server_host, client_host = place.prepare(lab)
    port = next(_ports)
    server = serve(lab, place, server_host, [needed("qperf"), "-lp", port], tcp=port)
    client = place.start(client_host, ["qperf", "-lp", port, "-cm", 1, "-t", 1, address(server_host, place), *tests])
    outputs = finish(client, server, 30 + 10 * len(tests), server_ends=False)
    for test in tests:
        check(re.search(rf"^{test}:\n( +\w+ += .*\n?)+", outputs[0], re.MULTILINE), f"no result of {test}\n{outputs[0]}")
    return " ".join(re.findall(r"= +(.*)", outputs[0]))


def rcopy(lab, place):
    """A file by rsocket; compared."""
    server_host, client_host = place.prepare(lab)
    directory = lab.directory / f"rcopy-{next(_ports)}"
    directory.mkdir()
    directory.chmod(0o777)
    source, copy = directory / "source", directory / "copy"
    source.write_bytes(os.urandom(3_000_001))
    source.chmod(0o644)
    server = serve(lab, place, server_host, [needed("rcopy")])
    client = place.start(client_host, ["rcopy", source, f"{address(server_host, place)}:{copy}"])
    finish(client, server, server_ends=False)
    check(filecmp.cmp(source, copy, shallow=False), "the copy is another file")


# --- programs over TCP sockets -------------------------------------------------------------------------------------------


def with_rspreload(command, first):
    """Before or behind uroce in LD_PRELOAD."""
    order = f"{RSPRELOAD}:$LD_PRELOAD" if first else f"$LD_PRELOAD:{RSPRELOAD}"
    return ["sh", "-c", f'LD_PRELOAD="{order}" exec "$@"', "sh", *command]


def sockets(first):
    def run(lab, place):
        needed(RSPRELOAD)
        server_host, client_host = place.prepare(lab)
        port = next(_ports)
        command = [place.path_of(lab, "socket_exchange"), port, port]
        server = serve(lab, place, server_host, with_rspreload(command, first), COUNTED)
        client = place.start(client_host, with_rspreload([*command, server_host.ipv4], first), COUNTED)
        outputs = finish(client, server, 60)
        for output in outputs:
            check("ok: " in output, output)
            check_carried(output, 100, "the sockets")  # on one host a packet may have 64 KiB
        return "ok"

    return run


def applications():
    """Name, function, IP versions."""
    yield "ucx", ucx, ("ipv4",)
    yield "ucx-sleep", lambda lab, place: ucx(lab, place, arguments=("--sleep",)), ("ipv4",)
    yield "ucx-reconnect", lambda lab, place: ucx(lab, place, arguments=("--connections", 10, "--max-size", 1000)), ("ipv4",)
    yield "fi_pingpong-msg", fabric, ("ipv4",)
    yield "fi_pingpong-rxm", lambda lab, place: fabric(lab, place, "rdm", "verbs;ofi_rxm"), ("ipv4",)
    yield "qperf", qperf, ("ipv4",)
    yield "rcopy", rcopy, ("ipv4",)  # SERVER:FILE is cut at the first colon
    yield "sockets-rspreload-first", sockets(True), ("ipv4",)
    yield "sockets-uroce-first", sockets(False), ("ipv4",)


def cases():
    for name, run, versions in applications():
        quick = name in ("ucx", "fi_pingpong-msg", "rcopy", "sockets-uroce-first")
        for place in (*places(), Place(io="af_xdp"), Place(lossy=True)):
            if place.version in versions:
                yield Case(f"{name}/{place.name}", lambda lab, r=run, p=place: r(lab, p), quick=quick and place == Place())
