// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/transfer/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fmt/format.h>
#include <vector>

#include "tests/e2e/transfer/failure.h"

namespace uroce::transfer {
namespace {

constexpr const char* kDescription =
    "Proves data integrity and exactly-once, in-order completions of RC over libibverbs.\n"
    "The client's options say what is transferred; --device, --gid-index, --events, --rnr, --port-changes, "
    "--ack-timeout\n"
    "and --timeout-s are each side's own. Exit code: 0 all is well, 1 a mismatch, 2 an option or set-up error, 3 "
    "nothing moved any "
    "more.";

// What a client sends when --mix is absent: all that needs no memory windows.
uint32_t default_mix() {
  return ((1u << kMixWords) - 1) & ~mix_bit(Kind::kSendInv);
}

uint32_t mix_of(const std::vector<std::string>& words) {
  uint32_t mix = 0;
  for (const std::string& word : words) {
    unsigned bit = 0;
    while (bit < kMixWords && word != mix_word(bit)) ++bit;
    if (bit == kMixWords) throw CLI::ValidationError("--mix", "unknown word '" + word + "'");
    mix |= 1u << bit;
  }
  return mix;
}

std::string all_mix_words() {
  std::string text;
  for (unsigned bit = 0; bit < kMixWords; ++bit) text += fmt::format("{}{}", bit == 0 ? "" : ",", mix_word(bit));
  return text;
}

std::string plan_arguments(const PlanOptions& plan) {
  std::string mix;
  for (unsigned bit = 0; bit < kMixWords; ++bit) {
    if ((plan.mix >> bit & 1) != 0) mix += fmt::format("{}{}", mix.empty() ? "" : ",", mix_word(bit));
  }
  return fmt::format(" --seed {} --messages {} --max-size {} --mix {} --queue-depth {} --qps {}{}{}{}", plan.seed,
                     plan.messages, plan.max_size, mix, plan.queue_depth, plan.qps,
                     plan.mtu == 0 ? "" : fmt::format(" --mtu {}", plan.mtu),
                     plan.bidirectional ? " --bidirectional" : "", plan.unsignaled ? " --unsignaled" : "");
}

}  // namespace

std::string Options::command() const {
  std::string text = "rc_transfer";
  if (mode == Mode::kSelf) text += " --self";
  if (mode == Mode::kServer) text += " --server";
  if (mode == Mode::kClient) text += " --client " + host;
  if (mode != Mode::kSelf) text += fmt::format(" --port {}", port);
  if (!device.empty()) text += " --device " + device;
  text += fmt::format(" --gid-index {}{}{}{} --ack-timeout {} --timeout-s {}", gid_index, events ? " --events" : "",
                      starve ? " --rnr" : "", port_changes ? " --port-changes" : "", ack_timeout, timeout.count());
  if (mode != Mode::kServer) return text + plan_arguments(plan);
  return text + fmt::format("' and 'rc_transfer --client SERVER --port {}", port) + plan_arguments(plan);
}

Options parse_options(int argc, char** argv) {
  CLI::App app(kDescription, "rc_transfer");
  Options options;
  PlanOptions& plan = options.plan;
  bool server = false;
  bool self = false;
  std::vector<std::string> mix;
  int64_t timeout = options.timeout.count();
  unsigned ack_timeout = options.ack_timeout;

  CLI::Option_group* mode = app.add_option_group("mode", "exactly one of");
  mode->add_flag("--server", server, "wait for one client");
  mode->add_option("--client", options.host, "connect to the server at this host name, IPv4 or IPv6 address");
  mode->add_flag("--self", self, "both sides in this process, over the device's own GID");
  mode->require_option(1);

  app.add_option("--port", options.port, "TCP port of the control connection; 0 at the server: any")
      ->capture_default_str();
  app.add_option("--device", options.device, "RDMA device (the first)");
  app.add_option("--gid-index", options.gid_index, "index of the source GID")
      ->check(CLI::Range(0, 255))
      ->capture_default_str();
  app.add_option("--seed", plan.seed, "of plan and payloads")->capture_default_str();
  app.add_option("--messages", plan.messages, "per QP and direction")->capture_default_str();
  app.add_option("--max-size", plan.max_size, "bytes of the longest message")->capture_default_str();
  app.add_option("--mix", mix, "what to send, of " + all_mix_words() + " (all but send_inv)")->delimiter(',');
  app.add_option("--queue-depth", plan.queue_depth, "outstanding requests per QP and direction")->capture_default_str();
  app.add_option("--qps", plan.qps, "queue pairs")->capture_default_str();
  app.add_option("--mtu", plan.mtu, "path MTU, 256 to 4096 (the smaller active MTU)");
  app.add_flag("--bidirectional", plan.bidirectional, "both sides are requesters");
  app.add_flag("--unsignaled", plan.unsignaled, "most requests do not ask for a completion");
  app.add_flag("--events", options.events, "poll after completion events only");
  app.add_flag("--rnr", options.starve, "post one receive at a time, which provokes RNR NAKs");
  app.add_flag("--port-changes", options.port_changes, "that the port goes down and up is no failure");
  app.add_option("--ack-timeout", ack_timeout, "of the QPs, 4.096 us * 2^n")
      ->check(CLI::Range(1, 31))
      ->capture_default_str();
  app.add_option("--timeout-s", timeout, "give up when nothing moves for so many seconds")
      ->check(CLI::Range(int64_t{1}, int64_t{86400}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    plan.mix = mix.empty() ? default_mix() : mix_of(mix);
    if (const std::string problem = plan.problem(); !problem.empty()) throw CLI::ValidationError(problem);
  } catch (const CLI::ParseError& error) {
    const bool asked_for = app.exit(error) == 0;  // prints the help or the error
    std::exit(static_cast<int>(asked_for ? ExitCode::kOk : ExitCode::kUsage));
  }
  options.mode = self ? Mode::kSelf : server ? Mode::kServer : Mode::kClient;
  options.timeout = std::chrono::seconds(timeout);
  options.ack_timeout = static_cast<uint8_t>(ack_timeout);
  return options;
}

}  // namespace uroce::transfer
