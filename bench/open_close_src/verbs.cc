// SPDX-License-Identifier: BSD-2-Clause
// Opens a device, makes its first queue pair, closes it. Usage: open_close_verbs DEVICE ROUNDS; with 0 rounds it
// exits without closing anything, and its last line is the time then (CLOCK_MONOTONIC, ms).
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <infiniband/verbs.h>
#include <string>
#include <system_error>

#include "bench/open_close_src/stopwatch.h"

namespace uroce::open_close {
namespace {

void check(bool good, const char* what) {
  if (!good) throw std::system_error(errno, std::generic_category(), what);
}

ibv_context* open_device(const std::string& name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  check(list != nullptr, "ibv_get_device_list");
  ibv_device* device = nullptr;
  for (int i = 0; i < count; ++i) {
    if (ibv_get_device_name(list[i]) == name) device = list[i];
  }
  errno = ENODEV;
  check(device != nullptr, name.c_str());
  ibv_context* const context = timed("ibv_open_device", [&] { return ibv_open_device(device); });
  check(context != nullptr, "ibv_open_device");
  ibv_free_device_list(list);
  return context;
}

void round(const std::string& name, bool close) {
  ibv_context* const context = open_device(name);
  ibv_pd* const pd = ibv_alloc_pd(context);
  check(pd != nullptr, "ibv_alloc_pd");
  ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  check(cq != nullptr, "ibv_create_cq");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {16, 16, 1, 1, 0};
  ibv_qp* const qp = timed("ibv_create_qp, the first", [&] { return ibv_create_qp(pd, &init); });
  check(qp != nullptr, "ibv_create_qp");
  if (!close) return;
  check(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  check(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
  check(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
  check(timed("ibv_close_device", [&] { return ibv_close_device(context); }) == 0, "ibv_close_device");
}

}  // namespace
}  // namespace uroce::open_close

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const int rounds = std::atoi(argv[2]);
    for (int i = 0; i < rounds; ++i) uroce::open_close::round(argv[1], true);
    if (rounds > 0) return 0;
    uroce::open_close::round(argv[1], false);
    const std::chrono::duration<double, std::milli> now = std::chrono::steady_clock::now().time_since_epoch();
    std::printf("%.3f\n", now.count());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "open_close_verbs: %s\n", e.what());
    return 1;
  }
}
