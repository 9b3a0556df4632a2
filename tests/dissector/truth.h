// SPDX-License-Identifier: BSD-2-Clause
// Simulated connections whose faults are known, for the tests of the dissector: make_captures.cc writes them as files,
// truth_seeds.cc hands them to the analysis directly.
//
// The truth comes from both ends together, which the dissector does not have: what one end sent and the other end did
// not see was lost, what it saw twice was duplicated, what nobody sent was corrupted, what overtook is known from the
// order of sending, and what is a retransmission from what the sender has sent before. Nothing of it uses the
// dissector's code.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pcapng/record.h"
#include "tests/simulator/network.h"
#include "tests/simulator/traffic.h"

namespace uroce::simulator {

struct Case {
  std::string name;
  LinkConfig link{};  // both directions, if `back` is not there
  TrafficConfig traffic{};
  bool both_ways = true;
  uint32_t first_psn = 0x123456;
  transport::QpAttributes attributes = Network::default_attributes();
  bool one_way_faults = false;  // only packets from the first host to the second one suffer

  // Nothing is wrong: the analysis has nothing to find.
  bool faultless() const;
};

// The same for every seed, which decides where chance strikes.
std::vector<Case> fixed_cases();
// Rates, kinds, sizes, path MTU, PSNs, timers, all decided by the seed.
Case random_case(uint64_t seed);

// What one host's NIC saw, in its order.
struct View {
  std::vector<pcapng::Record> records;
};
// Of both hosts. Ends the process if the transport does what it must not.
std::vector<View> run(const Case& c, uint64_t seed);

// By frame number, from 1. Kinds: the names of findings; "retransmission"; "anything" for a frame of which corruption
// has made something that is not RoCE v2; "unknowable" for a repetition that nothing at this end tells from an original
// that came late: neither the original nor any request from there on that was sent before the repetition has come, but
// one that was sent behind the repetition has overtaken it. If the sender had spent those IP IDs on somebody else,
// every byte and every time of this capture would be the same. It has to be found to be one of the two.
//
// A repetition that is the first thing to come from there on looks new, and is no "retransmission" here: the same
// holds.
using Truth = std::set<std::pair<uint32_t, std::string>>;
Truth truth_of(const View& own, const View& other, uint32_t path_mtu);

// As if the senders left the IPv4 ID zero, as with IPv6.
void remove_ip_id(std::vector<uint8_t>& frame);

}  // namespace uroce::simulator
