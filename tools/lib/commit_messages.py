#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The form of commit messages (CONTRIBUTING.md): the first line has at most 72 characters and begins with what the commit is
about, as "rx_demux: ..." or "tests/e2e, docs: ..."; the second is empty.

Usage: commit_messages.py --file FILE | --last N
  --file FILE  a message that is being written, for the hook commit-msg
  --last N     those of the last N commits, for tools/lint
"""

import re
import subprocess
import sys

LONGEST = 72
# Files with capital letters, beside names of folders and parts.
ROOM = r"(?:[a-z0-9_./-]*(?:README|CHANGELOG|CONTRIBUTING|LICENSE|SECURITY|CMakeLists|CMakePresets)(?:\.[a-z]+)?|[a-z0-9_./-]+)"
SUBJECT = re.compile(rf"{ROOM}(?:, {ROOM})*: \S")
BY_GIT = re.compile(r'Merge (branch|tag|commit|remote-tracking branch|pull request)|(Revert|Reapply) "|(fixup|squash|amend)! ')
SINCE = 1795730400  # committer's time: older ones do not have the form
SCISSORS = re.compile(r"^# -+ >8 -+$", re.MULTILINE)


def complaint(message):
    lines = message.splitlines() or [""]
    if BY_GIT.match(lines[0]):
        return None
    if not SUBJECT.match(lines[0]):
        return "the first line does not begin with the room or file that it is about, as 'rx_demux: ...'"
    if len(lines[0]) > LONGEST:
        return f"the first line has {len(lines[0])} characters, of at most {LONGEST}: the rest belongs below an empty line"
    if len(lines) > 1 and lines[1]:
        return "the second line is not empty"
    return None


def written(file):
    """A message without what git takes away."""
    text = SCISSORS.split(open(file, errors="replace").read())[0]
    return "\n".join(line for line in text.splitlines() if not line.startswith("#")).strip()


def commits(count):
    command = ["git", "log", f"-{count}", "--no-merges", "--format=%h%x01%ct%x01%B%x00"]
    for entry in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0"):
        if entry.strip():
            name, seconds, message = entry.strip().split("\x01", 2)
            if int(seconds) >= SINCE:
                yield name, message.strip()


def main():
    match sys.argv[1:]:
        case ["--file", file]:
            messages = [("message", written(file))]
        case ["--last", count]:
            messages = list(commits(int(count)))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    found = [f"{name}: {text}\n  {message.splitlines()[0] if message else ''}" for name, message in messages if (text := complaint(message))]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
