// SPDX-License-Identifier: BSD-2-Clause
// The way to the connection manager: found when it is first needed, lost when the broker ends, and taken up again.
#include <cerrno>
#include <cstdio>
#include <utility>

#include "abi/rdma_cm_file/manager.h"
#include "base/concat.h"

namespace uroce::rdma_cm {

int Manager::find_agent() {
  if (agent_) return 0;
  cm::Agent::Handler handler;
  handler.on_event = [mailbox = mailbox_](const cm::Event& event) { mailbox->put(event); };
  handler.on_loss = [mailbox = mailbox_] { mailbox->put(Mailbox::Loss{}); };
  handler.on_return = [mailbox = mailbox_] { mailbox->put(Mailbox::Return{}); };
  ChosenAgent chosen = environment_.make_agent(std::move(handler));
  agent_ = std::move(chosen.agent);
  if (agent_) return 0;
  if (!complained_) std::fputs(concat("uroce: rdma_cm: ", chosen.text, "\n").c_str(), stderr);
  complained_ = true;
  return chosen.error != 0 ? chosen.error : ENODEV;
}

cm::Reply Manager::ask(const cm::Request& request) {
  if (const int error = find_agent(); error != 0) return {.error = error};
  return agent_->ask(request);
}

void Manager::name(const IdPtr& id, cm::Id cm) {
  id->cm = cm;
  by_cm_[cm] = id;
}

// Connections that were being made are not any more; established ones go on without it.
void Manager::on_loss() {
  std::vector<IdPtr> all;
  ids_.for_each([&](const IdPtr& id) { all.push_back(id); });
  for (const IdPtr& id : all) {
    id->binding = cm::kNoBinding;
    const bool lasts = id->phase == Phase::kEstablished || id->state == State::kListen;
    if (id->cm == cm::kNoId || lasts) continue;
    by_cm_.erase(id->cm);
    id->cm = cm::kNoId;
    awaiting_rtu_.erase(id);
    const bool waited =
        id->phase == Phase::kReqSent || id->phase == Phase::kRepReceived || id->phase == Phase::kRepSent;
    id->phase = Phase::kEnded;
    if (waited && id->uid != 0) queue(id, abi::EventKind::kUnreachable, -ETIMEDOUT);
  }
}

void Manager::on_return() {
  std::vector<IdPtr> all;
  ids_.for_each([&](const IdPtr& id) { all.push_back(id); });
  for (const IdPtr& id : all) take_up_again(id);
}

// A listener's port that somebody else has got meanwhile is lost: it is said, as no event of the file can say it.
// Others ask for theirs again when they listen.
void Manager::take_up_again(const IdPtr& id) {
  int error = 0;
  if (!id->passive && id->source.port != 0 && id->binding == cm::kNoBinding) error = bind_port(*id);
  if (id->state == State::kListen && error == 0) {
    by_cm_.erase(id->cm);
    error = start_listener(*id);
    if (error == 0) name(id, id->cm);
  }
  if (id->state == State::kListen && error != 0) {
    std::fputs(concat("uroce: rdma_cm: the new broker does not give port ", id->source.port, " again, errno ", error,
                      "; nobody can connect to it\n")
                   .c_str(),
               stderr);
    return;
  }
  if (id->phase == Phase::kEstablished && id->cm != cm::kNoId && !id->is_datagram()) adopt(id);
}

// If it is not taken, the other side's DREQ is answered by nobody, and its QP's retries end it.
void Manager::adopt(const IdPtr& id) {
  cm::AdoptRequest adopt;
  adopt.id = id->cm;
  adopt.remote_id = id->remote_cm;
  adopt.transport = id->qp_type == abi::kRc   ? cm::Transport::kRc
                    : id->qp_type == abi::kUc ? cm::Transport::kUc
                                              : cm::Transport::kXrc;
  adopt.service = id->service;
  adopt.local_qpn = wire::Qpn(id->qpn);
  adopt.qp = id->qp;
  const int error = ask(adopt).error;
  if (error == ENOTCONN) return;  // gone again
  if (error != 0) {
    by_cm_.erase(id->cm);
    id->cm = cm::kNoId;
  }
  if (!std::exchange(id->disconnects, false)) return;
  if (id->cm == cm::kNoId) return end_without_answer(id);
  ask(cm::DisconnectRequest{id->cm, {}});
}

}  // namespace uroce::rdma_cm
