#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`cmake --install` places the plugin where Wireshark looks, below DESTDIR, and it loads from there.

Usage: install_test.py BUILD_DIRECTORY MAKE_GOLDEN
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tshark import Tshark


def main():
    build, make_golden = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="uroce-install-") as directory:
        subprocess.run(["cmake", "--install", build, "--component", "dissector"], check=True,
                       env=os.environ | {"DESTDIR": directory}, stdout=subprocess.DEVNULL)
        found = list(Path(directory).rglob("*.so"))
        assert len(found) == 1, found
        # Debian's place; a plugin elsewhere is not found.
        place = "/" + str(found[0].relative_to(directory))
        assert place.startswith("/usr/lib/") and place.endswith("/wireshark/plugins/4.0/epan/rocev2.so"), place
        subprocess.run([make_golden, directory], check=True)
        tshark = Tshark(found[0])
        rows = tshark.fields(Path(directory) / "clean.pcapng", ["rocev2.stream"])
        tshark.close()
        assert rows and all(row[0] == "0" for row in rows), rows
    print(f"installed as {place}")


main()
