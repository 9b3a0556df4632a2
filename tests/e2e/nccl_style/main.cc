// SPDX-License-Identifier: BSD-2-Clause
// nccl_style: what NCCL's network over verbs does, without NCCL or a GPU, between two processes that send to each other
// and verify every byte. It loads libibverbs itself, chooses device and GID by sysfs and verbs, and has a thread that
// waits for asynchronous events for as long as the process lives.
//
// Usage: nccl_style [--dmabuf] [ADDRESS] PORT
//   ADDRESS    of the other process, which was started without one
//   --dmabuf   messages go to memory that is registered as a DMA buffer (here a memfd), as those of GPUs

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <thread>

#include "channel.h"
#include "link.h"

namespace uroce::nccl_style {
namespace {

constexpr size_t kMessages = 400;

// Not joined: it ends with the process.
void watch(const Symbols& verbs, ibv_context* context) {
  std::thread([&verbs, context] {
    ibv_async_event event{};
    while (verbs.get_async_event(context, &event) == 0) {
      std::fprintf(stderr, "nccl_style: event: %s\n", verbs.event_type_str(event.event_type));
      verbs.ack_async_event(&event);
    }
  }).detach();
}

int run(const char* address, uint16_t port, Region::Kind kind) {
  static Symbols verbs;  // for longer than the thread that watches
  std::string library;
  verbs = load_symbols(library);
  const std::vector<Device> devices = find_devices(verbs);
  for (const Device& device : devices) {
    watch(verbs, device.context);
    std::printf("nccl_style: %s port %d, %d Mb/s, path %s%s, by %s\n", device.name.c_str(), device.port, device.speed,
                device.pci_path.c_str(), device.dmabuf ? ", DMA buffers" : "", library.c_str());
  }
  Domain domain(verbs, devices.front(), choose_gid(verbs, devices.front()));
  std::printf("nccl_style: %s with GID %d\n", domain.device.name.c_str(), domain.gid_index);
  std::fflush(stdout);

  Link link = address != nullptr ? Link::connect(address, port) : Link::serve(port);
  const unsigned rank = address != nullptr ? 1 : 0;
  Sender sender(domain, rank, kMessages);
  Receiver receiver(domain, 1 - rank, kMessages, kind);
  const Side of_peers_sender = link.exchange(sender.describe());
  const Side of_peers_receiver = link.exchange(receiver.connect(of_peers_sender));
  sender.connect(of_peers_receiver);
  link.exchange('c');  // both are connected
  while (!sender.done() || !receiver.done()) {
    sender.progress();
    receiver.progress();
  }
  link.exchange('d');  // nothing is under way any more
  std::printf("nccl_style: %zu messages, %llu bytes each way\n", kMessages,
              static_cast<unsigned long long>(receiver.bytes()));
  return 0;
}

}  // namespace
}  // namespace uroce::nccl_style

int main(int count, char** arguments) {
  using namespace uroce::nccl_style;
  const bool dmabuf = count > 1 && std::strcmp(arguments[1], "--dmabuf") == 0;
  const int rest = count - (dmabuf ? 2 : 1);
  if (rest != 1 && rest != 2) {
    std::fputs("usage: nccl_style [--dmabuf] [ADDRESS] PORT\n", stderr);
    return 2;
  }
  try {
    return run(rest == 2 ? arguments[count - 2] : nullptr, static_cast<uint16_t>(std::atoi(arguments[count - 1])),
               dmabuf ? Region::Kind::kDmabuf : Region::Kind::kHost);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_style: %s\n", error.what());
    return 1;
  }
}
