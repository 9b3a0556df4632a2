// SPDX-License-Identifier: BSD-2-Clause
// What the two sides say to each other over the control connection. Used by client.cc and server.cc.
//
//     client                         server
//     kHello                  <->    kHello        once
//     kCase                    ->                  makes a QP and memory
//     kAddress                 ->
//                             <-     kTarget       connects, and does to its QP what the case asks for
//                             <-     kReady
//     posts
//                             <-     kAbout        kLateReceive only: so far nothing has been received
//     kGo                      ->                  posts the receive
//     kDone                    ->                  all has completed at the client
//                             <-     kOutcome
//     kHealthy                 ->                  then kAddress, kTarget, kReady, kDone and kOutcome for a new pair
//     kBye                     ->                  once
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/e2e/transfer/control.h"

namespace uroce::errors {

using transfer::RecordType;

inline constexpr auto kFirstRecord = static_cast<uint32_t>(RecordType::kOfOtherPrograms);
inline constexpr RecordType kHello{kFirstRecord};        // cases_digest(), provider, GID (2 words), active MTU
inline constexpr RecordType kCase{kFirstRecord + 1};     // index in all_cases()
inline constexpr RecordType kHealthy{kFirstRecord + 2};  // a pair on which nothing fails
inline constexpr RecordType kAddress{kFirstRecord + 3};  // QPN, starting PSN
// QPN, starting PSN; address and rkey where all is allowed (kOpenSlot); of what the bad request is about
inline constexpr RecordType kTarget{kFirstRecord + 4};
inline constexpr RecordType kReady{kFirstRecord + 5};
inline constexpr RecordType kAbout{kFirstRecord + 6};
inline constexpr RecordType kGo{kFirstRecord + 7};
inline constexpr RecordType kDone{kFirstRecord + 8};
inline constexpr RecordType kOutcome{kFirstRecord + 9};  // event, receive, state of Ending; complaints as text
inline constexpr RecordType kBye{kFirstRecord + 10};     // number of cases that went wrong

inline constexpr std::chrono::seconds kSilence{60};  // of the other side, before it is given up
inline transfer::Clock::time_point in_time() {
  return transfer::Clock::now() + kSilence;
}

// Text as words, a character each: it is short and rare.
inline void append_text(std::vector<uint64_t>& words, const std::string& text) {
  words.insert(words.end(), text.begin(), text.end());
}
inline std::string text_of(std::span<const uint64_t> words) {
  return std::string(words.begin(), words.end());
}

}  // namespace uroce::errors
