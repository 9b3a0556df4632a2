#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Words of our own that the sources do not have any more, since the field has others for them. Usage: words.py FILE...

Looks at those FILEs, paths in the repository, that are in a room of rooms.toml; prints where such a word stands and what to say
instead, and fails then. A word joins the list when it is gone."""

import re
import sys

import rooms

# (what to find, what the field says, below which folder)
WORDS = (
    (r"\w+_alike|\balike_\w*", "middle packets: on_middle_packets(), pull_middle_packets()", "engine/"),
    (r"\b(Unreliable)?Sender\b|\bsender_\b", "Requester (IBTA, rxe)", "engine/transport/"),
    (r"\bkMulticastQpn = (?!wire::)", "wire::kMulticastQpn", ""),
    (r"\bnamespace (uroce::)?trace\b", "pcapng", ""),
)


def main():
    all_rooms = rooms.rooms()
    found = 0
    for file in sys.argv[1:]:
        path = rooms.REPOSITORY / file
        if not file.endswith((".cc", ".h")) or rooms.room_of(file, all_rooms) is None or not path.is_file():
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, instead, folder in WORDS:
                if file.startswith(folder) and file != "wire/psn.h" and (match := re.search(pattern, line)):
                    print(f"{file}:{number}: {match[0]}: {instead}")
                    found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
