#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""What the gate is made of says no more than it knows: cmake/ccache.sh, tools/lib/tidy.py, tools/lib/test_summary.py,
tools/lib/affected.py.

Usage: gate_tools_test.py SOURCE_DIR
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(sys.argv.pop(1)).resolve()


class GateTools(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name).resolve()

    def program(self, name, text):
        """Puts a program in front of others of its name."""
        file = self.directory / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def run_tool(self, *command, **how):
        environment = {**os.environ, "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(self.directory)}
        return subprocess.run(command, env=environment, capture_output=True, **how)

    def test_compilers_get_paths_that_ninja_knows(self):
        self.program("ccache", 'printf "%s\\n" "$@"')
        checkout = self.directory / "uroce"
        build = checkout / "build/release"
        build.mkdir(parents=True)
        for given, expected in {
            f"{checkout}/cli/version.cc": "../../cli/version.cc",
            f"-I{checkout}": "-I../..",
            f"-I{build}/cli": "-Icli",
            f"-I{build}": "-I.",
            f"-I{build}/": "-I.",
            f"--sysroot={checkout}/root": "--sysroot=../../root",
            f"-I/var{checkout}/include": f"-I/var{checkout}/include",
            f"-I{checkout}2/include": f"-I{checkout}2/include",
            f'-DWHERE="{checkout}/x"': f'-DWHERE="{checkout}/x"',
        }.items():
            done = self.run_tool("bash", SOURCE / "cmake/ccache.sh", checkout, "c++", given, cwd=build, text=True)
            self.assertEqual(done.stdout, f"c++\n{expected}\n")

    def tidy(self, said):
        """Exit code of tidy.py, and the notes that there are, after clang-tidy has said this and ended well."""
        self.program("clang-tidy-14", f"echo '{said}' >&2")
        source = self.directory / "x.cc"
        source.write_text("int x;\n")
        entry = {"file": str(source), "directory": str(self.directory), "command": f"c++ -c {source} -o x.o"}
        (self.directory / "compile_commands.json").write_text(json.dumps([entry]))
        done = self.run_tool(SOURCE / "tools/lib/tidy.py", self.directory, source, "x")
        return done.returncode, len(list(self.directory.glob("uroce/tidy/*")))

    def test_clang_tidy_without_its_checks_is_not_content(self):
        self.assertEqual(self.tidy("Error parsing /.clang-tidy: Invalid argument"), (1, 0))
        self.assertEqual(self.tidy("1 warning generated."), (0, 1))

    def summary(self, times, said):
        (self.directory / "times").write_text(times)
        known = self.directory / "known"
        done = self.run_tool(SOURCE / "tools/lib/test_summary.py", self.directory, known, input=said)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode(errors="replace"), known.read_text() if known.exists() else ""

    def test_the_result_is_told_whatever_tests_print_and_the_locale_is(self):
        said = b"bytes \xff\xfe\n100% tests passed, 0 tests failed out of 1\nTotal\n"
        german = "a_test 1795745933,100000 1795745935,600000 0m1,500s 0m0,250s\n"
        told, known = self.summary(german, said)
        self.assertRegex(told, r"a_test +2\.5 +1\.8 +0\.8")
        self.assertIn("out of 1\nTotal\n", told)
        self.assertEqual(known, german)
        told, _ = self.summary("nothing that can be read\n", said)
        self.assertIn("out of 1\nTotal\n", told)

    @unittest.skipUnless((SOURCE / "build/sanitize/build.ninja").exists(), "needs both builds: tools/test")
    def test_a_change_is_tried_by_the_unit_tests_of_its_room_too(self):
        done = self.run_tool(SOURCE / "tools/lib/affected.py", "tests", "abi/preload/sysfs_view/tree_name.cc", text=True)
        self.assertRegex(done.stdout, r"(?m)^build sanitize bin/files_view_test$")
        self.assertRegex(done.stdout, r"(?m)^tests .*\bfiles_client_test\|files_view_test\b")

    @unittest.skipUnless((SOURCE / "build/sanitize/build.ninja").exists(), "needs both builds: tools/test")
    def test_a_fuzzer_has_the_rooms_that_it_names(self):
        sys.path.insert(0, str(SOURCE / "tools/lib"))
        self.addCleanup(sys.path.pop, 0)
        import affected
        build = affected.Build("sanitize")
        for fuzzer, rooms in {"frame_fuzzer": {"wire"}, "cm_codec_fuzzer": {"cm"}, "af_xdp_receive_fuzzer": {"engine/io/af_xdp"}}.items():
            found = affected.rooms_of_fuzzer(build.files_of(f"bin/{fuzzer}"))
            self.assertEqual(found, {SOURCE / room for room in rooms})
        found = affected.rooms_of_fuzzer(build.files_of("bin/qp_pair_fuzzer"))
        self.assertGreaterEqual(found, {SOURCE / "engine/transport", SOURCE / "engine/memory", SOURCE / "engine/datapath"})


if __name__ == "__main__":
    unittest.main()
