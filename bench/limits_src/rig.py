"""The stage of bench/limits: two network namespaces joined by a veth pair, and the processes that run in them."""

import json
import os
import re
import select
import signal
import subprocess
import time
from pathlib import Path

CLIENT_CPU, SERVER_CPU = 0, 1
SERVER_ADDRESS, CLIENT_ADDRESS = "192.0.2.1", "192.0.2.2"
PROCESS_TIMEOUT_S = 60


class MeasurementFailed(Exception):
    pass


class Rig:
    """Two network namespaces joined by a veth pair, and the processes that run in them."""

    def __init__(self, tools: Path):
        self.tools = tools
        self.server_ns, self.client_ns = f"limits-s{os.getpid()}", f"limits-c{os.getpid()}"
        self.server_dev, self.client_dev = f"lims{os.getpid()}", f"limc{os.getpid()}"
        self.processes: list[subprocess.Popen] = []
        self.mtu = 0

    def __enter__(self) -> "Rig":
        try:
            for namespace in (self.server_ns, self.client_ns):
                ip("netns", "add", namespace)
                # Without IPv6 no neighbour discovery gets between the measured packets.
                ip("netns", "exec", namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
                   "net.ipv6.conf.default.disable_ipv6=1")
                ip("-n", namespace, "link", "set", "lo", "up")
            ip("-n", self.server_ns, "link", "add", self.server_dev, "type", "veth", "peer", "name", self.client_dev,
               "netns", self.client_ns)
            for namespace, netdev, address in ((self.server_ns, self.server_dev, SERVER_ADDRESS),
                                               (self.client_ns, self.client_dev, CLIENT_ADDRESS)):
                ip("-n", namespace, "addr", "add", f"{address}/24", "dev", netdev)
                ip("-n", namespace, "link", "set", netdev, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.end_processes()
        for namespace in (self.server_ns, self.client_ns):
            subprocess.run(["ip", "netns", "del", namespace], stderr=subprocess.DEVNULL, check=False)

    def set_mtu(self, mtu: int) -> None:
        if mtu == self.mtu:
            return
        for namespace, netdev in ((self.server_ns, self.server_dev), (self.client_ns, self.client_dev)):
            ip("-n", namespace, "link", "set", netdev, "mtu", str(mtu))
        self.mtu = mtu

    def start(self, namespace: str, command: list[str]) -> subprocess.Popen:
        process = subprocess.Popen(["ip", "netns", "exec", namespace, *command], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
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

    def start_tool(self, name: str, on_server: bool, *arguments: object) -> subprocess.Popen:
        device = []
        if name == "xsk_bench":
            device = ["--dev", self.server_dev if on_server else self.client_dev]
        process = self.start(self.server_ns if on_server else self.client_ns,
                             [str(self.tools / name), *device, "--cpu", str(SERVER_CPU if on_server else CLIENT_CPU),
                              *map(str, arguments)])
        if on_server:
            wait_until_ready(process)
        return process

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
