// SPDX-License-Identifier: BSD-2-Clause
// ucx_exchange: random data between two hosts with everything that UCP has (tag, stream, active messages, put, get,
// atomics), both ways at once; every byte is verified where it arrives. Run by applications.py.
//
// Usage: ucx_exchange [OPTIONS] [SERVER]     without SERVER (an IPv4 address): waits for the client
// Both sides get the same seed, sizes, parts and number of connections. Prints one line, the same on both sides; exit
// code 1 with a message when anything is wrong, 2 for wrong usage.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <getopt.h>
#include <unistd.h>

#include "session.h"

namespace exchange {
namespace {

constexpr const char* kUsage =
    "usage: ucx_exchange [OPTIONS] [SERVER]\n"
    "  --port N         TCP port (13500)\n"
    "  --seed N         of all data (1)\n"
    "  --min-size N     bytes of the smallest message (1)\n"
    "  --max-size N     bytes of the largest message and region (4194304)\n"
    "  --parts LIST     of tag,stream,am,put,get,atomic (all)\n"
    "  --connections N  one after the other (1)\n"
    "  --sleep          on events instead of polling\n"
    "  --by-address     UCX connects by itself to the server's address and port (UCX_SOCKADDR_TLS_PRIORITY says how)\n"
    "  --timeout N      seconds for one operation (120)\n"
    "  --plant PART     corrupt something in this part, which the other side has to notice\n";

struct PartName {
  const char* name;
  Part part;
};
constexpr PartName kParts[] = {{"tag", Part::kTag}, {"stream", Part::kStream}, {"am", Part::kMessage},
                               {"put", Part::kPut}, {"get", Part::kGet},       {"atomic", Part::kAtomic}};

[[noreturn]] void usage() {
  std::fputs(kUsage, stderr);
  std::exit(2);
}

uint64_t number(const char* text, uint64_t min, uint64_t max) {
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text, &end, 0);
  if (errno != 0 || end == text || *end != 0 || *text == '-' || value < min || value > max) usage();
  return value;
}

char part(const std::string& name) {
  for (const PartName& known : kParts) {
    if (name == known.name) return static_cast<char>(known.part);
  }
  usage();
}

std::string parts(const std::string& list) {
  std::string letters;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    letters += part(list.substr(at, comma - at));
    at = comma + 1;
  }
  return letters;
}

Options parse(int argc, char** argv) {
  const option known[] = {
      {"port", 1, nullptr, 'p'},     {"seed", 1, nullptr, 's'},       {"min-size", 1, nullptr, 'm'},
      {"max-size", 1, nullptr, 'M'}, {"parts", 1, nullptr, 'P'},      {"connections", 1, nullptr, 'c'},
      {"sleep", 0, nullptr, 'S'},    {"by-address", 0, nullptr, 'a'}, {"timeout", 1, nullptr, 't'},
      {"plant", 1, nullptr, 'x'},    {nullptr, 0, nullptr, 0}};
  constexpr uint64_t kLargest = uint64_t{1} << 30;
  Options options;
  for (int letter; (letter = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    if (letter == 'p')
      options.port = static_cast<uint16_t>(number(optarg, 1, 65535));
    else if (letter == 's')
      options.seed = number(optarg, 0, UINT64_MAX);
    else if (letter == 'm')
      options.min_size = number(optarg, 0, kLargest);
    else if (letter == 'M')
      options.max_size = number(optarg, 1, kLargest);
    else if (letter == 'P')
      options.parts = parts(optarg);
    else if (letter == 'c')
      options.connections = static_cast<unsigned>(number(optarg, 1, 1000));
    else if (letter == 'S')
      options.sleep = true;
    else if (letter == 'a')
      options.by_address = true;
    else if (letter == 't')
      options.timeout = static_cast<unsigned>(number(optarg, 1, 86400));
    else if (letter == 'x')
      options.plant = part(optarg);
    else
      usage();
  }
  if (argc - optind > 1 || options.min_size > options.max_size) usage();
  if (argc > optind) {
    options.server = false;
    options.address = argv[optind];
  }
  return options;
}

// What both sides have to agree on.
Blob plan(const Options& options) {
  const std::string text = std::to_string(options.seed) + ' ' + std::to_string(options.min_size) + ' ' +
                           std::to_string(options.max_size) + ' ' + std::to_string(options.connections) + ' ' +
                           options.parts;
  return Blob(text.begin(), text.end());
}

void run(Session& session) {
  session.open();
  for (const char letter : session.options.parts) {
    switch (static_cast<Part>(letter)) {
      case Part::kTag:
        exchange_tags(session);
        break;
      case Part::kStream:
        exchange_streams(session);
        break;
      case Part::kMessage:
        exchange_messages(session);
        break;
      case Part::kPut:
      case Part::kGet:
        exchange_memory(session, static_cast<Part>(letter));
        break;
      case Part::kAtomic:
        exchange_atomics(session);
        break;
    }
    session.barrier();
  }
  session.close();
}

// Together with the other side's; complains when the two do not match.
Totals settle(Session& session, const Totals& own) {
  Totals peer;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&own);
  const Blob answer = session.exchange(Blob(bytes, bytes + sizeof(own)));
  if (answer.size() != sizeof(peer)) session.fail("end", "the other one has counted differently");
  std::memcpy(&peer, answer.data(), sizeof(peer));
  if (own.sent != peer.received || own.received != peer.sent)
    session.fail("end", "more or less has come than was sent");
  return {own.operations + peer.operations, own.bytes + peer.bytes, own.sent + peer.sent, 0};
}

int run_program(const Options& options) {
  OutOfBand out_of_band;
  // The server is there first, when the test says so; no second try.
  if (!(options.server ? out_of_band.accept(options.port) : out_of_band.connect(options.address, options.port))) {
    std::fprintf(stderr, "ucx_exchange: port %u: %s\n", options.port, std::strerror(errno));
    return 1;
  }
  Session session(options, out_of_band);
  if (session.exchange(plan(options)) != plan(options)) session.fail("start", "the two have not the same options");
  for (unsigned i = 0; i < options.connections; ++i) run(session);
  const Totals totals = settle(session, session.totals);
  std::printf("ucx_exchange: %u connections, %" PRIu64 " operations, %" PRIu64 " bytes, hash %016" PRIx64 "\n",
              options.connections, totals.operations, totals.bytes, totals.sent);
  return 0;
}

}  // namespace
}  // namespace exchange

int main(int argc, char** argv) {
  return exchange::run_program(exchange::parse(argc, argv));
}
