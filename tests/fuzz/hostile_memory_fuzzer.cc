// SPDX-License-Identifier: BSD-2-Clause
// An application that posts garbage and takes its memory away: work requests of arbitrary bytes, receive requests of
// arbitrary SGEs, completion queues polled, armed and purged at random. Its peer does the same. Input: a byte for each
// choice in make_config(), then operations as in qp_pair_fuzzer.
//
// Checked: guards and memory that no valid key names are untouched; where every request asks for a completion
// (sq_sig_all) and none was lost, there are as many completions as requests, and never more; completion queues give no
// more than they are asked for, notify no more often than armed, and purge nothing of another QP.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/memory/memory_access.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/party.h"
#include "tests/fuzz/stepper.h"

namespace uroce::fuzz {

namespace {

using queue::CompletionQueue;
using simulator::Pair;
using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Notifications final : queue::CompletionNotifier {
  void on_completion(CompletionQueue&) override { ++count; }
  uint32_t count = 0;
};

// The account of one completion queue: numbers only, because the names of the requests are garbage.
struct Account {
  uint64_t posted = 0, completed = 0;
  bool purged = false;  // so some are missing
};

// One application and its queues.
class Garbler {
 public:
  explicit Garbler(Party& party) : party_(party) {}

  // Fills `count` slots at once: first with something the engine would take, then with what the input says.
  void post_sends(Input& input, const Arena& peer, uint32_t count);
  void post_receive(Input& input);
  void use_completions(Input& input);
  // To RESET: what was posted is gone, and what completed of it is taken out.
  void begin_anew();
  // To ERR: nothing is missing, nothing is too much.
  void end();

  Party& party() { return party_; }
  uint32_t arms() const { return arms_; }

 private:
  void poll(CompletionQueue& cq, Account& account, uint32_t limit);
  void garble(Input& input, const queue::SendQueue::Slot& slot);

  Party& party_;
  Account sends_, receives_;
  uint32_t arms_ = 0;
};

// One field or a few bytes of a request that is about to be posted.
void Garbler::garble(Input& input, const queue::SendQueue::Slot& slot) {
  const auto write = [&input](void* base, size_t size) {
    const auto at = static_cast<size_t>(input.word()) % size;
    std::array<uint8_t, 16> bytes;
    const size_t length = std::min<size_t>(1u << input.below(5), size - at);
    input.fill(std::span(bytes).first(length));
    std::memcpy(static_cast<uint8_t*>(base) + at, bytes.data(), length);
  };
  const queue::SendQueue& sq = party_.qp.sq;
  switch (input.below(8)) {
    case 0:
      return write(slot.wqe, sizeof(*slot.wqe));
    case 1:
      slot.wqe->sge_count = input.byte();
      return;
    case 2:
      slot.wqe->flags ^= queue::kInline;
      return;
    case 3:
      slot.wqe->length = input.dword();
      return;
    case 4:
      slot.wqe->opcode = static_cast<queue::WrOpcode>(input.byte());
      return;
    case 5:
      return write(slot.inline_data, sq.max_inline());
    case 6:
      slot.sges[input.below(sq.max_sge())] = party_.arena.range(input, 9000);
      return;
    default:
      return write(slot.sges, sq.max_sge() * sizeof(*slot.sges));
  }
}

void Garbler::post_sends(Input& input, const Arena& peer, uint32_t count) {
  if (!party_.may_send()) return;
  uint32_t filled = 0;
  queue::SendQueue::Slot slot;
  for (; filled < count && party_.qp.sq.reserve(filled, slot); ++filled) {
    queue::SendWqe wqe{};
    wqe.opcode = static_cast<queue::WrOpcode>(input.below(10));
    wqe.flags = input.byte();
    wqe.sge_count = static_cast<uint8_t>(input.below(party_.qp.sq.max_sge() + 1));
    for (uint32_t i = 0; i < wqe.sge_count; ++i) slot.sges[i] = party_.arena.range(input, 5000);
    const queue::Sge remote = peer.range(input, 5000);
    wqe.remote_address = remote.address;
    wqe.rkey = remote.lkey;
    wqe.length = input.byte();
    *slot.wqe = wqe;
    for (uint32_t times = input.below(4); times > 0; --times) garble(input, slot);
  }
  if (filled == 0) return;
  sends_.posted += filled;
  party_.qp.sq.publish(filled);
  party_.qp.ring();
}

void Garbler::post_receive(Input& input) {
  if (!party_.may_receive()) return;
  std::array<queue::Sge, queue::kMaxSge + 1> sges;
  const uint32_t count = input.below(static_cast<uint32_t>(sges.size()) + 1);
  for (uint32_t i = 0; i < count; ++i) {
    if (input.flag()) {
      sges[i] = party_.arena.range(input, 5000);
    } else {
      input.fill({reinterpret_cast<uint8_t*>(&sges[i]), sizeof(sges[i])});
    }
  }
  const bool posted = party_.qp.post_receive(input.dword(), std::span(sges).first(count));
  check(!posted || count <= party_.qp.rq.max_sge(), "no more SGEs are taken than there is room for");
  receives_.posted += posted;
}

void Garbler::poll(CompletionQueue& cq, Account& account, uint32_t limit) {
  uint32_t seen = 0;
  const uint32_t said = cq.poll(limit, [&](const queue::Cqe& cqe) {
    ++seen;
    check(cqe.qpn == party_.qp.rc.qpn().value(), "completions are of the queue's only QP");
  });
  check(said == seen && seen <= limit, "no more completions are given than asked for");
  account.completed += seen;
  check(account.completed <= account.posted, "no more completions than requests");
}

void Garbler::use_completions(Input& input) {
  const bool sending = input.flag();
  CompletionQueue& cq = sending ? party_.qp.send_cq : party_.qp.recv_cq;
  Account& account = sending ? sends_ : receives_;
  const uint32_t qpn = party_.qp.rc.qpn().value();
  switch (input.below(6)) {
    case 0:
      if (sending) ++arms_;
      return cq.arm(static_cast<CompletionQueue::Arm>(input.below(3)));
    case 1: {
      const bool was_empty = cq.empty();
      cq.purge(qpn + 1 + input.byte());
      check(cq.empty() == was_empty, "purging another QP removes nothing");
      return;
    }
    case 2:
      cq.purge(qpn);
      check(cq.empty(), "purging the only QP removes everything");
      account.purged = true;
      return;
    default:
      return poll(cq, account, input.flag() ? UINT32_MAX : input.below(5));
  }
}

void Garbler::begin_anew() {
  check(party_.qp.modify(transport::QpState::kReset) == 0, "RESET is always allowed");
  for (CompletionQueue* cq : {&party_.qp.send_cq, &party_.qp.recv_cq}) cq->purge(party_.qp.rc.qpn().value());
  sends_.posted = sends_.completed = receives_.posted = receives_.completed = 0;
}

void Garbler::end() {
  check(party_.qp.modify(transport::QpState::kErr) == 0, "ERR can be reached");
  party_.host.events.run_for(simulator::Host::kRound);  // what was posted in ERR is flushed by the next round
  poll(party_.qp.send_cq, sends_, UINT32_MAX);
  poll(party_.qp.recv_cq, receives_, UINT32_MAX);
  check(party_.qp.sq.tail() == party_.qp.sq.head() && party_.qp.rq.empty(), "in ERR both queues are empty");
  const bool exact = !sends_.purged && !party_.qp.send_cq.overrun() && party_.qp.signal_all;
  check(!exact || sends_.completed == sends_.posted, "every send request completes once");
  const bool exact_receives = !receives_.purged && !party_.qp.recv_cq.overrun();
  check(!exact_receives || receives_.completed == receives_.posted, "every receive request completes once");
}

simulator::QpConfig make_config(Input& input, Notifications& notifications) {
  simulator::QpConfig config;
  config.send_notifier = &notifications;
  config.depth = input.one_of({8u, 1u, 3u, 64u});
  config.max_sge = input.one_of({4u, 1u, 16u, 3u});
  config.max_inline = input.one_of({64u, 1u, 200u, 5000u});
  config.cq_capacity = input.one_of({256u, 256u, 256u, 4u});
  config.signal_all = !input.flag();
  return config;
}

class Session {
 public:
  explicit Session(Input& input)
      : input_(input),
        pair_(1, {}, make_config(input, notifications_)),
        parties_{Party(pair_.host_a, pair_.a, pair_.forward), Party(pair_.host_b, pair_.b, pair_.backward)},
        garblers_{Garbler(parties_[0]), Garbler(parties_[1])},
        stepper_(pair_.events, {&parties_[0], &parties_[1]}) {
    attributes_.path_mtu = input.one_of({1024u, 256u, 4096u});
    pair_.connect(attributes_);
  }

  void run() {
    constexpr int kMaxOperations = 300;
    for (int i = 0; i < kMaxOperations && !input_.empty(); ++i) operate();
    end();
  }

 private:
  void operate() {
    const uint8_t choice = input_.byte();
    Garbler& self = garblers_[choice >> 7];
    switch ((choice & 0x7f) % 11) {
      case 0:
      case 1:
      case 2:
        return self.post_sends(input_, parties_[1 - (choice >> 7)].arena, 1 + input_.below(4));
      case 3:
      case 4:
        return self.post_receive(input_);
      case 5:
      case 6:
        return stepper_.advance(microseconds(input_.byte() + 1));
      case 7:
        return stepper_.advance(milliseconds(uint64_t{1} << input_.below(10)));
      case 8:
        return self.use_completions(input_);
      case 9:
        return change(self.party());
      default:
        for (Garbler& garbler : garblers_) garbler.begin_anew();
        return pair_.connect(attributes_);
    }
  }

  // Memory goes and comes back.
  void change(Party& party) {
    const auto region = Arena::Region{static_cast<uint8_t>(input_.flag())};
    switch (input_.below(4)) {
      case 0:
        return party.arena.remove(region);
      case 1:
        return party.arena.add(region);
      default:
        return party.arena.protect(region, input_.byte());
    }
  }

  void end() {
    for (Garbler& garbler : garblers_) {
      for (const Arena::Region region : {Arena::kShared, Arena::kPrivate}) garbler.party().arena.protect(region, 0);
      garbler.end();
    }
    stepper_.settle();
    check(notifications_.count <= garblers_[0].arms() + garblers_[1].arms(), "no more notifications than asked for");
    for (Garbler& garbler : garblers_) {
      garbler.party().arena.check_untouched();
      garbler.party().check_counters();
    }
  }

  Input& input_;
  Notifications notifications_;
  transport::QpAttributes attributes_ = simulator::Network::default_attributes();
  Pair pair_;
  std::array<Party, 2> parties_;
  std::array<Garbler, 2> garblers_;
  Stepper stepper_;
};

}  // namespace

}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uroce::memory::install_fault_handler();
  uroce::fuzz::Input input(data, size);
  uroce::fuzz::Session(input).run();
  return 0;
}
