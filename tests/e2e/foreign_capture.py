#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""Captures that another program (dumpcap) took of uroce's packets, judged by `uroce check`. See suite.py."""

import re
import shutil
import signal
import subprocess
import sys

from suite import Case, check, main
from lab import SKIPPED, wait_until

PORT = 23500


def segment_batches(lab):
    """Another program's capture, at the sender, where packets leave in segment batches: judged like our own."""
    file = lab.directory / "batches.pcapng"
    watcher = lab.a.start(["dumpcap", "-q", "-i", lab.a.netdev, "-f", "udp port 4791", "-B", "64", "-w", file], uroce=False)
    wait_until(lambda: file.exists() and file.stat().st_size > 0 and "Capturing on" in watcher.output, 10, "dumpcap captures")
    command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", PORT, "-s", 65536, "-n", 50, "-m", 1024]
    server = lab.b.start(command, io="udp")
    server.wait_listening(PORT)
    client = lab.a.start([*command, lab.b.ipv4], io="udp")
    codes = [client.wait(30), server.wait(20)]
    check(codes == [0, 0], f"exit codes {codes}\n{client.output}\n--- server\n{server.output}")
    wait_until(lambda: "RC Acknowledge" in shown(file)[-400:], 10, "the last packets are in the file")
    watcher.process.send_signal(signal.SIGINT)
    check(watcher.wait(10) == 0, watcher.output)
    judged = lab.a.run([lab.build / "bin/uroce", "check", "--at", lab.a.ipv4, file], uroce=False)
    told = re.search(r"(\d+) packets of 1 judged host: 0 violations\n(\d+) frames had several packets", judged.stdout)
    check(judged.process.returncode == 0 and told and int(told[1]) > 3200 and int(told[2]) > 10, judged.output)
    return told[0].replace("\n", "; ")


def shown(file):
    """What tshark says of it so far."""
    return subprocess.run(["tshark", "-r", file], capture_output=True, text=True, check=False).stdout


CASES = [Case("segment-batches", segment_batches)]

if __name__ == "__main__":
    if shutil.which("dumpcap") is None:
        print("skipped: dumpcap is not installed")
        sys.exit(SKIPPED)
    sys.exit(main(__doc__, CASES))
