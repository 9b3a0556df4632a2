// SPDX-License-Identifier: BSD-2-Clause
// What the kernel takes to open AF_XDP on all queues of a netdev and to close it again, one plain call after the other.
// Usage: open_close_plain NETDEV QUEUES ROUNDS
#include <bpf/bpf.h>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <vector>
#include <xdp/xsk.h>

#include "bench/open_close_src/stopwatch.h"

namespace uroce::open_close {
namespace {

constexpr uint32_t kChunk = 2048;
constexpr uint32_t kTxFrames = 2048;
constexpr size_t kMaxRxFrames = size_t{30} << 10;  // of all queues together, as AfXdp does

// `error`: negative as libbpf and libxdp have it.
void check(int error, const char* what) {
  if (error < 0) throw std::system_error(-error, std::generic_category(), what);
}

struct Queue {
  xsk_socket* socket = nullptr;
  xsk_ring_prod fill{}, tx{};
  xsk_ring_cons completion{}, rx{};
};

// return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
int load_program(int map_fd) {
  const bpf_insn program[] = {
      {BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, offsetof(xdp_md, rx_queue_index), 0},
      {BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map_fd},
      {0, 0, 0, 0, 0},  // upper half of the 64-bit immediate
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS},
      {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  return bpf_prog_load(BPF_PROG_TYPE_XDP, "redirect", "GPL", program, std::size(program), nullptr);
}

int attach(int program, int ifindex) {
  bpf_link_create_opts options{};
  options.sz = sizeof(options);
  options.flags = XDP_FLAGS_DRV_MODE;
  return bpf_link_create(program, ifindex, BPF_XDP, &options);
}

int open_queues(const std::string& netdev, xsk_umem* umem, std::vector<Queue>& queues, uint32_t rx_frames) {
  xsk_socket_config config{};
  config.rx_size = rx_frames;
  config.tx_size = kTxFrames;
  config.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
  config.bind_flags = XDP_USE_NEED_WAKEUP;
  for (uint32_t id = 0; id < queues.size(); ++id) {
    Queue& q = queues[id];
    int error = -EBUSY;
    // The kernel frees a queue some time after its socket was closed.
    for (int attempt = 0; error == -EBUSY && attempt < 3000; ++attempt) {
      if (attempt > 0) usleep(1000);
      error =
          xsk_socket__create_shared(&q.socket, netdev.c_str(), id, umem, &q.rx, &q.tx, &q.fill, &q.completion, &config);
    }
    if (error != 0) return error;
  }
  return 0;
}

void round(const std::string& netdev, uint32_t queue_count) {
  uint32_t rx_frames = 4096;
  while (size_t{rx_frames} * queue_count > kMaxRxFrames) rx_frames /= 2;
  const size_t size = (size_t{rx_frames} * queue_count + kTxFrames) * kChunk;
  std::vector<Queue> queues(queue_count);
  const int map = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "xsks", sizeof(int), sizeof(int), queue_count, nullptr);
  check(map, "XSKMAP");
  const int program = timed("load a program", [&] { return load_program(map); });
  check(program, "program");
  const int link =
      timed("attach it", [&] { return attach(program, static_cast<int>(if_nametoindex(netdev.c_str()))); });
  check(link, "attach");
  void* const area = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) check(-errno, "memory");
  madvise(area, size, MADV_HUGEPAGE);
  xsk_umem* umem = nullptr;
  check(timed("register memory",
              [&] {
                const xsk_umem_config config{2 * rx_frames, kTxFrames, kChunk, 0, 0};
                return xsk_umem__create(&umem, area, size, &queues[0].fill, &queues[0].completion, &config);
              }),
        "UMEM");
  check(timed("sockets", [&] { return open_queues(netdev, umem, queues, rx_frames); }), "sockets");

  timed("close the sockets in turn", [&] {
    for (const Queue& queue : queues) xsk_socket__delete(queue.socket);
    return xsk_umem__delete(umem);
  });
  timed("detach the program", [&] { return close(link); });
  close(program);
  close(map);
  munmap(area, size);
}

}  // namespace
}  // namespace uroce::open_close

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    for (int i = 0; i < std::atoi(argv[3]); ++i) {
      uroce::open_close::round(argv[1], static_cast<uint32_t>(std::atoi(argv[2])));
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "open_close_plain: %s\n", e.what());
    return 1;
  }
}
