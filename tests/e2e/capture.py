#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Captures of running programs: what is in them is what was on the wire and what the engine says of it, and whoever
listens disturbs nobody. Read back with tshark and `uroce check`. See suite.py."""

import collections
import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

from suite import Case, Failure, check, main
from broker import end_brokers, start_broker
from cm_programs import RPINGS_RACE, listens
from lab import BACKGROUND, NOBODY, SKIPPED, LabError, Program, clean_environment, wait_until

FAULTS = "drop=1%,dup=0.5%,reorder=0.5%,corrupt=0.3%,seed=7"
_ports = itertools.count(21000)


# --- reading ----------------------------------------------------------------------------------------------------------


def tshark(file, *arguments):
    done = subprocess.run(["tshark", "-r", file, *arguments], capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"tshark {file}: {done.stderr}")
    return done.stdout


def records(file):
    """(interface, comment, opcode) of each frame; fails where the capture is no RoCE v2."""
    fields = ("frame.interface_name", "frame.comment", "infiniband.bth.opcode")
    text = tshark(file, "-T", "fields", *itertools.chain.from_iterable(("-e", field) for field in fields))
    rows = [line.split("\t") for line in text.splitlines()]
    check(all(len(row) == 3 and row[2] for row in rows), f"{file}: frames that are not RoCE v2")
    return rows


def remarks(rows):
    """How often each remark was made; a comment has several of them."""
    return collections.Counter(remark for row in rows for remark in row[1].split("; ") if remark)


def counters(program):
    """What UROCE_COUNTERS=1 printed."""
    found = re.findall(r"^roce0: (.*): (\d+)$", program.output, re.MULTILINE)
    return collections.Counter({name: int(value) for name, value in found})


def judge(lab, file):
    """`uroce check` finds no violation. What it says."""
    done = subprocess.run([lab.build / "bin/uroce", "check", file], capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"uroce check {file}: exit code {done.returncode}\n{done.stdout[-1500:]}{done.stderr}")
    return done.stdout


# --- programs ---------------------------------------------------------------------------------------------------------


def pair(lab, command, io, **how):
    """A perftest pair that has ended well: server, client."""
    command = [*command, "-d", lab.a.device, "-F", "-x", 0, "-p", next(_ports)]
    how = {"io": io, "env": {"UROCE_COUNTERS": "1"}, **how}
    given = how.pop("options", lambda host: ())
    options = lambda host: tuple(map(str, given(host)))
    server = lab.a.start(command, options=options(lab.a), **how)
    server.wait_listening(command[-1])
    client = lab.b.run([*command, lab.a.ipv4], options=options(lab.b), timeout=60, **how)
    server.wait(20)
    for program in (client, server):
        check(program.process.returncode == 0, f"exit code {program.process.returncode}\n{program.output}")
    return server, client


def endless(lab, io, **how):
    """A perftest pair that runs until it is ended; packets flow."""
    command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", next(_ports), "-s", 4096, "--run_infinitely", "-D", 1]
    server = lab.a.start(command, io=io, prefix=BACKGROUND, **how)
    server.wait_listening(command[7])
    client = lab.b.start([*command, lab.a.ipv4], io=io, prefix=BACKGROUND, **how)
    traffic_flows(lab, 1000)
    return server, client


def traffic_flows(lab, packets):
    """So many packets more arrive at the server's netdev."""
    before = received_packets(lab.a)
    wait_until(lambda: received_packets(lab.a) > before + packets, 20, "RDMA packets flow")


def received_packets(host):
    return json.loads(host.system("ip", "-json", "-stats", "link", "show", "dev", host.netdev))[0]["stats64"]["rx"]["packets"]


# A /proc with a few processes only: DIRECTORY PID... -- COMMAND...
FEW_PROCESSES = """mount -t tmpfs none "$0"
while [ "$1" != -- ]; do mkdir "$0/$1" && mount --bind "/proc/$1" "$0/$1"; shift; done
shift
mount --rbind "$0" /proc
exec "$@"
"""


def uroce_capture(lab, *arguments, user=False, processes=None):
    """`uroce capture` as it is typed on the host, outside the network namespaces.

    processes: as if these were the only ones on the machine, which others use at the same time."""
    argv = [str(lab.uroce_for(user)), "capture", *map(str, arguments)]
    if user:
        argv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all", "--", *argv]
    if processes is not None:
        directory = lab.new_log()
        directory.mkdir()
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", FEW_PROCESSES, str(directory),
                *(str(process.pid) for process in processes), "--", *argv]
    return lab.track(Program(argv, lab.new_log(), clean_environment()))


def ended(program, code=0, timeout=20):
    check(program.wait(timeout) == code, f"{program.argv}: exit code {program.process.returncode}, not {code}\n{program.output}")
    return program.output


def told_counts(output):
    found = re.search(r"(\d+) packets captured, (none|\d+) missing", output)
    check(found, f"no counts: {output}")
    return int(found[1]), 0 if found[2] == "none" else int(found[2])


# --- cases ------------------------------------------------------------------------------------------------------------


def to_file(lab, io, command, faults=None):
    """All packets of both sides, judged from both sides; remarks are what the counters say."""
    name = lambda host: lab.directory / f"{host.name}.pcapng"
    programs = pair(lab, command, io, faults=faults, options=lambda host: ("--capture", name(host)))
    told = []
    for host, program in zip((lab.a, lab.b), programs):
        rows, count = records(name(host)), counters(program)
        here = [row for row in rows if row[0] == host.netdev]
        said = remarks(rows)
        check(f"{len(rows)} packets captured" in program.output and "missing" not in program.output, program.output)
        again = sum(n for remark, n in said.items() if remark.startswith("retransmission: "))
        for what, seen, counted in (
            ("sent again", again, count["request packets sent again"]),
            ("NAKs", said["NAK: a PSN is missing, this one is expected"], count["NAKs sent"]),
            ("bad ICRCs", said["drop: ICRC mismatch"], count["drop: ICRC mismatch"]),
            ("duplicates", said["duplicate request"], count["duplicate requests received"]),
            ("gap drops", said["drop: behind a gap that a NAK has reported"], count["drop: behind a gap that a NAK has reported"]),
            ("NAKs received", said["NAK: the peer misses this PSN"], count["PSN sequence error NAKs received"]),
        ):
            check(seen == counted, f"{host.name}: {what}: {seen} in the capture, {counted} counted\n{said}\n{count}")
        if faults:
            check(said["fault injected: dropped on receive"] + said["fault injected: dropped on send"] > 0, f"no faults: {said}")
        else:
            check(len(here) == len(rows) == count["packets sent"] + count["packets received"], f"{len(rows)} packets, {count}")
        judge(lab, name(host))
        # The ICRC as Wireshark computes it is judged by `uroce check`; IP and UDP are judged here.
        bad = tshark(name(host), "-o", "ip.check_checksum:TRUE", "-Y", '(ip.checksum.status == 0 || _ws.malformed) && !(frame.comment contains "bit flipped" || frame.comment contains "drop: ")')
        check(not bad, f"{host.name}: tshark complains\n{bad[:500]}")
        told.append(f"{len(rows)} packets, {again} sent again")
        name(host).unlink()
    return "; ".join(told)


def settings(lab):
    """Snap length, ring of files, QPN filter, %p and %d, through `uroce run`."""
    command = ["ib_send_bw", "-n", 500, "-s", 4096]
    ring = lambda host: ("--capture", lab.directory / f"{host.name}-%d-%p.pcapng", "--capture-snap", 80, "--capture-files", 2,
                         "--capture-size", 1)
    pair(lab, [*command, "-n", 20000], "udp", options=ring)
    files = sorted(lab.directory.glob(f"{lab.b.name}-{lab.b.device}-*_*.pcapng"))
    check(len(files) == 2, f"{files}")
    # The last file may have no more than an ACK, which is shorter than the snap length.
    lengths = set()
    for file in files:
        check(file.stat().st_size < 1100000, f"{file}: {file.stat().st_size} bytes")
        lengths |= set(tshark(file, "-T", "fields", "-e", "frame.cap_len").split())
    check(max(map(int, lengths)) == 80, f"{files}: {lengths}")
    nobody = lambda host: ("--capture", lab.directory / f"{host.name}.pcapng", "--capture-qpn", "0x2")
    pair(lab, command, "udp", options=nobody)
    check(not records(lab.directory / f"{lab.a.name}.pcapng"), "packets of other QPs")


def live(lab, io):
    """Attach and detach while packets flow, in every way there is."""
    server, client = endless(lab, io)
    file = lab.directory / f"live-{io}.pcapng"
    # By number of packets.
    captured, missing = told_counts(ended(uroce_capture(lab, client.pid, "-w", file, "--count", 5000)))
    check(captured == 5000 == len(records(file)), f"{captured} told, {len(records(file))} there, 5000 wanted")
    # By time, with a snap length.
    captured, missing = told_counts(ended(uroce_capture(lab, server.pid, "-w", file, "--duration", 0.5, "--snap", 80)))
    check(captured == int(tshark(file, "-T", "fields", "-e", "frame.number").split()[-1]) > 100, f"{captured} packets")
    # Until Ctrl-C.
    listener = uroce_capture(lab, client.pid, "-w", file, "--snap", 80)
    wait_until(lambda: "capturing" in listener.output, 10, "it captures")
    traffic_flows(lab, 10000)
    listener.process.send_signal(signal.SIGINT)
    captured, missing = told_counts(ended(listener))
    check(captured > 1000, f"{captured} packets")
    # A ring of files, handed over one by one.
    listener = uroce_capture(lab, client.pid, "-w", file, "--files", 2, "--size", 1)
    # The fourth may be gone again between two looks.
    numbers = lambda: [int(name.stem.rsplit("_", 1)[1]) for name in lab.directory.glob(f"live-{io}_*.pcapng")]
    wait_until(lambda: max(numbers(), default=0) >= 4, 20, "four files")
    listener.process.send_signal(signal.SIGINT)
    told_counts(ended(listener))
    files = sorted(lab.directory.glob(f"live-{io}_*.pcapng"))
    check(len(files) == 2 and records(files[0]), f"{files}")
    # Into a pipe, whose reader leaves when it has seen enough.
    listener = subprocess.Popen([lab.build / "bin/uroce", "capture", str(client.pid), "-w", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    reader = subprocess.run(["tshark", "-l", "-r", "-", "-c", "200", "-T", "fields", "-e", "infiniband.bth.destqp"],
                            stdin=listener.stdout, capture_output=True, text=True, timeout=30, check=False)
    listener.stdout.close()
    qpns = {qpn for qpn in reader.stdout.split()}
    check(len(reader.stdout.split()) == 200, f"tshark: {reader.stdout[-300:]}{reader.stderr}")
    check(listener.wait(20) == 0, f"uroce capture: {listener.stderr.read()}")
    # One QP's packets only; an unused number gives none.
    qpn = qpns.pop()
    captured, _ = told_counts(ended(uroce_capture(lab, client.pid, "-w", file, "--count", 100, "--qpn", qpn)))
    check(captured == 100, f"{captured} of QP {qpn}")
    captured, _ = told_counts(ended(uroce_capture(lab, client.pid, "-w", file, "--duration", 0.2, "--qpn", "0x2")))
    check(captured == 0, f"{captured} packets of another QP")
    # The traffic has not noticed.
    traffic_flows(lab, 10000)
    check(server.running() and client.running(), client.output)
    # The end of the process ends a capture with the counts.
    listener = uroce_capture(lab, client.pid, "-w", file, "--snap", 80)
    wait_until(lambda: "capturing" in listener.output, 10, "it captures")
    client.process.kill()
    check("was killed" in ended(listener, 1), listener.output)


def several(lab):
    """Which process is meant, and what is said when it is not clear."""
    none = ended(uroce_capture(lab, "-w", "/dev/null", processes=[]), 1)
    check("no process has an RDMA device of uroce open" in none, none)
    server, client = endless(lab, "udp")
    both = ended(uroce_capture(lab, "-w", "/dev/null", processes=[server, client]), 1)
    check(all(str(p.pid) in both for p in (server, client)) and "ib_write_bw" in both and lab.a.device in both, both)
    listed = ended(uroce_capture(lab, "--list", processes=[client, server]))
    check(len(listed.splitlines()) == 2 and all(f"{lab.a.device} ({lab.a.netdev}): udp" in line for line in listed.splitlines()), listed)
    check("several processes" in ended(uroce_capture(lab, lab.a.device, "-w", "/dev/null", processes=[server, client]), 1), "a device in two processes")
    check("no process 999999999" in ended(uroce_capture(lab, 999999999, "-w", "/dev/null"), 1), "a process that is not there")
    check("has no RDMA device" in ended(uroce_capture(lab, os.getpid(), "-w", "/dev/null"), 1), "a process without uroce")
    check("no process has 'eth77' open" in ended(uroce_capture(lab, "eth77", "-w", "/dev/null"), 1), "no such device")
    check("No such file" in ended(uroce_capture(lab, client.pid, "-w", "/nonexistent/x"), 1), "no such directory")
    check("No space left" in ended(uroce_capture(lab, client.pid, "-w", "/dev/full"), 1), "full disk")
    check("it is another user's" in ended(uroce_capture(lab, client.pid, "-w", "/dev/null", user=True), 1), "another user's process")
    server.kill()
    # The only one: its retransmissions.
    told_counts(ended(uroce_capture(lab, "-w", "/dev/null", "--count", 10, processes=[client])))
    check(f"no process {server.pid}" in ended(uroce_capture(lab, server.pid, "-w", "/dev/null"), 1), "a killed process")


def left_behind():
    """Whatever of ours is where sockets, files and run directories might be."""
    places = (Path("/dev/shm"), Path("/tmp"), Path("/run"), Path("/run/uroce"))
    return {str(entry) for place in places if place.is_dir() for entry in place.iterdir() if "uroce" in entry.name or place.name == "uroce"}


def nothing_stays(lab):
    """A captured program is killed, and so is who captures it: no file system remembers them."""
    told = []
    for io, user in (("af_xdp", False), ("udp", True)):
        before = left_behind()
        server, client = endless(lab, io, user=user)
        listener = uroce_capture(lab, client.pid, "-w", "/dev/null", user=user)
        wait_until(lambda: "capturing" in listener.output, 10, "it captures")
        # Others work on this machine: what they make meanwhile names them.
        mine = [str(program.pid) for program in (server, client, listener)]
        names = lambda: [path for path in left_behind() - before if any(pid in path for pid in mine)]
        check(not names(), f"while they run: {names()}")
        for program in (listener, server, client):
            program.kill()
        check(not names(), f"{io}: {names()}")
        told.append(io)
    check(lab.a.xdp_program() is None, "an XDP program")
    return "killed: " + ", ".join(told)


def loop(lab, io):
    """Two QPs of one process on one device: nothing leaves it, all is captured once, and judged from both ends."""
    file = lab.directory / "loop.pcapng"
    command = [lab.build / "bin/rc_transfer", "--self", "--device", lab.a.device, "--gid-index", 0, "--messages", 300]
    before = received_packets(lab.a)
    program = lab.a.run(command, timeout=60, io=io, env={"UROCE_COUNTERS": "1"}, options=("--capture", file))
    check(program.process.returncode == 0, program.output)
    rows, count = records(file), counters(program)
    names = ("-T", "fields", "-e", "frame.interface_description")
    check({row[0] for row in rows} == {f"{lab.a.netdev}:loop"}, f"{collections.Counter(row[0] for row in rows)}")
    check("which never leave it" in tshark(file, "-c", "1", *names), "the interface does not say what it is")
    opcodes = collections.Counter(int(row[2], 0) for row in rows)
    responses, acks = sum(opcodes[opcode] for opcode in range(13, 17)), opcodes[17]
    requests = len(rows) - responses - acks - opcodes[18]
    sent = tuple(count[name] for name in ("request packets sent", "READ response packets sent", "ACKs sent"))
    check((requests, responses, acks) == sent and min(sent) > 0, f"{requests} requests, {responses} responses, {acks} ACKs; {count}")
    check(received_packets(lab.a) - before < 100, "packets on the wire")
    told = judge(lab, file)
    check("1 judged host" in told and "--at names the host" not in told, told)
    connections = [line for line in told.splitlines() if f"{lab.a.ipv4} qp" in line]
    check(len(connections) == 2, f"both ends of the connection, not {connections}")
    return f"{len(rows)} packets"


# --- frames as they were ----------------------------------------------------------------------------------------------


def odd_frame(lab, udp_checksum):
    """A SEND for no QP, with what nobody of ours sends in every header, and with Ethernet padding: frame, InfiniBand part."""
    mac = lambda host: bytes.fromhex(json.loads(host.system("ip", "-json", "link", "show", "dev", host.netdev))[0]["address"].replace(":", ""))
    address = lambda text: bytes(map(int, text.split(".")))
    ib = struct.pack(">BBHII", 0x04, 0x40, 0xFFFF, 0x000002, 0x80000123) + bytes(range(16)) + b"icrc"
    udp = struct.pack(">HHHH", 0xC123, 4791, 8 + len(ib), udp_checksum) + ib
    ip = struct.pack(">BBHHHBBH", 0x45, 0x6F, 20 + len(udp), 0x1234, 0, 3, 17, 0) + address(lab.b.ipv4) + address(lab.a.ipv4)
    total = sum(struct.unpack(">10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
    return mac(lab.a) + mac(lab.b) + b"\x08\x00" + ip + udp + b"padding!!", ib


def raw(lab, io):
    """A frame from a raw socket: the same bytes in the capture, or what a UDP socket tells of them."""
    frame, ib = odd_frame(lab, 0xABCD if io == "af_xdp" else 0)
    end_brokers(lab)  # which would not steer the packet there
    server, client = endless(lab, io, options=("--alone",))
    file = lab.directory / "raw.pcapng"
    listener = uroce_capture(lab, server.pid, "-w", file, "--qpn", "0x2", "--count", 1)
    wait_until(lambda: "capturing" in listener.output, 10, "it captures")
    send = "import socket, sys; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((sys.argv[1], 0)); s.send(bytes.fromhex(sys.argv[2]))"
    lab.b.system(sys.executable, "-c", send, lab.b.netdev, frame.hex())
    ended(listener)
    packet = json.loads(tshark(file, "-T", "jsonraw"))[0]["_source"]["layers"]
    seen = bytes.fromhex(packet["frame_raw"][0])
    description, comment = tshark(file, "-T", "fields", "-e", "frame.interface_description", "-e", "frame.comment").strip("\n").split("\t")
    check("drop: no such QP" in comment, comment)
    if io == "af_xdp":
        check(seen == frame and "rebuilt" not in description, f"sent\n{frame.hex()}, captured\n{seen.hex()}, {description}")
    else:
        check(seen[42:] == ib and seen[15] == 0x6F and seen[22] == 3 and "headers rebuilt" in description, f"{seen.hex()}, {description}")


def piped(lab, reader):
    """Live into what reads Wireshark's pipes: `uroce capture -w - | READER -i -`. An interface is new in mid-stream."""
    file = lab.directory / "piped.pcapng"
    _, client = endless(lab, "udp", faults="drop=2%,seed=3")
    listener = subprocess.Popen([lab.build / "bin/uroce", "capture", str(client.pid), "-w", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    done = subprocess.run([reader, "-i", "-", "-c", "20000", "-w", file], stdin=listener.stdout, capture_output=True, text=True, timeout=60, check=False)
    listener.stdout.close()
    check(done.returncode == 0, f"{reader}: {done.stderr}")
    check(listener.wait(20) == 0, f"uroce capture: {listener.stderr.read()}")
    rows = records(file)
    interfaces = collections.Counter(row[0] for row in rows)
    check(len(rows) == 20000, f"{len(rows)} packets; {done.stderr}")
    check(set(interfaces) == {lab.b.netdev, f"{lab.b.netdev}:not-delivered"}, f"{interfaces}")
    check(remarks(rows)["fault injected: dropped on send"] > 0, f"{remarks(rows)}")


def unprivileged(lab):
    """An ordinary user's process: the user may listen, and root may."""
    server, client = endless(lab, "udp", user=True)
    for user in (True, False):
        told_counts(ended(uroce_capture(lab, client.pid, "-w", "/dev/null", "--count", 100, user=user)))


def stuck(lab, io):
    """Nobody reads: traffic goes on at its pace, what is missing is counted."""
    server, client = endless(lab, io)
    listener = subprocess.Popen([lab.build / "bin/uroce", "capture", str(client.pid), "-w", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    traffic_flows(lab, 100000)
    listener.send_signal(signal.SIGINT)
    listener.wait(20)
    told = listener.stderr.read().decode()
    listener.stdout.close()
    _, missing = told_counts(told)
    check(missing > 1000, told)
    check(server.running() and client.running(), client.output)
    return f"{missing} packets missing"


def disk_full(lab):
    """The capture ends, the program does not; what was written can be read."""
    file = lambda host: lab.directory / f"{host.name}.pcapng"
    server, client = pair(lab, ["ib_send_bw", "-n", 2000, "-s", 4096], "udp", prefix=("prlimit", "--fsize=1000000"),
                          options=lambda host: ("--capture", file(host)))
    for host, program in ((lab.a, server), (lab.b, client)):
        check("then the capture ended: File too large" in program.output, program.output)
        check(900000 < file(host).stat().st_size <= 1000000, f"{file(host).stat().st_size} bytes")
    _, client = pair(lab, ["ib_send_bw", "-n", 10], "udp", options=lambda host: ("--capture", "/dev/full"))
    check("cannot capture to /dev/full: No space left on device" in client.output, client.output)


SEND = ["ib_send_bw", "-n", 2000, "-s", 8192]
READ = ["ib_read_bw", "-n", 1000, "-s", 8192]
def connection_manager(lab):
    """The broker's datagrams of QP1 beside a program's packets: in one file, it can be seen how they come to be connected."""
    directory = lab.new_log()
    directory.mkdir()
    data, said, both = (directory / f"{name}.pcapng" for name in ("data", "cm", "both"))
    end_brokers(lab)
    broker = start_broker(lab, lab.a)

    def listed():  # its name is there before it can be captured
        program = uroce_capture(lab, "--list", processes=[broker])
        return program.wait(10) is not None and str(broker.pid) in program.output

    wait_until(listed, 20, "the broker can be captured")
    capture = uroce_capture(lab, "uroced", "-w", said, processes=[broker])
    wait_until(lambda: "capturing" in capture.output or not capture.running(), 10, "uroce capture begins")
    check(capture.running(), capture.output)
    server = lab.b.start(["rping", "-s", "-a", lab.b.ipv4, "-C", "10"], io="udp")
    wait_until(lambda: listens(lab.b, server), 20, "rping listens")
    client = lab.a.run(["rping", "-c", "-a", lab.b.ipv4, "-C", "10"], io="udp", options=["--capture", str(data)])
    check(client.process.returncode == 0 or RPINGS_RACE in client.output, client.output)
    try:
        wait_until(lambda: len(tshark_messages(said)) >= 5, 20, "the end is captured")
    except LabError as error:
        raise Failure(f"{error}: {tshark_messages(said)}\n{client.output}\n--- server\n{server.output}\n--- broker\n{broker.output}\n--- capture\n{capture.output}") from error
    capture.process.send_signal(signal.SIGINT)
    captured, missing = told_counts(ended(capture))
    check(missing == 0, capture.output)
    merged = subprocess.run(["mergecap", "-w", both, data, said], capture_output=True, text=True, check=False)
    check(merged.returncode == 0, merged.stderr)
    messages = tshark_messages(both)
    check(messages[:3] == ["0x0010", "0x0013", "0x0014"], f"REQ, REP, RTU: {messages}")
    check({"0x0015", "0x0016"} <= set(messages[3:]), f"DREQ and DREP: {messages}")
    order = [row[2] for row in records(both)]
    check("100" in order[0] and sum(opcode != "100" for opcode in order) >= 20, f"QP1 first, then RC: {order}")
    for file in (said, both):
        judge(lab, file)
    return f"{captured} datagrams, {len(order)} packets"


def tshark_messages(file):
    """Attributes of the connection manager's messages, as far as they have been written."""
    done = subprocess.run(["tshark", "-r", file, "-Y", "infiniband.mad", "-T", "fields", "-e", "infiniband.mad.attributeid"],
                          capture_output=True, text=True, check=False)
    return done.stdout.split()


CASES = [
    Case("file-af_xdp", lambda lab: to_file(lab, "af_xdp", SEND), quick=False),
    Case("file-udp", lambda lab: to_file(lab, "udp", SEND)),
    Case("file-read-af_xdp", lambda lab: to_file(lab, "af_xdp", READ), quick=False),
    Case("faults-af_xdp", lambda lab: to_file(lab, "af_xdp", SEND, FAULTS)),
    Case("faults-udp", lambda lab: to_file(lab, "udp", SEND, FAULTS), quick=False),
    Case("faults-read-udp", lambda lab: to_file(lab, "udp", READ, FAULTS), quick=False),
    Case("faults-atomic-af_xdp", lambda lab: to_file(lab, "af_xdp", ["ib_atomic_bw", "-n", 1000], FAULTS), quick=False),
    Case("loop-af_xdp", lambda lab: loop(lab, "af_xdp")),
    Case("loop-udp", lambda lab: loop(lab, "udp")),
    Case("settings", settings),
    Case("live-af_xdp", lambda lab: live(lab, "af_xdp"), quick=False),
    Case("live-udp", lambda lab: live(lab, "udp")),
    Case("piped-tshark", lambda lab: piped(lab, "tshark")),
    Case("piped-dumpcap", lambda lab: piped(lab, "dumpcap"), quick=False),
    Case("raw-af_xdp", lambda lab: raw(lab, "af_xdp")),
    Case("raw-udp", lambda lab: raw(lab, "udp"), quick=False),
    Case("several", several),
    Case("connection-manager", connection_manager),
    Case("nothing-stays", nothing_stays),
    Case("unprivileged", unprivileged),
    Case("stuck-reader", lambda lab: stuck(lab, "af_xdp")),
    Case("disk-full", disk_full),
]

if __name__ == "__main__":
    if shutil.which("tshark") is None:
        print("skipped: tshark is not installed")
        sys.exit(SKIPPED)
    sys.exit(main(__doc__, CASES))
