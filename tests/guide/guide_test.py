#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the commands of docs/guide.md as they stand there, on two hosts (network namespaces) called server and client, each
with a netdev eth0, and compares what the text shows of their output. Each part of the guide (## heading) is a case; see
suite.py.

    ```console                  lines that begin with "server$ " or "client# " are commands of an ordinary user or of root;
                                lines below a command have to occur in its output in this order, "..." stands for anything
    ```console fails            a command whose output is shown fails
    ```console needs: WHAT      not run: WHAT is not there
    ```c NAME, ```py NAME       the file NAME

A command that ends with " &" goes on while the next ones run, and so does a server; when the block ends they have to have
ended well."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from suite import Case, check, main  # noqa: E402
from lab import NOBODY, REPOSITORY, Lab, LabError, wait_until  # noqa: E402
from perftest import CLOCK_TRIES, NO_CLOCK  # noqa: E402

GUIDE = REPOSITORY / "docs/guide.md"
RSH_AGENT = REPOSITORY / "tests/e2e/mpi/rsh_agent"
NEEDS = {"a host with an iSER target", "a host with a ConnectX", "GPUs", "root on both hosts"}
UNPACKED = Path("/var/cache/uroce/rdma-core/usr/lib/python3/dist-packages")  # pyverbs, by tools/deps, where it is not installed


@dataclasses.dataclass
class Step:
    host: str
    root: bool
    command: str
    shown: list


@dataclasses.dataclass
class Block:
    line: int
    info: str  # behind the word console
    steps: list


def parse(text):
    """Sections of the guide: {heading: [Block or (file name, content)]}."""
    sections, heading = {}, None
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.startswith("## "):
            heading = line[3:]
        fence = re.match(r"```(\w+) ?(.*)$", line)
        if not fence:
            continue
        end = lines.index("```", number)
        body = lines[number:end]
        if fence[1] == "console":
            sections.setdefault(heading, []).append(Block(number, fence[2], steps_of(body)))
        else:
            sections.setdefault(heading, []).append((fence[2], "\n".join(body) + "\n"))
        number = end + 1
    return sections


def steps_of(lines):
    steps = []
    for line in lines:
        prompt = re.match(r"(server|client)([$#]) (.*)$", line)
        if prompt:
            steps.append(Step(prompt[1], prompt[2] == "#", prompt[3], []))
        else:
            check(steps, f"output without a command: {line}")
            steps[-1].shown.append(line)
    return steps


def pattern_of(line):
    words = [re.escape(word) for word in re.split(r"\.\.\.", line)]
    return re.sub(r"(?:\\?[ \t])+", r"\\s*", ".*".join(words))


def check_shown(step, output):
    """The lines that the text shows are in the output, in this order."""
    at = 0
    for line in step.shown:
        if line.strip() == "...":
            continue
        found = re.compile(pattern_of(line), re.MULTILINE).search(output, at)
        check(found, f"{step.command}\nthe guide shows: {line}\nit prints:\n{output}")
        at = found.end()


class GuideLab(Lab):
    """The hosts server (192.0.2.1) and client (192.0.2.2) with a netdev eth0, and a home directory for both users."""

    def make_hosts(self):
        self.a.name, self.b.name = "server", "client"  # the directory of names is the script's own
        for host in (self.a, self.b):
            host.enter = ("ip", "netns", "exec", host.name)
        super().make_hosts()
        for host in (self.a, self.b):
            for command in ("link set roce0 down", "link set roce0 name eth0", "link set eth0 up"):
                subprocess.run(["ip", "-n", host.name, *command.split()], check=True)
            subprocess.run(["ip", "-n", host.name, "address", "add", f"{host.ipv6}/64", "dev", "eth0", "nodad"], check=True)
            host.netdev, host.device = "eth0", "uroce_eth0"
        for host in (self.a, self.b):
            wait_until(lambda: json.loads(host.system("ip", "-json", "link", "show", "eth0"))[0]["operstate"] == "UP", 10, "eth0 is up")
        self.hosts = {"server": self.a, "client": self.b}
        self.home = self.directory / "home"
        self.home.mkdir()
        os.chown(self.home, NOBODY, NOBODY)
        tools = self.uroce_for(True).parent
        if not shutil.which("sudo"):  # it has to be there to be refused
            shutil.copy2("/bin/true", tools / "sudo")
        (tools / "python3").symlink_to("/usr/bin/python3")  # pyverbs is built for Debian's
        self.environment = {
            "PATH": f"{tools}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "WIRESHARK_PLUGIN_DIR": str(self.build / "wireshark/plugins"),
            # What stands in for ssh, and what makes mpirun run as root.
            "OMPI_MCA_plm_rsh_agent": str(RSH_AGENT), "OMPI_MCA_oob_tcp_if_include": "192.0.2.0/24",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": str(RSH_AGENT), "HYDRA_IFACE": "eth0", "PYTHONPATH": str(UNPACKED),
        }

    def enter(self, step):
        """Starts a step's command."""
        host = self.hosts[step.host]
        command = step.command.removesuffix(" &")
        named = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', step.host)
        program = host.start(["bash", "-c", f"cd {shlex.quote(str(self.home))} && {command}"], uroce=False, user=not step.root,
                             prefix=named, env=self.environment)
        program.step = step
        program.next_look = time.monotonic() + 0.3
        return program

    def ready(self, program):
        """It has ended, waits for clients, or its packets may travel."""
        if not program.running():
            return True
        host = self.hosts[program.step.host]
        if any(program.is_listening(port) for port in (18515, 13337)):
            return True
        if time.monotonic() < program.next_look:
            return False
        program.next_look = time.monotonic() + 0.3  # a look costs more than a listening socket's
        looked = host.run([self.uroce_for(True), "stat", "--json", "--interval", "0"], uroce=False, user=not program.step.root)
        if looked.process.returncode != 0:
            return False
        seen = json.loads(looked.stdout)
        listens = any(entry["state"] == "listen" for entry in (seen["connections"] or {}).get("ids", []))
        moves = any(qp["state"] == "rts" for process in seen["processes"] for device in process["devices"] for qp in device["qps"])
        return listens or moves

    def end_brokers(self):
        """So that each block begins as the first one does, also behind one that took a netdev down."""
        for host in self.hosts.values():
            wait_until(lambda host=host: "LOWER_UP" in host.system("ip", "link", "show", "dev", host.netdev), 10, "the netdevs are up")
        for name in self.hosts:
            for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout.split():
                try:
                    if Path(f"/proc/{pid}/comm").read_text() == "uroced\n":
                        os.kill(int(pid), 15)
                        wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10, "the broker ends")
                except (FileNotFoundError, ProcessLookupError):
                    pass


class NoClock(LabError):
    """perftest could not measure the CPU's clock."""


def run_block(lab, block):
    fails = block.info == "fails"
    going_on = []
    for number, step in enumerate(block.steps):
        program = lab.enter(step)
        follows = block.steps[number + 1 : number + 2]
        if step.command.endswith(" &") or (step.host == "server" and follows and follows[0].host == "client"):
            wait_until(lambda: lab.ready(program), 20, f"{step.command} begins\n{program.output}")
            going_on.append(program)
            continue
        code = program.wait(60)
        if code not in (0, None) and NO_CLOCK in program.output:
            raise NoClock(f"{step.command}\n{program.output}")
        others = "".join(f"\n--- {other.step.command}\n{other.output}" for other in going_on)
        check((code not in (0, None)) if fails and step.shown else code == 0, f"exit code {code} (None: hangs): {step.command}\n{program.output}{others}")
        check_shown(step, program.output)
    for program in going_on:
        if fails:
            program.kill()
            continue
        code = program.wait(30)
        check(code == 0, f"exit code {code} (None: hangs): {program.step.command}\n{program.output}")
        check_shown(program.step, program.output)
    lab.end_brokers()


def run_section(lab, blocks):
    ran = 0
    for block in blocks:
        if isinstance(block, tuple):
            (lab.home / block[0]).write_text(block[1])
            continue
        if block.info.startswith("needs: "):
            check(block.info[len("needs: "):] in NEEDS, f"{GUIDE}:{block.line}: needs what this test does not know")
            continue
        check(block.info in ("", "fails"), f"{GUIDE}:{block.line}: {block.info}?")
        start = time.monotonic()
        try:
            for tries in range(CLOCK_TRIES):
                try:
                    run_block(lab, block)
                    break
                except NoClock:
                    lab.stop_programs()
                    lab.end_brokers()
                    if tries == CLOCK_TRIES - 1:
                        raise
        except Exception as error:
            raise LabError(f"{GUIDE}:{block.line}: {error}") from error
        ran += len(block.steps)
        if os.environ.get("GUIDE_TIMES"):
            print(f"{time.monotonic() - start:6.1f} s {block.steps[0].command}")
    return f"{ran} commands"


def cases():
    sections = parse(GUIDE.read_text())
    check(sections, "no commands in the guide")
    name = lambda heading: re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
    return [Case(name(heading), lambda lab, blocks=blocks: run_section(lab, blocks)) for heading, blocks in sections.items()]


def enter_pid_namespace():
    """The guide finds processes by name: there are none but its own."""
    if os.geteuid() == 0 and os.environ.get("GUIDE_TEST_ALONE") is None:
        os.environ["GUIDE_TEST_ALONE"] = "1"
        shell = ["bash", "-c", '"$@"; exit $?', "bash"]  # the first process, to which brokers are left when they end
        os.execvp("unshare", ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *shell, sys.executable, "-B", *sys.argv])


if __name__ == "__main__":
    enter_pid_namespace()
    sys.exit(main(__doc__, cases(), lambda options, mtu: GuideLab(options.build, mtu)))
