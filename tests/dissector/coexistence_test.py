#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The plugin beside the built-in dissector, its preferences, its profile and its statistics.

Usage: coexistence_test.py PLUGIN MAKE_GOLDEN TOOLS_DIRECTORY
"""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tshark import Tshark

PLUGIN, MAKE_GOLDEN, TOOLS = sys.argv[1:4]
BUILTIN = ["frame.number", "frame.protocols", "infiniband.bth.opcode", "infiniband.bth.p_key", "infiniband.bth.psn",
           "infiniband.bth.destqp", "infiniband.aeth.syndrome", "infiniband.reth.dmalen", "infiniband.invariant.crc"]
NO_GUESSES = ("-o", "infiniband.try_heuristic_first:FALSE")


class Coexistence(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="uroce-coexistence-")
        subprocess.run([MAKE_GOLDEN, cls.directory.name], check=True)
        cls.plugin, cls.builtin = Tshark(PLUGIN), Tshark(PLUGIN, with_plugin=False)
        cls.captures = sorted(Path(cls.directory.name).glob("*.pcapng"))

    @classmethod
    def tearDownClass(cls):
        cls.plugin.close()
        cls.builtin.close()
        cls.directory.cleanup()

    def capture(self, name):
        return Path(self.directory.name) / f"{name}.pcapng"

    def summaries(self, name, *options):
        return [row[0] for row in self.plugin.fields(self.capture(name), ["rocev2.summary"], *options)]

    def statistics(self, name, what, *options):
        return self.plugin.run("-q", "-r", self.plugin.readable(self.capture(name)), "-z", what, *options).stdout

    def test_built_in_fields_are_as_without(self):
        for capture in self.captures:
            with_plugin = self.plugin.fields(capture, BUILTIN)
            for row in with_plugin:
                row[1] = row[1].replace(":rocev2_udp", "")
            self.assertEqual(with_plugin, self.builtin.fields(capture, BUILTIN), capture.name)

    def test_header_fields_are_those_of_the_built_in(self):
        pairs = ("opcode", "opcode"), ("p_key", "pkey"), ("psn", "psn"), ("destqp", "destqp")
        fields = [f for theirs, ours in pairs for f in (f"infiniband.bth.{theirs}", f"rocev2.{ours}")]
        fields += ["infiniband.reth.dmalen", "rocev2.reth.length", "infiniband.deth.q_key", "rocev2.deth.qkey"]
        compared = 0
        for capture in self.captures:
            for row in self.plugin.fields(capture, fields, *NO_GUESSES):
                for theirs, ours in zip(row[::2], row[1::2]):
                    if theirs and ours:
                        compared += 1
                        self.assertEqual(int(theirs, 0), int(ours, 0), f"{capture.name} {row}")
        self.assertGreater(compared, 500)

    def test_info_gets_tags_in_front_and_is_new_only_where_the_built_in_has_none(self):
        for capture in self.captures:
            for mine, theirs in zip(self.plugin.fields(capture, ["_ws.col.Info", "rocev2.opcode"]),
                                    self.builtin.fields(capture, ["_ws.col.Info"])):
                opcode = int(mine[1], 16) if mine[1] else 0
                if opcode == 0x81 or opcode in (0x1c, 0x1d) or opcode >= 0xa0:
                    continue
                self.assertEqual(re.sub(r"^(\[[^]]*\] )+", "", mine[0]), theirs[0], capture.name)

    def test_works_when_the_built_in_has_no_port_or_is_disabled(self):
        usual = self.summaries("nak-at-sender")
        self.assertTrue(all(usual))
        for options in (("-o", "infiniband.rroce.port:0"), ("--disable-protocol", "infiniband"), NO_GUESSES,
                        ("-o", "infiniband.identify_payload:FALSE")):
            self.assertEqual(self.summaries("nak-at-sender", *options), usual, options)

    def test_live_packets_are_analysed_as_they_come(self):
        for name in ("nak-at-sender", "envelopes", "rnr"):
            with open(self.capture(name), "rb") as stream:
                done = self.plugin.run("-l", "-i", "-", "-T", "fields", "-e", "rocev2.summary", stdin=stream)
            self.assertEqual(done.stdout.splitlines(), self.summaries(name), done.stderr)

    def test_disabled_it_leaves_the_built_in_alone(self):
        options = ("--disable-protocol", "rocev2")
        self.assertFalse(any(self.summaries("nak-at-sender", *options)))
        rows = self.plugin.fields(self.capture("nak-at-sender"), ["infiniband.bth.psn"], *options)
        self.assertTrue(all(row[0] for row in rows))

    def test_preferences(self):
        off = ("-o", "rocev2.check_icrc:FALSE")
        self.assertTrue(any("Bad ICRC" in s for s in self.summaries("envelopes")))
        self.assertFalse(any("Bad ICRC" in s for s in self.summaries("envelopes", *off)))
        info = self.plugin.fields(self.capture("timeout"), ["_ws.col.Info"], "-o", "rocev2.info_tags:FALSE")
        self.assertFalse(any("[" in row[0] for row in info))

    def test_profile_has_columns_and_colours(self):
        environment = {"PATH": "/usr/bin:/bin", "WIRESHARK_CONFIG_DIR": str(self.plugin.root / "config")}
        script = Path(TOOLS) / "dissector-profile"
        subprocess.run([script], check=True, env=environment, stdout=subprocess.DEVNULL)
        done = self.plugin.run("-C", "RoCEv2", "-r", self.plugin.readable(self.capture("nak-at-sender")))
        self.assertEqual(done.stderr.replace("Running as user", ""), done.stderr)
        line = done.stdout.splitlines()[6]
        self.assertRegex(line, r"0 0x000202 RC SEND_MIDDLE 2\s+3 .*\[Retransmission: NAK\]")
        colours = {}
        for capture in self.captures:
            rows = self.plugin.fields(capture, ["rocev2.summary", "frame.coloring_rule.name"], "-C", "RoCEv2", "--color")
            for summary, rule in rows:
                colours.setdefault(rule, []).append(summary)
        rules = [line.split("@")[1] for line in (Path(TOOLS).parent / "dissector/profile/colorfilters").read_text().splitlines()
                 if line.startswith("@")]
        self.assertEqual(set(rules) - set(colours), set(), "rules that no golden packet matches")
        self.assertTrue(all("Bad I" in s for s in colours["RoCE v2: bad ICRC or malformed"] if "[" in s))
        subprocess.run([script, "--remove"], check=True, env=environment, stdout=subprocess.DEVNULL)
        self.assertFalse((self.plugin.root / "config/profiles/RoCEv2").exists())

    def test_statistics(self):
        tree = self.statistics("timeout", "rocev2,tree")
        for row in (r"RoCE v2 packets +7 ", r"RC RDMA_WRITE_ONLY +5 ", r" retransmission +4 ", r"timeout_retransmission +3 ",
                    r"spurious_retransmission +1 ", r"duplicate_ack +1 ", r"no_progress +1 "):
            self.assertRegex(tree, row)
        streams = self.statistics("streams", "rocev2_streams,tree", "-2")
        self.assertEqual(len(re.findall(r"^ stream \d", streams, re.MULTILINE)), 6)
        times = self.statistics("clean", "rocev2,srt")
        self.assertRegex(times, r"RDMA READ +1 +0.0000\d+ ")
        self.assertRegex(times, r"SEND +4 ")
        experts = self.statistics("fatal-naks", "expert")
        self.assertRegex(experts, r"1 +Response +RoCEv2  NAK: remote access error")

    def test_numbers_for_graphs(self):
        most = "MAX(rocev2.analysis.packets_in_flight)rocev2.analysis.packets_in_flight"
        mean = "AVG(rocev2.message.time)rocev2.message.time"
        text = self.statistics("nak-at-receiver", f"io,stat,1,{most},{mean},rocev2.analysis.retransmission", "-2")
        self.assertRegex(text, r"0 <> [^|]*\| +4 \| +0.000018 \| +3 \|")

    def test_conversations_and_endpoints(self):
        for name, conversations, endpoints in (("clean", 1, 2), ("streams", 6, 10)):
            table = self.statistics(name, "conv,rocev2", "-2")
            rows = [line for line in table.splitlines() if "<->" in line]
            self.assertEqual(len(rows), conversations, table)
            rows = [line for line in self.statistics(name, "endpoints,rocev2", "-2").splitlines() if line.startswith("192.")]
            self.assertEqual(len(rows), endpoints)


unittest.main(argv=sys.argv[:1])
