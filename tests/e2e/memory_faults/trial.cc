// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/memory_faults/trial.h"

#include <algorithm>
#include <array>

#include "tests/e2e/memory_faults/failure.h"

namespace uroce::memory_faults {
namespace {

constexpr size_t kLong = 8 << 20;  // bytes: many bursts, so that the memory goes away in the middle of a message
constexpr size_t kWord = 8;
constexpr uint64_t kAfter = 2;     // the memory goes away after so many messages ...
constexpr uint64_t kHarmless = 8;  // ... and as many follow when that does no harm
constexpr uint8_t kFill = 0xa5;    // in memory that must not be touched any more

struct Role {
  const char* name;
  ibv_wr_opcode opcode;
  bool victim_requests;
  size_t length;
  bool written;  // the victim's memory is written to
};

constexpr std::array<Role, 8> kRoles = {{
    {"write-source", IBV_WR_RDMA_WRITE, true, kLong, false},
    {"send-source", IBV_WR_SEND, true, kLong, false},
    {"read-sink", IBV_WR_RDMA_READ, true, kLong, true},
    {"atomic-result", IBV_WR_ATOMIC_FETCH_AND_ADD, true, kWord, true},
    {"write-target", IBV_WR_RDMA_WRITE, false, kLong, true},
    {"read-source", IBV_WR_RDMA_READ, false, kLong, false},
    {"receive", IBV_WR_SEND, false, kLong, true},
    {"atomic-word", IBV_WR_ATOMIC_FETCH_AND_ADD, false, kWord, true},
}};

const Role& role_by_name(const std::string& name) {
  const auto* found = std::find_if(kRoles.begin(), kRoles.end(), [&](const Role& role) { return role.name == name; });
  check(found != kRoles.end(), "no such role: " + name);
  return *found;
}

struct Target {
  uint64_t address;
  uint32_t key;
};

ibv_send_wr request(ibv_wr_opcode opcode, Target to) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic = {to.address, 1, 0, to.key};
  } else {
    wr.wr.rdma = {to.address, to.key};
  }
  return wr;
}

class Trial {
 public:
  Trial(const Device& device, const Control& control, Side side, const Role& role, Way way, Drive drive)
      : device_(device),
        control_(control),
        victim_(side == Side::kVictim),
        requests_(victim_ == role.victim_requests),
        role_(role),
        way_(way),
        drive_(drive),
        memory_(device.pd, role.length),
        pair_(device, control, drive, {}) {
    std::fill_n(memory_.data(), memory_.size(), victim_ ? uint8_t{1} : uint8_t{2});
    peer_ = control.exchange(Target{memory_.address(), memory_.key()});
  }

  void run() {
    requests_ ? send_requests() : respond();
    control_.meet();
    if (requests_) {
      check_requester();
    } else {
      check_responder();
    }
    check_untouched();
    const auto surplus = device_.event(0);
    check(!surplus, surplus ? std::string("one more event: ") + ibv_event_type_str(surplus->event_type) : "");
    control_.meet();
  }

 private:
  bool deregisters() const { return way_ == Way::kDeregister || way_ == Way::kDeregisterAndUnmap; }
  bool harmless() const { return way_ == Way::kReadOnly && !role_.written; }
  uint64_t after() const { return role_.length == kWord ? 100 : kAfter; }
  ibv_sge all() const { return memory_.sge(0, role_.length); }

  void take_away() {
    memory_.take_away(way_);
    if (way_ == Way::kDeregister) std::fill_n(memory_.data(), memory_.size(), kFill);
  }

  // Never stops by itself, so that the memory goes away under traffic however fast the two are.
  void send_requests() {
    bool asked = false;
    const auto finished = [&] {
      return pair_.sends.error() != IBV_WC_SUCCESS || (harmless() && pair_.sends.successes() >= after() + kHarmless);
    };
    for (const Deadline deadline; !finished(); deadline.check("the end of the requests")) {
      while (!pair_.is_full(pair_.sends)) pair_.post(request(role_.opcode, peer_), all());
      pair_.take();
      if (asked || pair_.sends.successes() < after()) continue;
      asked = true;
      victim_ ? take_away() : control_.tell();
    }
    if (!harmless()) pair_.post(request(role_.opcode, peer_), all());  // into a QP that has failed
    pair_.drain(pair_.sends);
    control_.tell();
  }

  void respond() {
    bool taken = !victim_;
    for (const Deadline deadline;; deadline.check("the requester")) {
      // WRITEs, READs and atomics take none; those that wait show that an error flushes them.
      while (!pair_.is_full(pair_.receives) && pair_.receives.error() == IBV_WC_SUCCESS) pair_.post_receive(all());
      if (drive_ == Drive::kPoll || role_.opcode == IBV_WR_SEND) {
        pair_.take();
        if (!control_.told()) continue;
      } else {
        control_.wait_told();  // wholly passive
      }
      if (taken) return;
      taken = true;
      take_away();
    }
  }

  void check_requester() {
    if (harmless()) return check(pair_.state() == IBV_QPS_RTS, "the QP has left RTS");
    const ibv_wc_status expected = victim_                                         ? IBV_WC_LOC_PROT_ERR
                                   : !deregisters() || role_.opcode == IBV_WR_SEND ? IBV_WC_REM_OP_ERR
                                                                                   : IBV_WC_REM_ACCESS_ERR;
    pair_.sends.expect_ended(expected);
    check(pair_.state() == IBV_QPS_ERR, "the requester's QP is not in ERR");
  }

  void check_responder() {
    const bool failed = victim_ && !harmless();
    check(pair_.state() == (failed ? IBV_QPS_ERR : IBV_QPS_RTS), "the responder's QP is in a wrong state");
    const bool receive_failed = failed && role_.opcode == IBV_WR_SEND;
    if (failed && !receive_failed) expect_event(deregisters() ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_FATAL);
    failed ? pair_.drain(pair_.receives) : pair_.end();
    pair_.receives.expect_ended(receive_failed ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR);
  }

  void expect_event(ibv_event_type type) {
    const auto event = device_.event(1000);
    check(event.has_value(), std::string("no event; expected: ") + ibv_event_type_str(type));
    check(event->event_type == type && event->element.qp == pair_.qp,
          std::string("event: ") + ibv_event_type_str(event->event_type) + ", expected " + ibv_event_type_str(type));
  }

  void check_untouched() {
    if (!victim_ || way_ != Way::kDeregister) return;
    uint8_t* const end = memory_.data() + memory_.size();
    check(std::all_of(memory_.data(), end, [](uint8_t byte) { return byte == kFill; }),
          "memory was written after ibv_dereg_mr returned");
  }

  const Device& device_;
  const Control& control_;
  const bool victim_, requests_;
  const Role& role_;
  const Way way_;
  const Drive drive_;
  Region memory_;
  Pair pair_;  // destroyed before the memory
  Target peer_{};
};

}  // namespace

void run_trial(const Device& device, const Control& control, Side side, const std::string& role, Way way, Drive drive) {
  Trial(device, control, side, role_by_name(role), way, drive).run();
}

void run_healthy(const Device& device, const Control& control, Side side, Drive drive) {
  constexpr size_t kPart = 64 << 10;  // own data, WRITE's target, SEND's, READ's; then the atomics' word and result
  constexpr uint64_t kWordAt = 4 * kPart, kResultAt = kWordAt + kWord;
  Region memory(device.pd, 5 * kPart);
  Pair pair(device, control, drive, {});
  const uint8_t own = side == Side::kVictim ? 0x51 : 0x52;
  const uint8_t theirs = own ^ 0x51 ^ 0x52;
  std::fill_n(memory.data(), kPart, own);
  pair.post_receive(memory.sge(2 * kPart, kPart));
  const auto peer = control.exchange(Target{memory.address(), memory.key()});
  const auto post = [&](ibv_wr_opcode opcode, size_t remote, ibv_sge local) {
    pair.post(request(opcode, {peer.address + remote, peer.key}), local);
  };
  post(IBV_WR_RDMA_WRITE, kPart, memory.sge(0, kPart));
  post(IBV_WR_SEND, 0, memory.sge(0, kPart));
  post(IBV_WR_RDMA_READ, 0, memory.sge(3 * kPart, kPart));
  post(IBV_WR_ATOMIC_FETCH_AND_ADD, kWordAt, memory.sge(kResultAt, kWord));
  pair.drain(pair.sends);
  pair.drain(pair.receives);
  control.meet();
  pair.sends.expect_ended(IBV_WC_SUCCESS);
  pair.receives.expect_ended(IBV_WC_SUCCESS);
  check(std::all_of(memory.data() + kPart, memory.data() + 4 * kPart, [&](uint8_t byte) { return byte == theirs; }),
        "a new QP pair moves wrong data");
  check(memory.data()[kWordAt] == 1 && memory.data()[kResultAt] == 0, "a new QP pair gets atomics wrong");
  control.meet();
}

}  // namespace uroce::memory_faults
