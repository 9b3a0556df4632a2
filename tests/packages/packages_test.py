#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""The packages that tools/package makes of a build, for Debian and of RPM: what is in them, what lintian says, and that they work once they are
installed on a machine that does not have the repository (tools/lib/fresh_root.sh).

As root; skips itself otherwise.
Usage: packages_test.py BUILD_DIRECTORY
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SKIPPED = 77
REPOSITORY = Path(__file__).resolve().parents[2]
PLUGINS = "usr/lib/x86_64-linux-gnu/wireshark/plugins/4.0/epan"  # Debian 12's
# All that is in a package, but for what lies in /usr/share/doc.
CONTENTS = {
    "uroce": {
        "lib/systemd/system/uroced.service", "lib/systemd/system/uroced.socket", "usr/bin/uroce", "usr/bin/uroced",
        "usr/share/bash-completion/completions/uroce", "usr/share/bash-completion/completions/uroced",
        "usr/share/lintian/overrides/uroce", "usr/share/man/man1/uroce.1.gz", "usr/share/man/man8/uroced.8.gz",
    },
    "liburoce": {
        "usr/lib/uroce/libibverbs.so", "usr/lib/uroce/libibverbs.so.1", "usr/lib/uroce/liburoce.so",
        "usr/lib/uroce/liburoce_files.so", "usr/lib/uroce/uroce_af_xdp.so", "usr/share/lintian/overrides/liburoce",
    },
    "uroce-wireshark": {
        f"{PLUGINS}/rocev2.so", "usr/share/lintian/overrides/uroce-wireshark",
        *(f"usr/share/wireshark/profiles/RoCEv2/{name}" for name in ("colorfilters", "disabled_protos", "preferences", "recent")),
    },
    "uroce-doc": {"usr/share/lintian/overrides/uroce-doc"},
}
FIND_OURS = r"find /etc /lib/ /usr /var/lib \( -iname '*uroce*' -o -iname '*rocev2*' \) | sort"
work = packages = build = None


def run(*command, **how):
    """What a command prints, its complaints included; AssertionError when it fails."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **how)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def setUpModule():
    global packages
    packages = work / "packages"
    run(REPOSITORY / "tools/package", "--from", build, "--output", packages)
    run(REPOSITORY / "tools/package", "--from", build, "--output", packages / "rpm", "--rpm")


def package(name):
    return next(packages.glob(f"{name}_*.deb"))


def unpacked(name):
    """A directory with what the package installs."""
    directory = work / "unpacked" / name
    if not directory.exists():
        directory.mkdir(parents=True)
        run("dpkg-deb", "--extract", package(name), directory)
    return directory


def files_of(tree):
    return {str(file.relative_to(tree)) for file in tree.rglob("*") if file.is_symlink() or not file.is_dir()}


class Debian(unittest.TestCase):
    def test_packages(self):
        self.assertEqual({file.name.split("_")[0] for file in packages.glob("*.deb")}, set(CONTENTS))

    def test_contents(self):
        for name, expected in CONTENTS.items():
            doc = f"usr/share/doc/{name}/"
            found = files_of(unpacked(name))
            self.assertEqual({file for file in found if not file.startswith(doc)}, expected, name)
            self.assertLessEqual({doc + "copyright", doc + "changelog.Debian.gz"}, found)

    def test_no_paths_of_the_build(self):
        for name in CONTENTS:
            for file in unpacked(name).rglob("*"):
                if file.is_file():
                    self.assertNotIn(str(REPOSITORY).encode() + b"/", file.read_bytes(), str(file))
            dynamic = [run("readelf", "--dynamic", "--wide", file) for file in unpacked(name).rglob("*")
                       if file.is_file() and file.read_bytes()[:4] == b"\x7fELF"]
            self.assertEqual(re.findall(r"\((?:RPATH|RUNPATH)\).*", "".join(dynamic)), [], name)

    def test_documents_are_complete(self):
        """What they link to in docs/ is there, by the same relative names."""
        tree = unpacked("uroce-doc") / "usr/share/doc/uroce-doc"
        for document in tree.rglob("*.md"):
            for target in re.findall(r"\]\(([^)#:]+)[)#]", document.read_text()):
                inside = os.path.relpath(document.parent / target, tree)
                if inside.startswith("docs/") and not inside.endswith((".1", ".8")):
                    self.assertTrue((tree / inside).exists(), f"{document.relative_to(tree)} links to {target}")

    def test_dependencies(self):
        fields = {name: run("dpkg-deb", "--field", package(name), "Depends", "Pre-Depends", "Version") for name in CONTENTS}
        version = re.search(r"^Version: (.*)$", fields["uroce"], re.MULTILINE)[1]
        self.assertIn(f"liburoce (= {version})", fields["uroce"])
        self.assertIn("wireshark-common (<< 4.1~), wireshark-common (>= 4.0)", fields["uroce-wireshark"])
        self.assertRegex(fields["liburoce"], r"libxdp1 .*")
        self.assertNotIn("libstdc++", fields["liburoce"])  # it is preloaded into programs that have another one

    def test_symbols(self):
        """The build notices a symbol that is gone, and one that nobody has listed."""
        listed = (REPOSITORY / "debian/liburoce.symbols").read_text()
        (work / "debian").mkdir()
        shutil.copy(REPOSITORY / "debian/control", work / "debian")

        def compare(symbols):
            (work / "symbols").write_text(symbols)
            version = run("dpkg-deb", "--field", package("liburoce"), "Version").strip()
            library = unpacked("liburoce") / "usr/lib/uroce/liburoce.so"
            run("dpkg-gensymbols", "-c4", f"-v{version}", "-pliburoce", f"-P{unpacked('liburoce')}", f"-e{library}",
                f"-O{work}/found", f"-I{work}/symbols", cwd=work)

        compare(listed)
        open_device = " ibv_open_device@IBVERBS_1.1 0.1.0\n"
        self.assertIn(open_device, listed)
        with self.assertRaisesRegex(AssertionError, "some new symbols appeared"):
            compare(listed.replace(open_device, ""))
        with self.assertRaisesRegex(AssertionError, "some symbols .* disappeared"):
            compare(listed.replace(open_device, open_device + " ibv_reopen_device@IBVERBS_1.1 0.1.0\n"))

    def test_lintian(self):
        said = run("lintian", "--allow-root", "--fail-on", "error,warning", next(packages.glob("*.changes")))
        self.assertEqual(said, "")


class Rpm(unittest.TestCase):
    """As far as a machine without RPM's distributions can tell. Their libraries are others, so a build is needed there."""

    def query(self, name, what):
        file = next((packages / "rpm").glob(f"{name}-0*.rpm"))
        return set(run("rpm", "--query", "--package", what, file).splitlines())

    def test_contents(self):
        expected = {file.removesuffix(".gz").replace("lib/systemd", "usr/lib/systemd")
                    for name in ("uroce", "liburoce") for file in CONTENTS[name] if "lintian" not in file}
        self.assertEqual(self.query("uroce", "--list"), {"/" + file for file in expected} | {"/usr/lib/uroce"})
        self.assertEqual(self.query("uroce-wireshark", "--list"), {f"/{PLUGINS}/rocev2.so"})

    def test_is_nobodys_libibverbs(self):
        for name in ("uroce", "uroce-wireshark"):
            self.assertEqual({word.split()[0] for word in self.query(name, "--provides")}, {name, f"{name}(x86-64)"})
        self.assertLessEqual({"libnl-3.so.200()(64bit)", "libxdp.so.1()(64bit)"}, self.query("uroce", "--requires"))


class Installed(unittest.TestCase):
    """On a machine without the repository: what debian/tests has for autopkgtest, and that all of it goes away again."""

    def setUp(self):
        self.stage = Path(tempfile.mkdtemp(prefix="stage-", dir=work))
        # What autopkgtest has of the source package: its tests, and the programs in tools that these use.
        shutil.copytree(REPOSITORY / "debian/tests", self.stage / "source/debian/tests")
        shutil.copytree(REPOSITORY / "tools", self.stage / "source/tools")
        self.script = ["set -e", f"test ! -e {build}", "ldconfig -p | grep libibverbs >before", f"{FIND_OURS} >ours"]

    def add(self, *lines):
        self.script.extend(lines)

    def add_tests(self, *tests):
        self.add("ldconfig -p | grep libibverbs | diff before -", "cd source",
                 *(f"debian/tests/{name}; echo passed {name}" for name in tests), "cd ..")

    def run_script(self):
        self.add(f"{FIND_OURS} | diff ours -")
        return run(REPOSITORY / "tools/lib/fresh_root.sh", self.stage, "bash", "-c", "\n".join(self.script))

    def test_debian(self):
        for name in CONTENTS:
            shutil.copy(package(name), self.stage)
        control = (self.stage / "source/debian/tests/control").read_text()
        tests = re.findall(r"^Tests: (\S+)$", control, re.MULTILINE)
        self.assertEqual(set(tests), {"commands", "demo", "wireshark"})
        self.add("dpkg --install ./*.deb")
        self.add_tests(*tests)
        self.add("dpkg --purge uroce liburoce uroce-wireshark uroce-doc")
        said = self.run_script()
        self.assertEqual(re.findall(r"^passed (\S+)$", said, re.MULTILINE), tests, said)
        self.assertIn("demo: all 8 passed", said)
        self.assertFalse(Path("/usr/bin/uroce").exists(), "it was installed on this machine")

    def test_rpm(self):
        """rpm's own knowledge of what is installed is empty here, so it is not asked for what they need."""
        for file in (packages / "rpm").glob("*.rpm"):
            shutil.copy(file, self.stage)
        self.add("rpm --dbpath /tmp/rpm --install --nodeps ./*.rpm")
        self.add_tests("commands")
        self.add("rpm --dbpath /tmp/rpm --erase uroce uroce-wireshark")
        self.assertIn("passed commands", self.run_script())


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("needs root: installs packages in a file system of its own")
        sys.exit(SKIPPED)
    build = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="uroce-packages-") as directory:
        work = Path(directory)
        work.chmod(0o755)
        unittest.main(verbosity=0, argv=[sys.argv[0], *sys.argv[2:]])
