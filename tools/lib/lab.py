# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts on one machine, and programs on them through `uroce run`.

Used by tools/demo (demo.py) and the end-to-end tests (tests/e2e). Standard library only.

    with Lab(build, mtu=1500) as lab:
        server = lab.a.start(["ib_send_bw", "-d", lab.a.device])
        server.wait_listening(18515)
        client = lab.b.start(["ib_send_bw", "-d", lab.b.device, lab.a.ipv4])

The hosts are network namespaces joined by a veth pair (netns.sh). A script that uses Lab calls enter_private_netns()
first: then namespaces, veth pairs and XDP programs end with the script, whatever ends it. Programs die with the script
as well (PR_SET_PDEATHSIG).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NETNS = REPOSITORY / "tools/lib/netns.sh"
NOBODY = 65534  # user and group id of an ordinary user
# Options of setpriv with which root becomes that user.
UNPRIVILEGED = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all")
SKIPPED = 77  # exit code that CTest takes for "skipped" (SKIP_RETURN_CODE)


class LabError(Exception):
    """The hosts or the programs do not do what the script relies on."""


class Unavailable(LabError):
    """What the test is about cannot be had on this machine: skipped, not failed."""


def enter_private_netns():
    """Restarts the script where its network namespaces are its own affair; ends it as skipped without root."""
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        sys.exit(SKIPPED)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if os.environ.get("UROCE_PRIVATE_NETNS") != str(os.getpid()):
        os.environ["UROCE_PRIVATE_NETNS"] = str(os.getpid())  # exec keeps the process id
        os.execv(NETNS, [str(NETNS), "private", *sys.orig_argv])


def wait_until(condition, timeout, what):
    """Polls until condition() is true and returns what it gave; LabError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    pause = 0
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise LabError(f"not within {timeout} s: {what}")
        pause = min(pause + 0.01, 0.1)  # what it looks at costs time, too
        time.sleep(pause)


class Program:
    """A running program with its output in the files LOG.out and LOG.err."""

    def __init__(self, argv, log, env):
        self.argv = argv
        self.logs = [log.with_suffix(".out"), log.with_suffix(".err")]
        with open(self.logs[0], "wb") as out, open(self.logs[1], "wb") as err:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env)
        self.pid = self.process.pid  # of the program itself: everything in front of it in argv is an exec

    @property
    def stdout(self):
        return self.logs[0].read_text(errors="replace")

    @property
    def output(self):
        """What it wrote so far, its complaints last."""
        return self.stdout + self.logs[1].read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def wait(self, timeout):
        """Exit code (negative: the signal), or None after `timeout` seconds."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        if self.running():
            self.process.kill()
        self.process.wait()

    def is_listening(self, port):
        """A TCP socket listens on the port in the program's network namespace."""
        for table in ("tcp", "tcp6"):
            try:
                lines = Path(f"/proc/{self.pid}/net/{table}").read_text().splitlines()[1:]
            except OSError:
                continue
            for line in lines:
                local, state = line.split()[1], line.split()[3]
                if state == "0A" and int(local.rsplit(":", 1)[1], 16) == port:
                    return True
        return False

    def wait_listening(self, port, timeout=10):
        """Until the program, a server, can be connected to. LabError when it ends instead."""
        wait_until(lambda: self.is_listening(port) or not self.running(), timeout, f"{self.argv} listens on {port}")
        if not self.running():
            raise LabError(f"the server ended before it listened, exit code {self.process.returncode}\n{self.output}")

    def cpu_seconds(self):
        """Time all threads have been on a CPU."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


BACKGROUND = ("nice", "-n", "10")  # `prefix` of programs that poll while a test looks at something else: others have the processor first


class Host:
    """One side of the lab."""

    netdev = "roce0"
    device = "uroce_roce0"
    gid_index = {"ipv4": 0, "ipv6": 1, "link-local": 2}
    uroce = True  # its device is ours
    rights_of_user = UNPRIVILEGED

    def __init__(self, lab, name, number):
        self.lab = lab
        self.name = name
        self.enter = ("ip", "netns", "exec", name)  # what a command on this host begins with
        self.ipv4 = f"192.0.2.{number}"
        self.ipv6 = f"fd00:192:0:2::{number}"

    def start(self, command, io=None, faults=None, user=False, options=(), uroce=True, prefix=(), env=None):
        """Starts a program on this host.

        io, faults: as --io and --faults of `uroce run`; options: more options of it. user: as an ordinary user without
        capabilities. uroce=False: without uroce. prefix: commands in front of it all that exec, such as prlimit.
        """
        argv = [*self.enter, *prefix, "setpriv", "--pdeathsig", "KILL", *(self.rights_of_user if user else ()), "--"]
        if uroce:
            argv += [str(self.lab.uroce_for(user)), "run", *map(str, options)]
            argv += ["--io", io] if io else []
            argv += ["--faults", faults] if faults else []
            argv.append("--")
        return self.lab.track(Program([*argv, *map(str, command)], self.lab.new_log(), {**clean_environment(), **(env or {})}))

    def run(self, command, timeout=30, **how):
        """Starts a program, waits for its end and returns it; LabError when it does not end."""
        program = self.start(command, **how)
        if program.wait(timeout) is None:
            program.kill()
            raise LabError(f"no end within {timeout} s: {command}\n{program.output}")
        return program

    def system(self, *command):
        """What a system command on this host prints; LabError when it fails."""
        program = self.run(command, uroce=False)
        if program.process.returncode != 0:
            raise LabError(f"{' '.join(command)}: {program.output}")
        return program.stdout

    def packets(self):
        """How many the netdev has sent and received, those of AF_XDP included."""
        told = json.loads(self.system("ip", "-json", "-statistics", "link", "show", "dev", self.netdev))[0]["stats64"]
        return told["rx"]["packets"] + told["tx"]["packets"]

    def xdp_program(self):
        """What `ip link` says of an XDP program on the netdev; None when there is none."""
        return json.loads(self.system("ip", "-json", "link", "show", "dev", self.netdev))[0].get("xdp")


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(("UROCE_", "LD_PRELOAD"))}


class Lab:
    """Two hosts, a and b. A context manager: leaving it ends the programs and removes the hosts.

    queues: of their netdevs, each way.
    """

    def __init__(self, build, mtu=1500, queues=1):
        self.build = Path(build).resolve()
        if not (self.build / "bin/uroce").exists():
            raise LabError(f"{self.build}/bin/uroce does not exist; run tools/build")
        self.mtu = mtu
        self.queues = queues
        self.programs = []
        self.logs = 0
        self.a = Host(self, f"uroce-a-{os.getpid()}", 1)
        self.b = Host(self, f"uroce-b-{os.getpid()}", 2)

    def __enter__(self):
        # In the memory file system of enter_private_netns(): gone with the script as well.
        self.directory = Path(tempfile.mkdtemp(prefix="lab-", dir="/run/netns"))
        self.directory.chmod(0o755)
        try:
            self.make_hosts()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make_hosts(self):
        self.run_netns("pair", self.a.name, self.b.name, self.mtu, self.queues)

    def run_netns(self, *arguments):
        made = subprocess.run([NETNS, *map(str, arguments)], capture_output=True, text=True)
        if made.returncode != 0:
            raise LabError(f"cannot make the hosts: {made.stderr.strip()}")

    def __exit__(self, *_):
        self.stop_programs()
        for host in (self.a, self.b):
            subprocess.run(["ip", "netns", "delete", host.name], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.directory)

    def stop_programs(self):
        for program in self.programs:
            program.kill()
        self.programs.clear()

    def track(self, program):
        self.programs.append(program)
        return program

    def new_log(self):
        self.logs += 1
        return self.directory / str(self.logs)

    def uroce_for(self, user):
        """Path of uroce; for the ordinary user a copy in a place that everybody can read."""
        if not user:
            return self.build / "bin/uroce"
        copy = self.directory / "uroce"
        if not copy.exists():
            shutil.copytree(self.build / "lib/uroce", copy / "lib/uroce", symlinks=True)
            (copy / "bin").mkdir()
            for program in ("uroce", "uroced"):
                shutil.copy2(self.build / "bin" / program, copy / "bin" / program)
        return copy / "bin/uroce"

    def program_for(self, user, name):
        """Path of another program of the build, likewise."""
        if not user:
            return self.build / "bin" / name
        copy = self.uroce_for(user).parent / name
        if not copy.exists():
            shutil.copy2(self.build / "bin" / name, copy)
        return copy
