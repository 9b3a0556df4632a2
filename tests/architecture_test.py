#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""The rules of rooms.toml: who includes whom, what stays without I/O, clock, allocation and locks, and that the table in
docs/architecture.md says the same. That nothing asks the kernel about the network under the progress lock, and that nothing reads
the environment of a program that gained privileges when it was started.

Usage: architecture_test.py SOURCE_DIR BUILD_DIR
"""

import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

source, build = (Path(argument).resolve() for argument in sys.argv[1:])
sys.path.insert(0, str(source / "tools/lib"))

import rooms  # noqa: E402

# Kinds of symbols of libraries that a room's objects may not need.
SYMBOLS = {
    "io": r"(open|openat|read|write|readv|writev|socket|sendto|sendmsg|recvfrom|recvmsg|ioctl|poll|ppoll|epoll_.*|mmap|munmap|syscall"
          r"|printf|fprintf|puts|fputs|fopen|getenv)(@|$)",
    "clock": r"(clock_gettime|gettimeofday|time|nanosleep|usleep|sleep|.*chrono.*now.*|getrandom|random|rand)(@|$)",
    "allocation": r"(malloc|calloc|realloc|free|_Znwm|_Znam|_ZdlPv.*|_ZdaPv.*)(@|$)",
    "lock": r"(pthread_.*|sched_yield)(@|$)",
}
ALWAYS = ("io", "clock")  # of these no object is excepted

ASKS_NETWORK = re.compile(r"NetView|net_view\.h|view_->|look_up_route|find_destination|learn_netdev|follow_netdev|refresh_routes")
GUARD = re.compile(r"Progress::Guard [a-z]+\(")


def impure(room):
    """Symbols that the objects of a room's library must not need: (object, symbol)."""
    archive = build / f"archive/lib{room['library']}.a"
    if not archive.exists():
        yield f"{archive} is missing"
        return
    listed = subprocess.run(["nm", "--undefined-only", archive], check=True, capture_output=True, text=True).stdout
    item = ""
    unused = set(room.get("except", ()))
    for line in listed.splitlines():
        if line.endswith(".o:"):
            item = line[:-1]
            unused.discard(item.removesuffix(".cc.o"))
        symbol = re.match(r" +U (\S+)$", line)
        if not symbol:
            continue
        excepted = item.removesuffix(".cc.o") in room.get("except", ())
        for kind in room["without"]:
            if re.match(SYMBOLS[kind], symbol[1]) and not (excepted and kind not in ALWAYS):
                yield f"{room['library']} must not need {symbol[1]} ({kind}): {item}"
    yield from (f"rooms.toml excepts {name}, which {room['library']} does not have" for name in sorted(unused))


def asks_network_in_datapath():
    for file in [*(source / "engine/datapath").iterdir(), source / "engine/objects/address_handles.h"]:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if ASKS_NETWORK.search(line):
                yield f"{file.relative_to(source)}:{number}: the data path asks about the network\n  {line}"


def asks_network_under_lock():
    """In a block of the engine in which a Progress::Guard lives."""
    for file in chain((source / "engine").glob("*.cc"), (source / "engine/device").glob("*.cc")):
        depth = guard = 0
        for number, line in enumerate(file.read_text().splitlines(), 1):
            line = line.split("//")[0]
            if guard and ASKS_NETWORK.search(line):
                yield f"{file.relative_to(source)}:{number}: the engine asks about the network under the progress lock\n  {line}"
            for character in line:
                depth += (character == "{") - (character == "}")
                if character == "}" and depth < guard:
                    guard = 0
            if GUARD.search(line):
                guard = depth


# Of the parser of the command line, which asks getenv(), forget_settings_of_the_caller() in cli/main.cc takes care.
TRUSTS_ENVIRONMENT = re.compile(r"(?<!secure_)\bgetenv\s*\(")


def trusts_environment():
    """Whatever may run in a program that gained privileges when it was started does not read its caller's environment."""
    for file in chain(source.glob("*/**/*.cc"), source.glob("*/**/*.h")):
        if file.relative_to(source).parts[0] in ("tests", "bench", "build"):
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if TRUSTS_ENVIRONMENT.search(line.partition("//")[0]):
                yield f"{file.relative_to(source)}:{number}: getenv(); secure_getenv()"


def complaints():
    files = list(rooms.sources(source))
    yield from rooms.broken_includes(files, source)
    yield from (f"{file}: no room of rooms.toml has it" for file in rooms.homeless(files, source))
    yield from (f"rooms.toml names what does not exist: {name}" for name in rooms.unknown(source))
    yield from (f"rooms.toml: {complaint}" for complaint in rooms.circular(source))
    for room in rooms.rooms(source):
        if "library" in room:
            yield from impure(room)
    yield from asks_network_in_datapath()
    yield from asks_network_under_lock()
    document = (source / "docs/architecture.md").read_text()
    yield from trusts_environment()
    if not rooms.TABLE.search(document) or rooms.with_table(document, source) != document:
        yield "docs/architecture.md does not have the table of rooms.toml: tools/lib/rooms.py --write"


found = list(complaints())
print("\n".join(f"architecture: {complaint}" for complaint in found))
sys.exit(1 if found else 0)
