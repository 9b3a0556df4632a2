#!/usr/bin/env -S python3 -B
"""Large applications between two hosts: UCX, libfabric, Open MPI. Each must have been carried by uroce: the engine counts
the packets on both sides. See suite.py."""

import itertools
import os
import re
import sys
from pathlib import Path

from suite import Case, check, main
from lab import NOBODY

FAULTS = "drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%"
COUNTED = {"UROCE_COUNTERS": "1"}
RSH_AGENT = Path(__file__).resolve().parent / "mpi/rsh_agent"
_ports = itertools.count(21000)


def packets_sent(output):
    """Of every engine that told its counters, one per process and device."""
    return [int(number) for number in re.findall(r"^roce0: packets sent: (\d+)", output, re.MULTILINE)]


def check_carried(output, packets, what):
    """An engine has sent at least so many packets."""
    check(max(packets_sent(output), default=0) >= packets, f"{what}: uroce has not sent {packets} packets\n{output}")


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


def ucx_environment(lab, transport):
    return {
        # UCX connects RC over UD ("auxiliary"), which its own name for the pair says.
        "UCX_TLS": "rc_v,self" if transport == "rc_verbs" else f"{transport},self",
        "UCX_NET_DEVICES": f"{lab.a.device}:1",
        "UCX_LOG_LEVEL": "warn",
        "UCX_WARN_UNUSED_ENV_VARS": "n",
    }


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
        env = ucx_environment(lab, transport)
        outputs = run_pair(lab, plan[:3], [*plan, lab.a.ipv4], port, env, io)
        result = re.search(r"^Final:\s+(\d+)((?:\s+[\d.]+){7})$", outputs[1], re.MULTILINE)
        check(result and int(result[1]) == iterations, f"no result of {iterations} iterations\n{outputs[1]}")
        # A message is a packet at least. A get moves its data from the server to the client, everything else the other way.
        mover = outputs[0] if test == "ucp_get" else outputs[1]
        check_carried(mover, iterations * max(1, size // 4096), f"{test} over {transport}")
        return f"{result[2].split()[-3]} MB/s"

    label = "-".join(["ucx", transport, test, str(size), *([name] if name else [])])
    return Case(label, run, **case)


def ucx_exchange_plan(lab, port, arguments):
    program = lab.build / "bin/ucx_exchange"
    check(program.exists(), f"{program} is missing: libucx-dev was not there when it was built (tools/deps)")
    return [program, "--port", port, *arguments]


def ucx_exchange(transport, max_size, name, *arguments, env=None, io="af_xdp", faults=None, timeout=120, **case):
    """ucx_exchange (ucx/main.cc): everything that UCP has, both ways at once, every byte verified where it arrives."""

    def run(lab):
        port = next(_ports)
        plan = ucx_exchange_plan(lab, port, ["--seed", 2026, "--max-size", max_size, *arguments])
        environment = {**ucx_environment(lab, transport), **(env or {})}
        how = {"io": (io, io), "faults": faults, "timeout": timeout}
        outputs = run_pair(lab, plan, [*plan, lab.a.ipv4], port, environment, **how)
        results = [re.search(r"^ucx_exchange: (.* (\d+) bytes, hash \w+)$", output, re.MULTILINE) for output in outputs]
        check(all(results) and results[0][0] == results[1][0], f"no result, or two\n{outputs[0]}\n{outputs[1]}")
        # Half of the bytes go each way, in packets of 4096 bytes at most. The sender of a get has no hand in it.
        for output, side in zip(outputs, ("server", "client")):
            check_carried(output, int(results[0][2]) // 2 // 4096, f"ucx_exchange, {side}")
        return results[0][1]

    return Case("-".join(["ucx_exchange", transport, name]), run, **case)


def ucx_exchange_several(transport, **case):
    """Two processes on each host at once, and two more that are on one host together."""

    def run(lab):
        env = {**COUNTED, **ucx_environment(lab, transport)}
        pairs = []
        for server_host, client_host in ((lab.a, lab.b), (lab.b, lab.a), (lab.a, lab.a)):
            port = next(_ports)
            plan = ucx_exchange_plan(lab, port, ["--seed", port, "--max-size", 1 << 16])
            server = server_host.start(plan, io="udp", env=env)
            server.wait_listening(port)
            pairs.append((client_host.start([*plan, server_host.ipv4], io="udp", env=env), server))
        for pair in pairs:
            codes = [program.wait(60) for program in pair]
            outputs = [program.output for program in pair]
            check(codes == [0, 0], f"exit codes of client and server {codes} (None: hangs)\n{outputs[0]}\n--- server\n{outputs[1]}")
            results = [re.search(r"^ucx_exchange: .* hash \w+$", output, re.MULTILINE) for output in outputs]
            check(all(results) and results[0][0] == results[1][0], f"no result, or two\n{outputs[0]}\n{outputs[1]}")
            for output in outputs:
                check_carried(output, 1000, "ucx_exchange")
        return f"{len(pairs)} at once"

    return Case(f"ucx_exchange-{transport}-several", run, **case)


def ucx_exchange_notices(part, side, **case):
    """What one side corrupts on purpose in this part, the other one has to notice, and to say so."""

    def run(lab):
        port = next(_ports)
        plan = ucx_exchange_plan(lab, port, ["--max-size", 70000, "--parts", part])
        planted = ["--plant", part]
        commands = {"server": plan, "client": [*plan, lab.a.ipv4]}
        commands[side] = [*plan, *planted, *commands[side][len(plan) :]]
        env = ucx_environment(lab, "rc_verbs")
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
    yield ucx_exchange_several("rc_verbs")
    yield ucx_exchange_several("ud_verbs")
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


# --- Open MPI ----------------------------------------------------------------------------------------------------------


def mpi(transport, max_size, io="af_xdp", ranks=(1, 1), user=False, name="", timeout=120, **case):
    """mpi_exchange (mpi/main.cc) with so many ranks on each host, which exchange over uroce on one host as well. mpirun is on host a; the other
    one it reaches through mpi/rsh_agent."""

    def run(lab):
        settings = {
            "pml": "ucx",
            "osc": "ucx",
            "btl": "self",
            "plm": "rsh",
            "plm_rsh_agent": RSH_AGENT,
            "plm_rsh_no_tree_spawn": 1,
            "oob_tcp_if_include": "192.0.2.0/24",
            "hwloc_base_binding_policy": "none",
        }
        forwarded = {**COUNTED, **ucx_environment(lab, transport), "UROCE_IO": io}
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", sum(ranks)]
        command += ["--host", ",".join(f"{host.name}:{count}" for host, count in zip((lab.a, lab.b), ranks) if count)]
        for key, value in settings.items():
            command += ["--mca", key, value]
        for key in forwarded:
            command += ["-x", key]
        command += [lab.program_for(user, "uroce"), "run", "--", lab.program_for(user, "mpi_exchange"), 2026, max_size]
        # A host name of its own, as rsh_agent has it for the other one; session directories that go with the lab.
        uts = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', lab.a.name)
        sessions = lab.directory / f"sessions-{user}"
        sessions.mkdir(exist_ok=True)
        os.chown(sessions, NOBODY if user else 0, -1)
        env = {**forwarded, "TMPDIR": str(sessions), "OMPI_MCA_orte_tmpdir_base": str(sessions)}
        program = lab.a.start(command, uroce=False, user=user, prefix=uts, env=env)
        code = program.wait(timeout)
        check(code == 0, f"exit code {code} (None: hangs)\n{program.output}")
        result = re.search(r"mpi_exchange: \d+ ranks, \d+ messages, (\d+) bytes, hash \w+", program.stdout)
        check(result, f"no result\n{program.output}")
        # Both directions of what crossed between the hosts, if only for the most part, in packets of 4096 bytes at most.
        engines = packets_sent(program.output)
        check(len(engines) >= sum(ranks), f"not every rank has used uroce: {engines}\n{program.output}")
        check(sum(engines) >= int(result[1]) // 4096 // 2, f"uroce has not sent it all: {engines}\n{program.output}")
        return result[0].removeprefix("mpi_exchange: ")

    return Case("-".join(["mpi", transport, *([name] if name else [])]), run, **case)


def cases():
    yield from ucx_cases()
    yield Case("fi_info", fabric_info)
    yield fabric_pingpong(64)
    yield fabric_pingpong(16384)
    yield fabric_pingpong(1, quick=False)
    yield mpi("rc_verbs", 1 << 20)
    yield mpi("ud_verbs", 1 << 18)
    yield mpi("rc_verbs", 1 << 20, io="udp", name="udp", quick=False)
    yield mpi("rc_verbs", 1 << 14, io="udp", ranks=(4, 4), name="8-ranks")
    yield mpi("rc_verbs", 1 << 16, io="udp", ranks=(4, 0), name="one-host")
    yield mpi("rc_verbs", 1 << 14, io="udp", ranks=(4, 0), user=True, name="user")
    yield mpi("ud_verbs", 1 << 14, io="udp", ranks=(2, 2), name="4-ranks")
    yield mpi("rc_verbs", 4 << 20, mtu=9000, name="jumbo", timeout=300, quick=False)
    yield mpi("rc_verbs,ud_verbs", 4 << 20, name="and-ud", timeout=300, quick=False)


if __name__ == "__main__":
    sys.exit(main(__doc__, list(cases())))
