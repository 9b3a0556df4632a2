# SPDX-License-Identifier: BSD-2-Clause
"""How a case of the interoperability tests is made and judged: two programs, a capture of the wire, and the oracle over it."""

import base64
import contextlib
import dataclasses
import itertools
import re
import shutil
import subprocess
from pathlib import Path

from lab import LabError
from perftest import PINGPONGS, Side, describe, io_mode, lacks_clock, run_pair
from suite import Case, Failure, check

FAULTS = "drop=1%,dup=0.5%,reorder=1%,corrupt=0.5%"
# The client is here, or there.
DIRECTIONS = ("to-peer", "from-peer")
# Between uroce's capture stage and its transport. Both are in one thread, but two cores are shared with an emulated machine.
SLACK = "20ms"
OWN_CAPTURE = "uroce.pcapng"
IN_GUEST = Path("/tmp")

# Timeout of the QPs, 4.096 us * 2^17: an emulated machine may not get its turn for half a second.
PATIENCE = 17
# What rc_transfer would send by default, but READs of zero bytes, and fences, which rxe as a requester does not survive when
# a packet is lost (docs/interop.md).
DEFAULT_MIX = "send,send_imm,write,write_imm,read,cas,faa,inline,multi-sge"

_ports = itertools.count(20000)


class Roles:
    """The lab as run_pair() wants it: `a` is the server, `b` the client. hosts(lab): other ones than usual."""

    def __init__(self, lab, direction, hosts=None):
        here, there = hosts(lab) if hosts else (lab.a, lab.b)
        self.a, self.b = (there, here) if direction == "to-peer" else (here, there)
        self.build = lab.build
        self.stop_programs = lab.stop_programs


def ours(host, evidence, io, faults):
    """How the programs of a host are started."""
    if not host.uroce:
        return Side()
    return Side(io, faults, options=("--capture", own_capture(host, evidence)) if evidence else ())


def is_guest(host):
    return getattr(host, "vm", None) is not None


def own_capture(host, evidence):
    """The file of uroce's own capture, on the host that it runs on."""
    return (IN_GUEST if is_guest(host) else evidence) / OWN_CAPTURE


# --- the wire ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def captured(lab, name):
    """Captures the wire during a case, at the guest's end; what fails leaves its evidence behind, in the directory that this
    gives."""
    # The tests of --peer run beside those with a guest, and cases are named alike.
    evidence = lab.build / ("interop/failures" if lab.vm else "interop/peer-failures") / re.sub(r"[^\w.-]", "_", name)
    shutil.rmtree(evidence, ignore_errors=True)
    evidence.mkdir(parents=True)
    capture = evidence / "wire.pcap"
    lab.revive()
    machine = lab.vm
    if machine:
        machine.run(["rm", "-f", IN_GUEST / OWN_CAPTURE])
        machine.start_capture(capture)
    try:
        yield evidence
    except (Failure, LabError) as error:
        stop_capture(machine)
        if machine:
            (evidence / "console").write_text(machine.console())
        with contextlib.suppress(LabError, OSError):
            (evidence / "kernel").write_text(lab.b.system("dmesg"))
        (evidence / "failure").write_text(str(error))
        raise Failure(f"{error}\n(capture and console: {evidence})") from error
    stop_capture(machine)
    shutil.rmtree(evidence)


def stop_capture(machine):
    if machine is None:
        return
    with contextlib.suppress(LabError, OSError, ValueError):
        machine.stop_capture()


def judge(lab, hosts, evidence):
    """The oracle over what uroce has captured on its hosts. UC and UD it only reads."""
    for host in hosts:
        if not host.uroce:
            continue
        file = own_capture(host, evidence)
        checker = "/opt/uroce/bin/uroce" if is_guest(host) else lab.build / "bin/uroce"
        command = list(map(str, [checker, "check", "--slack", SLACK, "--quiet", file]))
        if not is_guest(host):
            done = subprocess.run(command, capture_output=True, text=True)
            check(done.returncode == 0, f"the oracle says:\n{done.stdout}{done.stderr}")
            continue
        try:
            host.vm.run(command)
        except LabError as error:
            with contextlib.suppress(LabError):
                (evidence / f"guest-{OWN_CAPTURE}").write_bytes(base64.b64decode(host.vm.run(["base64", file])))
            raise Failure(f"the oracle says of the guest:\n{error}") from error


# --- cases ---------------------------------------------------------------------------------------------------------------


def pair(program, way, arguments, direction, gid="ipv4", faults=None, io="af_xdp", timeout=60, hosts=None, name=None, own=(), **case):
    """perftest or a pingpong. own: arguments of uroce's side alone."""
    name = name or f"{program}/{way}-{direction}"

    def run(lab):
        lab.revive()
        roles = Roles(lab, direction, hosts)
        with captured(lab, name) as evidence:
            words = arguments if program in PINGPONGS else [*arguments, "-u", PATIENCE]
            sides = [ours(host, evidence, io, faults) for host in (roles.a, roles.b)]
            own_words = [own if host.uroce else () for host in (roles.a, roles.b)]
            for _ in range(3):
                result = run_pair(roles, program, words, gid, *sides, timeout, own_words)
                if not any(map(lacks_clock, result.outputs)):
                    break
            check(not result.problem, f"{result.problem}\n{result.report()}")
            for host, mode in zip((roles.a, roles.b), result.io_modes):
                check_io(host, mode, io, faults)
            judge(lab, (roles.a, roles.b), evidence)
        return describe(result.rows[-1])

    return Case(name, run, **case)


def check_io(host, mode, io, faults):
    if host.uroce:
        check(mode.startswith(io) and (faults or "") in mode, f"uroce says '{mode}', not {io} {faults}")


def start_transfer(roles, arguments, gid="ipv4", io="af_xdp", faults=None, evidence=None, captures=lambda host: True):
    """Starts both sides of rc_transfer; returns (server, client). With `evidence` uroce captures there, on hosts for which
    captures(host)."""
    port = next(_ports)
    own = ["--port", port, *(() if "--ack-timeout" in arguments else ("--ack-timeout", PATIENCE))]
    if "--mix" not in arguments:
        arguments = [*arguments, "--mix", DEFAULT_MIX]
    each = [word for word in arguments if word in ("--events", "--rnr")]
    plan = [word for word in arguments if word not in ("--events", "--rnr")]
    if "--ack-timeout" in plan:
        at = plan.index("--ack-timeout")
        each += plan[at : at + 2]
        del plan[at : at + 2]

    def command(host, rest):
        program = "rc_transfer" if host.name == "guest" or not host.uroce else roles.build / "bin/rc_transfer"
        return [program, "--device", host.device, "--gid-index", host.gid_index[gid], *own, *each, *rest]

    def seeded(host, seed):
        how = dataclasses.asdict(ours(host, evidence if captures(host) else None, io, f"{faults},seed={seed}" if faults else None))
        return {**how, "env": {"UROCE_COUNTERS": "1"}} if host.uroce else how

    server = roles.a.start(command(roles.a, ["--server"]), **seeded(roles.a, 1))
    server.wait_listening(port)
    return server, roles.b.start(command(roles.b, [*plan, "--client", roles.a.ipv4]), **seeded(roles.b, 2))


def transfer(way, arguments, direction, gid="ipv4", io="af_xdp", faults=None, timeout=120, hosts=None, name=None, runs=False, **case):
    """rc_transfer: every byte right, every completion exactly once. runs: uroce has sent packets in runs."""
    name = name or f"rc_transfer/{way}-{direction}"

    def run(lab):
        lab.revive()
        roles = Roles(lab, direction, hosts)
        with captured(lab, name) as evidence:
            server, client = start_transfer(roles, arguments, gid, io, faults, evidence)
            codes = (client.wait(timeout), server.wait(10))
            check(codes == (0, 0), f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
            for host, program in ((roles.a, server), (roles.b, client)):
                check_io(host, io_mode(program.output), io, faults)
                check(not (runs and host.uroce) or "packets sent in runs: " in program.output, f"no runs\n{program.output}")
            judge(lab, (roles.a, roles.b), evidence)
        return client.stdout.strip().splitlines()[-1]

    return Case(name, run, **case)


def errors(way, direction, gid="ipv4", io="af_xdp", timeout=120, **case):
    """rc_errors: requests that have to fail, and what is left after them."""
    name = f"rc_errors/{way}-{direction}"

    def run(lab):
        roles = Roles(lab, direction)
        port = next(_ports)

        def start(host, evidence, rest):
            program = "rc_errors" if host is lab.b else lab.build / "bin/rc_errors"
            command = [program, "--device", host.device, "--gid-index", host.gid_index[gid], "--port", port, *rest]
            return host.start(command, **dataclasses.asdict(ours(host, evidence, io, None)))

        with captured(lab, name) as evidence:
            server = start(roles.a, evidence, ["--server"])
            server.wait_listening(port)
            client = start(roles.b, evidence, ["--client", roles.a.ipv4])
            codes = (client.wait(timeout), server.wait(10))
            check(codes == (0, 0), f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
            judge(lab, (roles.a, roles.b), evidence)
        return client.stdout.strip().splitlines()[-1]

    return Case(name, run, **case)
