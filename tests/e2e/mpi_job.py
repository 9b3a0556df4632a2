# SPDX-License-Identifier: BSD-2-Clause
"""Runs mpi_exchange (mpi/main.cc) under Open MPI or MPICH on the hosts of the lab. Used by applications.py and broker_matrix.py."""

import os
import re
from pathlib import Path

from suite import check
from carried import COUNTED, packets_sent, ucx_environment
from lab import NOBODY

HERE = Path(__file__).resolve().parent / "mpi"
RSH_AGENT, REMOTE_SHELL, FIRST_HAS_QUEUES = HERE / "rsh_agent", HERE / "remote_shell", HERE / "first_has_queues"
REMOTE_SHELL_PORT = 4000
RANKS, LAUNCHER = "ranks", "launcher"  # what `uroce run` starts
PRELOADED = ("LD_PRELOAD", "LD_LIBRARY_PATH")  # by `uroce run`: other hosts have to be told
FIRST = "first"  # the first rank of each host has the AF_XDP queues, the others have sockets
# How mpi_exchange and a host's name come to each library, by the names that Debian gives them beside each other.
OPENMPI, MPICH = "openmpi", "mpich"
PROGRAMS = {OPENMPI: "mpi_exchange", MPICH: "mpi_exchange_mpich"}


def _openmpi(lab, ranks, agent, forwarded, job):
    settings = {
        "pml": "ucx",
        "osc": "ucx",
        "btl": "self",
        "plm": "rsh",
        "plm_rsh_agent": agent,
        "plm_rsh_no_tree_spawn": 1,
        "oob_tcp_if_include": "192.0.2.0/24",
        "hwloc_base_binding_policy": "none",
    }
    command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", sum(ranks)]
    command += ["--host", ",".join(f"{host.name}:{count}" for host, count in zip((lab.a, lab.b), ranks) if count)]
    for key, value in settings.items():
        command += ["--mca", key, value]
    for key in forwarded:
        command += ["-x", key]
    return [*command, *job]


def _mpich(lab, ranks, agent, forwarded, job):
    """Debian's MPICH has UCX under it (ch4:ucx). Its own shared memory would carry what stays on a host: not here
    (MPIR_CVAR_NOLOCAL, among those that are forwarded)."""
    command = ["mpiexec.mpich", "-launcher", "rsh", "-launcher-exec", agent, "-iface", lab.a.netdev, "-localhost", lab.a.name]
    command += ["-hosts", ",".join(f"{host.name}:{count}" for host, count in zip((lab.a, lab.b), ranks) if count)]
    return [*command, "-bind-to", "none", "-genvlist", ",".join([*forwarded, "PATH"]), "-n", sum(ranks), *job]


LAUNCHERS = {OPENMPI: _openmpi, MPICH: _mpich}


def _named(host):
    """In front of a command: a host name of its own, or MPI would take both hosts for one. rsh_agent has it for the other one."""
    return ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host.name)


def _agent(lab, user, env):
    """How the launcher on host a starts something on host b. Root enters the namespace; a user asks somebody who is there."""
    if not user:
        return RSH_AGENT
    server = lab.b.start([REMOTE_SHELL, "serve", lab.b.ipv4, REMOTE_SHELL_PORT], uroce=False, user=True, prefix=_named(lab.b), env=env)
    server.wait_listening(REMOTE_SHELL_PORT)
    return REMOTE_SHELL


def _sessions(lab, user):
    """A directory for what launchers keep in files, which goes with the lab."""
    directory = lab.directory / f"sessions-{user}"
    directory.mkdir(exist_ok=True)
    os.chown(directory, NOBODY if user else 0, -1)
    return {"TMPDIR": str(directory), "OMPI_MCA_orte_tmpdir_base": str(directory)}


def run_mpi(lab, library, ranks, transport="rc_verbs", max_size=1 << 14, io="udp", gid=None, user=False, timeout=120, started=RANKS):
    """mpi_exchange with so many ranks on each host, which exchange over uroce on one host as well. The launcher is on host a.
    io: packet I/O of all ranks, or FIRST. started: whether `uroce run` is in front of each rank, or of the launcher, which passes
    on what it has set; host b then has a broker only if somebody has started one. Returns what mpi_exchange says; Failure when uroce has not carried that."""
    forwarded = {**COUNTED, **ucx_environment(lab.a, transport, gid), "UROCE_IO": "udp" if io == FIRST else io, "MPIR_CVAR_NOLOCAL": "1"}
    env = {**forwarded, **_sessions(lab, user), "LAB_REMOTE_SHELL": f"{lab.b.ipv4}:{REMOTE_SHELL_PORT}"}
    agent = _agent(lab, user, env) if all(ranks) else RSH_AGENT
    run = [lab.program_for(user, "uroce"), "run", "--"]
    job = [lab.program_for(user, PROGRAMS[library]), 2026, max_size]
    if started == RANKS:
        job = [*run, *job]
    if io == FIRST:
        job.insert(0, FIRST_HAS_QUEUES)
    names = [*forwarded, *(PRELOADED if started == LAUNCHER else ())]
    command = [*(run if started == LAUNCHER else ()), *LAUNCHERS[library](lab, ranks, agent, names, job)]
    program = lab.a.start(command, uroce=False, user=user, prefix=_named(lab.a), env=env)
    code = program.wait(timeout)
    check(code == 0, f"exit code {code} (None: hangs)\n{program.output}")
    result = re.search(r"mpi_exchange: \d+ ranks, \d+ messages, (\d+) bytes, hash \w+", program.stdout)
    check(result, f"no result\n{program.output}")
    # Both directions of what crossed between the ranks, if only for the most part, in packets of 4096 bytes at most.
    engines = packets_sent(program.output)
    check(len(engines) >= sum(ranks), f"not every rank has used uroce: {engines}\n{program.output}")
    check(sum(engines) >= int(result[1]) // 4096 // 2, f"uroce has not sent it all: {engines}\n{program.output}")
    if io == FIRST:
        queues = len(re.findall(r"^uroce: roce0: af_xdp", program.output, re.MULTILINE))
        check(queues == sum(count > 0 for count in ranks), f"AF_XDP in {queues} ranks\n{program.output}")
    return result[0].removeprefix("mpi_exchange: ")
