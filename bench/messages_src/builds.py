# SPDX-License-Identifier: BSD-2-Clause
"""The build to compare with: a build directory, or a commit, which is built."""

import os
import subprocess
import tempfile
from pathlib import Path

PROGRAMS = ("messages_bench", "cache_line")


def tools_of(against: str, repository: Path) -> Path:
    """Where its programs are."""
    if (Path(against) / "bin" / PROGRAMS[0]).is_file():
        return Path(against).resolve() / "bin"
    found = git(repository, "rev-parse", "--verify", "--quiet", f"{against}^{{commit}}")
    if found.returncode != 0:
        raise SystemExit(f"messages: {against} is neither a commit nor a build directory with bin/{PROGRAMS[0]}")
    commit = found.stdout.strip()
    if git(repository, "cat-file", "-e", f"{commit}:bench/messages_src/main.cc").returncode != 0:
        raise SystemExit(f"messages: {against} has no bench/messages")
    build = repository / "build" / "against" / commit
    if not all((build / "bin" / program).is_file() for program in PROGRAMS):
        build_commit(repository, commit, build)
    return build / "bin"


def build_commit(repository: Path, commit: str, build: Path) -> None:
    print(f"building {commit[:12]} into {build}", flush=True)
    with tempfile.TemporaryDirectory(prefix="messages") as directory:
        source = str(Path(directory) / "source")
        try:
            must(["git", "-C", str(repository), "worktree", "add", "--quiet", "--detach", source, commit])
            must(["cmake", "--preset", "release", "-S", source, "-B", str(build), "-DUROCE_UNITY=ON"])
            must(["cmake", "--build", str(build), "--parallel", str(os.cpu_count()), "--target", *PROGRAMS])
        finally:
            git(repository, "worktree", "remove", "--force", source)


def git(repository: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False)


def must(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"messages: {' '.join(command)}:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
