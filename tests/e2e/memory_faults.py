#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""An application takes registered memory away while it is in use, or lets a CQ overrun (memory_faults/main.cc). Both
processes live, a new QP pair works, the application's own SIGSEGV handler still gets its own faults. See suite.py."""

import itertools
import sys

from suite import Case, check, main
from perftest import io_mode

READ_ONLY_BY_PEER = ("write-source", "send-source", "read-source")  # the victim's memory is only read
ROLES = (*READ_ONLY_BY_PEER, "write-target", "receive", "read-sink", "atomic-word", "atomic-result")
WAYS = ("unmap", "protect", "read-only", "truncate", "deregister", "deregister-unmap")
FOUND = "registered memory found unmapped or protected"  # the engine's counter
_ports = itertools.count(20000)


def run_pair(lab, role, way, io, words):
    """Both sides to their end. Output of the victim, with the engine's counters."""
    port = next(_ports)
    program = [lab.build / "bin/memory_faults", "--device", lab.a.device, "--port", port, *words]
    how = {"io": io, "env": {"UROCE_COUNTERS": "1"}}
    victim = lab.a.start([*program, "--server", role, way], **how)
    victim.wait_listening(port)
    peer = lab.b.start([*program, "--client", lab.a.ipv4, role, way], **how)
    codes = (victim.wait(40), peer.wait(40))
    said = f"--- victim\n{victim.output}--- peer\n{peer.output}"
    check(codes == (0, 0), f"exit codes of victim and peer {codes} (None: hangs, negative: the signal)\n{said}")
    for side in (victim, peer):
        check(io_mode(side.output).startswith(io), f"not over {io}\n{said}")
    check(FOUND not in peer.output, f"the peer has lost memory, too\n{said}")
    return victim.output


def fault(role, way, io, *words, name="", **case):
    def run(lab):
        output = run_pair(lab, role, way, io, words)
        # Deregistered memory is not touched any more, so nothing can be found missing.
        lost = not way.startswith("deregister") and not (way == "read-only" and role in READ_ONLY_BY_PEER)
        check((FOUND in output) == lost, f"'{FOUND}' must {'' if lost else 'not '}be counted\n{output}")

    return Case("-".join([role, way, io, *([name] if name else [])]), run, **case)


def overrun(queue, io):
    def run(lab):
        check("completion queue overruns" in run_pair(lab, queue, "overrun", io, []), "not counted")

    return Case(f"{queue}-overrun-{io}", run)


def cases():
    for io in ("af_xdp", "udp"):
        for role in ROLES:
            for way in WAYS:
                quick = way in ("unmap", "deregister-unmap") or (role, way) in (
                    ("write-source", "truncate"),
                    ("write-target", "truncate"),
                    ("write-target", "deregister"),
                    ("receive", "read-only"),
                    ("write-source", "read-only"),
                )
                yield fault(role, way, io, quick=quick)
            quick = role in ("write-source", "write-target", "read-sink")
            yield fault(role, "unmap", io, "--sleep", name="sleep", quick=quick)
        yield fault("write-target", "unmap", io, "--handler", "after", name="handler-after")
        yield fault("write-target", "unmap", io, "--handler", "none", name="handler-none")
        # Which thread the fault meets is chance.
        yield fault("write-source", "unmap", io, "--block-signals", name="signals-blocked")
        yield overrun("send-cq", io)
        yield overrun("receive-cq", io)


if __name__ == "__main__":
    sys.exit(main(__doc__, list(cases())))
