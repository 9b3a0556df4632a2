#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What comments and documents cite is in the repository: no dead file, section, decision or fault number.

Usage: citations_test.py SOURCE_DIR

  wire.md "MTU"                a Markdown file beside the citing file, or below the root, docs/ or docs/reference/; a heading of it
  faults.md 42                 a number of the tables in docs/faults.md
  architecture.md, decision 3  a number of the list "Decisions" in docs/architecture.md
  [text](path#anchor)          in Markdown: a file, and a heading of it
  `engine/objects/path.cc`             in Markdown: a file, a pattern that matches one, or a file without its extension
  datapath.cc, process/host.h   in comments: a source file by its name or the end of its path; a header, which may be the system's,
                               only if its path begins with a directory of ours

Numbers of an issue tracker and paths outside the repository are dead for everybody who has only the repository.
"""
import bisect
import glob
import os
import re
import sys
import tempfile

TEXT = (".h", ".cc", ".c", ".py", ".sh", ".md", ".txt", ".cmake", ".1")
NUMBERS = r"(\d+(?:(?:, | to | and )\d+)*)"
MARKDOWN_FILE = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.md)\b")
SECTION = re.compile(r',?(?: and)? "([^"]{1,80})"')
FAULTS = re.compile(rf"faults\.md,? {NUMBERS}|\bFaults? {NUMBERS} of (?:docs/)?faults\.md")
DECISION = re.compile(rf"(?<!architecture\.md, )\b[Dd]ecisions? \d+|(?<=architecture\.md, )decisions? {NUMBERS}")
OUTSIDE = re.compile(r"\b[Ii]ssue #?\d+|\bDESIGN\.md|\bdesign decision|(?<![\w.])/work/\w+")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)")
COMMENT = re.compile(r"(?://|^\s*# )(.*)")
SOURCE_FILE = re.compile(r"(?<![\w./<-])([\w-]+\.cc|(?:[\w-]+/)+[\w-]+\.(?:h|cc|py|sh))\b")
CODE_PATH = re.compile(r"`([\w.*-]+(?:/[\w.*{},-]+)+/?)`")


def sources(root):
    """The project's text files, relative to root; build trees and hidden directories are left out."""
    for directory, below, files in os.walk(root):
        below[:] = sorted(d for d in below if not d.startswith(".") and not (directory == root and d == "build"))
        for name in sorted(files):
            path = os.path.join(directory, name)
            if name.endswith(TEXT) or ("." not in name and os.access(path, os.X_OK)):
                yield os.path.relpath(path, root)


def headings(path):
    with open(path) as file:
        return [line.lstrip("#").strip() for line in file if line.startswith("#")]


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def every_number(text):
    """{1, 7, 8, 9} for "1, 7 to 9"."""
    return {n for first, last in re.findall(r"(\d+)(?: to (\d+))?", text) for n in range(int(first), int(last or first) + 1)}


class Checker:
    def __init__(self, root):
        self.root = root
        self.citations = 0
        self.complaints = []
        self.files = ["/" + path for path in sources(root)]
        self.with_headers = {path.split("/")[1] for path in self.files if path.endswith(".h")}
        self.faults = set(re.findall(r"^\| (\d+) \|", self.read("docs/faults.md"), re.M))
        section = re.search(r"^## Decisions\n(.*?)(?=^## |\Z)", self.read("docs/architecture.md"), re.M | re.S)
        self.decisions = set(re.findall(r"^(\d+)\. ", section.group(1), re.M)) if section else set()

    def read(self, path):
        with open(os.path.join(self.root, path)) as file:
            return file.read()

    def find(self, path, name):
        """The file that `path` means by `name`, or None."""
        for directory in (os.path.dirname(path), "", "docs", "docs/reference"):
            candidate = os.path.normpath(os.path.join(self.root, directory, name))
            if os.path.isfile(candidate):
                return candidate
        return None

    def check(self, path):
        try:
            lines = self.read(path).split("\n")
        except UnicodeDecodeError:
            return
        # The text without line ends and the marks of comments, so that a citation may go on in the next line.
        lines = [re.sub(r"^\s*(?://+|#+(?= )|\*)? ?", "", line) for line in lines]
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line) + 1)
        text = " ".join(lines)

        def complain(match, what):
            self.complaints.append(f"{path}:{bisect.bisect_right(starts, match.start())}: {what}")

        for match in MARKDOWN_FILE.finditer(text):
            self.citations += 1
            target = self.find(path, match.group(1))
            if target is None:
                complain(match, f"there is no {match.group(1)}")
                continue
            end = match.end()
            while section := SECTION.match(text, end):
                self.citations += 1
                if section.group(1) not in headings(target):
                    complain(section, f'{match.group(1)} has no section "{section.group(1)}"')
                end = section.end()
        for match in FAULTS.finditer(text):
            self.citations += 1
            for number in sorted(every_number(match.group(1) or match.group(2))):
                if str(number) not in self.faults:
                    complain(match, f"docs/faults.md has no number {number}")
        for match in DECISION.finditer(text):
            self.citations += 1
            if not match.group(1):
                complain(match, f'whose {match.group(0)}? Say "architecture.md, {match.group(0)}"')
                continue
            for number in sorted(every_number(match.group(1))):
                if str(number) not in self.decisions:
                    complain(match, f"docs/architecture.md has no decision {number}")
        for match in OUTSIDE.finditer(text):
            complain(match, f'"{match.group(0)}" is not in the repository')
        if path.endswith(".md"):
            self.check_markdown(path, text, complain)
        elif not path.endswith(".txt"):
            self.check_comments(path)

    def check_comments(self, path):
        for number, line in enumerate(self.read(path).split("\n"), 1):
            comment = COMMENT.search(line)
            for name in SOURCE_FILE.findall(comment.group(1)) if comment else []:
                if name.endswith(".h") and name.split("/")[0] not in self.with_headers:
                    continue
                self.citations += 1
                if not any(file.endswith("/" + name) for file in self.files):
                    self.complaints.append(f"{path}:{number}: there is no {name}")

    def check_markdown(self, path, text, complain):
        for match in LINK.finditer(text):
            self.citations += 1
            name, section = match.groups()
            target = os.path.normpath(os.path.join(self.root, os.path.dirname(path), name)) if name else os.path.join(self.root, path)
            if not os.path.exists(target):
                complain(match, f"a link to {name}, which does not exist")
            elif section and section not in [anchor(heading) for heading in headings(target)]:
                complain(match, f"{name or path} has no section #{section}")
        for match in CODE_PATH.finditer(text):
            name = match.group(1)
            if name.startswith((".", "build/")) or not os.path.exists(os.path.join(self.root, name.split("/")[0])):
                continue  # not a path below the root
            self.citations += 1
            pattern = os.path.join(self.root, re.sub(r"\{[^}]*\}", "*", name))
            if not glob.glob(pattern) and not glob.glob(pattern + ".*"):
                complain(match, f"there is no {name}")


def planted():
    """Every kind of dead citation is found, and living ones are not."""
    living = {
        "docs/faults.md": "# Faults\n| 1 | cut |\n| 2 | opcode |\n## Security\n",
        "docs/architecture.md": "# Architecture\n## Decisions\n\n1. One.\n2. Two.\n\n## More\n3. no decision\n",
        "docs/reference/wire.md": "# Wire\n## RC semantics\n",
        "README.md": "[wire](docs/reference/wire.md#rc-semantics) and `docs/faults.md`, `docs/arch*`\n",
        "engine/x.h": "// linux/rtnetlink.h, bpf/bpf.h, a.cc\n",
        "a.cc": '// a.cc, verbs.h, engine/x.h, wire.md "RC\n// semantics", faults.md 1 and 2, faults.md "Security" (architecture.md,\n// decision 2)\n',
    }
    dead = {
        "b.cc": '// wire.md "Frames"', "c.cc": "// air.md", "d.cc": "// faults.md 1 to 3", "e.cc": "// (architecture.md, decision 3)",
        "f.cc": "// decision 1", "g.cc": "// what issue 3 promises", "h.cc": "// DESIGN.md", "i.md": "[x](docs/none.txt)", "j.md": "`docs/none.cc`",
        "k.md": "[x](docs/faults.md#none)", "l.cc": "// Faults 2 and 3 of faults.md", "m.cc": "// /work/here", "n.cc": '// wire.md "RC semantics", "Air"',
        "o.cc": "int x;  // see nothing.cc", "p.h": "// engine/nothing.h",
    }
    with tempfile.TemporaryDirectory() as root:
        for path, content in (living | dead).items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w") as file:
                file.write(content)
        checker = Checker(root)
        for path in sources(root):
            before = len(checker.complaints)
            checker.check(path)
            if (path in dead) != (len(checker.complaints) > before):
                sys.exit(f"the test itself is broken: {path} " + ("passes" if path in dead else checker.complaints[-1]))


if __name__ == "__main__":
    planted()
    result = Checker(sys.argv[1])
    for source in sources(sys.argv[1]):
        if os.path.basename(source) != os.path.basename(__file__):
            result.check(source)
    print("\n".join(result.complaints) or f"{result.citations} citations")
    if result.citations < 300:
        sys.exit("So few? Is their form still the one looked for?")
    sys.exit(1 if result.complaints else 0)
