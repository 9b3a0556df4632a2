// SPDX-License-Identifier: BSD-2-Clause
// libbpf writes to stderr what goes wrong. Here the error's code says enough, and often there is another way.
#pragma once

#include <bpf/libbpf.h>

namespace uroce::io {

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

}  // namespace uroce::io
