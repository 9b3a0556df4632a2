# SPDX-License-Identifier: BSD-2-Clause
"""The two hosts of the interoperability tests: `a` runs uroce, `b` is the peer.

The peer is a virtual machine with Linux Soft-RoCE (GuestLab), or a machine that is reached with ssh (PeerLab).
"""

import contextlib
import ipaddress
import shlex
import shutil
import subprocess

from guest_image import GuestImage
from suite import Failure
from lab import Host, Lab, LabError, Program, Unavailable, wait_until
from vm import Vm

JUMBO = 9000
# Prints the GID table of a port, FILE:CONTENT; entries that are not in use have no type. One process: a guest without KVM forks slowly.
LIST_GIDS = "cd /sys/class/infiniband/{device}/ports/1 && grep -s '' /dev/null gids/* gid_attrs/types/*; true"


def find_gid_indices(listing, addresses):
    """{name: index} from what LIST_GIDS prints and {name: IP address}: the RoCE v2 entry of each address."""
    gids, types = {}, {}
    for line in listing.splitlines():
        file, content = line.split(":", 1)
        directory, index = file.rsplit("/", 1)
        (gids if directory == "gids" else types)[int(index)] = content
    found = {}
    for index, kind in sorted(types.items()):
        for name, address in ((name, address) for name, address in addresses.items() if address):
            wanted = ipaddress.ip_address(f"::ffff:{address}" if "." in address else address)
            if "RoCE v2" in kind and ipaddress.ip_address(gids[index]) == wanted:
                found[name] = index
    return found


class Peer(Host):
    """A host whose programs use the RDMA devices of its own kernel."""

    uroce = False

    def read_gids(self, shell):
        """shell(command): what a shell on the host prints."""
        addresses = {"ipv4": self.ipv4, "ipv6": self.ipv6}
        self.gid_index = find_gid_indices(shell(LIST_GIDS.format(device=self.device)), addresses)
        for name in addresses:
            if name not in self.gid_index and addresses[name]:
                raise LabError(f"{self.device} of {self.name} has no RoCE v2 GID {addresses[name]}")


# --- the virtual machine -----------------------------------------------------------------------------------------------


class Guest(Peer):
    """The virtual machine, with rxe."""

    vm = None

    def __init__(self, lab, number, netdev="eth0", device="rxe0", network=("192.0.2", "fd00:192:0:2")):
        super().__init__(lab, "guest", number)
        self.netdev, self.device = netdev, device
        self.ipv4, self.ipv6 = f"{network[0]}.{number}", f"{network[1]}::{number}"

    def start(self, command, io=None, faults=None, user=False, options=(), uroce=True, prefix=(), env=None):
        argv = [*prefix, *(["env", *(f"{k}={v}" for k, v in env.items())] if env else []), *command]
        return self.lab.track(self.vm.start(argv, self.inside))

    inside = ()  # what enters its network namespace in the guest

    def system(self, *command, timeout=60):
        return self.vm.run(command, timeout=timeout, inside=self.inside)

    def configure(self, mtu):
        self.system("ip", "link", "set", self.netdev, "mtu", mtu)
        self.system("ip", "link", "set", self.netdev, "up")
        self.system("ip", "address", "add", f"{self.ipv4}/24", "dev", self.netdev)
        self.system("ip", "address", "add", f"{self.ipv6}/64", "dev", self.netdev, "nodad")

    def add_link(self):
        self.system("rdma", "link", "add", self.device, "type", "rxe", "netdev", self.netdev)
        self.read_gids(lambda script: self.vm.run(["sh", "-c", script]))

    def start_deleting_link(self):
        return self.vm.start(["rdma", "link", "delete", self.device])


class UroceGuest(Guest):
    """The virtual machine, with uroce in it; in the place of rxe, or in a network namespace of its own."""

    uroce = True
    gid_index = Host.gid_index

    def __init__(self, lab, number, netdev="eth0", netns=None, **how):
        super().__init__(lab, number, netdev, f"uroce_{netdev}", **how)
        self.netns = netns

    def enter_netns(self):
        """Makes the network namespace, with the netdev in it."""
        self.system("ip", "netns", "add", self.netns)
        self.system("ip", "link", "set", self.netdev, "netns", self.netns)
        self.inside = ("ip", "netns", "exec", self.netns)
        self.system("ip", "link", "set", "lo", "up")

    def start(self, command, io=None, faults=None, user=False, options=(), uroce=True, prefix=(), env=None):
        if uroce:
            words = ["/opt/uroce/bin/uroce", "run", *options]
            words += ["--io", io] if io else []
            words += ["--faults", faults] if faults else []
            command = [*words, "--", *command]
        return super().start(command, prefix=prefix, env=env)


class GuestLab(Lab):
    """`a`: a network namespace with uroce. `b`: the guest, at the other end of a's tap device."""

    def __init__(self, build, mtu, accelerators):
        super().__init__(build, mtu)
        if shutil.which("qemu-system-x86_64") is None:
            raise Unavailable("qemu-system-x86_64 is not installed; tools/deps --interop installs it")
        self.image = GuestImage(build)
        self.accelerators = accelerators
        self.b = Guest(self, 2)
        self.uroce_guest = UroceGuest(self, 2)
        # Both ends of a wire inside of the guest.
        inner = ("198.51.100", "fd00:198:51:100")
        self.inner_uroce = UroceGuest(self, 1, "eth1", netns="inner", network=inner)
        self.inner_rxe = Guest(self, 2, "eth2", "rxe2", network=inner)
        self.vm = None

    def make_hosts(self):
        self.run_netns("tap", self.a.name, self.mtu)
        self.boot()

    def boot(self):
        """Starts the guest; also anew, when it has died."""
        self.shut_down()
        self.vm = Vm(self.image, self.a.name, self.a.netdev, "02:00:00:00:00:02", JUMBO, self.directory / "vm", self.accelerators)
        self.vm.__enter__()
        for host in (self.b, self.uroce_guest, self.inner_uroce, self.inner_rxe):
            host.vm, host.inside = self.vm, ()
        self.b.configure(self.mtu)
        self.b.add_link()
        wait_until(lambda: " UP " in self.a.system("ip", "-brief", "link", "show", self.a.netdev), 10, "the wire comes up")

    def join_inside(self):
        """Makes the wire inside of the guest usable: (uroce's end, rxe's end)."""
        if not self.inner_uroce.inside:
            self.inner_uroce.enter_netns()
            for host in (self.inner_uroce, self.inner_rxe):
                host.configure(1500)
            self.inner_rxe.add_link()
        return self.inner_uroce, self.inner_rxe

    @contextlib.contextmanager
    def without_rxe(self):
        """The module keeps UDP port 4791 of all netdevs, with or without a link."""
        try:
            self.vm.run(["rmmod", "rdma_rxe"])  # with all links
            yield
            self.stop_programs()
            # A broker would stay for some seconds, and keep the port (4791).
            self.vm.run(["sh", "-c", "killall -q uroced; while grep -q ':12B7 ' /proc/net/udp; do usleep 50000; done"])
            self.vm.run(["modprobe", "rdma_rxe"])
            for host in [self.b, self.inner_rxe] if self.inner_uroce.inside else [self.b]:
                host.add_link()
        except (Failure, LabError):
            self.vm.stuck = "is without rxe"
            raise

    def revive(self):
        """Starts the guest anew when it is dead, or its kernel does not let go of a process."""
        if not self.vm.running() or self.vm.stuck:
            self.boot()

    def shut_down(self):
        if self.vm is not None:
            self.vm.__exit__()
            self.vm = None

    def __exit__(self, *exception):
        self.shut_down()
        super().__exit__(*exception)


# --- a machine that is reached with ssh --------------------------------------------------------------------------------


class LocalHost(Host):
    """This machine itself, outside of network namespaces."""

    def __init__(self, lab, netdev, ipv4, ipv6):
        super().__init__(lab, "this machine", 0)
        self.enter = ()
        self.netdev, self.device = netdev, f"uroce_{netdev}"
        self.ipv4, self.ipv6 = ipv4, ipv6


class RemoteProgram(Program):
    """A program on a machine behind ssh. It ends with the connection."""

    def __init__(self, peer, command, log):
        self.peer = peer
        super().__init__([*peer.ssh, "-tt", peer.name, shlex.join(map(str, command))], log, None)

    @property
    def output(self):
        return super().output.replace("\r\n", "\n")

    def wait_listening(self, port, timeout=30):
        pattern = f":{port:04X} [0-9A-F]*:0000 0A"
        self.peer.shell(f"for i in $(seq {timeout * 10}); do grep -q '{pattern}' /proc/net/tcp /proc/net/tcp6 && exit 0; "
                        "sleep 0.1; done; exit 1")  # fmt: skip


class RemotePeer(Peer):
    """A machine with RDMA devices of its own, such as a ConnectX."""

    def __init__(self, lab, name, ssh, device, ipv4, ipv6):
        super().__init__(lab, name, 0)
        self.ssh = ssh
        self.device = device
        self.ipv4, self.ipv6 = ipv4, ipv6
        self.read_gids(self.shell)

    def start(self, command, io=None, faults=None, user=False, options=(), uroce=True, prefix=(), env=None):
        return self.lab.track(RemoteProgram(self, [*prefix, *command], self.lab.new_log()))

    def shell(self, script):
        try:
            done = subprocess.run([*self.ssh, self.name, script], capture_output=True, text=True)
        except OSError as error:
            raise LabError(f"--ssh: {error}") from error
        if done.returncode != 0:
            raise LabError(f"on {self.name}: {script}: exit code {done.returncode} {done.stderr.strip()}")
        return done.stdout


class PeerLab(Lab):
    """`a`: this machine. `b`: another one. Nothing is made and nothing is removed."""

    vm = None

    def revive(self):
        pass

    def __init__(self, build, mtu, options):
        super().__init__(build, mtu)
        self.a = LocalHost(self, options.netdev, options.address, options.address6)
        self.b = RemotePeer(self, options.peer, shlex.split(options.ssh), options.peer_device, options.peer_address,
                            options.peer_address6)

    def make_hosts(self):
        pass
