#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Every file of git that can hold a comment says within its first lines under which licence it is: that of its directory
(CONTRIBUTING.md). Used by tools/lint.

Usage: licences.py [DIRECTORY [FILE...]]     FILEs are named from DIRECTORY on; without any, all that git has"""

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

LICENCES = {"bpf/*.bpf.c": "(BSD-2-Clause OR GPL-2.0-only)", "dissector/*": "GPL-2.0-or-later", "*": "BSD-2-Clause"}
# Documents, data, and what a tool has its own form for; debian/copyright speaks of debian/.
WITHOUT = ("*.md", "*.json", "*.png", "*.svg", "*LICENSE", "*.clang-format", ".clang-tidy", ".gitignore", "dissector/profile/*",
           "tests/*.txt", "debian/*")  # fmt: skip
WITH = ("*CMakeLists.txt", "debian/rules", "debian/tests/commands", "debian/tests/[!c]*")  # of those all the same
LOOKED_AT = 6  # lines


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def complaint(root, name):
    file = root / name
    if file.is_symlink() or not file.is_file() or (matches(name, WITHOUT) and not matches(name, WITH)):
        return None
    with open(file, errors="replace") as lines:
        head = "".join(line for _, line in zip(range(LOOKED_AT), lines))
    found = re.search(r"SPDX-License-Identifier: (.*?)(?: \*/)?$", head, re.MULTILINE)
    wanted = next(licence for pattern, licence in LICENCES.items() if fnmatch.fnmatchcase(name, pattern))
    if not found:
        return f"{name}: no line 'SPDX-License-Identifier: {wanted}'"
    return None if found[1] == wanted else f"{name}: the licence is {found[1]}, that of its directory {wanted}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    names = sys.argv[2:]
    if not names:
        names = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    complaints = [text for name in names if name and (text := complaint(root, name))]
    print("\n".join(complaints), end="\n" if complaints else "")
    return 1 if complaints else 0


sys.exit(main())
