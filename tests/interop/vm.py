# SPDX-License-Identifier: BSD-2-Clause
"""A virtual machine with an agent in it (guest/init) that runs commands.

Its wire is a tap device in a network namespace of the test. Commands go over virtio-serial: port 1 is a socket to the
agent, each further port is a slot that QEMU writes to a file, so that what a command printed survives the guest.
"""

import json
import os
import shlex
import socket
import subprocess
import time

from lab import LabError, wait_until

SLOTS = range(2, 18)  # virtio-serial ports
BOOT_TIMEOUT = 180  # seconds; about 8 without KVM on an idle machine
MEMORY = "1024M"


class GuestProgram:
    """A command in the guest, with what lab.Program offers."""

    def __init__(self, vm, argv, inside, slot):
        self.vm = vm
        self.argv = argv
        self.inside = inside
        self.slot = slot
        self.code = None
        self.log = vm.directory / f"slot-{slot}"
        self.start_of_log = self.log.stat().st_size if self.log.exists() else 0
        vm.send(f"run {slot} {shlex.join(map(str, [*inside, *argv]))}")

    @property
    def output(self):
        """What it wrote so far: both streams, as they came."""
        with open(self.log, "rb") as log:
            log.seek(self.start_of_log)
            return log.read().decode(errors="replace").replace("\r\n", "\n")

    stdout = output

    def running(self):
        self.vm.take_answers()
        return self.code is None and self.vm.running()

    def wait(self, timeout):
        """Exit code (above 128: 128 + the signal), or None after `timeout` seconds or when the guest is dead."""
        deadline = time.monotonic() + timeout
        while self.running() and time.monotonic() < deadline:
            self.vm.wait_for_answer(min(0.1, deadline - time.monotonic()))
        return self.code

    def kill(self):
        if self.running():
            self.vm.send(f"kill {self.slot}")
            if self.wait(10) is None and self.vm.running():
                self.vm.stuck = f"cannot be killed: {shlex.join(map(str, self.argv))}"
        self.vm.release(self)

    def wait_listening(self, port, timeout=30):
        """Until something in the guest listens on the TCP port. LabError when the program ends instead."""
        pattern = f":{port:04X} [0-9A-F]*:0000 0A"
        listens = f"grep -q '{pattern}' /proc/net/tcp /proc/net/tcp6"
        probe = self.vm.start(["sh", "-c", f"until {listens}; do usleep 20000; done"], self.inside)
        try:
            wait_until(lambda: not probe.running() or not self.running(), timeout, f"{self.argv} listens on {port}")
            if probe.code != 0:
                raise LabError(f"the server ended before it listened, exit code {self.code}: {self.output}")
        finally:
            probe.kill()


class Qemu:
    """A QEMU process, its monitor (QEMU Machine Protocol) and the socket to the agent in its guest."""

    def __init__(self, command, control, monitor, log):
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            self.control = self._connect(control)
            self._monitor = self._connect(monitor)
            self._monitor_file = self._monitor.makefile("rw")
            self._monitor_file.readline()  # its greeting
            self.command("qmp_capabilities")
        except BaseException:
            self.end()
            raise

    def _connect(self, path):
        end = socket.socket(socket.AF_UNIX)

        def try_to():
            if not self.running():
                raise LabError(f"QEMU ended: {self.log.read_text()}")
            try:
                end.connect(os.fspath(path))
                return True
            except OSError:
                return False

        wait_until(try_to, 20, "QEMU starts")
        return end

    def running(self):
        return self.process.poll() is None

    def end(self):
        if self.running():
            self.process.kill()
        self.process.wait()

    def command(self, name, **arguments):
        """A command of the monitor and its result."""
        try:
            self._monitor_file.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
            self._monitor_file.flush()
            while True:
                answer = json.loads(self._monitor_file.readline())
                if "error" in answer:
                    raise LabError(f"QEMU: {name}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
        except (OSError, ValueError) as error:
            raise LabError(f"QEMU does not answer {name}: {error}\n{self.log.read_text()}") from error


class Vm:
    """A running guest. A context manager: leaving it ends the guest."""

    qemu = None

    def __init__(self, image, netns, tap, mac, mtu, directory, accelerators=("kvm", "tcg,thread=multi")):
        self.image = image
        self.directory = directory
        self.netns = netns
        self.tap, self.mac, self.mtu = tap, mac, mtu
        self.accelerators = accelerators
        self.programs = {}  # slot: GuestProgram
        self.answers = b""
        self.stuck = ""  # why no more can be asked of this guest

    def __enter__(self):
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.qemu = self._launch()
            wait_until(self._says_ready, BOOT_TIMEOUT, f"the guest boots\n{self.console()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.qemu is not None:
            self.qemu.end()

    def _launch(self, name="", more=()):
        """Starts QEMU. name: what tells its sockets from those of another one that has the same guest; more: words for its
        command line."""
        control, monitor = self.directory / f"control{name}", self.directory / f"qmp{name}"
        self.console_log = self.directory / f"console{name}"
        command = ["ip", "netns", "exec", self.netns, "setpriv", "--pdeathsig", "KILL", "--", "qemu-system-x86_64"]
        command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", MEMORY, "-smp", "2", "-cpu", "max,arch-capabilities=off"]
        for accelerator in self.accelerators:
            command += ["-accel", accelerator]
        command += ["-kernel", self.image.kernel, "-initrd", self.image.initramfs]
        command += ["-append", f"console=ttyS0 panic=-1 quiet mitigations=off PORTS={SLOTS.stop - 1}"]
        command += ["-chardev", f"file,id=console,path={self.console_log}", "-serial", "chardev:console"]
        command += ["-qmp", f"unix:{monitor},server=on,wait=off"]
        command += ["-netdev", f"tap,id=wire,ifname={self.tap},script=no,downscript=no,vhost=off,vnet_hdr=off"]
        # What the tap device cannot pass on to AF_XDP: checksums left to the NIC, and segments larger than the MTU.
        plain = "csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off"
        command += ["-device", f"virtio-net-pci,netdev=wire,mac={self.mac},host_mtu={self.mtu},mrg_rxbuf=on,{plain}"]
        # eth1 and eth2 of the guest: a wire inside of it.
        for number, end in enumerate(("left", "right"), start=1):
            command += ["-netdev", f"hubport,id={end},hubid=1"]
            command += ["-device", f"virtio-net-pci,netdev={end},mac=02:00:00:00:01:{number:02x},mrg_rxbuf=on,{plain}"]
        command += ["-device", f"virtio-serial-pci,max_ports={SLOTS.stop}"]
        command += ["-chardev", f"socket,id=control,path={control},server=on,wait=off"]
        command += ["-device", "virtserialport,chardev=control,nr=1"]
        for slot in SLOTS:
            command += ["-chardev", f"file,id=slot{slot},append=on,path={self.directory}/slot-{slot}"]
            command += ["-device", f"virtserialport,chardev=slot{slot},nr={slot}"]
        return Qemu([*command, *more], control, monitor, self.directory / f"qemu{name}")

    # --- the machine -----------------------------------------------------------------------------------------------------

    @property
    def process(self):
        return self.qemu.process

    @property
    def control(self):
        return self.qemu.control

    def running(self):
        return self.qemu.running()

    def console(self):
        """What the guest's kernel has said."""
        return self.console_log.read_text(errors="replace") if self.console_log.exists() else ""

    def monitor_command(self, name, **arguments):
        """A command of the QEMU Machine Protocol and its result."""
        return self.qemu.command(name, **arguments)

    def accelerator(self):
        """kvm or tcg."""
        return "kvm" if self.monitor_command("query-kvm")["enabled"] else "tcg"

    def start_capture(self, file):
        """Every packet on the wire goes into a pcap file until stop_capture(); also what AF_XDP hides from tcpdump."""
        self.monitor_command("object-add", **{"qom-type": "filter-dump", "id": "capture", "netdev": "wire", "file": str(file)})

    def stop_capture(self):
        self.monitor_command("object-del", id="capture")

    # --- the agent -------------------------------------------------------------------------------------------------------

    def send(self, line):
        self.control.setblocking(True)
        try:
            self.control.sendall(f"{line}\n".encode())
        except OSError as error:
            raise LabError(f"the guest is gone: {error}\n{self.console()}") from error

    def _says_ready(self):
        if not self.running():
            raise LabError(f"QEMU ended: {self.qemu.log.read_text()}\n{self.console()}")
        for line in self._read_lines():
            if line.startswith("ready "):
                self.release_name = line.split()[1]
                return True
        return False

    def _read_lines(self):
        self.control.setblocking(False)
        try:
            while data := self.control.recv(65536):
                self.answers += data
        except BlockingIOError:
            pass
        except ConnectionResetError:
            pass
        *lines, self.answers = self.answers.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def take_answers(self):
        for line in self._read_lines():
            verb, slot, code = line.split()
            if verb == "done" and int(slot) in self.programs:
                self.programs[int(slot)].code = int(code)

    def wait_for_answer(self, seconds):
        self.control.settimeout(max(seconds, 0.001))
        try:
            self.answers += self.control.recv(65536)
        except (TimeoutError, ConnectionResetError):
            pass

    def start(self, argv, inside=()):
        """Runs a command in the guest. inside: the words that enter its network namespace."""
        free = next((slot for slot in SLOTS if slot not in self.programs), None)
        if free is None:
            raise LabError("more programs in the guest than it has slots")
        program = GuestProgram(self, argv, inside, free)
        self.programs[free] = program
        return program

    def release(self, program):
        if self.programs.get(program.slot) is program:
            del self.programs[program.slot]

    def run(self, argv, timeout=60, inside=()):
        """Output of a command in the guest; LabError when it fails or does not end."""
        program = self.start(argv, inside)
        code = program.wait(timeout)
        output = program.output
        program.kill()
        if code != 0:
            raise LabError(f"in the guest: {shlex.join(map(str, argv))}: exit code {code}\n{output}\n{self.console()}")
        return output
