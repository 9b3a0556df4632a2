# SPDX-License-Identifier: BSD-2-Clause
"""tshark with the plugin under test and nothing of the user's: own configuration directory, own plugin directory.

As root Wireshark loads no plugins but those of the system, so root runs it as nobody; the plugin and the captures are
copied to where nobody can read them. UROCE_TSHARK_PRELOAD: a library to preload, libasan.so for a plugin that was built
with AddressSanitizer.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NOBODY = 65534
SKIPPED = 77  # for CTest


class Tshark:
    def __init__(self, plugin, with_plugin=True):
        if shutil.which("tshark") is None:
            print("skipped: there is no tshark (tools/deps installs it)")
            sys.exit(SKIPPED)
        self._directory = tempfile.TemporaryDirectory(prefix="uroce-tshark-")
        self.root = Path(self._directory.name)
        self.root.chmod(0o755)
        plugin = Path(plugin)
        version = plugin.parent.parent.name  # .../4.0/epan/rocev2.so
        target = self.root / "plugins" / version / "epan"
        target.mkdir(parents=True)
        if with_plugin:
            shutil.copy(plugin, target / plugin.name)
        for name in ("home", "config", "scratch"):
            (self.root / name).mkdir()
            (self.root / name).chmod(0o777)
        self._environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.root / "home"), "LC_ALL": "C.UTF-8", "TZ": "UTC",
            "WIRESHARK_CONFIG_DIR": str(self.root / "config"), "WIRESHARK_PLUGIN_DIR": str(self.root / "plugins"),
            "G_DEBUG": "fatal-criticals",
        }
        if "UROCE_TSHARK_PRELOAD" in os.environ:
            self._environment |= {"LD_PRELOAD": os.environ["UROCE_TSHARK_PRELOAD"], "ASAN_OPTIONS": "detect_leaks=0"}

    def close(self):
        self._directory.cleanup()

    def readable(self, path):
        """A copy of the file that nobody may read."""
        copy = self.root / "scratch" / Path(path).name
        shutil.copy(path, copy)
        copy.chmod(0o644)
        return copy

    def run(self, *arguments, timeout=120, check=True, output=subprocess.PIPE,
            stdin=None):
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(["tshark", "-n", *map(str, arguments)], env=self._environment, cwd=self.root, text=True,
                              stdin=stdin, stdout=output, stderr=subprocess.PIPE, timeout=timeout, errors="replace",
                              **as_nobody)
        if check and done.returncode != 0:
            raise RuntimeError(f"tshark {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
        return done

    def fields(self, capture, fields, *arguments):
        """One list of strings per frame."""
        options = [word for field in fields for word in ("-e", field)]
        out = self.run("-r", self.readable(capture), *arguments, "-T", "fields", "-E", "separator=|", "-E",
                       "occurrence=f", *options).stdout
        return [line.split("|") for line in out.splitlines()]

    def json(self, capture, *arguments):
        return json.loads(self.run("-r", self.readable(capture), *arguments, "-T", "json").stdout)
