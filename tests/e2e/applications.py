#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Large applications between two hosts: UCX, libfabric, Open MPI, MPICH. Each must have been carried by uroce: the engine counts
the packets on both sides. See suite.py."""

import functools
import itertools
import re
import sys

from suite import Case, check, main
from lab import wait_until
from carried import COUNTED, check_carried, ucx_environment
from mpi_job import LAUNCHER, MPICH, OPENMPI, run_mpi

FAULTS = "drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%"
_ports = itertools.count(21000)


def run_to_end(lab, server_command, client_command, port, env, io=("af_xdp", "af_xdp"), faults=None, timeout=60):
    """Server and client, and their exit codes. faults: of both, each with a seed of its own."""
    env = {**COUNTED, **env}
    seeded = [faults and f"{faults},seed={number}" for number in (1, 2)]
    server = lab.a.start(server_command, io=io[0], faults=seeded[0], env=env)
    server.wait_listening(port)
    client = lab.b.start(client_command, io=io[1], faults=seeded[1], env=env)
    codes = [client.wait(timeout)]
    codes.insert(0, server.wait(10))
    return server, client, tuple(codes)


def run_pair(*arguments, **how):
    """Both to their end with exit code 0. Outputs of server and client, with the counters."""
    server, client, codes = run_to_end(*arguments, **how)
    what = f"exit codes of server and client {codes} (None: hangs)"
    check(codes == (0, 0), f"{what}\n--- client\n{client.output}\n--- server\n{server.output}")
    return server.output, client.output


# --- UCX ---------------------------------------------------------------------------------------------------------------


def ucx_info(lab):
    """Both transports can be opened on the device."""
    program = lab.a.run(["ucx_info", "-d"], io="af_xdp")
    check(program.process.returncode == 0, program.output)
    for transport in ("rc_verbs", "ud_verbs"):
        found = re.search(rf"Transport: {transport}\n.*Device: {lab.a.device}:1\n", program.stdout)
        check(found, f"no {transport} on {lab.a.device}\n{program.output}")
        section = re.split(r"Transport: |Memory domain: |connection manager", program.stdout[found.end() :])[0]
        check("failed to open interface" not in section and "capabilities" in section, f"{transport}: {section}")
    return "rc_verbs, ud_verbs"


def ucx(test, size, iterations, transport, io=("af_xdp", "af_xdp"), name="", **case):
    """One test of ucx_perftest: every message is a round trip or part of a stream, and both sides check the count."""

    def run(lab):
        port = next(_ports)
        plan = ["ucx_perftest", "-p", port, "-t", test, "-s", size, "-n", iterations, "-w", 10]
        env = ucx_environment(lab.a, transport)
        outputs = run_pair(lab, plan[:3], [*plan, lab.a.ipv4], port, env, io)
        result = re.search(r"^Final:\s+(\d+)((?:\s+[\d.]+){7})$", outputs[1], re.MULTILINE)
        check(result and int(result[1]) == iterations, f"no result of {iterations} iterations\n{outputs[1]}")
        # A message is a packet at least. A get moves its data from the server to the client, everything else the other way.
        mover = outputs[0] if test == "ucp_get" else outputs[1]
        check_carried(mover, iterations * max(1, size // 4096), f"{test} over {transport}")
        return f"{result[2].split()[-3]} MB/s"

    label = "-".join(["ucx", transport, test, str(size), *([name] if name else [])])
    return Case(label, run, **case)


def ucx_exchange_plan(lab, port, arguments, user=False):
    program = lab.program_for(user, "ucx_exchange")
    check(program.exists(), f"{program} is missing: libucx-dev was not there when it was built (tools/deps)")
    return [program, "--port", port, *arguments]


def ucx_exchange(transport, max_size, name, *arguments, env=None, io="af_xdp", faults=None, timeout=120, **case):
    """ucx_exchange (ucx/main.cc): everything that UCP has, both ways at once, every byte verified where it arrives."""

    def run(lab):
        port = next(_ports)
        plan = ucx_exchange_plan(lab, port, ["--seed", 2026, "--max-size", max_size, *arguments])
        environment = {**ucx_environment(lab.a, transport), **(env or {})}
        how = {"io": (io, io), "faults": faults, "timeout": timeout}
        outputs = run_pair(lab, plan, [*plan, lab.a.ipv4], port, environment, **how)
        results = [re.search(r"^ucx_exchange: (.* (\d+) bytes, hash \w+)$", output, re.MULTILINE) for output in outputs]
        check(all(results) and results[0][0] == results[1][0], f"no result, or two\n{outputs[0]}\n{outputs[1]}")
        # Half of the bytes go each way, in packets of 4096 bytes at most. The sender of a get has no hand in it.
        for output, side in zip(outputs, ("server", "client")):
            check_carried(output, int(results[0][2]) // 2 // 4096, f"ucx_exchange, {side}")
        return results[0][1]

    return Case("-".join(["ucx_exchange", transport, name]), run, **case)


def ucx_exchange_several(lab, transport, gid=None, user=False, first="udp"):
    """Two processes on each host at once, and two more that are on one host together. first: packet I/O of the first pair."""
    env = {**COUNTED, **ucx_environment(lab.a, transport, gid)}
    pairs = []
    for server_host, client_host, io in ((lab.a, lab.b, first), (lab.b, lab.a, "udp"), (lab.a, lab.a, "udp")):
        port = next(_ports)
        plan = ucx_exchange_plan(lab, port, ["--seed", port, "--max-size", 1 << 16], user)
        how = {"io": io, "user": user, "env": env}
        server = server_host.start(plan, **how)
        server.wait_listening(port)
        pairs.append((client_host.start([*plan, server_host.ipv4], **how), server))
    for pair in pairs:
        codes = [program.wait(60) for program in pair]
        outputs = [program.output for program in pair]
        check(codes == [0, 0], f"exit codes of client and server {codes} (None: hangs)\n{outputs[0]}\n--- server\n{outputs[1]}")
        results = [re.search(r"^ucx_exchange: .* hash \w+$", output, re.MULTILINE) for output in outputs]
        check(all(results) and results[0][0] == results[1][0], f"no result, or two\n{outputs[0]}\n{outputs[1]}")
        for output in outputs:
            check_carried(output, 1000, "ucx_exchange")
    return f"{len(pairs)} at once"


def ucx_exchange_notices(part, side, **case):
    """What one side corrupts on purpose in this part, the other one has to notice, and to say so."""

    def run(lab):
        port = next(_ports)
        plan = ucx_exchange_plan(lab, port, ["--max-size", 70000, "--parts", part])
        planted = ["--plant", part]
        commands = {"server": plan, "client": [*plan, lab.a.ipv4]}
        commands[side] = [*plan, *planted, *commands[side][len(plan) :]]
        env = ucx_environment(lab.a, "rc_verbs")
        server, client, codes = run_to_end(lab, commands["server"], commands["client"], port, env)
        outputs = f"exit codes of server and client {codes}\n--- client\n{client.output}\n--- server\n{server.output}"
        check(codes == (1, 1), outputs)
        # An atomic operation's result is seen by both: the next one on the counter fetches what is wrong.
        who = "(server|client)" if part == "atomic" else "client" if side == "server" else "server"
        what = {"am": "active message"}.get(part, part)
        found = re.search(rf"^ucx_exchange: {who}: {what}: .*(wrong|fetched|not as).*$", client.output + server.output, re.MULTILINE)
        check(found, outputs)
        return found[0].removeprefix("ucx_exchange: ")

    return Case(f"ucx_exchange-notices-{part}", run, **case)


def ucx_exchange_cases():
    yield ucx_exchange("rc_verbs", 1 << 20, "af_xdp", "--connections", 2)
    yield ucx_exchange("ud_verbs", 1 << 18, "af_xdp")
    yield ucx_exchange("rc_verbs", 1 << 18, "sleep", "--sleep")
    for transport in ("rc_verbs", "ud_verbs"):
        several = functools.partial(ucx_exchange_several, transport=transport)
        yield Case(f"ucx_exchange-{transport}-several", several)
    for part, side in zip(("tag", "stream", "am", "put", "get", "atomic"), itertools.cycle(("server", "client"))):
        yield ucx_exchange_notices(part, side, quick=part in ("tag", "put", "atomic"))
    for transport in ("rc_verbs", "ud_verbs"):
        for io in ("af_xdp", "udp"):
            yield ucx_exchange(transport, 4 << 20, f"{io}-large", io=io, timeout=400, quick=False)
            # UCX repairs what UD loses, and takes its time.
            faulty = {"io": io, "faults": FAULTS, "timeout": 600}
            size = 1 << (20 if transport == "rc_verbs" else 14)
            yield ucx_exchange(transport, size, f"{io}-faults", "--timeout", 300, **faulty, quick=False)
        yield ucx_exchange(transport, 1 << 18, "sleep-udp", "--sleep", io="udp", quick=False)
    # How UCX moves what is large: read by the receiver, written by the sender, or in messages.
    for scheme in ("get_zcopy", "put_zcopy", "am"):
        yield ucx_exchange("rc_verbs", 1 << 20, scheme, env={"UCX_RNDV_SCHEME": scheme}, quick=False)
    yield ucx_exchange("rc_verbs", 1 << 20, "rndv-1", env={"UCX_RNDV_THRESH": "1"}, quick=False)
    yield ucx_exchange("rc_verbs", 1 << 20, "zcopy-1", env={"UCX_ZCOPY_THRESH": "1"}, quick=False)
    yield ucx_exchange("rc_verbs", 1 << 20, "jumbo", mtu=9000, quick=False)
    yield ucx_exchange("rc_verbs", 1 << 14, "reconnect", "--connections", 20, quick=False)


def ucx_cases():
    yield Case("ucx_info", ucx_info)
    yield from ucx_exchange_cases()
    rc = [
        ("tag_lat", 8, 2000, True),
        ("tag_bw", 4096, 2000, False),
        ("tag_bw", 1 << 20, 100, True),  # rendezvous
        ("tag_sync_lat", 8, 1000, False),
        ("stream_bw", 65536, 500, True),
        ("stream_lat", 8, 1000, False),
        ("ucp_am_lat", 8, 1000, False),
        ("ucp_am_bw", 16384, 1000, True),
        ("ucp_put_lat", 8, 1000, False),
        ("ucp_put_bw", 65536, 500, True),
        ("ucp_get", 65536, 500, True),
        ("ucp_add", 8, 1000, True),
        ("ucp_fadd", 8, 1000, True),
        ("ucp_swap", 8, 1000, True),
        ("ucp_cswap", 8, 1000, True),
    ]
    for transport in ("rc_verbs", "ud_verbs"):
        for test, size, iterations, quick in rc:
            # UD has messages only; UCX makes the rest out of them.
            wanted = quick and (transport == "rc_verbs" or test in ("tag_lat", "tag_bw", "ucp_put_bw", "ucp_cswap"))
            yield ucx(test, size, iterations, transport, quick=wanted)
    for transport in ("rc_verbs", "ud_verbs"):
        yield ucx("tag_bw", 65536, 500, transport, io=("udp", "udp"), name="udp", quick=transport == "rc_verbs")
        yield ucx("tag_bw", 65536, 500, transport, mtu=9000, name="jumbo", quick=False)


# --- libfabric ---------------------------------------------------------------------------------------------------------


def fabric_info(lab):
    program = lab.a.run(["fi_info", "-p", "verbs"])
    check(program.process.returncode == 0, program.output)
    check(f"domain: {lab.a.device}" in program.stdout and "FI_EP_DGRAM" in program.stdout, program.output)
    return ", ".join(sorted(set(re.findall(r"type: (FI_EP_\w+)", program.stdout))))


def fabric_pingpong(size, **case):
    """Reliable messages (ofi_rxd) over the datagram endpoints of verbs; with -c both sides verify every message. The bare
    datagram endpoint cannot be used so: fi_pingpong opens an event queue, which the verbs provider has through rdma_cm."""

    def run(lab):
        port = next(_ports)
        iterations = 200
        plan = ["fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-I", iterations, "-S", size, "-c"]
        outputs = run_pair(lab, [*plan, "-B", port], [*plan, "-P", port, lab.a.ipv4], port, {})
        for output, side in zip(outputs, ("server", "client")):
            result = re.search(rf"^{size_text(size)}\s+{iterations}\s+={iterations}\s.*", output, re.MULTILINE)
            check(result, f"no result of {iterations} iterations\n{output}")
            check_carried(output, iterations * max(1, size // 4096), f"fi_pingpong, {side}")
        return f"{result[0].split()[-2]} us"

    return Case(f"fi_pingpong-rdm-{size}", run, **case)


def size_text(size):
    """As fi_pingpong prints it."""
    return f"{size >> 10}k" if size >= 1024 else str(size)


# --- MPI ---------------------------------------------------------------------------------------------------------------


def mpi(transport, max_size, library=OPENMPI, io="af_xdp", ranks=(1, 1), user=False, name="", timeout=120, **case):
    def run(lab):
        return run_mpi(lab, library, ranks, transport, max_size, io, user=user, timeout=timeout)

    label = "-".join(["mpi" if library == OPENMPI else library, transport, *([name] if name else [])])
    return Case(label, run, **case)


def mpi_under_uroce(library, ranks, user=False, **case):
    """uroce run mpirun ...: the launcher's children here have uroce, and those on host b by what it passes on. Several of these
    need a broker there, which nobody starts for them."""

    def run(lab):
        if ranks[1] > 1:
            broker = lab.b.start([lab.program_for(user, "uroced"), "--verbose"], uroce=False, user=user)
            wait_until(lambda: lab.b.run([lab.program_for(user, "uroce"), "stat", "--interval", "0"], uroce=False, user=user).process.returncode == 0, 10, f"the broker\n{broker.output}")
        return run_mpi(lab, library, ranks, user=user, started=LAUNCHER)

    label = "-".join([library, "under-uroce-run", str(sum(ranks)), *(["user"] if user else [])])
    return Case(label, run, **case)


def cases():
    yield from ucx_cases()
    yield Case("fi_info", fabric_info)
    yield fabric_pingpong(64)
    yield fabric_pingpong(16384)
    yield fabric_pingpong(1, quick=False)
    yield mpi("rc_verbs", 1 << 20)
    yield mpi("ud_verbs", 1 << 18)
    yield mpi("rc_verbs", 1 << 20, io="udp", name="udp", quick=False)
    yield mpi("rc_verbs", 1 << 14, io="udp", ranks=(4, 4), name="8-ranks", quick=False)  # broker_matrix has 8
    yield mpi("rc_verbs", 1 << 16, io="udp", ranks=(4, 0), name="one-host")
    yield mpi("rc_verbs", 1 << 14, io="udp", ranks=(4, 0), user=True, name="user")
    yield mpi("ud_verbs", 1 << 14, io="udp", ranks=(2, 2), name="4-ranks")
    yield mpi("rc_verbs", 4 << 20, mtu=9000, name="jumbo", timeout=300, quick=False)
    yield mpi("rc_verbs,ud_verbs", 4 << 20, name="and-ud", timeout=300, quick=False)
    for library in (OPENMPI, MPICH):
        yield mpi_under_uroce(library, (1, 1))
        yield mpi_under_uroce(library, (2, 2))
    yield mpi_under_uroce(OPENMPI, (2, 2), user=True, quick=False)
    # More of MPICH in broker_matrix.py.
    yield mpi("rc_verbs", 1 << 20, MPICH)
    yield mpi("ud_verbs", 1 << 18, MPICH, quick=False)
    yield mpi("ud_verbs", 1 << 14, MPICH, io="udp", ranks=(2, 2), name="4-ranks", quick=False)
    yield mpi("rc_verbs", 4 << 20, MPICH, mtu=9000, name="jumbo", timeout=300, quick=False)


if __name__ == "__main__":
    sys.exit(main(__doc__, list(cases())))
