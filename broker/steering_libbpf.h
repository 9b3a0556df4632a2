// SPDX-License-Identifier: BSD-2-Clause
// libbpf writes to stderr what goes wrong. Here the error's code says enough, and often another kind of steering is
// next.
#pragma once

#include <bpf/libbpf.h>

namespace uroce::broker {

// While one exists libbpf writes nothing.
class SilentLibbpf {
 public:
  SilentLibbpf() : previous_(libbpf_set_print(nullptr)) {}
  ~SilentLibbpf() { libbpf_set_print(previous_); }
  SilentLibbpf(const SilentLibbpf&) = delete;
  SilentLibbpf& operator=(const SilentLibbpf&) = delete;

 private:
  const libbpf_print_fn_t previous_;
};

}  // namespace uroce::broker
