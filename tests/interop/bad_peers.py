# SPDX-License-Identifier: BSD-2-Clause
"""uroce beside a peer that stops, dies, or takes its device away in the middle of a transfer."""

import os
import re
import signal
import time

from cases import Roles, captured, judge, ours, start_transfer
from lab import LabError, wait_until
from suite import Case, Failure, check

LONG = ["--messages", "1000000", "--bidirectional"]
# Enough for 5 s of silence: 4.096 us * 2^19 is 2.1 s, eight times. rxe takes the retry count 7 as endless.
OUTLIVES_A_STOP = ["--ack-timeout", "19"]
# Of perftest, as an exponent: about 0.13 s, eight times: an emulated machine pauses.
IMPATIENT = ["-u", "15"]
PERFTEST_PORT = 18515


def begin(lab, arguments, evidence):
    """A transfer from here to the peer that is well under way."""
    server, client = start_transfer(Roles(lab, "to-peer"), [*LONG, *arguments], evidence=evidence)
    wait_for_traffic(lab, client)
    return server, client


def wait_for_traffic(lab, client):
    before = lab.a.packets()
    wait_until(lambda: lab.a.packets() > before + 500 or not client.running(), 60, "traffic")
    check(client.running(), f"the client ended at once\n{client.output}")


def expect_retry_exceeded(client, seconds):
    """The client ends by itself, with the right completion status, in a sensible time."""
    code = client.wait(seconds)
    check(code is not None, f"no end within {seconds} s\n{client.output}")
    check(code == 1 and re.search(r"status (12|5)\b", client.output), f"exit code {code}\n{client.output}")


def stopped(lab):
    """The whole machine stands still for 5 s: the transfer goes on afterwards."""
    with captured(lab, "bad-peer/stopped") as evidence:
        server, client = begin(lab, OUTLIVES_A_STOP, evidence)
        lab.vm.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(5)
        finally:
            lab.vm.process.send_signal(signal.SIGCONT)
        before = lab.a.packets()
        wait_until(lambda: lab.a.packets() > before + 5000 or not client.running(), 60, "traffic goes on")
        check(client.running(), f"the transfer ended\n{client.output}")
        server.kill()
        check(client.wait(60) is not None, f"the client does not notice that the server is gone\n{client.output}")
        judge(lab, [lab.a], evidence)
    return "goes on after 5 s"


def begin_writes(lab, evidence):
    """ib_write_bw from here to the peer, well under way. It always has requests outstanding, and does not look at its TCP
    connection before the end; rc_transfer may wait for TCP alone when its peer dies."""
    words = ["-F", "-D", "60", *IMPATIENT]
    server = lab.b.start(["ib_write_bw", "-d", lab.b.device, "-x", lab.b.gid_index["ipv4"], *words])
    server.wait_listening(PERFTEST_PORT)
    command = ["ib_write_bw", "-d", lab.a.device, "-x", lab.a.gid_index["ipv4"], *words, lab.b.ipv4]
    client = lab.a.start(command, io="af_xdp", options=ours(lab.a, evidence, "af_xdp", None).options)
    wait_for_traffic(lab, client)
    return server, client


def killed(lab):
    with captured(lab, "bad-peer/killed") as evidence:
        _, client = begin_writes(lab, evidence)
        start = time.monotonic()
        os.kill(lab.vm.process.pid, signal.SIGKILL)
        expect_retry_exceeded(client, 20)
        words = f"retry exceeded after {time.monotonic() - start:.1f} s"
        judge(lab, [lab.a], evidence)
    return words


def link_deleted(lab):
    """rxe lets go of a device once no program has it open: the deletion is under way when the program there dies."""
    with captured(lab, "bad-peer/link-deleted") as evidence:
        try:
            server, client = begin_writes(lab, evidence)
            deletion = lab.b.start_deleting_link()
            server.kill()
            expect_retry_exceeded(client, 20)
            judge(lab, [lab.a], evidence)
            check(deletion.wait(20) == 0, f"the link is not deleted\n{deletion.output}")
            deletion.kill()
            lab.b.add_link()
            again = start_transfer(Roles(lab, "to-peer"), ["--messages", "100"])
            codes = [program.wait(60) for program in reversed(again)]
            check(codes == [0, 0], f"after the link came back: exit codes {codes}\n{again[1].output}\n--- server\n{again[0].output}")
        except (Failure, LabError):
            lab.vm.stuck = "may be without its link"
            raise
    return "retry exceeded; a new connection works"


def cases():
    return [Case("bad-peer/stopped", stopped), Case("bad-peer/link-deleted", link_deleted), Case("bad-peer/killed", killed)]
