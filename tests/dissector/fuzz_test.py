#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""tshark with the plugin over damaged packets: every field of every tree, two passes, all statistics. Fails if it crashes,
warns of a bug in a dissector of ours, or hangs.

Usage: fuzz_test.py PLUGIN MAKE_GOLDEN [SEED [ROUNDS]]. The packets of the golden captures are flipped, cut, stretched,
swapped and repeated; a failing capture stays behind and is named.
"""
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tshark import Tshark

ENHANCED_PACKET = 6
STATISTICS = ["-z", "rocev2,tree", "-z", "rocev2_streams,tree", "-z", "conv,rocev2", "-z", "endpoints,rocev2", "-z",
              "rocev2,srt", "-z", "expert"]
# Wireshark's own dissectors for payloads have bugs too (RPCoRDMA), which the plugin has to live with.
BUGS = ("Dissector bug, protocol RoCEv2", "Dissector bug, protocol Frame", "CRITICAL", "ERROR:", "terminate called", "Assertion")
PACKETS = 3000


def packets_of(capture):
    """Frame, length on the wire. Little-endian pcapng of our own writer."""
    data = capture.read_bytes()
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == ENHANCED_PACKET:
            kept, original = struct.unpack_from("<II", data, at + 20)
            yield data[at + 28:at + 28 + kept], original
        at += size


def damage(rng, frame, original):
    frame = bytearray(frame)
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        kind = rng.randrange(5)
        if kind == 0 and frame:  # anywhere
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        elif kind == 1 and len(frame) > 54:  # in the InfiniBand headers
            at = rng.randrange(42, min(len(frame), 42 + 48))
            frame[at] = rng.choice((0, 0xff, 0x80, rng.randrange(256)))
        elif kind == 2 and len(frame) > 54:  # the opcode
            frame[42] = rng.randrange(256)
        elif kind == 3:  # cut by the capture
            frame = frame[:rng.randrange(len(frame) + 1)]
        elif kind == 4:
            extra = rng.randrange(40)
            frame += bytes(rng.randrange(256) for _ in range(extra))
            original += extra
    return bytes(frame), max(original, len(frame))


def write(path, packets, rng):
    """Classic pcap, Ethernet, nanoseconds; time goes forth and sometimes back."""
    now = 10**18
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xa1b23c4d, 2, 4, 0, 0, 65535, 1))
        for frame, original in packets:
            now += rng.choice((0, 100, 1000, 50000, -2000))
            out.write(struct.pack("<IIII", now // 10**9, now % 10**9, len(frame), original) + frame)


def main():
    plugin, make_golden = sys.argv[1:3]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(2**32)
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 6
    print(f"seed {seed}", flush=True)
    tshark = Tshark(plugin)
    with tempfile.TemporaryDirectory(prefix="uroce-fuzz-") as directory:
        subprocess.run([make_golden, directory], check=True)
        corpus = [p for capture in sorted(Path(directory).glob("*.pcapng")) for p in packets_of(capture)]
        for number in range(rounds):
            rng = random.Random(seed + number)
            # Mostly in their order, so that connections get somewhere.
            chosen = []
            while len(chosen) < PACKETS:
                at = rng.randrange(len(corpus))
                chosen += corpus[at:at + rng.randrange(1, 30)]
            path = Path(directory) / f"fuzz-{seed + number}.pcap"
            write(path, (damage(rng, *packet) for packet in chosen), rng)
            readable = tshark.readable(path)
            for options in (["-2", "-V"], ["-q", *STATISTICS], ["-T", "fields", "-e", "rocev2.summary"]):
                done = tshark.run("-r", readable, *options, check=False, timeout=240)
                found = [bug for bug in BUGS if bug in done.stderr]
                if done.returncode not in (0, 2) or done.returncode < 0 or found:
                    kept = Path(tempfile.gettempdir()) / path.name
                    shutil.copy(path, kept)
                    print(f"exit {done.returncode} {found} with {options}: {kept}\n{done.stderr[-2000:]}")
                    return 1
    tshark.close()
    print(f"{rounds} captures of {PACKETS} damaged packets: nothing")
    return 0


sys.exit(main())
