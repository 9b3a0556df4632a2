// SPDX-License-Identifier: BSD-2-Clause
// A process's link to its broker, and who looks at statistics, when the broker is hostile: whatever it answers, in
// whatever order, with descriptors of any kind. A thread listens and answers each message with the next bytes of the
// input; at their end it closes the connection and refuses the next ones.
//
// Checked: what comes out is within its bounds, texts can be shown on a terminal, and no descriptor stays open.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <memory>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <variant>
#include <vector>

#include "base/bell.h"
#include "base/passed_descriptors.h"
#include "broker/client/link.h"
#include "broker/client/observer.h"
#include "broker/protocol/address.h"
#include "broker/protocol/protocol.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"

namespace uroce::fuzz {
namespace {

using broker::Kind;
using broker::LeaseRange;
using broker::Message;

constexpr size_t kMostConnections = 4;  // of one input
constexpr size_t kMostAnswers = 64;

size_t open_descriptors() {
  DIR* const all = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(all) != nullptr) ++count;
  closedir(all);
  return count;
}

// Answers until it is asked to end.
class HostileBroker {
 public:
  HostileBroker(const std::string& address, Input in) : in_(in), stop_(eventfd(0, EFD_CLOEXEC)) {
    check(broker::listen_at(address, listener_) == 0, "the address is free");
    thread_ = std::thread([this] { serve(); });
  }
  ~HostileBroker() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }

 private:
  void serve() {
    for (size_t count = 0; waits_for(listener_.get()); ++count) {
      const UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client) talk(client.get(), count < kMostConnections);
    }
  }

  // False: it is to end.
  bool waits_for(int fd) const {
    std::array<pollfd, 2> waits{{{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    poll(waits.data(), waits.size(), -1);
    return waits[1].revents == 0;
  }

  void talk(int client, bool says_anything) {
    for (size_t count = 0; waits_for(client); ++count) {
      Message asked;
      Descriptors came;
      if (broker::receive(client, asked, came, 0) != 0) return;
      if (!has_answer(asked.kind)) continue;
      if (!says_anything || in_.empty() || count >= kMostAnswers) {
        Message refusal = broker::make_message(Kind::kRefused, "no more");
        refusal.error = EACCES;
        broker::send(client, refusal);
        return;
      }
      if (!answer(client, asked.kind)) return;
    }
  }

  static bool has_answer(Kind kind) {
    return kind != Kind::kReturn && kind != Kind::kMeet && kind != Kind::kSealed && kind != Kind::kRelease;
  }

  // False: it hangs up.
  bool answer(int client, Kind asked) {
    const uint8_t how = in_.byte();
    if (how % 16 == 15) return false;
    Message message = broker::make_message(expected(asked), "uroced\x1b[2J");
    if (how % 8 == 1) message.kind = static_cast<Kind>(in_.below(static_cast<uint32_t>(broker::kLastKind) + 2));
    message.range = how % 4 == 2 ? in_.dword() : 1 + in_.below(4);
    message.has_v6 = in_.below(3);
    message.client = how % 4 == 3 ? in_.below(4) : ++last_client_;
    message.error = static_cast<int32_t>(in_.below(200));
    std::vector<uint8_t> bytes(sizeof(message));
    std::memcpy(bytes.data(), &message, sizeof(message));
    if (how % 8 == 4) {
      for (size_t i = in_.below(6); i > 0; --i) bytes[in_.below(sizeof(message))] = in_.byte();
    }
    if (how % 16 == 5) bytes.resize(1 + in_.below(sizeof(message) + 20));
    std::array<UniqueFd, 6> ends;
    const size_t count = how % 4 == 0 ? 2 : in_.below(7);
    std::vector<int> descriptors;
    for (size_t i = 0; i < count; ++i) descriptors.push_back(descriptor(ends[i]));
    return send_with_descriptors(client, bytes, descriptors) == 0;
  }

  static Kind expected(Kind asked) {
    switch (asked) {
      case Kind::kHello:
      case Kind::kLook:
        return Kind::kWelcome;
      case Kind::kNext:
        return Kind::kProcess;
      default:
        return Kind::kGranted;
    }
  }

  // A file with something in it, a bell's end whose other end is closed, or a stream.
  int descriptor(UniqueFd& end) {
    std::vector<uint8_t> text(in_.below(128));
    in_.fill(text);
    switch (in_.below(3)) {
      case 0:
        end.reset(memfd_create("text", MFD_CLOEXEC));
        return pwrite(end.get(), text.data(), text.size(), 0) < 0 ? stop_.get() : end.get();
      case 1:
        end = std::move(make_bell()[0]);
        return end ? end.get() : stop_.get();
      default: {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return stop_.get();
        end.reset(ends[0]);
        const UniqueFd other(ends[1]);
        if (!text.empty()) ::send(other.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        return end.get();
      }
    }
  }

  Input in_;  // the thread's
  uint64_t last_client_ = 0;
  const UniqueFd stop_;
  UniqueFd listener_;
  std::thread thread_;
};

void check_text(const std::string& text) {
  check(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; }), "a text can be shown");
}

void lease(const std::string& address, Input& in) {
  auto opened = broker::Link::open(address, nullptr);
  if (const auto* const error = std::get_if<io::IoError>(&opened)) return check_text(error->what);
  const auto& link = std::get<std::shared_ptr<broker::Link>>(opened);
  check_text(link->description());
  std::vector<std::shared_ptr<broker::Lease>> leases;
  std::vector<std::shared_ptr<const void>> ports;
  for (size_t i = 1 + in.below(6); i > 0; --i) {
    auto leased = link->lease(1, "eth", broker::Plane::kSockets);
    if (const auto* const error = std::get_if<io::IoError>(&leased)) {
      check_text(error->what);
    } else {
      const auto& own = std::get<std::shared_ptr<broker::Lease>>(leased);
      check(own->range().number >= LeaseRange::kFirstNumber && own->range().number <= LeaseRange::kLastNumber,
            "a range is one that can be leased");
      check(own->socket_v4() >= 0, "and has a socket");
      leases.push_back(own);
    }
    if (in.flag() && !leases.empty()) leases.erase(leases.begin());
    if (!in.flag()) continue;
    auto held = link->hold("port");
    if (const auto* const error = std::get_if<io::IoError>(&held)) {
      check_text(error->what);
    } else {
      ports.push_back(std::get<std::shared_ptr<const void>>(held));
    }
  }
}

void look(const std::string& address) {
  auto opened = broker::Observer::open(address);
  if (const auto* const error = std::get_if<io::IoError>(&opened)) return check_text(error->what);
  auto& observer = std::get<broker::Observer>(opened);
  check_text(observer.broker());
  auto looked = observer.look(16);
  if (const auto* const error = std::get_if<io::IoError>(&looked)) return check_text(error->what);
  for (const broker::Process& process : std::get<std::vector<broker::Process>>(looked)) check_text(process.program);
}

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace uroce::fuzz;
  const size_t before = open_descriptors();
  {
    Input in(data, size);
    const bool looks = in.flag();
    Input steps(data, std::min<size_t>(size, 8));
    const std::string address = "@uroced-hostile-" + std::to_string(getpid());
    const HostileBroker hostile(address, in);
    looks ? look(address) : lease(address, steps);
  }
  check(open_descriptors() == before, "all descriptors are closed");
  return 0;
}
