#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Which tests depend on files that changed: for tools/test, which builds and runs only these.

Usage: affected.py tests [--times FILE] [--seconds N] [--build PRESET...] FILE...
       affected.py fuzzers COMMIT
tests: of the configured builds (sanitize, release), for each FILE, a path in the repository, those tests of the first build that
has any of it: which comes first for FILE's room says rooms.toml ("build"). Where it is the release build, the unit tests of that
room too. Prints lines
  use PRESET               a build that has some of the tests
  build PRESET TARGET...   what to build of it; all of it, where no target is named
  tests REGEX              what to run of it; nothing where no test depends on FILE
  test: ...                what the reader should know: a test that was left out, and why
  --times FILE   what earlier runs took (recorded_test.sh); of tests that together take longer than --seconds on all cores, the
                 longest are left out
fuzzers: names of those whose room has changed since COMMIT, in one line.

What a program is made of, ninja's graph knows; what a source includes, its own text says: project headers are named from the
root of the repository, so that no build has to have run before. A script depends on itself and on the modules that it imports.
An end-to-end test runs a whole build, so that a change of the product affects all of them: those are counted and left to the
gate.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
IMPORT = re.compile(r"^\s*(?:from\s+(\w+)\s+import|import\s+(\w+(?:\s*,\s*\w+)*))", re.MULTILINE)
SOURCED = re.compile(r"(?:^|\s)(?:source|\.)\s+\S*?([\w./-]+\.sh)\b", re.MULTILINE)
# Folders that a script's modules lie in, beside its own.
MODULES = ("tools/lib", "tests/e2e", "tests/interop", "tests/packages")
# How everything is built and run.
EVERYBODYS = re.compile(r"(CMakeLists\.txt|CMakePresets\.json|cmake/.*|tests/recorded_test\.sh|tools/deps)$")
CORES = os.cpu_count()
UNKNOWN = 2.0  # seconds of a test that was never run here
SOURCES = {".cc", ".c", ".cxx", ".h", ".hxx", ".cpp"}


@cache
def included(path):
    """The project's files that a source or header includes, itself among them, whatever includes them in turn."""
    found, waiting = set(), [path]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found.add(file)
        for name in INCLUDE.findall(file.read_bytes()):
            name = name.decode()
            waiting += [REPOSITORY / name, file.parent / name]
    return frozenset(found)


@cache
def imported(script):
    """A script, and the scripts and modules of the project that it uses."""
    found, waiting = set(), [script]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found.add(file)
        text = file.read_text(errors="replace")
        names = [name for one, several in IMPORT.findall(text) for name in re.split(r"\s*,\s*", one or several)]
        waiting += [folder / f"{name}.py" for name in names
                    for folder in (file.parent, *(REPOSITORY / module for module in MODULES))]
        waiting += [REPOSITORY / name for name in SOURCED.findall(text)]
    return frozenset(found)


class Build:
    def __init__(self, preset):
        self.preset = preset
        self.directory = REPOSITORY / "build" / preset
        self.tests = [test for test in json.loads(self._run("ctest", "--show-only=json-v1"))["tests"] if "command" in test]
        self.targets = set(re.findall(r"^(\S+): ", self._run("ninja", "-t", "targets", "all"), re.MULTILINE))

    def _run(self, *command):
        return subprocess.run(command, cwd=self.directory, check=True, capture_output=True, text=True).stdout

    @cache
    def files_of(self, target):
        """What a target is made of, as files of the project, with the rules of the folders that they lie in."""
        files = set()
        for line in self._run("ninja", "-t", "inputs", target).splitlines():
            path = self.directory / line
            if path.suffix in SOURCES:
                files |= included(path)
            elif path.is_relative_to(REPOSITORY):
                files.add(path)
        folders = {file.parent for file in files if not file.is_relative_to(self.directory)}
        return frozenset(files | {folder / "CMakeLists.txt" for folder in folders})

    @property
    def product(self):
        return self.files_of("bin/uroce") | self.files_of("bin/uroced") if "bin/uroced" in self.targets else frozenset()

    @cache
    def dependencies(self, number):
        """Of a test: its targets, its files, whether it uses the whole build, and whether the whole repository."""
        test = self.tests[number]
        targets, files, whole, documents = set(), set(), False, False
        for path in (Path(word) for word in test["command"] if word.startswith("/")):
            if path in (self.directory, self.directory / "bin"):
                whole = True
            elif path == REPOSITORY:
                documents = True
            elif path.is_relative_to(self.directory):
                name = str(path.relative_to(self.directory))
                targets |= {name} & self.targets
            elif path.is_relative_to(REPOSITORY) and path.is_file() and path.name != "recorded_test.sh":
                files |= imported(path)
        if "fuzz" in labels(test):  # tools/fuzz NAME
            targets |= {f"bin/{test['command'][-1]}"} & self.targets
        for target in targets:
            files |= self.files_of(target)
        if "fuzz" in labels(test):  # writes the inputs to begin with, for all fuzzers
            targets.add("bin/make_corpus")
        folder = Path(properties(test)["WORKING_DIRECTORY"]).relative_to(self.directory)
        files.add(REPOSITORY / folder / "CMakeLists.txt")
        return targets, frozenset(files), whole, documents


def properties(test):
    return {entry["name"]: entry["value"] for entry in test["properties"]}


def labels(test):
    return properties(test).get("LABELS", ())


def seconds_of(times):
    """{test: seconds of a processor or of waiting, whichever is more} of earlier runs."""
    seconds = {}
    for line in times.read_text().splitlines() if times and times.exists() else ():
        name, begin, end, user, system = line.replace(",", ".").split()  # bash writes what the locale has between digits
        processor = sum(60 * float(part.split("m")[0]) + float(part.split("m")[1][:-1]) for part in (user, system))
        seconds[name] = max(processor, (float(end) - float(begin)) / CORES)
    return seconds


def room_of(file):
    """Its name, and the preset in which tests say most about it."""
    rooms = tomllib.loads((REPOSITORY / "rooms.toml").read_text())["room"]
    around = [room for room in rooms if file.startswith(room["path"] + "/")]
    room = max(around, key=lambda room: len(room["path"]), default={"path": ""})
    return room["path"].split("/")[-1], room.get("build", "sanitize")


def choose(options):
    """({(preset, test): targets}, the names of tests that run the whole product, which changed)"""
    builds = [Build(preset) for preset in options.build]
    chosen, whole_product = {}, set()
    for name in options.files:
        file, found = REPOSITORY / name, False
        room, first = room_of(name)
        for build in sorted(builds, key=lambda build: build.preset != first):
            for number, test in enumerate(build.tests):
                targets, files, whole, documents = build.dependencies(number)
                unit = build.preset == "sanitize" and room in labels(test)
                if file in files and (unit or not found):
                    chosen[build.preset, test["name"]] = {"all"} if whole else targets
                elif documents and not targets and not whole:
                    chosen[build.preset, test["name"]] = set()
                elif whole and file in build.product:
                    whole_product.add(test["name"])
            found = found or any(preset == build.preset and targets for (preset, _), targets in chosen.items())
    return chosen, whole_product - {name for _, name in chosen}


def tests(options):
    if everybodys := [name for name in options.files if EVERYBODYS.match(name)]:
        print(f"test: {everybodys[0]} concerns every test: tools/test runs them")
    chosen, whole_product = choose(options)
    seconds = seconds_of(options.times)
    room, run, out = options.seconds * CORES, {}, []
    for key in sorted(chosen, key=lambda key: seconds.get(key[1], UNKNOWN)):
        room -= seconds.get(key[1], UNKNOWN)
        if room >= 0:
            run[key] = chosen[key]
        else:
            out.append(key[1])
    for preset in options.build:
        used = [targets for (its, _), targets in run.items() if its == preset]
        if used:
            print("use", preset)
        if targets := set().union(*used):
            print("build", preset, *(() if "all" in targets else sorted(targets)))
    if run:
        print("tests", "^(" + "|".join(sorted(re.escape(name) for _, name in run)) + ")$")
    if out:
        print(f"test: left to tools/test, since they take longer than {options.seconds} s together: {' '.join(sorted(out))}")
    if whole_product:
        print(f"test: left to tools/test: {len(whole_product)} tests that run the whole product")
    if not run:
        print("test: no test depends on what changed")


def folder_of(file):
    """The one above where that has no headers, only folders."""
    above = file.parent.parent
    return file.parent if above == REPOSITORY or any(above.glob("*.h")) else above


def rooms_of_fuzzer(files):
    """Folders of what it tests: those that its own sources and tests' helpers include, without what everybody uses."""
    names = (name.decode() for file in files if file.is_relative_to(REPOSITORY / "tests") and file.suffix in SOURCES
             for name in INCLUDE.findall(file.read_bytes()))
    folders = {folder_of(REPOSITORY / name) for name in names if not name.startswith("tests/") and (REPOSITORY / name).is_file()}
    return folders - {REPOSITORY / "base", REPOSITORY / "wire"} or folders


def fuzzers(options):
    diff = subprocess.run(["git", "diff", "--name-only", options.commit], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    changed = {REPOSITORY / file for file in diff.stdout.splitlines() if not file.endswith("CMakeLists.txt")}
    build = Build("sanitize")
    names = {test["command"][-1] for test in build.tests if "fuzz" in labels(test)}

    def has_changed(name):
        files = build.files_of(f"bin/{name}")
        rooms = rooms_of_fuzzer(files)
        return any(folder_of(file) in rooms or file.is_relative_to(REPOSITORY / "tests") for file in changed & files)
    print(*sorted(filter(has_changed, names)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    chooser = commands.add_parser("tests")
    chooser.add_argument("--times", type=Path)
    chooser.add_argument("--seconds", type=int, default=60)
    chooser.add_argument("--build", nargs="+", default=["sanitize", "release"])
    chooser.add_argument("files", nargs="+")
    chooser.set_defaults(run=tests)
    changed = commands.add_parser("fuzzers")
    changed.add_argument("commit")
    changed.set_defaults(run=fuzzers)
    options = parser.parse_args()
    options.run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
