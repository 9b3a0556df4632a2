// SPDX-License-Identifier: BSD-2-Clause
// What this process has used so far, all of its threads.
#pragma once

#include <cstdio>
#include <sys/resource.h>

namespace uroce::bench {

class Usage {
 public:
  Usage() { getrusage(RUSAGE_SELF, &usage_); }
  // Since `before`, as members of a JSON object.
  void print_since(const Usage& before, std::FILE* out) const {
    std::fprintf(out, R"("cpu_us": %.0f, "switches": %ld)", cpu_us() - before.cpu_us(), switches() - before.switches());
  }

 private:
  static double us(const timeval& t) { return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec); }
  double cpu_us() const { return us(usage_.ru_utime) + us(usage_.ru_stime); }
  long switches() const { return usage_.ru_nvcsw + usage_.ru_nivcsw; }

  rusage usage_;
};

}  // namespace uroce::bench
