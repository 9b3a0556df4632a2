#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""The built uroced as it is started: options, whom it serves, what it says and its exit codes, each as uroced(8) has them.

In a network namespace of its own. As root; skips itself otherwise.
Usage: uroced_test.py DIRECTORY_OF_PROGRAMS
"""
import contextlib
import grp
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
USER, OTHER = pwd.getpwnam("daemon"), pwd.getpwnam("bin")
GROUP = grp.getgrgid(USER.pw_gid).gr_name
NO_PRIVILEGES = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
programs = ""


def uroced(*options, before=(), **how):
    return subprocess.Popen([*before, f"{programs}/uroced", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            **how)


def outcome(*options, before=()):
    """Exit code and what it says on stderr, of one that does not serve."""
    broker = uroced(*options, before=before)
    try:
        _, said = broker.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        broker.kill()
        broker.communicate()
        raise
    return broker.returncode, said


@contextlib.contextmanager
def serving(*options, before=()):
    """One that serves; it is asked to end at the end."""
    readable, writable = os.pipe()
    broker = uroced("--ready", str(writable), *options, before=before, pass_fds=[writable])
    os.close(writable)
    with open(readable, encoding="ascii") as ready:
        line = ready.readline()
    try:
        if line != "\n":
            raise AssertionError(f"not ready: {line!r}")
        yield broker
    finally:
        if broker.poll() is None:
            broker.terminate()
        broker.communicate(timeout=20)


def stat(user=None, address=None):
    """Exit code and stderr of `uroce stat`, which the broker serves like any program."""
    command = [f"{programs}/uroce", "stat", "--interval", "0", *(["--broker", address] if address else [])]
    as_user = ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"] if user else []
    done = subprocess.run([*as_user, *command], capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stderr


class ExitCodes(unittest.TestCase):
    def test_0_asked_to_end(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with serving() as broker:
                broker.send_signal(number)
                self.assertEqual(broker.wait(20), 0, number)

    def test_0_nobody_needs_it(self):
        with serving("--linger", "0.1") as broker:
            self.assertEqual(broker.wait(20), 0)

    def test_0_version_and_help(self):
        for option, pattern in (("--version", r"uroced \d+\.\d+\.\d+"), ("--help", "Exit code: 0 .* 3")):
            broker = uroced(option)
            printed, said = broker.communicate(timeout=20)
            self.assertEqual((broker.returncode, said), (0, ""))
            self.assertRegex(printed, re.compile(pattern, re.S))

    def test_1_cannot_listen(self):
        code, said = outcome("--socket", "/nosuch/uroced.sock")
        self.assertEqual((code, said), (1, "uroced: cannot listen at /nosuch/uroced.sock: No such file or directory\n"))

    def test_1_a_file_is_in_the_way(self):
        with tempfile.NamedTemporaryFile() as file:
            code, said = outcome("--socket", file.name)
            self.assertEqual(code, 1)
            self.assertIn(f"{file.name} is taken", said)

    def test_1_the_port_is_taken(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
            port.bind(("", 4791))
            code, said = outcome()
        self.assertEqual(code, 1)
        self.assertIn(f"process {os.getpid()} (", said)

    def test_1_a_stranger_has_the_name(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as name:
            name.bind("\0uroced")
            os.seteuid(USER.pw_uid)
            name.listen()
            os.seteuid(0)
            code, said = outcome()
            self.assertEqual(code, 1)
            self.assertEqual(said, f"uroced: process {os.getpid()} of user {USER.pw_uid} has taken the name @uroced, and no program "
                                   f"believes it to be a broker; end it: kill {os.getpid()}\n")
            code, said = stat()
            self.assertEqual(code, 3, said)
            self.assertIn("no broker runs", said)

    def test_2_wrong_usage(self):
        for options, text in ((["--nonsense"], "see uroced --help"), (["--linger", "-1"], "see uroced --help"),
                              (["--user", "no-such"], "--user no-such: there is no such user"),
                              (["--group", "no-such"], "--group no-such: there is no such group")):
            code, said = outcome(*options)
            self.assertEqual(code, 2, said)
            self.assertIn(text, said)

    def test_3_one_runs_already(self):
        with serving() as broker:
            code, said = outcome()
            self.assertEqual((code, said), (3, f"uroced: process {broker.pid} of user 0 listens at @uroced already; it serves, or "
                                               f"end it: kill {broker.pid}\n"))
            self.assertEqual(stat()[0], 0, "and goes on")


class WhomItServes(unittest.TestCase):
    def test_everybody(self):
        with serving():
            for user in (None, USER, OTHER):
                self.assertEqual(stat(user), (0, ""))

    def test_a_group(self):
        with serving("--group", GROUP):
            self.assertEqual(stat(USER), (0, ""))
            self.assertEqual(stat(), (0, ""))
            code, said = stat(OTHER)
            self.assertEqual(code, 1)
            self.assertIn(f"it serves a group that user {OTHER.pw_uid} is not in", said)

    def test_no_group_where_users_are_not_kept_apart(self):
        code, said = outcome("--group", GROUP, before=NO_PRIVILEGES)
        self.assertEqual(code, 1)
        self.assertIn(f"--group {GROUP}: users cannot be kept apart here: the broker has no privileges", said)

    def test_a_user_where_users_are_not_kept_apart(self):
        with serving("--user", USER.pw_name, before=NO_PRIVILEGES):
            self.assertEqual(stat(USER), (0, ""))
            self.assertEqual(stat(), (0, ""))
            code, said = stat(OTHER)
            self.assertEqual(code, 1)
            self.assertIn(f"it serves nobody but user {USER.pw_uid}, since it cannot keep users apart", said)

    def test_who_comes_by_another_address(self):
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/socket"
            with serving("--socket", path, "--socket", "@other-name"):
                for address in (path, "@other-name"):
                    self.assertEqual(stat(address=address), (0, ""))
            self.assertFalse(os.path.exists(path), "it is removed")


class Manual(unittest.TestCase):
    def test_names_all_options_and_exit_codes(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs", "uroced.8")
        with open(source, encoding="utf-8") as file:
            page = file.read().replace("\\-", "-")
        printed = uroced("--help").communicate(timeout=20)[0]
        options = set(re.findall(r"^ +(?:-h,)?(--[a-z]+)", printed, re.M)) - {"--help"}
        self.assertEqual(set(re.findall(r"^\.BI? (--[a-z]+)", page, re.M)), options)
        self.assertEqual(re.findall(r"^\.B (\d)$", page, re.M), ["0", "1", "2", "3"])


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("needs root: makes a network namespace")
        sys.exit(SKIPPED)
    if sys.argv[1] != "--inside":
        os.execvp("unshare", ["unshare", "--net", sys.executable, "-B", __file__, "--inside", *sys.argv[1:]])
    programs = sys.argv[2]
    unittest.main(verbosity=0, argv=[sys.argv[0], *sys.argv[3:]])
