#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""clang-tidy at one source of a configured build, unless it was content with the very same text before: for tools/lint.

Usage: tidy.py BUILD SOURCE HEADER_FILTER
What it was content with is noted in ~/.cache/uroce/tidy, by a hash of the source's text, the preprocessed source with its comments and
macros, the compiler's command, the checks and the version of clang-tidy. A note that was not used for a month goes. Exit code:
clang-tidy's; 1 where it could not read its checks or the source, of which it says nothing in its exit code.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NOTES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uroce/tidy"
TIDY = "clang-tidy-14"
MONTH = 30 * 86400
TROUBLE = re.compile(r"Error parsing|error:")  # it goes on with its own checks then
JOINED = re.compile(rb'^#include "(.+\.cc)"$', re.MULTILINE)


def text_of(source):
    """Of a source, and of those that it joins."""
    text = Path(source).read_bytes()
    return b"\0".join([text, *(Path(os.fsdecode(name)).read_bytes() for name in JOINED.findall(text))])


def key_of(build, source, header_filter):
    """None where the source cannot be preprocessed: clang-tidy says why."""
    entry = next(e for e in json.loads((build / "compile_commands.json").read_text()) if e["file"] == source)
    command = [word for word in shlex.split(entry["command"]) if word != "-c"]
    if "-o" in command:
        at = command.index("-o")
        del command[at : at + 2]
    done = subprocess.run([*command, "-E", "-C", "-dD"], cwd=entry["directory"], capture_output=True)
    if done.returncode != 0:
        return None
    parts = [text_of(source), done.stdout, " ".join(command).encode()]
    parts = [part.replace(str(REPOSITORY).encode(), b"") for part in parts]
    version = subprocess.run([TIDY, "--version"], check=True, capture_output=True).stdout
    checks = (REPOSITORY / ".clang-tidy").read_bytes()
    return hashlib.sha256(b"\0".join([version, checks, header_filter.encode(), *parts])).hexdigest()


def main():
    build, source, header_filter = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    key = key_of(build, source, header_filter)
    note = NOTES / key if key else None
    if note and note.exists():
        note.touch()
        return 0
    done = subprocess.run([TIDY, "--quiet", f"--header-filter={header_filter}", "-p", str(build), source],
                          stderr=subprocess.PIPE, text=True, errors="replace")
    code = done.returncode
    if TROUBLE.search(done.stderr):  # else it only counts warnings there
        print(done.stderr, file=sys.stderr)
        code = code or 1
    if code == 0 and note:
        NOTES.mkdir(parents=True, exist_ok=True)
        note.touch()
        for old in NOTES.iterdir():
            if old.stat().st_mtime < time.time() - MONTH:
                old.unlink(missing_ok=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
