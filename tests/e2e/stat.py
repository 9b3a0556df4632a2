#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""uroce stat beside programs that run: whether its figures are those of perftest, who sees whom, and programs that mean harm. See suite.py."""

import fcntl
import itertools
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import sys
import termios
import time

from suite import Case, check, main
from broker import end_brokers
from lab import BACKGROUND, NOBODY, REPOSITORY, wait_until

_ports = itertools.count(19000)
MESSAGE, MTU = 65536, 1024
PACKETS = MESSAGE // MTU
# UDP header, BTH and ICRC around each packet, RETH in the first one.
BYTES = MESSAGE + PACKETS * (8 + 12 + 4) + 16


def uroce(lab, user=False):
    return str(lab.uroce_for(user))


def stat(lab, host, *options, user=False, code=0):
    program = host.run([uroce(lab, user), "stat", *options], uroce=False, user=user)
    check(program.process.returncode == code, f"exit code {program.process.returncode}\n{program.output}")
    return program.stdout if code == 0 else program.output


def look(lab, host, *options, user=False):
    return json.loads(stat(lab, host, "--json", *options, user=user))


def totals(lab, host):
    """Those of the only device of each process that answers, by process id."""
    told = look(lab, host, "--interval", 0)["processes"]
    return {process["pid"]: process["devices"][0]["totals"] for process in told if process["devices"]}


def wait_for_broker(host, program):
    wait_until(lambda: "@uroced" in host.system("cat", "/proc/net/unix") or not program.running(), 10, "uroced listens")


def start_broker(lab, host, *options):
    end_brokers(lab)
    broker = host.start([lab.program_for(False, "uroced"), *options], uroce=False)
    wait_for_broker(host, broker)
    check(broker.running(), broker.output)


def endless(lab, server_host, client_host, program="ib_write_bw", arguments=(), user=False, faults=None):
    port = next(_ports)
    command = [program, "-d", server_host.device, "-F", "-x", 0, "-m", MTU, "-u", 20, "-p", port, "--run_infinitely", "-D", 1, *arguments]
    server = server_host.start(command, io="udp", user=user, prefix=BACKGROUND)
    server.wait_listening(port)
    client = client_host.start([*command, server_host.ipv4], io="udp", user=user, faults=faults, prefix=BACKGROUND)
    wait_until(lambda: len(iterations(client)) > 0 or not client.running(), 30, "a result each second")
    check(client.running(), client.output)
    return server, client


def iterations(client):
    """Messages of each second, as perftest says."""
    return [int(line.split()[1]) for line in client.stdout.splitlines() if line.strip().startswith(str(MESSAGE))]


def proxy(port, address, to_port):
    """Runs as a program of its own: passes on what perftest's client and server say to each other, over TCP."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        near, _ = listener.accept()
        far = socket.create_connection((address, to_port))
        while True:
            for end in select.select([near, far], [], [])[0]:
                (far if end is near else near).sendall(end.recv(65536))


def figures_agree(lab):
    """A given number of messages, after which the programs wait for each other for ever: they cannot say that they are done."""
    messages = 20000
    port, client_port = next(_ports), next(_ports)
    command = ["ib_write_bw", "-d", lab.a.device, "-F", "-x", 0, "-m", MTU, "-u", 20, "-n", messages, "-p"]
    server = lab.a.start([*command, port], io="udp")
    server.wait_listening(port)
    between = lab.b.start([sys.executable, "-B", __file__, "--proxy", client_port, lab.a.ipv4, port], uroce=False)
    between.wait_listening(client_port)
    client = lab.b.start([*command, client_port, "127.0.0.1"], io="udp")

    wait_for_broker(lab.b, client)

    def moved():
        return totals(lab, lab.b).get(client.pid, {"tx_packets": 0})

    wait_until(lambda: moved()["tx_packets"] > PACKETS or not client.running(), 20, "packets")
    os.kill(between.pid, signal.SIGSTOP)
    before = moved()["tx_packets"]
    check(client.running() and before < messages * PACKETS, f"too fast: {before} packets\n{client.output}")
    wait_until(lambda: moved()["tx_packets"] >= messages * PACKETS or not client.running(), 60, "all packets")
    time.sleep(0.5)  # ACKs and what is sent again for nothing
    sent, received = moved(), totals(lab, lab.a)[server.pid]
    again = sent["retransmissions"]
    check(sent["tx_packets"] == messages * PACKETS + again, f"{sent}")
    check(messages * BYTES <= sent["tx_bytes"] <= messages * BYTES + again * 1100, f"{sent}, {messages * BYTES} bytes expected")
    check(messages * PACKETS <= received["rx_packets"] <= sent["tx_packets"], f"{received} of {sent}")
    check(messages * BYTES <= received["rx_bytes"] <= sent["tx_bytes"], f"{received} of {sent}")
    check(0 < sent["rx_packets"] <= received["tx_packets"], f"ACKs: {sent}, {received}")
    return f"{sent['tx_packets']} packets, {again} of them again"


def qps_and_rates(lab):
    server, client = endless(lab, lab.a, lab.b, "ib_send_bw", ["-q", 3])
    theirs = {qp["qpn"]: qp for process in look(lab, lab.a)["processes"] for device in process["devices"] for qp in device["qps"]}
    (process,) = look(lab, lab.b)["processes"]
    check(process["pid"] == client.pid and process["program"] == "ib_send_bw" and process["uid"] == 0, process)
    (device,) = process["devices"]
    check(device["device"] == lab.b.device and device["netdev"] == lab.b.netdev and device["packet_io"].startswith("udp"), device)
    check(device["qp_counts"] == [{"type": "rc", "state": "rts", "count": 3}] and device["qp_count"] == 3, device["qp_counts"])
    for qp in device["qps"]:
        check(qp["peer"] == lab.a.ipv4 and theirs[qp["peer_qpn"]]["peer_qpn"] == qp["qpn"], f"{qp}\n{theirs}")
        check(qp["type"] == "rc" and qp["state"] == "rts" and qp["posted_sends"] > 0, qp)
    sent = sum(qp["rates"]["sent"] for qp in device["qps"])
    check(0.5 < sent / device["rates"]["tx_packets"] < 1.5, f"{sent} PSNs, {device['rates']}")
    check(server.running(), server.output)
    return f"{sent:.0f} packets/s"


def drops_by_name(lab):
    server, client = endless(lab, lab.a, lab.b, faults="corrupt=0.5%,seed=5")
    (at_server,) = [process for process in look(lab, lab.a, "--interval", 0)["processes"] if process["pid"] == server.pid]
    (device,) = at_server["devices"]
    check(device["drops"]["bad_icrc"] > 0 and device["counters"]["drop_bad_icrc"] == device["drops"]["bad_icrc"], device["drops"])
    check(device["totals"]["drops"] == sum(device["drops"].values()), device)
    check(totals(lab, lab.b)[client.pid]["retransmissions"] > 0, "nothing was sent again")
    shown = stat(lab, lab.a, "--interval", 0)
    check(re.search(rf"{server.pid} +roce0 +- +\S+ bad_icrc", shown), shown)
    metrics = prometheus(stat(lab, lab.a, "--prometheus"))
    (value,) = [value for labels, value in metrics["uroce_drops_total"].items() if ("reason", "bad_icrc") in labels]
    check(value >= device["drops"]["bad_icrc"], value)


def prometheus(text):
    """The samples of each metric, by labels; Failure where the text format is not kept."""
    metrics, helped, current = {}, set(), None
    check(text.endswith("\n"), "the last line does not end")
    for line in text.splitlines():
        if match := re.fullmatch(r"# HELP ([a-zA-Z_:][\w:]*) .*", line):
            current = match[1]
            check(current not in helped, line)
            helped.add(current)
        elif match := re.fullmatch(r"# TYPE ([\w:]+) (counter|gauge)", line):
            check(match[1] == current and current not in metrics and (match[2] == "counter") == current.endswith("_total"), line)
            metrics[current] = {}
        else:
            match = re.fullmatch(r'([\w:]+)\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\d+)', line)
            check(match and match[1] == current, line)
            labels = tuple(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', match[2]))
            check(labels not in metrics[current], f"twice: {line}")
            metrics[current][labels] = int(match[3])
    return metrics


def fetch(host, url, *options):
    """Status, content type and body of an answer by HTTP."""
    program = host.run(["curl", "--silent", "--show-error", "--max-time", "20", "--write-out", "\n%{http_code} %{content_type}",
                        *options, url], uroce=False)
    check(program.process.returncode == 0, program.output)
    body, _, written = program.stdout.rpartition("\n")
    status, _, content = written.partition(" ")
    return int(status), content, body


def served(lab):
    """Prometheus by HTTP: with a broker, without one, and with requests that it has no answer for."""
    end_brokers(lab)
    port = next(_ports)
    url = f"http://127.0.0.1:{port}"
    server = lab.b.start([uroce(lab), "stat", "--serve", port], uroce=False)
    wait_until(lambda: "serving" in server.output or not server.running(), 10, "it listens")
    check(server.running(), server.output)
    check(fetch(lab.b, url + "/metrics")[2].endswith("\nuroce_up 0\n"), "it sees a broker where none is")
    _, client = endless(lab, lab.a, lab.b)
    status, content, body = fetch(lab.b, url + "/metrics")
    check(status == 200 and content == "text/plain; version=0.0.4; charset=utf-8", f"{status} {content}")
    head, up, rest = body.partition("\nuroce_up 1\n")
    check(up and head.startswith("# HELP uroce_up "), body[:300])
    samples = prometheus(rest)
    pids = {dict(labels)["pid"] for labels in samples["uroce_transmit_bytes_total"]}
    check(str(client.pid) in pids, f"{client.pid} is not in {pids}")
    check(fetch(lab.b, url + "/nothing")[0] == 404, "a path that is not there")
    check(fetch(lab.b, url + "/metrics", "--data", "x" * 100000)[0] == 405, "a POST")
    check(fetch(lab.b, url + "/metrics", "--head")[0] == 200, "a HEAD")
    second = lab.b.run([uroce(lab), "stat", "--serve", f"127.0.0.1:{port}"], uroce=False)
    check(second.process.returncode == 1 and f"cannot listen at 127.0.0.1:{port}: Address already in use" in second.output,
          second.output)
    server.process.send_signal(signal.SIGTERM)
    check(server.process.wait(10) == 0, server.output)


def documented(lab):
    """Keys of the JSON and metrics are in docs/monitoring.md, and the dashboard asks for metrics that exist."""
    endless(lab, lab.a, lab.b)
    page = (REPOSITORY / "docs/monitoring.md").read_text()
    names = set(re.findall(r"`(\w+)`", page))

    def keys(value, free=False):
        if isinstance(value, dict):
            for key, inner in value.items():
                if not free:
                    yield key
                yield from keys(inner, key in ("drops", "counters"))
        if isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    metrics = set(prometheus(stat(lab, lab.a, "--prometheus")))
    missing = (set(keys(look(lab, lab.a))) | metrics) - names
    check(not missing, f"not documented: {missing}")
    asked = set(re.findall(r"\buroce_\w+", json.dumps(json.loads((REPOSITORY / "docs/grafana.json").read_text())["panels"])))
    check(len(asked) > 5 and asked <= metrics | {"uroce_up"}, f"in the dashboard only: {asked - metrics}")


def users(lab):
    """Root sees all, others see their own."""
    start_broker(lab, lab.a)
    of_root, of_user = endless(lab, lab.a, lab.a), endless(lab, lab.a, lab.a, user=True)
    pids = {program.pid for program in (*of_root, *of_user)}
    seen = {process["pid"]: process["uid"] for process in look(lab, lab.a, "--interval", 0)["processes"]}
    check(set(seen) == pids and seen[of_user[0].pid] == NOBODY and seen[of_root[0].pid] == 0, f"root sees {seen}")
    seen = {process["pid"] for process in look(lab, lab.a, "--interval", 0, user=True)["processes"]}
    check(seen == {program.pid for program in of_user}, f"the user sees {seen} of {pids}")


def from_elsewhere(lab):
    """The broker of another network namespace, through a path."""
    path = lab.directory / "uroced.sock"
    start_broker(lab, lab.a, "--socket", path)
    server, client = endless(lab, lab.a, lab.a)
    wait_until(path.exists, 10, "the path is there")
    seen = {process["pid"] for process in look(lab, lab.b, "--broker", path)["processes"]}
    check(seen == {server.pid, client.pid}, seen)


def stopped(lab):
    """A program that does not answer."""
    pairs = [endless(lab, lab.a, lab.b), endless(lab, lab.a, lab.b)]
    victim = pairs[0][1]
    os.kill(victim.pid, signal.SIGSTOP)
    answers = {process["pid"]: process["answer"] for process in look(lab, lab.b)["processes"]}
    check(answers == {victim.pid: "none", pairs[1][1].pid: "whole"}, answers)
    check(re.search(rf"{victim.pid} +root +ib_write_bw +\(no answer\)", stat(lab, lab.b)), "it is not shown")
    os.kill(victim.pid, signal.SIGCONT)
    wait_until(lambda: all(p["answer"] == "whole" for p in look(lab, lab.b)["processes"]), 20, "it answers again")


# --- programs that mean harm ------------------------------------------------------------------------------------------

MESSAGE_FORMAT = "=IHH192siiIIIIQQiI16x"  # broker/protocol/protocol.h
MAGIC, HELLO = 0x75726F63, 1
VERSION = int(re.search(r"kProtocolVersion = (\d+);", (REPOSITORY / "broker/protocol/protocol.h").read_text())[1])
ESCAPE = "\x1b]0;owned\x07\x1b[2J"


def hostile(answers):
    """Runs as a program of its own: a client that says `answers` of itself, one for each time that it is asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as broker:
        broker.connect("\0uroced")
        name = (ESCAPE + '"}\\\n').encode()
        namespace = os.stat("/proc/self/ns/net").st_ino
        broker.send(struct.pack(MESSAGE_FORMAT, MAGIC, VERSION, HELLO, name, 0, 0, 0, 0, 0, 0, namespace, 0, 0, 0))
        _, (descriptor,), _, _ = socket.recv_fds(broker, 4096, 4)
        with socket.socket(fileno=descriptor) as questions:
            questions.setblocking(True)
            print("ready", flush=True)
            for answer in itertools.cycle(answers):
                _, (file, bell), _, _ = socket.recv_fds(questions, 4096, 4)
                with os.fdopen(file, "wb") as asked:
                    asked.write(answer)
                os.close(bell)


def report(*lines):
    return "\n".join(["uroce-statistics 1", "time 5", f"device {ESCAPE} eth0 {ESCAPE}", *lines, "end", ""]).encode()


HOSTILE_ANSWERS = [
    b"",
    os.urandom(5000),
    b"x" * (4 << 20),
    report("counter drop_a" + ESCAPE + " 1"),
    report('counter drop_a"} 1'),
    report(f"counter tx_packets {2**64 - 1}", f"counter drop_a {2**64 - 1}", f"counter drop_b {2**64 - 1}", f"qps rc rts {2**64 - 1}"),
    report(*[f"qp {n} rc rts {n} {ESCAPE} {2**32 - 1} 0 0 0" for n in range(3000)]),
]


def harm(lab):
    good = endless(lab, lab.a, lab.b)
    bad = lab.a.start([sys.executable, "-B", __file__, "--hostile"], uroce=False)
    wait_until(lambda: "ready" in bad.stdout or not bad.running(), 10, "the hostile client is there")
    answers = set()
    for _ in HOSTILE_ANSWERS:
        told = look(lab, lab.a, "--qps", 4096)
        answers |= {process["answer"] for process in told["processes"] if process["pid"] == bad.pid}
        (device,) = next(process["devices"] for process in told["processes"] if process["pid"] == good[0].pid)
        check(device["rates"]["rx_packets"] > 0, device)
        prometheus(stat(lab, lab.a, "--prometheus"))
        shown = stat(lab, lab.a, "--qps", 4096)
        check("\x1b" not in shown and "\x07" not in shown and str(good[0].pid) in shown, repr(shown[:2000]))
    check(bad.running() and {"whole", "broken"} <= answers, f"{answers} {bad.output}")


# --- the terminal -----------------------------------------------------------------------------------------------------


class Terminal:
    """A program on a pseudo terminal."""

    def __init__(self, argv, rows=24, columns=80):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execvp(argv[0], argv)
        self.resize(rows, columns)
        self.output = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, condition, what):
        wait_until(lambda: self.read() and condition(self.output), 20, f"{what}: {self.output!r}")

    def read(self):
        while select.select([self.terminal], [], [], 0)[0]:
            try:
                self.output += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:  # the program has ended
                break
        return True

    def frame(self):
        """The lines of the last whole picture."""
        return self.output.split("\x1b[H")[-2].replace("\r", "").replace("\x1b[K", "").split("\n")

    def type(self, keys):
        os.write(self.terminal, keys)

    def ended(self):
        wait_until(lambda: self.read() and "\x1b[?1049l" in self.output, 20, "the terminal is given back")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        return status


def watch_on_terminal(lab):
    pairs = [endless(lab, lab.a, lab.a), endless(lab, lab.a, lab.b)]
    command = [*lab.a.enter, uroce(lab), "stat", "--watch", "--interval", "0.5"]
    terminal = Terminal(command)
    terminal.wait_for(lambda output: output.count("\x1b[H") > 4, "pictures")
    for server, client in pairs:
        check(server.running() and client.running(), f"ended: {client.output}\n--- server\n{server.output}")
        check(any(line.split()[:3] == [str(server.pid), "root", "ib_write_bw"] for line in terminal.frame()), terminal.frame())
    check(all(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= 80 for line in terminal.frame()), terminal.frame())
    terminal.resize(6, 40)
    terminal.output = ""
    terminal.wait_for(lambda output: output.count("\x1b[H") > 3, "smaller pictures")
    check(len(terminal.frame()) <= 6, terminal.frame())
    terminal.type(b"q")
    check(os.waitstatus_to_exitcode(terminal.ended()) == 0, "exit code")
    terminal = Terminal(command)
    terminal.wait_for(lambda output: "\x1b[H" in output, "a picture")
    os.kill(terminal.pid, signal.SIGTERM)
    check(os.waitstatus_to_exitcode(terminal.ended()) == -signal.SIGTERM, "it ends by the signal")


def watch_in_lines(lab):
    server, client = endless(lab, lab.a, lab.b)
    lines = stat(lab, lab.b, "--watch", "--interval", "0.2", "--count", 5).splitlines()
    check(len(lines) == 6 and lines[0].startswith("TIME") and all(f" {client.pid} " in line for line in lines[1:]), lines)
    check(server.running(), server.output)


def broker_comes_and_goes(lab):
    told = stat(lab, lab.b, code=3)
    check("no broker runs" in told and "uroce run" in told, told)
    told = stat(lab, lab.b, "--broker", "/nosuch", code=3)
    check("/nosuch" in told, told)
    _, client = endless(lab, lab.a, lab.b)
    pid = int(re.search(r"process (\d+)", look(lab, lab.b)["broker"])[1])
    terminal = Terminal([*lab.b.enter, uroce(lab), "stat", "--watch", "--interval", "0.3"])
    terminal.wait_for(lambda output: str(client.pid) in output, "the program")
    os.kill(pid, signal.SIGKILL)
    terminal.wait_for(lambda output: "no broker runs" in output, "that the broker is gone")
    check("no broker runs" in stat(lab, lab.b, code=3), "without a broker")
    lab.b.start([lab.program_for(False, "uroced")], uroce=False)
    terminal.output = ""
    terminal.wait_for(lambda output: str(client.pid) in output, "the program comes to the next broker")
    terminal.type(b"q")
    check(os.waitstatus_to_exitcode(terminal.ended()) == 0, "exit code")


CASES = [
    Case("broker-comes-and-goes", broker_comes_and_goes),
    Case("figures-agree", figures_agree),
    Case("qps-and-rates", qps_and_rates),
    Case("drops-by-name", drops_by_name),
    Case("served", served),
    Case("documented", documented),
    Case("stopped", stopped),
    Case("harm", harm),
    Case("watch-on-terminal", watch_on_terminal),
    Case("watch-in-lines", watch_in_lines),
    Case("users", users),
    Case("from-elsewhere", from_elsewhere),
]

if __name__ == "__main__":
    if sys.argv[1:] == ["--hostile"]:
        hostile(HOSTILE_ANSWERS)
    if sys.argv[1:2] == ["--proxy"]:
        proxy(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    sys.exit(main(__doc__, CASES))
