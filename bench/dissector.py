#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""tshark over a large capture with and without the dissector plugin: time and memory.

Usage: bench/dissector.py PLUGIN MAKE_LARGE [MEGABYTES] [ROUNDS]
Not a test: run it on a quiet machine. The goal is a ratio below 2.
"""
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "dissector"))
from tshark import Tshark  # noqa: E402

KINDS = {
    "summary lines": (),
    "statistics only": ("-q", "-z", "io,stat,0"),
    "display filter": ("-Y", "ip.ttl == 1"),
    "two passes": ("-2",),
    "full trees": ("-V",),
}


def cost(tshark, capture, options):
    """Seconds of CPU and of the clock."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    tshark.run("-r", capture, *options, timeout=3600, output=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - start


def main():
    plugin, make_large = sys.argv[1:3]
    megabytes = sys.argv[3] if len(sys.argv) > 3 else "1000"
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    with tempfile.TemporaryDirectory(prefix="uroce-dissector-") as directory:
        Path(directory).chmod(0o755)
        capture = Path(directory) / "large.pcapng"
        subprocess.run([make_large, capture, megabytes], check=True)
        capture.chmod(0o644)
        without, with_plugin = Tshark(plugin, with_plugin=False), Tshark(plugin)
        print(f"{capture.stat().st_size / 1e6:.0f} MB; seconds, the best of {rounds} taken in turn")
        print(f"{'':18}{'built-in':>10}{'plugin':>10}{'ratio':>8}{'on the clock':>24}{'ratio':>8}")
        for name, options in KINDS.items():
            if name == "full trees" and int(megabytes) > 200:
                continue  # minutes
            taken = [(cost(without, capture, options), cost(with_plugin, capture, options)) for _ in range(rounds)]
            (cpu, clock), (cpu_plugin, clock_plugin) = (map(min, zip(*each)) for each in zip(*taken))
            print(f"{name:18}{cpu:10.2f}{cpu_plugin:10.2f}{cpu_plugin / cpu:8.2f}"
                  f"{clock:14.2f}{clock_plugin:10.2f}{clock_plugin / clock:8.2f}", flush=True)
        without.close()
        with_plugin.close()


main()
