# SPDX-License-Identifier: BSD-2-Clause
"""Programs over rdma_cm, as pairs of a server and a client: how they are started, and what they say when it is right.
Shared by rdma_cm.py (two hosts with uroce) and tests/interop (uroce and Linux Soft-RoCE)."""

import dataclasses
import json
import re
from pathlib import Path

from lab import wait_until
from perftest import lacks_clock
from suite import check

PORT = 7471  # what most of these programs take by themselves
# When a thread of rping (44) asks for the next event after main() has closed the channel, it ends the program with an error: its
# own race, which later versions do not have.
RPINGS_RACE = "rdma_get_cm_event: Bad file descriptor"
# perftest's sides tell each other over the queue pair that they are done, and each waits for the ACK of its own message only. Who has
# that ends its queue pair; if the ACK that it sent before is lost, the other side retries in vain, whatever the device.
LAST_ACK_LOST = "Failed to close connection between server and client"
MULTICAST = {"ipv4": "239.1.2.3"}


@dataclasses.dataclass
class Pair:
    name: str
    server: list  # {server} and {client} are addresses; {any} is the wildcard address of the IP version
    client: list
    says: str = ""  # a pattern in what the client prints
    server_says: str = ""
    server_ends: bool = True  # by itself
    listens: bool = True
    over_tcp: bool = False  # it listens there
    versions: tuple = ("ipv4", "ipv6")
    moves_data: bool = True  # over the QPs that it connects
    seconds: int = 60
    quick: bool = True
    datagrams: bool = False  # unreliable: what is lost is missing
    variant: bool = False  # one of many of a program
    over_linux: bool = True  # also Linux's Soft-RoCE can do it


def perftest(program, *arguments, quick=False, name="", **properties):
    words = [program, "-R", "-n", "100", *arguments]
    return Pair(f"{program}{name}", words, [*words, "{server}"], versions=("ipv4",), quick=quick, **properties)


def perftests():
    """All of perftest with -R."""
    yield perftest("ib_send_bw", quick=True)
    yield perftest("ib_send_lat")
    yield perftest("ib_write_bw")
    yield perftest("ib_write_bw", "-q", "16", name="-qps-16", quick=True)
    yield perftest("ib_write_lat")
    yield perftest("ib_read_bw", "-o", "16")
    yield perftest("ib_read_lat", "-o", "16")
    yield perftest("ib_atomic_bw", "-o", "16")
    yield perftest("ib_atomic_lat", "-o", "16")
    yield perftest("ib_send_bw", "-c", "UD", name="-ud", datagrams=True)
    yield perftest("ib_send_lat", "-c", "UD", name="-ud", datagrams=True)
    for program in ("ib_send_bw", "ib_read_bw", "ib_atomic_bw"):
        yield perftest(program, "-q", "16", name="-qps-16", variant=True)
    yield perftest("ib_send_bw", "-c", "UD", "-q", "16", name="-ud-qps-16", variant=True, datagrams=True)
    yield perftest("ib_write_bw", "-b", "-T", "105", name="-both-tos", variant=True)
    yield perftest("ib_write_bw", "-z", name="-z", variant=True)
    yield perftest("ib_send_bw", "-a", name="-all-sizes", variant=True)


def programs():
    exchange = Pair("cm_exchange", ["cm_exchange", "server", PORT, "{server}"], ["cm_exchange", "client", "{server}", PORT], "ok: accepted again")
    yield exchange
    yield Pair("rping", ["rping", "-s", "-a", "{server}", "-C", "20", "-V"], ["rping", "-c", "-a", "{server}", "-C", "20", "-V"])
    yield Pair("rping-wildcard", ["rping", "-s", "-a", "{any}", "-C", "5", "-V"], ["rping", "-c", "-a", "{server}", "-C", "5", "-V"], quick=False)
    yield Pair("rping-q", ["rping", "-s", "-q", "-a", "{server}", "-C", "20", "-V"], ["rping", "-c", "-q", "-a", "{server}", "-C", "20", "-V"])
    yield Pair("rping-persistent", ["rping", "-s", "-P", "-a", "{server}"], ["rping", "-c", "-a", "{server}", "-C", "20", "-V"], server_ends=False)
    many = ["-c", "50", "-m", "-C", "10"]
    yield Pair("ucmatose", ["ucmatose", *many, "-b", "{server}"], ["ucmatose", "-s", "{server}", *many], "return status 0", "return status 0")
    yield Pair("ucmatose-options", ["ucmatose", "-c", "4", "-b", "{server}"], ["ucmatose", "-s", "{server}", "-c", "4", "-a", "14", "-t", "32"], "return status 0", quick=False)
    yield Pair("udaddy", ["udaddy", "-c", "10", "-b", "{server}"], ["udaddy", "-s", "{server}", "-c", "10"], "return status 0", "return status 0", datagrams=True)
    yield Pair("mckey", ["mckey", "-m", "{group}", "-b", "{server}"], ["mckey", "-m", "{group}", "-s", "-b", "{client}"], "return status 0", "return status 0", versions=("ipv4",), listens=False, datagrams=True)
    yield Pair("cmtime", ["cmtime", "-b", "{server}", "-c", "100"], ["cmtime", "-s", "{server}", "-c", "100"], "connect", server_ends=False, moves_data=False)
    yield Pair("rdma_client", ["rdma_server"], ["rdma_client", "-s", "{server}"], "rdma_client: end 0", "rdma_server: end 0", versions=("ipv4",))
    yield Pair("rdma_xclient", ["rdma_xserver"], ["rdma_xclient", "-s", "{server}"], "end 0", "end 0", versions=("ipv4",), quick=False)
    yield Pair("rdma_xclient-xrc", ["rdma_xserver", "-c", "x"], ["rdma_xclient", "-s", "{server}", "-c", "x"], "end 0", "end 0", versions=("ipv4",),
               over_linux=False)
    size = ["-S", "4096", "-C", "20", "-I", "5"]
    for letter, what in (("", "async"), ("b", "blocking"), ("n", "nonblocking"), ("r", "resolve"), ("f", "fork")):
        mode = ["-T", letter] if letter else []
        yield Pair(f"rstream-{what}", ["rstream", "-b", "{server}", *size, *mode], ["rstream", "-s", "{server}", *size, *mode], "4k",
                   over_tcp=letter == "f", quick=letter in ("", "n"))
    yield Pair("riostream", ["riostream", "-b", "{server}", *size], ["riostream", "-s", "{server}", *size], "4k", quick=False)
    yield Pair("udpong", ["udpong", "-b", "{server}", "-C", "20", "-S", "1000"], ["udpong", "-s", "{server}", "-C", "20", "-S", "1000"], server_ends=False, listens=False, quick=False)
    yield from perftests()


def words(command, server, client, version, program_of=lambda name: name):
    """A command of a Pair for two hosts."""
    places = {"server": getattr(server, version), "client": getattr(client, version), "any": "::" if version == "ipv6" else "0.0.0.0",
              "group": MULTICAST.get(version, "")}
    name, *arguments = (str(word).format(**places) for word in command)
    return [program_of(name), *arguments]


def listens(host, program, alone=False):
    """Somebody on the host listens. A client that comes earlier is refused, and programs with many connections would count it."""
    if not program.running():
        return True  # and the client will find nobody
    if not host.uroce:
        return "LISTEN" in host.system("rdma", "resource", "show", "cm_id")
    if alone:  # QP1 of the process: the port is bound as it begins to listen
        return ":12B7 " in Path(f"/proc/{program.pid}/net/udp").read_text()
    told = host.run([host.lab.build / "bin/uroce", "stat", "--json", "--interval", "0"], uroce=False).stdout
    connections = json.loads(told)["connections"] if told else None
    return connections is not None and any(known["state"] == "listen" for known in connections["ids"])


def exit_code_of_rping(program, seconds):
    code = program.wait(seconds)
    return 0 if code == 255 and RPINGS_RACE in program.output else code


def exit_code(pair, program, seconds):
    return exit_code_of_rping(program, seconds) if pair.name.startswith("rping") else program.wait(seconds)


def closed_without_ack(pair, program, other):
    """The program has ended with an error only because the ACK of its last message was lost: it says so, below its figures, and the
    other side, which had all, ended well."""
    figures, _, end = program.output.partition(LAST_ACK_LOST)
    return pair.name.startswith("ib_") and re.search(r"^ *\d+ +100 .*\d", figures, re.MULTILINE) and end.strip() == "" and other.wait(20) == 0


def run(pair, server, client, start_server, start_client, seconds=None, alone=False, lossy=False, attempts=3):
    """Runs the pair: start_*(host, command) start a program. alone: uroce is without broker. lossy: the last ACK may be lost."""
    serving = start_server(server, pair.server)
    if pair.over_tcp:
        serving.wait_listening(PORT)
    elif pair.listens:
        wait_until(lambda: listens(server, serving, alone), 20, f"{pair.server} listens")
    calling = start_client(client, pair.client)
    code = exit_code(pair, calling, seconds or pair.seconds)
    if code == 1 and lacks_clock(calling.output) and attempts > 1:
        serving.kill()
        return run(pair, server, client, start_server, start_client, seconds, alone, lossy, attempts - 1)
    report = f"client: {code} (None: hangs)\n{calling.output}\n--- server\n"
    unacknowledged = lossy and code == 1 and closed_without_ack(pair, calling, serving)
    check(code == 0 or unacknowledged, f"{report}{serving.output}")
    check(re.search(pair.says, calling.output), f"the client does not say '{pair.says}'\n{report}{serving.output}")
    if pair.server_ends:
        ended = exit_code(pair, serving, 240 if lossy else 20)
        unacknowledged = lossy and ended == 1 and closed_without_ack(pair, serving, calling)
        check(ended == 0 or unacknowledged, f"server: {ended} (None: hangs)\n{report}{serving.output}")
        check(re.search(pair.server_says, serving.output), f"the server does not say '{pair.server_says}'\n{report}{serving.output}")
    else:
        check(serving.running(), f"the server has ended\n{report}{serving.output}")
    serving.kill()
