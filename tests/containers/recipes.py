#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""The recipes of docs/containers.md: perftest in containers as Docker makes them (oci.py). See suite.py."""

import contextlib
import itertools
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from suite import Case, check, main  # noqa: E402
from lab import NOBODY, Lab, Unavailable, wait_until  # noqa: E402
from oci import PROFILE, Image  # noqa: E402

DIRECTORY = "/run/uroced"
SOCKET = f"{DIRECTORY}/socket"
UNPRIVILEGED = {"user": NOBODY, "drop": ("ALL",)}
FOR_AF_XDP = {"add": ("NET_ADMIN", "BPF", "IPC_LOCK"), "confined": False}
_ports = itertools.count(23000)


class ContainerLab(Lab):
    """Two hosts, and what their containers are made of."""

    def __enter__(self):
        super().__enter__()
        self.image = Image(self)
        return self

    def __exit__(self, *how):
        self.stop_programs()
        if hasattr(self, "image"):
            self.image.close()
        super().__exit__(*how)


def pair(lab, server_host, client_host, options=(), messages=500, server=None, client=None, **how):
    """ib_write_bw between a container on either host; both have to end well. What both said."""
    port = next(_ports)
    command = lambda host: ["uroce", "run", *options, "--", "ib_write_bw", "-d", host.device, "-F", "-x", 0, "-p", port, "-n", messages]
    waiting = lab.image.start(server_host, command(server_host), **{**how, **(server or {})})
    waiting.wait_listening(port)
    asking = lab.image.start(client_host, [*command(client_host), server_host.ipv4], **{**how, **(client or {})})
    codes = asking.wait(60), waiting.wait(20)
    said = f"{asking.output}\n--- server\n{waiting.output}"
    check(codes == (0, 0), f"exit codes of client and server {codes} (None: hangs)\n{said}")
    return said


def packet_io(said):
    return set(re.findall(r"^uroce: roce0: (\w+)", said, re.MULTILINE))


def own_network(lab):
    """docker run --user 65534 --cap-drop ALL, and docker run as it is: a broker in each container."""
    for how in (UNPRIVILEGED, {}):
        check(packet_io(pair(lab, lab.a, lab.b, **how)) == {"udp"}, "not by UDP sockets")


def pod(lab):
    """Two containers in one network namespace use one netdev: through memory, and both with another host."""
    how = {**UNPRIVILEGED, "env": {"UROCE_COUNTERS": "1"}}
    said = pair(lab, lab.a, lab.a, messages=10000, **how)  # 500 can be over before the two have met, on a busy machine
    check(len(re.findall(r"packets sent through memory.*: [1-9]", said)) == 2, said)
    # The second container is there all along, and keeps the broker that the first one had started.
    port = next(_ports)
    other = lab.image.start(lab.a, ["uroce", "run", "ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", port], **how)
    other.wait_listening(port)
    pair(lab, lab.b, lab.a, **how)
    pair(lab, lab.a, lab.b, **how)
    check(other.running(), other.output)


def pod_of_several_users(lab):
    """A broker that an ordinary user has started serves that user; another one is told so."""
    port = next(_ports)
    first = lab.image.start(lab.a, ["uroce", "run", "ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", port], **UNPRIVILEGED)
    first.wait_listening(port)
    other = lab.image.start(lab.a, ["uroce", "run", "ibv_rc_pingpong", "-d", lab.a.device, "-g", 0], user=NOBODY - 1, drop=("ALL",))
    check(other.wait(20) not in (0, None), other.output)
    check("is taken by a process of user 65534, who may have a broker; only root's broker serves several users" in other.output, other.output)


@contextlib.contextmanager
def broker_of(lab, start):
    """A broker with a socket in a directory that containers get; start(directory) starts it."""
    directory = lab.directory / f"run-uroced-{next(_ports)}"
    directory.mkdir()
    broker = start(directory)
    wait_until(lambda: (directory / "socket").exists() or not broker.running(), 10, "the broker listens")
    check(broker.running(), broker.output)
    try:
        yield {"mounts": {directory: DIRECTORY + ":ro"}, "env": {"UROCE_BROKER": SOCKET}}
    finally:
        broker.kill()


def hosts_broker(lab):
    """docker run --network host -v /run/uroced:/run/uroced:ro --user 65534 --cap-drop ALL: root's broker on the host serves it."""
    start = lambda directory: lab.a.start([lab.build / "bin/uroced", "--socket", directory / "socket", "--verbose"], uroce=False)
    with broker_of(lab, start) as how:
        pair(lab, lab.a, lab.b, client=UNPRIVILEGED, server={**UNPRIVILEGED, **how})
        pair(lab, lab.b, lab.a, server=UNPRIVILEGED, client={**UNPRIVILEGED, **how})
        # Nobody has to be able to put a socket of his own there, not even the root of a container.
        other = lab.image.start(lab.a, ["rm", "--force", SOCKET], **how)
        check(other.wait(20) not in (0, None) and "Read-only file system" in other.output, other.output)
        # Two users beside each other.
        pair(lab, lab.a, lab.a, **how, server=UNPRIVILEGED, client={"user": NOBODY - 1, "drop": ("ALL",)})


def broker_in_a_container(lab):
    """As in kubernetes/uroce.yaml: the daemon set's container has the broker, others have its socket."""
    start = lambda directory: lab.image.start(
        lab.a, ["uroced", "--socket", SOCKET, "--verbose"], drop=("ALL",), add=("BPF", "DAC_OVERRIDE", "NET_ADMIN"), confined=False,
        mounts={directory: DIRECTORY, "/sys/fs/cgroup": "/sys/fs/cgroup"})
    with broker_of(lab, start) as how:
        pair(lab, lab.a, lab.a, **how, server=UNPRIVILEGED, client={"user": NOBODY - 1, "drop": ("ALL",)})
        pair(lab, lab.b, lab.a, server=UNPRIVILEGED, client={**UNPRIVILEGED, **how})


def af_xdp(lab):
    """--cap-add NET_ADMIN, BPF, IPC_LOCK and a profile that lets bpf() through; with Docker's own it is refused, and said why."""
    check(packet_io(pair(lab, lab.a, lab.b, ["--io", "af_xdp"], **FOR_AF_XDP)) == {"af_xdp"}, "not by AF_XDP")
    told = lab.image.start(lab.a, ["uroce", "run", "--io", "af_xdp", "ibv_rc_pingpong", "-d", lab.a.device, "-g", 0],
                           **{**FOR_AF_XDP, "confined": True})
    check(told.wait(20) not in (0, None), told.output)
    return next(line for line in told.output.splitlines() if line.startswith("uroce: "))


def drop_in(lab):
    """The library alone, in a directory of the host that is mounted: LD_LIBRARY_PATH, without the command."""
    how = {**UNPRIVILEGED, "mounts": {lab.build / "lib/uroce": "/mnt"}, "env": {"LD_LIBRARY_PATH": "/mnt", "UROCE_IO": "udp"}}
    listed = lab.image.start(lab.a, ["ibv_devices"], **how)
    check(listed.wait(20) == 0 and lab.a.device in listed.output, listed.output)


CASES = [
    Case("own-network", own_network),
    Case("pod", pod),
    Case("pod-of-several-users", pod_of_several_users),
    Case("hosts-broker", hosts_broker),
    Case("broker-in-a-container", broker_in_a_container),
    Case("af_xdp", af_xdp),
    Case("drop-in", drop_in),
]


def make_lab(options, mtu):
    if not PROFILE.exists():
        raise Unavailable(f"there is no {PROFILE}; run tools/deps")
    return ContainerLab(options.build, mtu)


if __name__ == "__main__":
    sys.exit(main(__doc__, CASES, make_lab))
