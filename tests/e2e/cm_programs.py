"""Programs over rdma_cm, as pairs of a server and a client: how they are started, and what they say when it is right.
Shared by rdma_cm.py (two hosts with uroce) and tests/interop (uroce and Linux Soft-RoCE)."""

import dataclasses
import re
import time

from suite import check

PORT = 7471  # what most of these programs take by themselves
# What a client says to whom nobody listens yet: the reason of the REJ (8), or what librdmacm makes of it.
NOBODY = re.compile(r"REJECTED[,;] error:? 8|REJECTED.*status 8|Connection refused|Unexpected CM event bl blka 8|UNREACHABLE[,;] error:? 1\b|UNREACHABLE with status 1"
                    r"|rpoll: Operation now in progress|conn rejected|Unable to init the socket connection")
MULTICAST = {"ipv4": "239.1.2.3"}


@dataclasses.dataclass
class Pair:
    name: str
    server: list  # {server} and {client} are addresses; {any} is the wildcard address of the IP version
    client: list
    says: str = ""  # a pattern in what the client prints
    server_says: str = ""
    server_ends: bool = True  # by itself
    versions: tuple = ("ipv4", "ipv6")
    seconds: int = 60
    quick: bool = True


def perftest(program, *arguments, quick=False, name=""):
    words = [program, "-R", "-n", "100", *arguments]
    return Pair(f"{program}{name}", words, [*words, "{server}"], versions=("ipv4",), quick=quick)


def programs():
    exchange = Pair("cm_exchange", ["cm_exchange", "server", PORT], ["cm_exchange", "client", "{server}", PORT], "ok: accepted again")
    yield exchange
    yield Pair("rping", ["rping", "-s", "-a", "{server}", "-C", "20", "-V"], ["rping", "-c", "-a", "{server}", "-C", "20", "-V"])
    yield Pair("rping-wildcard", ["rping", "-s", "-a", "{any}", "-C", "5", "-V"], ["rping", "-c", "-a", "{server}", "-C", "5", "-V"], quick=False)
    yield Pair("rping-q", ["rping", "-s", "-q", "-a", "{server}", "-C", "20", "-V"], ["rping", "-c", "-q", "-a", "{server}", "-C", "20", "-V"])
    yield Pair("rping-persistent", ["rping", "-s", "-P", "-a", "{server}"], ["rping", "-c", "-a", "{server}", "-C", "20", "-V"], server_ends=False)
    many = ["-c", "50", "-m", "-C", "10"]
    yield Pair("ucmatose", ["ucmatose", *many, "-b", "{server}"], ["ucmatose", "-s", "{server}", *many], "return status 0", "return status 0")
    yield Pair("ucmatose-options", ["ucmatose", "-c", "4", "-b", "{server}"], ["ucmatose", "-s", "{server}", "-c", "4", "-a", "14", "-t", "32"], "return status 0", quick=False)
    yield Pair("udaddy", ["udaddy", "-c", "10", "-b", "{server}"], ["udaddy", "-s", "{server}", "-c", "10"], "return status 0", "return status 0")
    yield Pair("mckey", ["mckey", "-m", "{group}", "-b", "{server}"], ["mckey", "-m", "{group}", "-s", "-b", "{client}"], "return status 0", "return status 0", versions=("ipv4",))
    yield Pair("cmtime", ["cmtime", "-b", "{server}", "-c", "100"], ["cmtime", "-s", "{server}", "-c", "100"], "connect", server_ends=False)
    yield Pair("rdma_client", ["rdma_server"], ["rdma_client", "-s", "{server}"], "rdma_client: end 0", "rdma_server: end 0", versions=("ipv4",))
    size = ["-S", "4096", "-C", "20", "-I", "5"]
    for letter, what in (("", "async"), ("b", "blocking"), ("n", "nonblocking"), ("r", "resolve"), ("f", "fork")):
        mode = ["-T", letter] if letter else []
        yield Pair(f"rstream-{what}", ["rstream", "-b", "{server}", *size, *mode], ["rstream", "-s", "{server}", *size, *mode], "4k",
                   quick=letter in ("", "n"))
    yield Pair("riostream", ["riostream", "-b", "{server}", *size], ["riostream", "-s", "{server}", *size], "4k", quick=False)
    yield Pair("udpong", ["udpong", "-b", "{server}", "-C", "20", "-S", "1000"], ["udpong", "-s", "{server}", "-C", "20", "-S", "1000"], server_ends=False, quick=False)
    yield perftest("ib_send_bw", quick=True)
    yield perftest("ib_send_lat")
    yield perftest("ib_write_bw")
    yield perftest("ib_write_bw", "-q", "16", name="-qps-16", quick=True)
    yield perftest("ib_write_lat")
    yield perftest("ib_read_bw", "-o", "16")
    yield perftest("ib_read_lat", "-o", "16")
    yield perftest("ib_atomic_bw", "-o", "16")
    yield perftest("ib_send_bw", "-c", "UD", name="-ud")
    yield perftest("ib_send_lat", "-c", "UD", name="-ud")


def words(command, server, client, version, program_of=lambda name: name):
    """A command of a Pair for two hosts."""
    places = {"server": getattr(server, version), "client": getattr(client, version), "any": "::" if version == "ipv6" else "0.0.0.0",
              "group": MULTICAST.get(version, "")}
    name, *arguments = (str(word).format(**places) for word in command)
    return [program_of(name), *arguments]


def run(pair, server, client, version="ipv4", start_server=None, start_client=None, seconds=None):
    """Runs the pair: start_*(host, command) start a program. The client is started again as long as nobody listens."""
    seconds = seconds or pair.seconds
    serving = start_server(server, pair.server)
    end = time.monotonic() + seconds
    while True:
        calling = start_client(client, pair.client)
        code = calling.wait(max(1, end - time.monotonic()))
        early = code not in (0, None) and NOBODY.search(calling.output) and serving.running()
        if not early or time.monotonic() > end:
            break
        time.sleep(0.05)
    report = f"client: {code} (None: hangs)\n{calling.output}\n--- server\n"
    check(code == 0, f"{report}{serving.output}")
    check(re.search(pair.says, calling.output), f"the client does not say '{pair.says}'\n{report}{serving.output}")
    if pair.server_ends:
        ended = serving.wait(20)
        check(ended == 0, f"server: {ended} (None: hangs)\n{report}{serving.output}")
        check(re.search(pair.server_says, serving.output), f"the server does not say '{pair.server_says}'\n{report}{serving.output}")
    else:
        check(serving.running(), f"the server has ended\n{report}{serving.output}")
    serving.kill()
    return serving, calling
