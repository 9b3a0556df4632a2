#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""A virtual machine with uroce in it moves from one QEMU process to another in the middle of a transfer, stands still, is saved to a
file and restored. Its peer is uroce here or, with --peer rxe, Linux Soft-RoCE in a second virtual machine. Every byte is
compared, completions come once and in order, the pauses are measured, and `uroce check` judges what uroce has captured.

  sudo tools/migration                     the short form, under a minute
  sudo tools/migration --full              AF_XDP and UDP, both peers, both directions, 12 moves each
  sudo tools/migration --peer rxe --moves 3
  sudo tools/migration --live --accel kvm --filter moves --keep
"""

import contextlib
import itertools
import os
import re
import shutil
import struct
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tools/lib")]

from cases import OWN_CAPTURE, Roles, judge, start_transfer
from guest_image import GuestImage
from interop_lab import JUMBO, Guest, UroceGuest
from lab import SKIPPED, Lab, LabError, Unavailable, wait_until
from migrating_vm import MigratingVm
from picture import draw
from suite import Case, Failure, check, main
from vm import Vm

PEERS = ("uroce", "rxe")
TAPS = ("tap0", "tap1", "tap2")
# 4.096 us * 2^17, four times, eight times: 17 s. An emulated machine may be away for seconds when it is saved and restored.
PATIENT = 17
USUAL = 14  # perftest's: 2.1 s
CALIBRATION = 200  # messages
MEMORY_WRITTEN, MEMORY_SECONDS = 16, 40  # MiB, all the time


# --- the hosts -----------------------------------------------------------------------------------------------------------


class MigrationLab(Lab):
    """`a`: a network namespace with uroce. `guest`: the machine that moves. `rxe`: a machine that does not. All at a bridge."""

    def __init__(self, build, mtu, accelerators):
        super().__init__(build, mtu)
        if shutil.which("qemu-system-x86_64") is None:
            raise Unavailable("qemu-system-x86_64 is not installed; tools/deps --interop installs it")
        self.image = GuestImage(build)
        self.accelerators = accelerators
        self.switch = f"uroce-s-{os.getpid()}"
        self.guest, self.rxe = UroceGuest(self, 2), Guest(self, 3)
        self.vm = self.rxe_vm = None

    def make_hosts(self):
        self.run_netns("switch", self.a.name, self.switch, self.mtu, *TAPS)

    def boot(self):
        """The machine that moves, if it does not run."""
        if self.vm is not None and self.vm.running() and not self.vm.stuck:
            return
        self._end(self.vm)
        self.vm = MigratingVm(self.image, self.switch, TAPS[:2], "02:00:00:00:00:02", JUMBO, self.directory / "vm", self.accelerators)
        self.vm.__enter__()
        self.guest.vm = self.vm
        self.guest.configure(self.mtu)
        self.vm.run(["rmmod", "rdma_rxe"])  # it keeps UDP port 4791

    def boot_rxe(self):
        if self.rxe_vm is not None and self.rxe_vm.running() and not self.rxe_vm.stuck:
            return
        self._end(self.rxe_vm)
        self.rxe_vm = Vm(self.image, self.switch, TAPS[2], "02:00:00:00:00:03", JUMBO, self.directory / "rxe-vm", self.accelerators)
        self.rxe_vm.__enter__()
        self.rxe.vm = self.rxe_vm
        self.rxe.configure(self.mtu)
        self.rxe.add_link()

    @staticmethod
    def _end(machine):
        if machine is not None:
            machine.__exit__()

    def __exit__(self, *exception):
        for machine in (self.vm, self.rxe_vm):
            self._end(machine)
        super().__exit__(*exception)


# --- what is measured ----------------------------------------------------------------------------------------------------


def packet_times(capture, source):
    """When packets from this IPv4 address passed, of a pcapng file in the order of its blocks; seconds since 1970."""
    wanted = bytes(map(int, source.split(".")))
    data = memoryview(capture.read_bytes())
    at, times = 0, []
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if length < 12 or at + length > len(data):
            break
        if kind == 6 and length >= 32 + 30:  # an enhanced packet block; Ethernet and IPv4 without options
            high, low = struct.unpack_from("<II", data, at + 12)
            if bytes(data[at + 28 + 26 : at + 28 + 30]) == wanted:
                times.append((high << 32 | low) / 1e9)
        at += length
    return times


def silences(times, steps):
    """The longest time without a packet in each step and until the next one, in milliseconds."""
    found = []
    ends = [began for _, began, _, _ in steps[1:]] + [float("inf")]
    for (_, began, ended, _), end in zip(steps, ends):
        near = [t for t in times if began - 0.2 <= t <= min(ended + 3, end)]
        found.append(max((1000 * (b - a) for a, b in zip(near, near[1:])), default=float("nan")))
    return found


# --- cases ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def evidence_of(lab, name, keep):
    """A directory for what a case captures; it stays where the case fails."""
    directory = lab.build / "interop/failures" / ("migration-" + re.sub(r"[^\w.-]", "_", name))
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        yield directory
    except (Failure, LabError) as error:
        (directory / "failure").write_text(str(error))
        if lab.vm is not None:
            (directory / "console").write_text(lab.vm.console())
            lab.vm.stuck = lab.vm.stuck or "may not be as it was"
        raise Failure(f"{error}\n(evidence: {directory})") from error
    if keep:
        print(f"       kept: {directory}", flush=True)
    else:
        shutil.rmtree(directory)


def end_of(server, client, seconds):
    codes = (client.wait(seconds), server.wait(20))
    check(codes == (0, 0), f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
    return client.stdout.strip().splitlines()[-1]


class TooShort(Exception):
    """The transfer was over before all steps were done; nothing is wrong with it."""


def flowing(host, client, server):
    """Packets come from the guest to its peer."""

    def count():
        return int(host.system("cat", f"/sys/class/net/{host.netdev}/statistics/rx_packets"))

    before = count()
    wait_until(lambda: count() > before + 300 or not client.running() or not server.running(), 60, "the transfer goes on")
    if not client.running() and client.wait(0) == 0:
        raise TooShort
    check(client.running() and server.running(), f"the transfer ended\n{client.output}\n--- server\n{server.output}")


PAUSE = ("paused 1 s", lambda vm: vm.pause(1))
SAVE = ("saved, restored", lambda vm: vm.save_and_restore(1))


class Transfer:
    """rc_transfer between the guest and its peer, beside which the guest goes through `steps`."""

    def __init__(self, options, peer, io, direction, steps, ack_timeout):
        self.options, self.peer, self.io, self.direction = options, peer, io, direction
        self.steps, self.ack_timeout = steps, ack_timeout

    def start(self, lab, messages, evidence=None):
        arguments = ["--bidirectional", "--qps", "2", "--messages", messages, "--ack-timeout", self.ack_timeout]
        there = lab.a if self.peer == "uroce" else lab.rxe
        # What the guest captures lies in its memory, and would have to be moved as well.
        captures = (lambda host: host is lab.a) if self.peer == "uroce" else (lambda host: True)
        return start_transfer(Roles(lab, self.direction, lambda _: (there, lab.guest)), arguments, io=self.io, evidence=evidence, captures=captures)

    def long_enough(self, lab):
        """Messages that take a good while longer than all steps do."""
        began = time.monotonic()
        end_of(*self.start(lab, CALIBRATION), 60)
        took = max(time.monotonic() - began - 0.5, 0.2)
        return int(CALIBRATION / took * (4 + 3 * len(self.steps)))

    def run(self, lab, name):
        lab.boot()
        if self.peer == "rxe":
            lab.boot_rxe()
        with evidence_of(lab, name, self.options.keep) as evidence:
            messages = self.long_enough(lab)
            for _ in range(4):
                with contextlib.suppress(TooShort):
                    return self.attempt(lab, messages, evidence)
                lab.stop_programs()
                messages *= 3
            raise Failure(f"{messages} messages are over before all steps are done")

    def attempt(self, lab, messages, evidence):
        lab.vm.run(["rm", "-f", f"/tmp/{OWN_CAPTURE}"])
        beside = lab.a if self.peer == "uroce" else lab.rxe
        server, client = self.start(lab, messages, evidence)
        done = []
        for what, step in self.steps:
            flowing(beside, client, server)
            began = time.time()
            downtime = step(lab.vm)
            done.append((what, began, time.time(), downtime))
            print(f"       {what}" + (f": {downtime} ms" if downtime is not None else ""), flush=True)
        flowing(beside, client, server)
        words = end_of(server, client, 240)
        judge(lab, [lab.a if self.peer == "uroce" else lab.guest], evidence)
        return words + self.pauses(lab, evidence, done)

    def pauses(self, lab, evidence, done):
        if self.peer != "uroce":
            return ""
        if self.options.picture:
            _, began, ended, _ = done[0]
            Path(self.options.picture).write_text(draw(evidence / OWN_CAPTURE, lab.a.ipv4, lab.guest.ipv4, began, ended - began + 1.5))
        found = silences(packet_times(evidence / OWN_CAPTURE, lab.guest.ipv4), done)
        return "; silent for " + ", ".join(f"{what} {silence:.0f} ms" for (what, *_), silence in zip(done, found))


def transfer(options, peer, io, direction, way, steps, ack_timeout=PATIENT, quick=False):
    name = f"{peer}/{way}-{io}-{direction}"
    body = Transfer(options, peer, io, direction, steps, ack_timeout)
    return Case(name, lambda lab: body.run(lab, name), quick=quick)


def given_up(options, io, quick=False):
    """Away for longer than the attributes allow: both sides end in order, and a new connection works."""
    name = f"uroce/given-up-{io}"

    def run(lab):
        lab.boot()
        with evidence_of(lab, name, options.keep):
            server, client = Transfer(options, "uroce", io, "to-peer", [], 13).start(lab, 1_000_000)  # 1.1 s: an emulated guest is often silent for 0.1 s
            flowing(lab.a, client, server)
            lab.vm.pause(4)
            for program in (client, server):
                code = program.wait(60)
                check(code not in (None, 0), f"exit code {code} (None: hangs)\n{program.output}")
            check(re.search(r"status (12|5)\b", client.output), f"no error completion\n{client.output}")
            return "given up; then " + end_of(*Transfer(options, "uroce", io, "to-peer", [], PATIENT).start(lab, 100), 60)

    return Case(name, run, quick=quick)


def memory(options):
    """Whether the guest's memory is what it wrote, without any RDMA: says whose fault it is if others fail."""
    name = "guest/memory"

    def run(lab):
        lab.boot()
        with evidence_of(lab, name, options.keep):
            program = lab.guest.start(["memory_pattern", MEMORY_WRITTEN, MEMORY_SECONDS], uroce=False)
            moves = 0
            while moves < (options.moves or 12) and program.running():
                time.sleep(0.5)
                lab.vm.migrate(options.live)
                moves += 1
            code = program.wait(MEMORY_SECONDS + 60)
            check(code == 0, f"after {moves} moves: exit code {code} (None: hangs): the emulator loses writes\n{program.output}")
            return f"{moves} moves; {program.output.strip()}"

    return Case(name, run, quick=False)


def cases(options):
    move = ("live", lambda vm: vm.migrate(True)) if options.live else ("moved", lambda vm: vm.migrate(False))
    moves = [move] * (options.moves or (12 if options.full else 1))
    everything = [*moves, PAUSE, SAVE, move]
    yield transfer(options, "uroce", "udp", "to-peer", "all", everything, quick=options.peer != "rxe")
    yield given_up(options, "udp", quick=options.peer != "rxe")
    yield transfer(options, "rxe", "udp", "to-peer", "all", everything, quick=options.peer == "rxe")
    for io, direction in itertools.product(("af_xdp", "udp"), ("to-peer", "from-peer")):
        # A stopped guest is away for as long as its copying takes, on a busy machine longer than perftest's timeout allows.
        yield transfer(options, "uroce", io, direction, "moves", moves, USUAL if options.live else PATIENT)
        yield transfer(options, "rxe", io, direction, "moves", moves)
    yield transfer(options, "uroce", "af_xdp", "from-peer", "all", everything)
    yield transfer(options, "rxe", "af_xdp", "from-peer", "all", everything)
    yield given_up(options, "af_xdp")
    yield memory(options)


def chosen(options):
    return [case for case in cases(options) if options.peer in (None, case.name.split("/")[0]) or case.name == "guest/memory"]


def add_options(parser):
    parser.add_argument("--peer", choices=PEERS, help="only this peer (both; the short form: uroce)")
    parser.add_argument("--moves", type=int, metavar="N", help="migrations in each transfer (3; --full: 12)")
    parser.add_argument("--live", action="store_true", help="the guest runs while it is copied; emulated guests may die of it (docs/migration.md)")
    parser.add_argument("--picture", metavar="FILE", help="draw the first move as an SVG (peer uroce)")
    parser.add_argument("--keep", action="store_true", help="keep what was captured, and say where")
    parser.add_argument("--accel", action="append", metavar="NAME", help="QEMU's accelerator (tcg,thread=multi), e.g. kvm")


if __name__ == "__main__":
    try:
        sys.exit(main(__doc__, chosen, lambda options, mtu: MigrationLab(options.build, mtu, options.accel or ["tcg,thread=multi"]), add_options))
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    except LabError as error:
        print(f"migration: {error}", file=sys.stderr)
        sys.exit(1)
