#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Programs that may not have all: few descriptors, no netlink, file systems that cannot be written. See suite.py."""

import ctypes
import errno
import itertools
import os
import re
import struct
import sys

from suite import Case, check, main
from broker import end_brokers, start_broker
from lab import Lab

_ports = itertools.count(23400)
# --- descriptors ----------------------------------------------------------------------------------------------------------


def open_device():
    """(librdmacm, libibverbs, the first device)"""
    cm, verbs = (ctypes.CDLL(name, use_errno=True) for name in ("librdmacm.so.1", "libibverbs.so.1"))
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    for make in (verbs.ibv_open_device, verbs.ibv_create_comp_channel, verbs.ibv_alloc_pd, cm.rdma_create_event_channel):
        make.restype = ctypes.c_void_p
    for make in (verbs.ibv_open_device, verbs.ibv_create_comp_channel, verbs.ibv_alloc_pd):
        make.argtypes = [ctypes.c_void_p]
    return cm, verbs, verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0])


def count_ids():
    """A program of its own: what a synchronous rdma_create_ep() makes for each id, an event channel and two completion channels, until
    there is no more."""
    cm, verbs, context = open_device()
    ids = 0
    while cm.rdma_create_event_channel() and verbs.ibv_create_comp_channel(context) and verbs.ibv_create_comp_channel(context):
        ids += 1
    print(f"{ids} ids, {errno.errorcode[ctypes.get_errno()]}")


def ids(soft, hard, least):
    """As many as with hardware: three descriptors each, and some for the device."""

    def run(lab):
        program = lab.a.run([sys.executable, "-B", __file__, "--count-ids"], prefix=["prlimit", f"--nofile={soft}:{hard}"])
        told = re.search(r"^(\d+) ids, EMFILE$", program.stdout, re.MULTILINE)
        check(told and int(told[1]) >= least, program.output)
        return told[0]

    return Case(f"ids-{soft}-of-{hard}", run)


def edge(options, name):
    """However many there are: who cannot work says that it is for this, and with what remedy."""

    def run(lab):
        said = set()
        end_brokers(lab)  # one that `uroce run` starts would have as few
        if not options:
            start_broker(lab, lab.a)
        for limit in itertools.count(7):
            check(limit < 60, "it never works")
            command = ["ibv_rc_pingpong", "-g", 0, "-p", 1, lab.b.ipv4]  # where nobody listens
            program = lab.a.run(command, prefix=["prlimit", f"--nofile={limit}:{limit}"], options=options)
            if "local address" in program.output:
                break
            lines = [line for line in program.output.splitlines() if line.startswith("uroce: ")]
            check(all("Too many open files" in line and "ulimit -n" in line for line in lines), f"{limit}: {program.output}")
            said.update(lines)
        check(len(said) >= 2, said)
        return f"works with {limit}"

    return Case(f"edge-{name}", run)


# --- programs that go into the background ---------------------------------------------------------------------------------


def use_after_fork():
    """A program of its own, which opens the device before it becomes a daemon."""
    _, verbs, context = open_device()
    if os.fork() > 0:
        os.wait()
        return
    for _ in range(2):
        made = verbs.ibv_alloc_pd(context)
        print(made, errno.errorcode[ctypes.get_errno()], flush=True)
    _, verbs, context = open_device()
    print("anew", bool(verbs.ibv_alloc_pd(context)), flush=True)
    os._exit(0)


def daemon(lab):
    """What it has from its parent fails, and it is told once why; with a device of its own it works."""
    program = lab.a.run([sys.executable, "-B", __file__, "--use-after-fork"])
    check(program.stdout.split("\n")[:3] == ["None EIO", "None EIO", "anew True"], program.output)
    check(program.output.count("by fork() or daemon()") == 1, program.output)


# --- wrappers that preload something ---------------------------------------------------------------------------------------

ANY_LIBRARY = "libBrokenLocale.so.1"  # of glibc; it does nothing


def wrapper(lab):
    """One that sets LD_PRELOAD anew takes rdma_cm away, and the program says so; one that keeps what is there does not."""
    rping = f"rping -c -C 1 -a {lab.a.ipv4}"  # where nobody listens
    lost = lab.a.run(["sh", "-c", f"LD_PRELOAD={ANY_LIBRARY} exec {rping}"])
    check(lost.process.returncode > 0 and "LD_PRELOAD has been set anew behind uroce run" in lost.output, lost.output)
    for script, env in ((f"LD_PRELOAD={ANY_LIBRARY}:$LD_PRELOAD exec {rping}", {}), (f"exec {rping}", {"LD_PRELOAD": ANY_LIBRARY})):
        kept = lab.a.run(["sh", "-c", script], env=env)
        check("set anew" not in kept.output and "uroce: roce0" in kept.output, kept.output)
    unconcerned = lab.a.run(["sh", "-c", "LD_PRELOAD= exec true"])
    check(unconcerned.output == "", unconcerned.output)


# --- what a systemd unit may lack -----------------------------------------------------------------------------------------


def without_netlink(command):
    """A program of its own: RestrictAddressFamilies= of a systemd unit that names no AF_NETLINK, as a seccomp filter."""
    PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, SOCKET, AF_NETLINK = 38, 22, 2, 41, 16
    ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EAFNOSUPPORT
    steps = [(0x20, 0, 0, 0), (0x15, 0, 3, SOCKET), (0x20, 0, 0, 16), (0x15, 0, 1, AF_NETLINK), (0x06, 0, 0, REFUSE), (0x06, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    filter = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter)):
        check(libc.prctl(*words) == 0, "no seccomp filter")
    os.execvp(command[0], command)


def no_netlink(lab):
    """The line for the unit is named, by `uroce run` and by the library alone."""
    here = [sys.executable, "-B", __file__, "--without-netlink"]
    uroce = lab.build / "bin/uroce"
    for words in ([uroce, "run", "ibv_devices"], [uroce, "run", "--netdev", "roce0", "ibv_devices"], [uroce, "devices"]):
        program = lab.a.run([*here, *words], uroce=False)
        check("AF_NETLINK in its RestrictAddressFamilies=" in program.output, f"{words}: {program.output}")


READ_ONLY = """set -e
for place in /run /dev/shm /tmp /var/tmp; do mount -t tmpfs -o ro,size=4k tmpfs $place; done
mount -o remount,bind,ro /
! touch /written
exec "$@"
"""


def read_only(lab):
    """Nothing can be written: no files under /sys/class/infiniband, which is said, and all else works."""
    port = next(_ports)
    where = ["unshare", "--mount", "--propagation", "private", "sh", "-c", READ_ONLY, "sh"]
    command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-n", 100, "-p", port]
    server = lab.a.start(command, prefix=where)
    server.wait_listening(port)
    client = lab.b.start([*command, lab.a.ipv4], prefix=where)
    codes = [client.wait(30), server.wait(20)]
    check(codes == [0, 0], f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")
    return [line for line in client.output.splitlines() if line.startswith("uroce: no files")]


def little_memory(lab):
    """Locked memory does not matter for UDP sockets."""
    port = next(_ports)
    command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-n", 100, "-p", port]
    server = lab.a.start(command, io="udp", prefix=["prlimit", "--memlock=65536:65536"], user=True)
    server.wait_listening(port)
    client = lab.b.start([*command, lab.a.ipv4], io="udp", prefix=["prlimit", "--memlock=65536:65536"], user=True)
    codes = [client.wait(30), server.wait(20)]
    check(codes == [0, 0], f"exit codes {codes} (None: hangs)\n{client.output}\n--- server\n{server.output}")


CASES = [
    ids(1024, 4096, 330),
    ids(1024, 1024, 160),
    edge((), "with-a-broker"),
    edge(("--alone",), "alone"),
    Case("daemon", daemon),
    Case("wrapper", wrapper),
    Case("no-netlink", no_netlink),
    Case("read-only", read_only),
    Case("little-memory", little_memory),
]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--count-ids"]:
        count_ids()
    elif sys.argv[1:2] == ["--use-after-fork"]:
        use_after_fork()
    elif sys.argv[1:2] == ["--without-netlink"]:
        without_netlink(sys.argv[2:])
    else:
        sys.exit(main(__doc__, CASES, lambda options, mtu: Lab(options.build, mtu)))
