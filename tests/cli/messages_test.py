#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What uroce and uroced say when something is wrong has one form, "uroce: WHAT: WHY; WHAT TO DO" in a line on stderr, with an
exit code that the manual page lists for the subcommand; and colours are for terminals only.

Usage: messages_test.py DIRECTORY_OF_PROGRAMS SOURCE_DIR
"""
import os
import pty
import re
import subprocess
import sys
import tempfile

programs, source = sys.argv[1:]
LIBRARY = os.path.join(os.path.dirname(programs), "lib/uroce")
FORM = re.compile(r"^uroced?: \S[^\n]*?(: |; )\S[^\n]*[^.\n]\n$")
PARSER = re.compile(r"TEXT|UINT|INT:|required|excludes|\d\.000|e\+\d\d|not in range")  # CLI11's own words
failures = []
seen = {}  # exit codes by subcommand

# Exit code, what the line has, the arguments. {} is a file that is not a capture, {/} a directory.
ALONE = [
    (2, "nonsense: not expected here; see uroce --help", "nonsense"),
    (2, "--nonsense: not expected here; see uroce --help", "--nonsense"),
]
SUBCOMMANDS = {
    "run": [
        (2, "a program is missing; for example: uroce run ibv_devices", ""),
        (2, "--io: its value is missing; see uroce run --help", "--io"),
        (2, "--io: pigeon is none of auto, ", "--io pigeon true"),
        (2, "--io: given more than once", "--io udp --io udp true"),
        (2, "--xdp-mode: x is none of auto, native, generic", "--xdp-mode x true"),
        (2, "--patience: 0 is no number from 1 to 86400; see uroce run --help", "--patience 0 true"),
        (2, "--patience: 10s is no number", "--patience 10s true"),
        (2, "--nonsense: not expected here; see uroce run --help", "--nonsense true"),
        (2, "--alone: not with --broker", "--alone --broker x true"),
        (2, "--faults: bad fault 'drop=lots'; valid: ", "--faults drop=lots true"),
        (2, "--netdev 'a,': no list of netdevs; ", "--netdev a, true"),
        (2, "--name: 'eth0' is not NETDEV=NAME, e.g. eth0=mlx5_0; ", "--name eth0 true"),
        (2, "--name: 'a/b' cannot be the name of a device: up to 63 letters, ", "--name eth0=a/b true"),
        (2, "--dpdk-addresses: only with --io dpdk:PORT", "--dpdk-addresses {} true"),
        (2, "--capture-snap: only with --capture", "--capture-snap 100 true"),
        (2, "--capture-snap: 1 is no number from 64 to 262144", "--capture {} --capture-snap 1 true"),
        (2, "--capture -: it takes a file; to watch in a pipe: uroce capture -w -", "--capture - true"),
        (2, "--capture-files, --capture-size: only together; ", "--capture {} --capture-files 2 true"),
        (2, "--capture-files: 1 is no number from 2 to 99999", "--capture {} --capture-files 1 true"),
        (2, "--capture-size: 0 is no number", "--capture {} --capture-size 0 true"),
        (2, "--capture-qpn 'x': no list of up to 16 QPNs; ", "--capture {} --capture-qpn x true"),
        (2, "--capture '%x': after % there may be ", "--capture %x true"),
        (1, "cannot write to /nonexistent: No such file", "--capture /nonexistent/x true"),
        (1, "no usable netdev 'nosuch0'; there ", "--netdev nosuch0 true"),
        (1, "--user nosuch0: there is no such user", "--user nosuch0 true"),
        (1, "--user root: that is root; ", "--user root true"),
        (1, "/nonexistent: cannot be read", "--io dpdk:x --dpdk-addresses /nonexistent true"),
        (2, "--dpdk-tap: only with --io dpdk:PORT", "--dpdk-tap t0 true"),
        (2, "--dpdk-tap: only with --io dpdk:PORT", "--io dpdk --dpdk-tap t0 true"),
        (2, "--dpdk-tap: only with --io dpdk:PORT", "--io dpdk:net_af_packet0 --dpdk-tap t0 true"),
        (1, "--dpdk-tap lo: no such tap; make it: sudo ip tuntap add dev lo mode tap", "--io dpdk:x --dpdk-tap lo true"),
        (1, "--dpdk-tap ../x: no such tap", "--io dpdk:x --dpdk-tap ../x true"),
        (126, "{}: not an executable file", "{}"),
        (126, "{/}: not an executable file", "{/}"),
        (127, "no-such-command: command not found", "no-such-command"),
    ],
    "devices": [
        (2, "x: not expected here; see uroce devices --help", "x"),
        (2, "--gids: not with --json", "--json --gids"),
        (1, "UROCE_NETDEV", "", {"UROCE_NETDEV": "a,"}),
        (2, "UROCE_IO: x is none of auto, ", "", {"UROCE_IO": "x"}),
    ],
    "doctor": [
        (2, "x: not expected here; see uroce doctor --help", "x"),
        (2, "--netdev: its value is missing", "--netdev"),
        (1, "no usable netdev 'nosuch0'; see uroce devices", "--netdev nosuch0"),
        (2, "UROCE_PATIENCE: x is no number from 1 to 86400; see uroce run --help", "", {"UROCE_PATIENCE": "x"}),
    ],
    "stat": [
        (2, "x: not expected here; see uroce stat --help", "x"),
        (2, "--interval: x is no number from 0 to 86400", "--interval x"),
        (2, "--interval: -1 is no number", "--interval -1"),
        (2, "--interval 0.01: --watch needs 0.1 or more", "--watch --interval 0.01"),
        (2, "--count: only with --watch", "--count 3"),
        (2, "--count: 0 is no number from 1 on", "--watch --count 0"),
        (2, "--qps: 4097 is no number from 0 to 4096", "--qps 4097"),
        (2, "--json: not with --watch", "--json --watch"),
        (2, "--serve 'x': neither PORT nor ", "--serve x"),
        (1, "cannot listen at 192.0.2.77:9: ", "--serve 192.0.2.77:9"),
        (3, "no broker at /nonexistent: No such file or directory; uroce run starts one", "--broker /nonexistent"),
        (3, "no broker at @nosuch: Connection refused; ", "--watch --broker @nosuch"),
    ],
    "capture": [
        (2, "-w: a file is missing; for example: ", ""),
        (2, "--files, --size: only together; ", "-w {} --files 3"),
        (2, "--files, --size: not with -w -; ", "-w - --files 3 --size 1"),
        (2, "--qpn 'x': no list of QPNs; ", "-w {} --qpn x"),
        (2, "--snap: 1 is no number from 64 to 262144", "-w {} --snap 1"),
        (2, "--count: 0 is no number from 1 on", "-w {} -c 0"),
        (2, "--duration: x is no number from 0.001 to 1000000000", "-w {} --duration x"),
        (1, "no process 999999999; see uroce capture --list", "999999999 -w {}"),
        (1, "no process has 'nosuch0' open; see uroce capture --list", "nosuch0 -w {}"),
    ],
    "check": [
        (2, "a file is missing; for example: uroce check ", ""),
        (2, "cannot open /nonexistent: No such file", "/nonexistent"),
        (2, "cannot open {/}: Is a directory", "{/}"),
        (2, "{}: neither pcapng nor pcap", "{}"),
        (2, "--slack 'x': no duration; for example: ", "--slack x {}"),
        (2, "--at 'x': neither an IPv4 nor an IPv6 address", "--at x {}"),
        (2, "--mtu: 1500 is none of 256, 512, ", "--mtu 1500 {}"),
        (2, "--limit: x is no number from 0 on", "--limit x {}"),
        (2, "--quiet: not with --json", "--json --quiet {}"),
    ],
    "version": [(2, "x: not expected here; see uroce version --help", "x")],
}  # fmt: skip
UROCED = [
    (2, "x: not expected here; see uroced --help", "x"),
    (2, "--linger: -1 is no number from 0 to 1000000; see uroced --help", "--linger -1"),
    (2, "--ready: x is no number", "--ready x"),
    (2, "--group nosuch0: there is no such group", "--group nosuch0"),
    (2, "--user nosuch0: there is no such user", "--user nosuch0"),
    (2, "--faults: bad fault 'x'; valid: ", "--faults x"),
]
OF_LIBRARY = ["UROCE_IO=x", "UROCE_NETDEV=a,", "UROCE_FAULTS=x", "UROCE_XDP_MODE=x", "UROCE_PATIENCE=x", "UROCE_CC=x",
              "UROCE_CAPTURE=%x", "UROCE_CAPTURE_SNAP=x", "UROCE_CAPTURE_QPN=x"]  # fmt: skip
SUCCESS = {"run": {0}, "devices": {0}, "doctor": {0}, "stat": {0}, "capture": {0}, "check": {0, 1}, "version": {0}}  # without a complaint


def clean(more):
    return {**{name: value for name, value in os.environ.items() if not name.startswith(("UROCE_", "LD_", "NO_COLOR"))}, **more}


def fail(what, text):
    failures.append(f"{what}: {text}")


def judge(command, code, words, more, allowed):
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=clean(more), stdin=subprocess.DEVNULL)
    what = " ".join([*(f"{k}={v}" for k, v in more.items()), *command])
    if done.returncode != code:
        fail(what, f"exit code {done.returncode}, not {code}: {done.stderr}")
    if allowed is not None and done.returncode not in allowed:
        fail(what, f"exit code {done.returncode} is not in the manual page")
    if words not in done.stderr:
        fail(what, f"no '{words}' in: {done.stderr}")
    if not FORM.match(done.stderr) or "\033" in done.stderr:
        fail(what, f"not of the form 'uroce: what: why; what to do': {done.stderr!r}")
    if PARSER.search(done.stderr):
        fail(what, f"the parser's own words: {done.stderr}")
    if done.stdout:
        fail(what, f"on stdout: {done.stdout}")
    return done.returncode


def exit_codes(page):
    """{subcommand: its exit codes} of the manual page's EXIT STATUS."""
    with open(os.path.join(source, "docs", page)) as file:
        section = re.search(r"^\.SH EXIT STATUS\n(.*?)(?=^\.SH)", file.read(), re.M | re.S)[1]
    parts = re.split(r"^\.TP\n\.B(?:R)? ", section, flags=re.M)[1:]
    return {part.split()[0]: {int(n) for n in re.findall(r"(?<![\w.])(\d+)\b(?= *[\w(])", part.split("\n", 1)[1])} for part in parts}


def complaints(directory):
    file = os.path.join(directory, "file")
    with open(file, "w") as text:
        text.write("nothing that anybody could read as a capture\n")
    fill = lambda text: text.replace("{/}", directory).replace("{}", file)
    uroce = os.path.join(programs, "uroce")
    listed = exit_codes("uroce.1")
    if set(listed) != set(SUBCOMMANDS):
        fail("uroce.1", f"EXIT STATUS is about {sorted(listed)}, and there are {sorted(SUBCOMMANDS)}")
    for name, rows in [("", ALONE), *SUBCOMMANDS.items()]:
        codes = set(SUCCESS.get(name, ()))
        for code, words, arguments, *more in rows:
            command = [uroce, *([name] if name else []), *map(fill, arguments.split())]
            codes.add(judge(command, code, fill(words), more[0] if more else {}, listed.get(name)))
        if name and listed.get(name) != codes:
            fail(f"uroce {name}", f"exits with {sorted(codes)}; uroce.1 says {sorted(listed.get(name, ()))}")
    for code, words, arguments in UROCED:
        judge([os.path.join(programs, "uroced"), *arguments.split()], code, words, {}, None)
    for setting in OF_LIBRARY:
        more = dict([setting.split("=", 1)], LD_LIBRARY_PATH=LIBRARY)
        said = subprocess.run(["ibv_devices"], capture_output=True, text=True, timeout=30, env=clean(more)).stderr.splitlines()
        if not said or not FORM.match(said[0] + "\n") or setting.split("=")[0] not in said[0]:
            fail(f"{setting} ibv_devices", f"not of the form: {said}")


def on_terminal(command, more):
    """What it writes to a terminal."""
    leader, follower = pty.openpty()
    with subprocess.Popen(command, stdout=follower, stderr=follower, stdin=subprocess.DEVNULL, env=clean(more)):
        os.close(follower)
        text = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # EIO: nobody has the other end any more
                break
            if not piece:
                break
            text += piece
    os.close(leader)
    return text.decode()


def colours():
    uroce = os.path.join(programs, "uroce")
    coloured = "\033["
    if coloured not in on_terminal([uroce, "doctor"], {"TERM": "xterm"}):
        fail("uroce doctor", "no colours on a terminal")
    for more in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}):
        if coloured in on_terminal([uroce, "doctor"], more):
            fail("uroce doctor", f"colours with {more}")
    for arguments in (["doctor"], ["devices"], ["stat", "--interval", "0"], ["run", "--help"], ["doctor", "--json"]):
        done = subprocess.run([uroce, *arguments], capture_output=True, text=True, timeout=30, env=clean({"TERM": "xterm"}))
        if coloured in done.stdout + done.stderr:
            fail(" ".join(["uroce", *arguments]), "colours in a pipe")
    for arguments in (["doctor", "--json"], ["nonsense"], ["devices"]):
        if coloured in on_terminal([uroce, *arguments], {"TERM": "xterm"}):
            fail(" ".join(["uroce", *arguments]), "colours where nothing has any")


def one_way_out():
    """Nothing in the command's sources writes to stderr but complain(), and the line of progress."""
    for file in sorted(os.listdir(os.path.join(source, "cli"))):
        if file.endswith((".cc", ".h")) and file not in ("complaint.h", "progress_line.cc"):
            with open(os.path.join(source, "cli", file)) as text:
                for number, line in enumerate(text, 1):
                    code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line.split("//")[0])
                    if re.search(r"\bstderr\b|\bcerr\b|\bperror\(", code):
                        fail(f"cli/{file}:{number}", "writes to stderr itself")


with tempfile.TemporaryDirectory() as scratch:
    complaints(scratch)
colours()
one_way_out()
print("\n".join(failures))
sys.exit(1 if failures else 0)
