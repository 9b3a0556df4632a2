// SPDX-License-Identifier: BSD-2-Clause
// The responder's side: for each case that the client names it makes a QP and memory of the kind that the case needs,
// and tells afterwards what has become of them. Used by main.cc.
#pragma once

#include <memory>

#include "tests/e2e/errors/greeting.h"

namespace uroce::errors {

class Server {
 public:
  Server(transfer::Device& device, transfer::Control control);

  // Until the client has had enough. Returns the number of cases that went wrong, by its own judgement or the client's.
  uint64_t run();

 private:
  void run_case(const Case& item);
  void run_healthy();

  transfer::Device& device_;
  transfer::Control control_;
  const Peer peer_;
  const Provider provider_;
  transfer::Verbs<ibv_pd> pd_, foreign_pd_;
};

}  // namespace uroce::errors
