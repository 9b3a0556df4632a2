# SPDX-License-Identifier: BSD-2-Clause
"""Runs a pair of perftest programs (or ibv_*_pingpong) in a Lab and reads their results. See lab.py."""

import dataclasses
import itertools
import re
import shlex
import time

from lab import LabError

BANDWIDTH = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw")
LATENCY = ("ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat")
PINGPONG = "ibv_rc_pingpong"
PINGPONGS = (PINGPONG, "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong")

_ports = itertools.count(18515)

# The column heads that perftest 4.5 and later print; they contain blanks.
_COLUMN = re.compile(r"#\w+|BW \w+\[[^\]]+\]|MsgRate\[\w+\]|t_\w+\[\w+\]|[\d.]+% percentile\[\w+\]|tps average")


@dataclasses.dataclass
class Side:
    """How one side is started: arguments of Host.start()."""

    io: str | None = None
    faults: str | None = None
    user: bool = False
    options: tuple = ()


@dataclasses.dataclass
class Result:
    """Outcome of a pair."""

    problem: str = ""  # empty: both sides ended well
    rows: list = dataclasses.field(default_factory=list)  # of the client: one {column head: number} per size
    io_modes: tuple = ("", "")  # what uroce said about its packet I/O: server, client
    seconds: float = 0.0
    outputs: tuple = ("", "")
    commands: tuple = ("", "")

    def report(self, lines=15):
        """The end of what both programs wrote."""
        text = []
        for side, command, output in zip(("server", "client"), self.commands, self.outputs):
            text.append(f"--- {side}: {command}")
            text += output.rstrip().splitlines()[-lines:]
        return "\n".join(text)


def lacks_clock(output):
    """It compares the processor's clock with the system's, and ends where they differ as on a busy emulator; the transfer is over then."""
    return "Can't produce a report" in output


def parse_rows(output):
    """Rows of numbers under the last-seen head that begins with #bytes, as {column head: number}."""
    rows, columns = [], []
    # perftest ends a row's line later; what uroce writes at its end may come between where both go to one file.
    for line in re.sub(r"uroce: .*", "", output).splitlines():
        if line.lstrip().startswith("#bytes"):
            columns = _COLUMN.findall(line)
            continue
        words = line.split()
        if columns and len(words) >= len(columns) and all(re.fullmatch(r"-?[\d.]+|inf|-?nan", word) for word in words):
            rows.append(dict(zip(columns, map(float, words))))
    return rows


def parse_pingpong(output):
    """The two lines of the ibv_*_pingpong programs in the same form."""
    if re.search(r"^success$", output, re.MULTILINE):  # all that ibv_xsrq_pingpong says
        return [{"#iterations": 1}]
    size = re.search(r"^(\d+) bytes in .* = ([\d.]+) Mbit/sec", output, re.MULTILINE)
    rate = re.search(r"^(\d+) iters in .* = ([\d.]+) usec/iter", output, re.MULTILINE)
    if not size or not rate:
        return []
    bytes_per_message = int(size[1]) / int(rate[1]) / 2  # it counts both directions
    return [{"#bytes": bytes_per_message, "#iterations": float(rate[1]), "t_iter[usec]": float(rate[2])}]


def io_mode(output):
    """What uroce said about its packet I/O: "uroce: roce0: af_xdp, native" -> "af_xdp, native"."""
    said = re.search(r"^uroce: \S+: (.*)$", output, re.MULTILINE)
    return said[1] if said else ""


def describe(row):
    """The figure that a row is about, in a word."""
    for column in ("BW average[Gb/sec]", "t_typical[usec]", "t_iter[usec]"):
        if column in row:
            return f"{row[column]:.2f} {column[column.index('[') + 1 : -1]}"
    return ""


def _command(program, arguments, host, port, gid, server_address):
    base = [program, "-d", host.device, "-p", str(port)]
    gid = host.gid_index.get(gid, gid)
    if program in PINGPONGS:
        base += ["-g", str(gid)]
    else:
        base += ["-F", "-x", str(gid)]
        base += ["--report_gbits"] if program in BANDWIDTH else []
    return [*base, *map(str, arguments), *([server_address] if server_address else [])]


def _judge(program, codes, result):
    for side, code in zip(("server", "client"), codes):
        if code is None:
            return f"the {side} hangs"
        if code < 0:
            return f"the {side} was ended by signal {-code}"
        if code > 0:
            return f"the {side} failed with exit code {code}"
    if "invalid data" in "".join(result.outputs):
        return "invalid data was received"
    return "" if result.rows else f"{program} printed no result"


# perftest measures the clock of the CPU first, and where that is too uneven (a busy virtual machine) it says so and fails.
NO_CLOCK = "Can't produce a report"
CLOCK_TRIES = 3


def run_pair(*arguments, **options):
    """run_pair_once(), and again where perftest could not measure the CPU's clock."""
    for _ in range(CLOCK_TRIES):
        result = run_pair_once(*arguments, **options)
        if NO_CLOCK not in "".join(result.outputs):
            break
    return result


def run_pair_once(lab, program, arguments=(), gid=0, server=Side(), client=Side(), timeout=60, words=((), ())):
    """Runs server on lab.a and client on lab.b; a hang is ended after `timeout` seconds and is a problem.

    gid: an index, or "ipv4", "ipv6" or "link-local", whatever index that has on either host. words: arguments of the server
    alone, and of the client alone."""
    port = next(_ports)
    commands = (
        _command(program, [*arguments, *words[0]], lab.a, port, gid, None),
        _command(program, [*arguments, *words[1]], lab.b, port, gid, lab.a.ipv4),
    )
    result = Result(commands=tuple(map(shlex.join, commands)))
    start = time.monotonic()
    programs = [lab.a.start(commands[0], **dataclasses.asdict(server))]
    codes = [None, None]
    try:
        programs[0].wait_listening(port)
        programs.append(lab.b.start(commands[1], **dataclasses.asdict(client)))
        codes[1] = programs[1].wait(timeout)
        # The client's failure leaves the server waiting; its success ends it at once.
        codes[0] = programs[0].wait(10 if codes[1] == 0 else 1)
    except LabError as error:
        result.problem = str(error)
    lab.stop_programs()
    result.seconds = time.monotonic() - start
    result.outputs = tuple(p.output for p in programs) + ("",) * (2 - len(programs))
    result.io_modes = tuple(map(io_mode, result.outputs))
    result.rows = (parse_pingpong if program in PINGPONGS else parse_rows)(result.outputs[1])
    if not result.problem:
        # What the client says comes first: its failure is the cause of the server's.
        result.problem = _judge(program, codes, result) if codes[1] in (0, None) else _judge(program, (0, codes[1]), result)
    return result
