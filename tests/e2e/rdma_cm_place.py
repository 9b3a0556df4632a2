# SPDX-License-Identifier: BSD-2-Clause
"""Where programs over rdma_cm run: on which hosts, as whom, over which packet I/O, over which network. Used by rdma_cm.py and
rdma_cm_apps.py."""

import dataclasses

from broker import end_brokers, start_broker

# Of the packets of queue pairs, and of the management datagrams: of these a lost one costs up to a minute (an RTU after an MRA).
LOSS = "drop=1%,dup=1%,reorder=1%"
LOSS_OF_MADS = "drop=3%,dup=3%,reorder=3%"


@dataclasses.dataclass(frozen=True)
class Place:
    where: str = "hosts"  # or one-host
    who: str = "root"  # user, alone
    version: str = "ipv4"
    io: str = ""  # empty: as it comes
    lossy: bool = False

    @property
    def name(self):
        words = [self.where, self.who, self.version, self.io, "lossy" if self.lossy else ""]
        return "/".join(word for word in words if word)

    def prepare(self, lab):
        """The hosts of server and client, with brokers where the programs do not start them."""
        server, client = lab.b, lab.b if self.where == "one-host" else lab.a
        end_brokers(lab)
        if self.who == "user" or self.lossy:
            for number, host in enumerate(dict.fromkeys((server, client)), 1):
                start_broker(lab, host, ["--faults", f"{LOSS_OF_MADS},seed={number}"] if self.lossy else [])
        return server, client

    def start(self, host, command, env=None):
        user = self.who == "user"
        options = ["--alone"] if self.who == "alone" else []
        faults = f"{LOSS},seed={3 if host is host.lab.a else 4}" if self.lossy else None
        return host.start(command, user=user, options=options, io=self.io or None, faults=faults, env=env)

    def path_of(self, lab, program):
        return lab.program_for(self.who == "user", program)


def places():
    """Hosts, users and addresses; packet I/O as it comes."""
    for where in ("hosts", "one-host"):
        for who in ("root", "user", "alone"):
            if (where, who) != ("one-host", "alone"):  # who is alone shares no host
                yield from (Place(where, who, version) for version in ("ipv4", "ipv6"))
