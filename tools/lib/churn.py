# SPDX-License-Identifier: BSD-2-Clause
"""Routes that come and go and neighbours that change, on one host of a Lab: what a routing daemon or a container network
does to everybody else on the machine."""

import subprocess
import threading
import time

ROUTES_PER_SECOND = 1000
NEIGHBOURS_PER_SECOND = 500
NEIGHBOURS = 200  # of them on a host; the kernel's table holds 1024 for all network namespaces together (gc_thresh3)
SLICE = 0.01  # seconds


class Churn:
    """A context manager: churn goes on inside. `done`: how many commands so far. netdev: what they lead through."""

    def __init__(self, enter, netdev, gateway):
        self.enter, self.netdev, self.gateway = enter, netdev, gateway
        self.done = 0

    def __enter__(self):
        self.ending = threading.Event()
        self.ip = subprocess.Popen([*self.enter, "ip", "-force", "-batch", "-"], stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        self.thread = threading.Thread(target=self.feed)
        self.thread.start()
        return self

    def feed(self):
        due = time.monotonic()
        number = 0
        while not self.ending.is_set():
            lines = []
            for _ in range(int(ROUTES_PER_SECOND * SLICE)):
                route = f"10.{number % 200}.{number // 200 % 200}.0/24"
                lines += [f"route replace {route} via {self.gateway} dev {self.netdev}", f"route del {route}"]
                number += 1
            for i in range(int(NEIGHBOURS_PER_SECOND * SLICE)):
                neighbour = (number // 2 + i) % NEIGHBOURS
                state = "reachable" if number // 1000 % 2 else "stale"
                lines.append(f"neigh replace 198.18.0.{neighbour} dev {self.netdev} "
                             f"lladdr 02:00:00:00:00:{number % 250:02x} nud {state}")
            try:
                self.ip.stdin.write("\n".join(lines) + "\n")
                self.ip.stdin.flush()
            except BrokenPipeError:
                return
            self.done += len(lines)
            due += SLICE
            time.sleep(max(0, due - time.monotonic()))

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join()
        try:
            self.ip.stdin.close()
        except BrokenPipeError:
            pass  # it has ended; `done` tells how far it came
        self.ip.wait()
