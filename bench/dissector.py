#!/usr/bin/env python3
"""tshark over a large capture with and without the dissector plugin: time and memory.

Usage: bench/dissector.py PLUGIN MAKE_LARGE [MEGABYTES] [ROUNDS]
Not a test: run it on a quiet machine. The goal is a ratio below 2 (issue 6).
"""
import resource
import subprocess
import sys
import tempfile
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
    """Seconds of CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    tshark.run("-r", capture, *options, timeout=3600, output=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
        print(f"{capture.stat().st_size / 1e6:.0f} MB; CPU seconds, the best of {rounds}")
        print(f"{'':18}{'built-in':>10}{'plugin':>10}{'ratio':>8}")
        for name, options in KINDS.items():
            if name == "full trees" and int(megabytes) > 200:
                continue  # minutes
            best = [min(cost(t, capture, options) for _ in range(rounds)) for t in (without, with_plugin)]
            print(f"{name:18}{best[0]:10.2f}{best[1]:10.2f}{best[1] / best[0]:8.2f}", flush=True)
        without.close()
        with_plugin.close()


main()
