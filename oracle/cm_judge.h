// SPDX-License-Identifier: BSD-2-Clause
// Judges what the judged host says as a connection manager (IBTA 12, annexes A11 and A17) over whole exchanges, from
// REQ to DREP and from SIDR_REQ to SIDR_REP: who may say what when, with which ids, how often and how soon. And tells
// the judges of RC which connections begin and end, with the attributes that both sides agreed on. Owned by Oracle.
//
// Peers may say what they like, as often as they like: CmTable bounds what is remembered of them.
#pragma once

#include <string>
#include <vector>

#include "oracle/cm_table.h"
#include "oracle/connection_table.h"
#include "oracle/context.h"

namespace uroce::oracle {

class CmJudge {
 public:
  CmJudge(Findings& findings, const Options& options, ConnectionTable& connections)
      : findings_(findings), options_(options), connections_(connections) {}

  // A usable packet between these hosts; those that are none of the connection manager's are ignored.
  void on_packet(const Packet& packet, bool out);
  void finish(Time end);

  std::vector<CmSummary> summary() const;
  uint64_t forgotten() const { return table_.forgotten(); }

 private:
  // The message under judgement.
  struct Now {
    const Packet& packet;
    wire::CmMad mad;
    wire::CmAttribute kind;
    uint32_t digest;
    wire::IpAddress local, remote;

    Time time() const { return packet.time(); }
  };

  // --- what comes in: cm_received.cc
  void receive(const Now& now);
  CmExchange* receiver(const Now& now);
  CmExchange& receive_request(const Now& now, wire::CommId theirs, bool sidr);
  CmExchange* receive_answer(const Now& now, wire::CommId ours, wire::CommId theirs);
  CmExchange* receive_rej(const Now& now, const wire::Rej& rej);
  void learn_received(CmExchange& e, const Now& now);
  void note_debt(CmExchange& e, const Now& now);

  // --- what goes out: cm_sent.cc
  void send(const Now& now);
  CmExchange* sender(const Now& now);
  CmExchange& send_request(const Now& now, wire::CommId ours);
  CmExchange& send_answer(const Now& now, wire::CommId ours, wire::CommId theirs);
  CmExchange* send_sidr_rep(const Now& now, const wire::SidrRep& rep);
  void judge_order(const CmExchange& e, const Now& now);
  void judge_req(const CmExchange& e, const Now& now);
  void judge_rep(const CmExchange& e, const wire::Rep& rep, const Now& now);
  void judge_rtu(const CmExchange& e, const Now& now);
  void judge_mra(const CmExchange& e, const wire::Mra& mra, const Now& now);
  void judge_rej(const CmExchange& e, const wire::Rej& rej, const Now& now);
  void judge_dreq(const CmExchange& e, const wire::Dreq& dreq, const Now& now);
  void judge_drep(const CmExchange& e, const Now& now);
  void judge_sidr_rep(const CmExchange& e, const wire::SidrRep& rep, const Now& now);
  void judge_again(const CmExchange& e, const Now& now);
  void judge_wait(const CmExchange& e, const CmSeen& before, const Now& now);
  void judge_transaction(const CmExchange& e, const Now& now);
  void learn_sent(CmExchange& e, const Now& now);

  // --- both: cm_judge.cc
  void learn_req(CmExchange& e, const wire::Req& req, bool out);
  void learn_rep(CmExchange& e, const wire::Rep& rep, bool out);
  void end_connection(const CmExchange& e);
  void settle_debt(CmExchange& e, Time now);
  void count(CmSeen& seen, const Now& now);
  // Whether `seen`, which came in, counts for what is sent now.
  bool known(const CmSeen& seen, const Now& now) const { return seen && seen.first + options_.slack < now.time(); }
  void violation(const CmExchange& e, uint64_t packet, Time time, Rule rule, std::string what);
  void violation(const CmExchange& e, const Now& now, Rule rule, const std::string& what);
  // Of exchanges whose beginning may lie in front of the capture not everything can be told.
  bool whole(const CmExchange& e) const { return e.has_request || (options_.whole && table_.forgotten() == 0); }

  Findings& findings_;
  const Options& options_;
  ConnectionTable& connections_;
  CmTable table_;
};

}  // namespace uroce::oracle
