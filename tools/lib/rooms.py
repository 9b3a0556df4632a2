#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The rooms of the source tree (rooms.toml): who reads the list, and the rules for includes.

Usage: rooms.py --tidy | --header-filter | --table | --write | --includes [FILE...]
  --tidy           the folders that clang-tidy reads
  --header-filter  a regular expression for their headers
  --table          the table of docs/architecture.md
  --write          puts it there
  --includes       the rules for includes, at FILEs or at all sources, and for all that each is in a room: prints what breaks
                   them, and fails then
"""

import os
import posixpath
import re
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TABLE = re.compile(r"(<!-- rooms.toml: begin -->\n).*?(<!-- rooms.toml: end -->)", re.DOTALL)
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^">]+)[>"]')
SYSTEM = re.compile(r".*/|.*\.h$")
INSTRUCTIONS = {"immintrin.h", "nmmintrin.h", "wmmintrin.h", "cpuid.h"}  # of the processor, not of the system
# Folders with sources that are no rooms: what is not the product.
OUTSIDE = ("tests", "bench", "bpf")


def rooms(repository=REPOSITORY):
    return tomllib.loads((repository / "rooms.toml").read_text())["room"]


def room_of(file, all_rooms):
    """The innermost room of a path in the repository, or None. A room that has rooms below it is only the files of its own
    folder, so that a new folder beside those needs a room."""
    around = [room for room in all_rooms if file.startswith(room["path"] + "/")]
    room = max(around, key=lambda room: len(room["path"]), default=None)
    if room and posixpath.dirname(file) != room["path"] and any(r["path"].startswith(room["path"] + "/") for r in all_rooms):
        return None
    return room


def _allows(include, allowed):
    return include == allowed or allowed == "*" or (not allowed.endswith(".h") and include.startswith(allowed + "/"))


def broken_includes(files, repository=REPOSITORY):
    """A line for each include of these files that its room must not have."""
    all_rooms = rooms(repository)
    for file in files:
        room = room_of(file, all_rooms)
        if room is None or not (repository / file).is_file():
            continue
        for number, line in enumerate((repository / file).read_text().splitlines(), 1):
            include = INCLUDE.match(line)
            if not include:
                continue
            kind, name = include[1], posixpath.normpath(include[2])
            if kind == "<" and (repository / name).is_file():
                kind = '"'  # one of ours all the same
            if kind == '"' and not any(_allows(name, allowed) for allowed in (room["path"], *room["includes"])):
                yield f"{file}:{number}: {room['path']}/ may include only itself and: {' '.join(room['includes'])}\n  {line}"
            if kind == "<" and room.get("standard") and SYSTEM.match(name) and name not in INSTRUCTIONS:
                yield f"{file}:{number}: {room['path']}/ includes no system headers\n  {line}"


def sources(repository=REPOSITORY):
    """All that lie there, in git or not yet."""
    for folder, below, files in os.walk(repository):
        top = Path(folder) == repository
        below[:] = sorted(name for name in below if not name.startswith(".") and not (top and name == "build"))
        yield from (os.path.relpath(os.path.join(folder, name), repository) for name in sorted(files) if name.endswith((".cc", ".h")))


def homeless(files, repository=REPOSITORY):
    """Sources of the product that are in no room."""
    all_rooms = rooms(repository)
    return [file for file in files if room_of(file, all_rooms) is None and file.split("/")[0] not in OUTSIDE]


def unknown(repository=REPOSITORY):
    """What rooms.toml names and is not there: rooms, and what they may include. The build makes the skeletons of BPF programs."""

    def there(name):
        made_of = f"bpf/{name.removesuffix('.skel.h')}.bpf.c" if name.endswith(".skel.h") else name
        return name == "*" or (repository / made_of).exists()

    return [f"{room['path']}: {name}" for room in rooms(repository) for name in (room["path"], *room["includes"]) if not there(name)]


def circular(repository=REPOSITORY):
    """A line for each room that may include what does not stand before it in rooms.toml. The last one may include all."""
    all_rooms = rooms(repository)
    for place, room in enumerate(all_rooms):
        for name in room["includes"]:
            below = [other for other in all_rooms if f"{other['path']}/".startswith(f"{name}/")]
            around = max((other for other in all_rooms if name.startswith(f"{other['path']}/")), key=lambda it: len(it["path"]), default=None)
            meant = all_rooms if name == "*" else below or [around]
            if any(other in all_rooms[place + 1:] for other in meant):
                yield f"{room['path']} may include {name}, which does not stand before it"


def table(repository=REPOSITORY):
    yield "| room | may include |"
    yield "|---|---|"
    for room in rooms(repository):
        words = room.get("says") or ", ".join(f"`{name}`" for name in room["includes"])
        note = f" ({room['note']})" if "note" in room else ""
        yield f"| `{room['path']}`{note} | {words}{'; no system headers' if room.get('standard') else ''} |"


def with_table(text, repository=REPOSITORY):
    """docs/architecture.md with the table as rooms.toml has it."""
    return TABLE.sub(lambda found: found[1] + "\n".join(table(repository)) + "\n" + found[2], text)


def main():
    document = REPOSITORY / "docs/architecture.md"
    read = [room["path"] for room in rooms() if room.get("tidy", True)]
    tidy = [path for path in read if not any(path.startswith(around + "/") for around in read)]
    match sys.argv[1:]:
        case ["--tidy"]:
            print("\n".join(tidy))
        case ["--header-filter"]:
            print(f"({'|'.join(tidy)})/.*\\.(h|cc)$")
        case ["--table"]:
            print("\n".join(table()))
        case ["--write"]:
            document.write_text(with_table(document.read_text()))
        case ["--includes", *files]:
            broken = list(broken_includes(files or sources()))
            broken += [f"{file}: no room of rooms.toml has it" for file in ([] if files else homeless(sources()))]
            print("\n".join(broken), end="\n" if broken else "")
            return 1 if broken else 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
