# SPDX-License-Identifier: BSD-2-Clause
"""The stage of bench/limits: two network namespaces joined by a veth pair, and the processes that run in them."""

import dataclasses
import json
import os
import re
import select
import signal
import subprocess
import time
from pathlib import Path

CPUS = (0, 1)  # of client and server; of both, with one core: the first
SERVER_ADDRESS, CLIENT_ADDRESS = "192.0.2.1", "192.0.2.2"
SERVER_IPV6, CLIENT_IPV6 = "fd00:192:0:2::1", "fd00:192:0:2::2"
PROCESS_TIMEOUT_S = 60


class MeasurementFailed(Exception):
    pass


@dataclasses.dataclass
class Side:
    namespace: str
    netdev: str
    addresses: tuple[str, ...]
    cpu: int


class Rig:
    """Two network namespaces joined by a veth pair, and the processes that run in them."""

    def __init__(self, tools: Path, ipv6: bool = False):
        self.tools = tools
        self.ipv6 = ipv6
        pid = os.getpid()
        self.client = Side(f"limits-c{pid}", f"limc{pid}", (f"{CLIENT_ADDRESS}/24", f"{CLIENT_IPV6}/64"), CPUS[0])
        self.server = Side(f"limits-s{pid}", f"lims{pid}", (f"{SERVER_ADDRESS}/24", f"{SERVER_IPV6}/64"), CPUS[1])
        self.sides = (self.server, self.client)
        self.processes: list[subprocess.Popen] = []
        self.mtu = 0

    def __enter__(self) -> "Rig":
        try:
            for side in self.sides:
                ip("netns", "add", side.namespace)
                if not self.ipv6:  # then no neighbour discovery gets between the measured packets
                    ip("netns", "exec", side.namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
                       "net.ipv6.conf.default.disable_ipv6=1")
                ip("-n", side.namespace, "link", "set", "lo", "up")
            ip("-n", self.server.namespace, "link", "add", self.server.netdev, "type", "veth",
               "peer", "name", self.client.netdev, "netns", self.client.namespace)
            for side in self.sides:
                for address in side.addresses if self.ipv6 else side.addresses[:1]:
                    ip("-n", side.namespace, "addr", "add", address, "dev", side.netdev,
                       *(["nodad"] if ":" in address else []))
                ip("-n", side.namespace, "link", "set", side.netdev, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.end_processes()
        for side in self.sides:
            subprocess.run(["ip", "netns", "del", side.namespace], stderr=subprocess.DEVNULL, check=False)

    def prepare(self, mtu: int, cores: int) -> None:
        self.server.cpu = CPUS[cores - 1]
        if mtu == self.mtu:
            return
        for side in self.sides:
            ip("-n", side.namespace, "link", "set", side.netdev, "mtu", str(mtu))
        self.mtu = mtu

    def start(self, side: Side, command: list[object], environment: dict[str, str] | None = None) -> subprocess.Popen:
        process = subprocess.Popen(
            ["ip", "netns", "exec", side.namespace, "taskset", "-c", str(side.cpu), *map(str, command)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})})
        self.processes.append(process)
        return process

    def end_processes(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.communicate(timeout=5)
            except (subprocess.TimeoutExpired, ValueError):
                process.kill()
                process.wait()
        self.processes.clear()

    def start_pair(self, server: list[object], client: list[object]) -> tuple[subprocess.Popen, subprocess.Popen]:
        """Of our own tools: the server's side says when it is ready."""
        waiting = self.start(self.server, server)
        wait_until_ready(waiting)
        return waiting, self.start(self.client, client)

    def run_pair(self, server: subprocess.Popen, client: subprocess.Popen, wait_for: subprocess.Popen) -> tuple:
        """Waits for one side, ends the other; returns the JSON of server and client."""
        other = client if wait_for is server else server
        deadline = time.monotonic() + PROCESS_TIMEOUT_S
        while wait_for.poll() is None and not other.poll() and time.monotonic() < deadline:
            time.sleep(0.01)
        if other.poll():  # its error says why the one waited for will not end
            finish(other)
        output = {wait_for: finish(wait_for, timeout=1)}
        other.terminate()
        output[other] = finish(other)
        self.processes.clear()
        return tuple(last_json(output[side]) for side in (server, client))

    def run_client(self, server: list[object], client: list[object], port: int,
                   environments: tuple[dict[str, str], dict[str, str]] = ({}, {})) -> str:
        """Of programs whose server listens on a TCP port: the client's output once both have ended by themselves."""
        waiting = self.start(self.server, server, environments[0])
        deadline = time.monotonic() + PROCESS_TIMEOUT_S
        while waiting.poll() is None and not is_listening(waiting.pid, port):
            if time.monotonic() > deadline:
                raise MeasurementFailed(f"the server does not listen: {' '.join(waiting.args)}")
            time.sleep(0.02)
        if waiting.poll() is not None:
            raise MeasurementFailed(f"server: {finish(waiting).strip() or f'exit {waiting.returncode}'}")
        output = finish(self.start(self.client, client, environments[1]))
        finish(waiting)
        self.processes.clear()
        return output


def ip(*arguments: str) -> None:
    result = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"limits: ip {' '.join(arguments)}: {result.stderr.strip()}")


def finish(process: subprocess.Popen, timeout: float = PROCESS_TIMEOUT_S) -> str:
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise MeasurementFailed(f"no end within {timeout} s: {' '.join(process.args)}") from None
    if process.returncode not in (0, -signal.SIGTERM):
        raise MeasurementFailed(f"exit {process.returncode}: {' '.join((err + out).decode().split())} "
                                f"({' '.join(process.args)})")
    return out.decode()


def wait_until_ready(process: subprocess.Popen) -> None:
    readable, _, _ = select.select([process.stdout], [], [], PROCESS_TIMEOUT_S)
    if not readable or process.stdout.readline() != b"ready\n":
        raise MeasurementFailed(f"{' '.join(process.args)}: not ready: {process.stderr.read().decode().strip()}")


def last_json(text: str) -> dict:
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def is_listening(pid: int, port: int) -> bool:
    """Whether somebody listens on the TCP port in the network namespace of the process."""
    pattern = re.compile(rf":{port:04X} [0-9A-F]+:0000 0A ")
    try:
        return any(pattern.search(Path(f"/proc/{pid}/net/{table}").read_text()) for table in ("tcp", "tcp6"))
    except OSError:  # the process has ended
        return False
