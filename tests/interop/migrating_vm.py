# SPDX-License-Identifier: BSD-2-Clause
"""A virtual machine that moves from one QEMU process to another while it runs, stands still, or is saved and restored."""

import time

from lab import LabError, wait_until
from vm import Vm

MOST_DOWNTIME = 300  # ms that QEMU may aim at
BANDWIDTH = 4 << 30  # bytes/s: more than there is
TIMEOUT = 120  # seconds; a few, but where the host is busy


class MigratingVm(Vm):
    """taps: two tap devices at one bridge, which the QEMU processes have by turns."""

    def __init__(self, image, netns, taps, mac, mtu, directory, accelerators):
        super().__init__(image, netns, taps[0], mac, mtu, directory, accelerators)
        self.taps = taps
        self.moves = 0

    def _next(self, source):
        """A QEMU process that waits for the guest to come from there."""
        self.moves += 1
        self.tap = self.taps[self.moves % 2]
        return self._launch(f"-{self.moves}", ["-incoming", source])

    def _adopt(self, target):
        """The guest runs there; the process that it came from ends, once all that its agent had said is read."""
        self.take_answers()
        left, self.qemu = self.qemu, target
        left.end()
        wait_until(lambda: target.command("query-status")["running"], TIMEOUT, "the guest runs on")

    def _send(self, target, uri):
        """Copies the guest to `uri`; what QEMU says of it."""
        self.monitor_command("migrate-set-parameters", **{"max-bandwidth": BANDWIDTH, "downtime-limit": MOST_DOWNTIME})
        self.monitor_command("migrate", uri=uri)

        def told():
            said = self.monitor_command("query-migrate")
            if said["status"] == "failed" or (target is not None and not target.running()):
                raise LabError(f"the migration failed: {said}\n{target.log.read_text() if target else ''}")
            return said if said["status"] == "completed" else None

        return wait_until(told, TIMEOUT, f"the guest is copied to {uri}")

    def migrate(self, live):
        """Over a socket; milliseconds for which it ran nowhere. live: it runs while it is copied, and what it writes meanwhile
        is copied again, as long as QEMU notices. Emulation (TCG) does not always: then the guest dies of its memory."""
        uri = f"unix:{self.directory}/migration-{self.moves}"
        target = self._next(uri)
        began = time.monotonic()
        try:
            if not live:
                self.monitor_command("stop")
            said = self._send(target, uri)
        except BaseException:
            target.end()
            raise
        if not live:
            wait_until(lambda: target.command("query-status")["status"] != "inmigrate", TIMEOUT, "the guest has come")
            target.command("cont")
        self._adopt(target)
        return said["downtime"] if live else round(1000 * (time.monotonic() - began))

    def pause(self, seconds):
        """Stands still, and goes on in the same process."""
        self.monitor_command("stop")
        time.sleep(seconds)
        self.monitor_command("cont")

    def save_and_restore(self, seconds):
        """Into a file; QEMU ends; `seconds` later another one goes on from the file."""
        file = self.directory / f"saved-{self.moves}"
        self.monitor_command("stop")
        self._send(None, f"exec:cat >{file}")
        self.take_answers()
        self.qemu.end()
        time.sleep(seconds)
        target = self._next(f"exec:cat {file}")
        wait_until(lambda: target.command("query-status")["status"] != "inmigrate", TIMEOUT, "the guest is restored")
        target.command("cont")
        self._adopt(target)
        file.unlink()
