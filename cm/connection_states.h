// SPDX-License-Identifier: BSD-2-Clause
// The protocol as tables: what each message does to a connection in each state, and what each state is (cm.md
// "States").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace uroce::cm {

enum class State : uint8_t {
  kReqSent,
  kRepReceived,  // the client's confirm() is awaited
  kReqReceived,  // its accept() is
  kRepSent,
  kEstablished,
  kDreqSent,
  kDreqReceived,  // the client's disconnect() is awaited
  kTimeWait,
  kSidrSent,
  kResolved,  // UD: the other side has told its QP
  kSidrReceived,
  kSidrReplied,
  kSpent,  // nothing happens any more
  kCount
};

// How the other side is told that the client has destroyed the id.
enum class Farewell : uint8_t {
  kNone,    // what is under way goes on
  kForget,  // not at all, and there is nothing to remember
  kRejTimeout,
  kRejConsumer,
  kDreq,
  kDrep,
  kSidrReject
};

struct StateInfo {
  const char* name;
  bool awaits_answer = false;  // its last message is sent again
  bool half_open = false;      // a request of the network that may come to nothing
  bool has_peer = false;       // the QP of the other side is taken
  bool ended = false;          // remembered for a while, for the sake of late datagrams
  Farewell farewell = Farewell::kNone;
};

inline constexpr std::array<StateInfo, static_cast<size_t>(State::kCount)> kStates = {{
    {.name = "REQ_SENT", .awaits_answer = true, .farewell = Farewell::kRejTimeout},
    {.name = "REP_RECEIVED", .has_peer = true, .farewell = Farewell::kRejConsumer},
    {.name = "REQ_RECEIVED", .half_open = true, .has_peer = true, .farewell = Farewell::kRejConsumer},
    {.name = "REP_SENT",
     .awaits_answer = true,
     .half_open = true,
     .has_peer = true,
     .farewell = Farewell::kRejConsumer},
    {.name = "ESTABLISHED", .has_peer = true, .farewell = Farewell::kDreq},
    {.name = "DREQ_SENT", .awaits_answer = true, .has_peer = true},
    {.name = "DREQ_RECEIVED", .has_peer = true, .farewell = Farewell::kDrep},
    {.name = "TIMEWAIT", .ended = true},
    {.name = "SIDR_SENT", .awaits_answer = true, .farewell = Farewell::kForget},
    {.name = "RESOLVED", .farewell = Farewell::kForget},
    {.name = "SIDR_RECEIVED", .half_open = true, .farewell = Farewell::kSidrReject},
    {.name = "SIDR_REPLIED", .ended = true},
    {.name = "SPENT", .farewell = Farewell::kForget},
}};

constexpr const StateInfo& info_of(State state) {
  return kStates[static_cast<size_t>(state)];
}

// A message for an id that is known. "Again": the request that made it what it is.
enum class Arrival : uint8_t { kReqAgain, kMra, kRej, kRep, kRtu, kDreq, kDrep, kSidrReqAgain, kSidrRep, kCount };

enum class Reaction : uint8_t {
  kDrop,           // not expected
  kIgnore,         // a duplicate whose answer is under way
  kAskForTime,     // MRA: the client has not decided
  kGrantTime,      // the other side's client has not
  kRespond,        // tell the client of the REP
  kEstablish,      // tell the client
  kReject,         // tell the client; the end
  kDisconnect,     // tell the client, and wait for it
  kDisconnectNow,  // tell the client, which has asked for it: DREP
  kFinish,         // tell the client that the other side agrees; the end
  kRepeat,         // the answer that it had, again
  kRepeatReply,    // likewise, if its timer may not do it
  kRefuse,         // the REJ that it had, again, or one that says that the id is not valid
  kRepeatRefusal,  // the REJ that it had, if so
  kAnswerDreq,     // DREP again
  kResolve,        // tell the client what the SIDR_REP says
};

namespace table {

inline constexpr Reaction kXxx = Reaction::kDrop, kDup = Reaction::kIgnore, kAsk = Reaction::kAskForTime,
                          kMra = Reaction::kGrantTime, kRsp = Reaction::kRespond, kEst = Reaction::kEstablish,
                          kRej = Reaction::kReject, kDis = Reaction::kDisconnect, kNow = Reaction::kDisconnectNow,
                          kFin = Reaction::kFinish, kRpt = Reaction::kRepeat, kRef = Reaction::kRefuse,
                          kRep = Reaction::kRepeatReply, kAgn = Reaction::kRepeatRefusal, kDrp = Reaction::kAnswerDreq,
                          kSdr = Reaction::kResolve;

// clang-format off
inline constexpr std::array<std::array<Reaction, static_cast<size_t>(Arrival::kCount)>,
                            static_cast<size_t>(State::kCount)> kReactions = {{
    //                  REQ   MRA   REJ   REP   RTU   DREQ  DREP  SIDR_REQ SIDR_REP
    /* REQ_SENT      */ {kXxx, kMra, kRej, kRsp, kXxx, kXxx, kXxx, kXxx, kXxx},
    /* REP_RECEIVED  */ {kXxx, kXxx, kRej, kAsk, kXxx, kDis, kXxx, kXxx, kXxx},
    /* REQ_RECEIVED  */ {kAsk, kXxx, kRej, kXxx, kXxx, kXxx, kXxx, kXxx, kXxx},
    /* REP_SENT      */ {kRep, kMra, kRej, kXxx, kEst, kDis, kXxx, kXxx, kXxx},
    /* ESTABLISHED   */ {kDup, kXxx, kRej, kRpt, kDup, kDis, kXxx, kXxx, kXxx},
    /* DREQ_SENT     */ {kDup, kXxx, kFin, kXxx, kDup, kNow, kFin, kXxx, kXxx},
    /* DREQ_RECEIVED */ {kDup, kXxx, kXxx, kXxx, kDup, kDup, kXxx, kXxx, kXxx},
    /* TIMEWAIT      */ {kAgn, kXxx, kXxx, kRef, kRef, kDrp, kXxx, kXxx, kXxx},
    /* SIDR_SENT     */ {kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kSdr},
    /* RESOLVED      */ {kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kXxx},
    /* SIDR_RECEIVED */ {kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kDup, kXxx},
    /* SIDR_REPLIED  */ {kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kXxx, kRpt, kXxx},
    /* SPENT         */ {kAgn, kXxx, kXxx, kRef, kRef, kDrp, kXxx, kRpt, kXxx},
}};
// clang-format on

}  // namespace table

constexpr Reaction reaction_to(State state, Arrival arrival) {
  return table::kReactions[static_cast<size_t>(state)][static_cast<size_t>(arrival)];
}

}  // namespace uroce::cm
