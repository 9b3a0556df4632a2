// SPDX-License-Identifier: BSD-2-Clause
// How long write() and close() take: a line "nanoseconds<TAB>name" for each kind of call.
// Usage: file_calls ROUNDS [rdma_cm]     rdma_cm: while the program has an rdma_cm file open
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>
#include <vector>

namespace uroce::file_calls {
namespace {

template <class Call>
void measure(const char* name, long rounds, Call call) {
  const auto begin = std::chrono::steady_clock::now();
  for (long i = 0; i < rounds; ++i) call(i);
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
  std::printf("%.1f\t%s\n", taken.count() / static_cast<double>(rounds), name);
}

int run(long rounds) {
  const int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);  // what takes the kernel the least
  if (sink < 0) return 1;
  // Bytes that begin like a command, and others.
  std::vector<unsigned char> plain(64, 'x'), command(64, 0);
  command[4] = static_cast<unsigned char>(command.size() - 8);
  ssize_t written = 0;
  const auto write_all = [&](const std::vector<unsigned char>& bytes, size_t size) {
    return [&bytes, &written, sink, size](long) { written += write(sink, bytes.data(), size); };
  };
  measure("write 8 bytes", rounds, write_all(plain, 8));
  measure("write 64 bytes", rounds, write_all(plain, plain.size()));
  measure("write 64 bytes that could be a command", rounds, write_all(command, command.size()));
  measure("dup and close", rounds, [sink](long) { close(dup(sink)); });
  return written == rounds * (8 + 64 + 64) ? 0 : 1;
}

}  // namespace
}  // namespace uroce::file_calls

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  rdma_event_channel* const channel = argc > 2 ? rdma_create_event_channel() : nullptr;
  if (argc > 2 && channel == nullptr) {
    std::fprintf(stderr, "file_calls: no rdma_cm: %s\n", std::strerror(errno));
    return 1;
  }
  return uroce::file_calls::run(std::atol(argv[1]));
}
