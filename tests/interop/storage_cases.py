# SPDX-License-Identifier: BSD-2-Clause
"""Consumers of rdma_cm and verbs in the peer's kernel, which are no verbs programs: Linux's iSER target (LIO, ib_isert) and its NVMe
target (nvmet-rdma) on rxe serve a RAM disk. remote_disk is the initiator here, with libiscsi for iSER; it compares all that it reads."""

import dataclasses

from cases import captured, judge, ours
from cm_cases import judge_cm
from lab import LabError, wait_until
from suite import Case, check

SEED = 1
# Little: rxe waits for its timeout, with rdma_cm 2.1 s, when an answer to a READ is lost, and at many a NAK (docs/interop.md).
FAULTS = "drop=0.1%,dup=0.5%,corrupt=0.1%"


class Target:
    """A target in the guest. A context manager: leaving it removes it, with the disk."""

    def __init__(self, lab):
        self.lab = lab

    def guest(self, *lines):
        self.lab.b.system("sh", "-ec", "; ".join(lines), timeout=180)  # the agent takes one line; the emulator may have half a CPU

    def __enter__(self):
        try:
            self.guest("grep -q configfs /proc/mounts || mount -t configfs configfs /sys/kernel/config", *self.make())
            self.start()
        except LabError:
            self.lab.vm.stuck = "may have half a target"
            raise
        return self

    def __exit__(self, kind, *_):
        try:
            self.stop()
            self.guest(*self.remove())
        except LabError:
            self.lab.vm.stuck = "has a target that cannot be removed"
            if kind is None:  # else what went wrong before tells more
                raise


class IserTarget(Target):
    name = "iqn.2026-11.example.uroce:disk"
    configuration = "/sys/kernel/config/target"
    group = f"{configuration}/iscsi/{name}/tpgt_1"
    disk = f"{configuration}/core/rd_mcp_0/ramdisk"

    def __init__(self, lab):
        super().__init__(lab)
        self.portal = f"{lab.b.ipv4}:3260"
        self.url = f"iser://{self.portal}/{self.name}/0"

    def make(self):
        return ["for module in crc32c_generic target_core_mod iscsi_target_mod; do modprobe $module; done",
                f"mkdir -p {self.configuration}/iscsi {self.disk}", f"echo rd_pages=8192 >{self.disk}/control", f"echo 1 >{self.disk}/enable",
                f"mkdir -p {self.group}/lun/lun_0", f"ln -s {self.disk} {self.group}/lun/lun_0/port", f"cd {self.group}/attrib",
                "echo 0 >authentication", "echo 1 >generate_node_acls", "echo 0 >demo_mode_write_protect"]  # fmt: skip

    def start(self):
        """The driver takes its port, and logins."""
        portal = f"{self.group}/np/{self.portal}"
        self.guest("modprobe ib_isert", f"mkdir {portal}", f"echo 1 >{portal}/iser", f"echo 1 >{self.group}/enable")

    def stop(self):
        """All sessions end, and the driver goes; the disk stays."""
        self.guest(f"echo 0 >{self.group}/enable", f"rmdir {self.group}/np/{self.portal}", "rmmod ib_isert")

    def remove(self):
        return [f"rm {self.group}/lun/lun_0/port", f"rmdir {self.group}/lun/lun_0 {self.group} {self.configuration}/iscsi/{self.name} {self.disk}"]


class NvmeTarget(Target):
    name = "nqn.2026-11.example.uroce:disk"
    subsystem = f"/sys/kernel/config/nvmet/subsystems/{name}"
    port = "/sys/kernel/config/nvmet/ports/1"

    def __init__(self, lab):
        super().__init__(lab)
        self.url = f"nvme://{lab.b.ipv4}:4420/{self.name}"

    def make(self):
        return ["modprobe brd rd_nr=1 rd_size=32768", "modprobe nvmet", f"mkdir {self.subsystem} {self.subsystem}/namespaces/1 {self.port}",
                f"echo 1 >{self.subsystem}/attr_allow_any_host", f"cd {self.subsystem}/namespaces/1", "echo -n /dev/ram0 >device_path",
                "echo 1 >enable", f"cd {self.port}", "echo ipv4 >addr_adrfam", "echo rdma >addr_trtype", f"echo {self.lab.b.ipv4} >addr_traddr",
                "echo 4420 >addr_trsvcid"]  # fmt: skip

    def start(self):
        self.guest("modprobe nvmet-rdma", f"ln -s {self.subsystem} {self.port}/subsystems/")

    def stop(self):
        """All controllers end, and the driver goes; the disk stays."""
        self.guest(f"rm {self.port}/subsystems/{self.name}", "rmmod nvmet-rdma")

    def remove(self):
        return [f"rmdir {self.port}", f"echo 0 >{self.subsystem}/namespaces/1/enable", f"rmdir {self.subsystem}/namespaces/1 {self.subsystem}",
                "rmmod brd"]  # fmt: skip


class Run:
    """What a case has at hand."""

    def __init__(self, lab, target, evidence, io, faults):
        self.lab, self.target, self.evidence = lab, target, evidence
        self.how = dataclasses.asdict(ours(lab.a, evidence, io, faults))

    def start(self, verb):
        return self.lab.a.start([self.lab.build / "bin/remote_disk", verb, self.target.url, SEED], **self.how)

    def expect_end(self, program, seconds=150):
        """What it has said."""
        code = program.wait(seconds)
        check(code == 0, f"exit code {code} (None: hangs)\n{program.output}")
        judge(self.lab, [self.lab.a], self.evidence)
        return program.stdout.strip().splitlines()

    def hold(self):
        """A program that keeps commands running."""
        program = self.start("hold")
        expect_words(program, "busy", 60)
        return program


def expect_words(program, words, seconds):
    wait_until(lambda: words in program.output or not program.running(), seconds, f"'{words}' from\n{program.output}")
    check(words in program.output, f"no '{words}'\n{program.output}")


def data(run):
    """Commands from 512 bytes on, several of them outstanding; then another session reads it all again."""
    *_, told = run.expect_end(run.start("write"))
    run.expect_end(run.start("read"))
    return told


def asked(run):
    """The guide's commands, of libiscsi-bin."""
    inquiry = "\n".join(run.expect_end(run.lab.a.start(["iscsi-inq", run.target.url], **run.how)))
    check("RAMDISK" in inquiry, inquiry)
    capacity = "\n".join(run.expect_end(run.lab.a.start(["iscsi-readcapacity16", run.target.url], **run.how)))
    check("BLOCK ADDRESS:65535" in capacity, capacity)
    return " ".join(capacity.split())


def restarted(run):
    """The target ends with commands outstanding, and its driver goes. When it is back, sessions and all data are."""
    program = run.hold()
    run.target.stop()
    expect_words(program, "lost after", 150)  # eight times the slowest that IBTA allows for rdma_cm's timeout
    run.target.start()
    *_, lost, back, _ = run.expect_end(program)
    return f"{lost}; {back}"


def killed(run):
    """The initiator dies with commands outstanding. The next one finds what was written."""
    run.hold().kill()
    run.expect_end(run.start("read"))


def case(kind, what, io="udp", faults=None, quick=True):
    name = "-".join([kind, what.__name__, io, *(["faults"] if faults else [])])

    def run(lab):
        lab.revive()
        check((lab.build / "bin/remote_disk").exists(), "remote_disk is missing: libiscsi-dev was not there when it was built (tools/deps)")
        with captured(lab, name) as evidence, TARGETS[kind](lab) as target:
            words = what(Run(lab, target, evidence, io, faults))
            judge_cm(lab, evidence, "ipv4")
        return words

    return Case(name, run, quick=quick)


TARGETS = {"iser": IserTarget, "nvmet": NvmeTarget}


def cases():
    for kind in TARGETS:
        yield case(kind, data)
        yield case(kind, restarted, quick=kind == "nvmet")  # libiscsi's takes more than a minute
        yield case(kind, killed, quick=kind == "nvmet")
        for what in (data, restarted):
            yield case(kind, what, io="af_xdp", quick=False)
    yield case("iser", asked)
    yield case("nvmet", data, faults=FAULTS, quick=False)  # LIO ends a session after 3 s without data
