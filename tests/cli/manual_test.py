#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The manual page and docs/environment.md say what the command takes: every subcommand, option and UROCE_ variable, and no other.

Usage: manual_test.py UROCE SOURCE_DIR
"""
import os
import re
import subprocess
import sys

uroce, source = sys.argv[1:]
failures = []


def read(*path):
    with open(os.path.join(source, *path)) as file:
        return file.read()


def options(text):
    """Options in what --help prints (at the beginning of a line) or in a part of the manual page (anywhere)."""
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text)) - {"-h", "--help", "--version"}


def help_of(*command):
    printed = subprocess.run([uroce, *command, "--help"], capture_output=True, text=True, check=True).stdout
    starts = re.findall(r"^ +(-[^\s{]+)", printed, re.M)
    return printed, options(" ".join(starts).replace(",", " "))


def compare(what, documented, existing):
    failures.extend(f"{what} lacks {name}" for name in sorted(existing - documented))
    failures.extend(f"{what} has {name}, which does not exist" for name in sorted(documented - existing))


page = re.sub(r"\\f(?:\[\w*\]|.)", "", read("docs", "uroce.1")).replace("\\-", "-").replace('"', "")
sections = dict(re.findall(r"^\.SH ([A-Z ]+)\n(.*?)(?=^\.SH|\Z)", page, re.M | re.S))

printed, _ = help_of()
subcommands = set(re.findall(r"^  ([a-z]+) {2,}", printed.split("Subcommands:")[1], re.M))
compare("uroce.1, SYNOPSIS", set(re.findall(r"^\.B uroce ([a-z]+)$", sections["SYNOPSIS"], re.M)), subcommands)
# In SUBCOMMANDS each one is a .TP at the outer level; its options are between .RS and .RE.
parts = re.split(r"^\.TP\n\.BR? (?=(?:%s)\b)" % "|".join(subcommands), sections["SUBCOMMANDS"], flags=re.M)[1:]
described = {part.split()[0]: part for part in parts}
compare("uroce.1, SUBCOMMANDS", set(described), subcommands)
for name in sorted(subcommands & set(described)):
    lines = "\n".join(re.findall(r"^\.TP\n\.[BIR]+ (.*)$", described[name].split("\n", 1)[1], re.M))
    compare(f"uroce.1, {name}", options(lines), help_of(name)[1])

variables = set()
for directory in ("abi", "cli", "engine", "process"):
    for folder, _, files in os.walk(os.path.join(source, directory)):
        for file in files:
            if file.endswith((".cc", ".h")):
                variables.update(re.findall(r'"(UROCE_[A-Z_]+)"', read(os.path.relpath(os.path.join(folder, file), source))))
if len(variables) < 10:
    sys.exit(f"only {len(variables)} variables found in the sources: is their form still the one looked for?")
variables -= {"UROCE_VERSION"}
compare("docs/environment.md", set(re.findall(r"`(UROCE_[A-Z_]+)`", read("docs", "environment.md"))), variables)
compare("uroce.1, ENVIRONMENT", set(re.findall(r"\bUROCE_[A-Z_]+", sections["ENVIRONMENT"])), variables)

version = re.search(r"project\(uroce VERSION ([\d.]+)", read("CMakeLists.txt")).group(1)
if not re.search(rf"^\.TH UROCE 1 \d{{4}}-\d\d-\d\d uroce {re.escape(version)} ", page, re.M):
    failures.append(f"uroce.1 begins without a date and the version {version}")

print("\n".join(failures))
sys.exit(1 if failures else 0)
