// SPDX-License-Identifier: BSD-2-Clause
// The requester's side: makes the requests that must fail, one case after the other, and judges how both sides fared.
// Used by main.cc.
#pragma once

#include <cstddef>
#include <string>

#include "tests/e2e/errors/greeting.h"

namespace uroce::errors {

class Client {
 public:
  Client(transfer::Device& device, transfer::Control control);

  // Runs the case, prints its line; false: it went wrong.
  bool run_case(size_t index);
  // Lets the server go.
  void finish(uint64_t failed);

 private:
  std::string run_healthy();

  transfer::Device& device_;
  transfer::Control control_;
  const Peer peer_;
  const Provider provider_;
  transfer::Verbs<ibv_pd> pd_;
};

}  // namespace uroce::errors
