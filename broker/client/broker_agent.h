// SPDX-License-Identifier: BSD-2-Clause
// The connection manager of the broker (broker/server/cm_server.h) for a process: cm::Agent over a Link.
//
// A thread reads what comes, and calls the handler's functions. When the connection ends, requests that wait fail with
// ENOTCONN, the handler is told, and the thread looks for the next broker ten times a second. In a child process after
// fork() it is nothing: each request fails with ENOTCONN.
#pragma once

#include <memory>
#include <variant>

#include "base/error.h"
#include "broker/client/link.h"
#include "cm/agent.h"

namespace uroce::broker {

class BrokerAgent final : public cm::Agent {
 public:
  static constexpr int kPatience = 2000;  // ms for an answer

  // The functions of `handler` are called until the destructor has returned, which must not be called from within one.
  // EOPNOTSUPP: the broker has no connection manager.
  static io::IoResult<cm::Agent> open(std::shared_ptr<Link> link, Handler handler);
  ~BrokerAgent() override;
  cm::Reply ask(const cm::Request& request) override;

 private:
  class Connection;
  explicit BrokerAgent(std::shared_ptr<Connection> connection);

  const std::shared_ptr<Connection> connection_;
};

}  // namespace uroce::broker
