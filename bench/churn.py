#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""What it costs a transfer that routes come and go and neighbours change on its hosts (tools/lib/churn.py).

Usage: bench/churn.py [BUILD_DIR] [ROUNDS]

Windows follow each other in turn: no churn; the same churn in a third network namespace, which costs the machine as much
CPU and is none of uroce's business; churn on both hosts of the transfer. Printed are the medians of what was received
per window and the last two compared. Needs root, and means something only on a machine that does nothing else.
"""

import contextlib
import statistics
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tools/lib"))

from churn import Churn  # noqa: E402
from lab import Lab, enter_private_netns, wait_until  # noqa: E402

PORT = 22100
WINDOW = 1.0  # seconds
SETTLE = 0.3


def measure(lab, context):
    with context:
        time.sleep(SETTLE)
        begin, before = time.monotonic(), lab.a.packets()
        time.sleep(WINDOW)
        return (lab.a.packets() - before) / (time.monotonic() - begin)


@contextlib.contextmanager
def churn_on(*places):
    with contextlib.ExitStack() as stack:
        for enter, netdev, gateway in places:
            stack.enter_context(Churn(enter, netdev, gateway))
        yield


def second_lab(build):
    lab = Lab(build)
    for host in (lab.a, lab.b):
        host.name += "-2"
        host.enter = ("ip", "netns", "exec", host.name)
    return lab


def main():
    enter_private_netns()
    build = sys.argv[1] if len(sys.argv) > 1 else REPOSITORY / "build/release"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with Lab(build) as lab, second_lab(build) as other:
        command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-p", PORT, "-q", 8, "--run_infinitely", "-D", 1]
        server = lab.a.start(command, io="af_xdp")
        server.wait_listening(PORT)
        lab.b.start([*command, lab.a.ipv4], io="af_xdp")
        before = lab.a.packets()
        wait_until(lambda: lab.a.packets() > before + 1000, 20, "packets flow")
        here = [(host.enter, host.netdev, "192.0.2.77") for host in (lab.a, lab.b)]
        there = [(host.enter, host.netdev, "192.0.2.77") for host in (other.a, other.b)]
        rates = {"no churn": [], "churn elsewhere": [], "churn here": []}
        for _ in range(rounds):
            rates["no churn"].append(measure(lab, contextlib.nullcontext()))
            rates["churn elsewhere"].append(measure(lab, churn_on(*there)))
            rates["churn here"].append(measure(lab, churn_on(*here)))
    for name, values in rates.items():
        print(f"{name:16} {statistics.median(values):10.0f} packets/s (median of {rounds})")
    ratio = statistics.median(a / b for a, b in zip(rates["churn here"], rates["churn elsewhere"]))
    print(f"here / elsewhere: {100 * ratio:.1f} %")


if __name__ == "__main__":
    main()
