// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/errors/expectation.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>

namespace uroce::errors {
namespace {

enum class Side : uint8_t { kRequester, kResponder };
using Aspect = int Ending::*;

// Where an implementation ends otherwise than the rule says. `side` is where that implementation sits.
struct Deviation {
  Fault fault;
  Side side;
  Provider provider;
  Aspect aspect;
  int value;
  const char* reason;
};

constexpr const char* kOverrun = "rxe takes a message longer than its receive for a malformed WQE";
constexpr const char* kLibrxeAligns = "librxe checks the alignment of atomics itself";
constexpr const char* kRxeBadKey = "rxe completes an unknown lkey as LOC_QP_OP_ERR";

// rxe: Linux 6.1 (rxe_resp.c, rxe_req.c, rxe_mr.c copy_data) and rdma-core 44 (providers/rxe).
const Deviation kDeviations[] = {
    {Fault::kTooLong, Side::kResponder, Provider::kRxe, &Ending::request, IBV_WC_REM_OP_ERR, kOverrun},
    {Fault::kTooLong, Side::kResponder, Provider::kRxe, &Ending::receive, IBV_WC_LOC_QP_OP_ERR, kOverrun},
    {Fault::kTooLong, Side::kResponder, Provider::kRxe, &Ending::receive, IBV_WC_REM_INV_REQ_ERR, kOverrun},
    {Fault::kMisaligned, Side::kRequester, Provider::kRxe, &Ending::request, Ending::kRefused + EINVAL, kLibrxeAligns},
    {Fault::kLocalKey, Side::kRequester, Provider::kRxe, &Ending::request, IBV_WC_LOC_QP_OP_ERR, kRxeBadKey},
};

constexpr const char* kNoEvents = "rxe raises no events of QPs";

// Reason why `value` is right although the rule says otherwise; null: it is not.
const char* excuse(const Case& item, Provider requester, Provider responder, Aspect aspect, int value) {
  if (aspect == &Ending::event && value == Ending::kNone && responder == Provider::kRxe) return kNoEvents;
  for (const Deviation& d : kDeviations) {
    const Provider provider = d.side == Side::kRequester ? requester : responder;
    if (d.fault == item.fault && d.provider == provider && d.aspect == aspect && d.value == value) return d.reason;
  }
  return nullptr;
}

// The names without IBV_WC_, as people search for them.
std::string status_name(int status) {
  static const char* const kNames[] = {
      "SUCCESS",          "LOC_LEN_ERR",       "LOC_QP_OP_ERR",     "LOC_EEC_OP_ERR",
      "LOC_PROT_ERR",     "WR_FLUSH_ERR",      "MW_BIND_ERR",       "BAD_RESP_ERR",
      "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",   "REM_ACCESS_ERR",    "REM_OP_ERR",
      "RETRY_EXC_ERR",    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",  "REM_INV_RD_REQ_ERR",
      "REM_ABORT_ERR",    "INV_EECN_ERR",      "INV_EEC_STATE_ERR", "FATAL_ERR",
      "RESP_TIMEOUT_ERR", "GENERAL_ERR",
  };
  if (status >= Ending::kRefused) return fmt::format("refused, {}", strerrorname_np(status - Ending::kRefused));
  if (status == Ending::kNone) return "none";
  const auto index = static_cast<size_t>(status);
  return index < std::size(kNames) ? kNames[index] : fmt::format("status {}", status);
}

std::string event_name(int event) {
  switch (event) {
    case Ending::kNone:
      return "no event";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "QP_ACCESS_ERR";
    case IBV_EVENT_QP_REQ_ERR:
      return "QP_REQ_ERR";
    case IBV_EVENT_QP_FATAL:
      return "QP_FATAL";
    default:
      return ibv_event_type_str(static_cast<ibv_event_type>(event));
  }
}

std::string state_name(int state) {
  switch (state) {
    case Ending::kNone:
      return "no QP";
    case IBV_QPS_RESET:
      return "RESET";
    case IBV_QPS_RTS:
      return "RTS";
    case IBV_QPS_ERR:
      return "ERR";
    default:
      return fmt::format("state {}", state);
  }
}

// The responder has seen a violation (IBTA table 59), or nothing: what it posted is then flushed by its own hand.
Ending violation(ibv_wc_status request, int event, ibv_wc_status receive = IBV_WC_WR_FLUSH_ERR) {
  return {request, event, receive, IBV_QPS_ERR};
}
Ending undisturbed(int request, int receive = IBV_WC_WR_FLUSH_ERR) {
  return {request, Ending::kNone, receive, IBV_QPS_RTS};
}

}  // namespace

const char* name_of(Provider provider) {
  return provider == Provider::kUroce ? "uroce" : provider == Provider::kRxe ? "rxe" : "other";
}

std::string Ending::requester_text() const {
  return status_name(request);
}

std::string Ending::responder_text() const {
  return fmt::format("{}, receive {}, {}", event_name(event), status_name(receive), state_name(responder_state));
}

Ending expected(const Case& item) {
  switch (item.fault) {
    case Fault::kUnknownKey:
    case Fault::kStaleKey:
    case Fault::kForeignKey:
    case Fault::kBefore:
    case Fault::kBehind:
    case Fault::kNoRight:
    case Fault::kClosedWindow:
      return violation(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    case Fault::kMisaligned:
      return violation(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    case Fault::kTooLong:  // the receive's completion says it; no event beside
      return violation(IBV_WC_REM_INV_REQ_ERR, Ending::kNone, IBV_WC_LOC_LEN_ERR);
    case Fault::kNoReceive:
      return undisturbed(IBV_WC_RNR_RETRY_EXC_ERR, Ending::kNone);
    case Fault::kLateReceive:
      return undisturbed(IBV_WC_SUCCESS, IBV_WC_SUCCESS);
    case Fault::kPeerError:
      return {IBV_WC_RETRY_EXC_ERR, Ending::kNone, IBV_WC_WR_FLUSH_ERR, IBV_QPS_ERR};
    case Fault::kPeerReset:  // RESET takes the receives away without a word
      return {IBV_WC_RETRY_EXC_ERR, Ending::kNone, Ending::kNone, IBV_QPS_RESET};
    case Fault::kPeerDestroyed:
      return {IBV_WC_RETRY_EXC_ERR, Ending::kNone, Ending::kNone, Ending::kNone};
    case Fault::kLocalKey:
    case Fault::kLocalBounds:
      return undisturbed(IBV_WC_LOC_PROT_ERR);
  }
  return {};
}

// Seen with 6.1: rxe_requester() sets the QP to error, rxe_rcv() drops the ACK that the request before waits for.
const char* reason_to_fail_alone(const Case& item, Provider requester) {
  const bool before_sending = item.local() && item.opcode != IBV_WR_RDMA_READ;
  if (!before_sending || requester != Provider::kRxe) return nullptr;
  return "posted when nothing is in flight: the QP of rxe would hang";
}

Verdict judge(const Case& item, Provider requester, Provider responder, const Ending& seen) {
  // A request that was not posted does nothing at the responder.
  const Ending rule = seen.refused() ? undisturbed(expected(item).request) : expected(item);
  Verdict verdict;
  bool requester_wrong = false, responder_wrong = false;
  for (const Aspect aspect : {&Ending::request, &Ending::event, &Ending::receive, &Ending::responder_state}) {
    if (seen.*aspect == rule.*aspect) continue;
    const char* const reason = excuse(item, requester, responder, aspect, seen.*aspect);
    if (reason == nullptr) {
      (aspect == &Ending::request ? requester_wrong : responder_wrong) = true;
    } else if (verdict.reason.find(reason) == std::string::npos) {
      verdict.reason += fmt::format("{}{}", verdict.reason.empty() ? "" : "; ", reason);
    }
  }
  if (requester_wrong) verdict.complaint = "requester: expected " + rule.requester_text();
  if (responder_wrong) {
    verdict.complaint += (requester_wrong ? "; " : "") + ("responder: expected " + rule.responder_text());
  }
  return verdict;
}

}  // namespace uroce::errors
