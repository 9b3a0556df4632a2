// SPDX-License-Identifier: BSD-2-Clause
// rc_errors: requests that must fail, between two processes on two hosts (README.md). Knows nothing of uroce: it runs
// over any libibverbs, and over ours when ours is preloaded. Run by errors.py and by the interoperability tests.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "tests/e2e/errors/client.h"
#include "tests/e2e/errors/server.h"
#include "tests/e2e/transfer/failure.h"

namespace uroce::errors {
namespace {

using transfer::ExitCode;

struct Options {
  std::string host;  // empty: server
  std::string device;
  int gid_index = 0;
  uint16_t port = 18591;
  std::vector<size_t> cases;  // indices in all_cases()
};

[[noreturn]] void list_cases() {
  for (const Case& item : all_cases()) fmt::print("{}\n", item.name);
  std::exit(static_cast<int>(ExitCode::kOk));
}

std::vector<size_t> indices_of(const std::vector<std::string>& names) {
  const std::vector<Case>& cases = all_cases();
  std::vector<size_t> indices;
  for (const std::string& name : names) {
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const Case& item) { return item.name == name; });
    if (found == cases.end()) throw CLI::ValidationError("--case", "no case '" + name + "'; --list names them");
    indices.push_back(static_cast<size_t>(found - cases.begin()));
  }
  for (size_t i = 0; names.empty() && i < cases.size(); ++i) indices.push_back(i);
  return indices;
}

Options parse(int argc, char** argv) {
  CLI::App app(
      "Makes RC requests that must fail. The client requests, the server responds. Exit code: 0 all ended as\n"
      "they have to, 1 not all, 2 an option or set-up error, 3 the other side is silent.",
      "rc_errors");
  Options options;
  bool server = false, list = false;
  std::vector<std::string> names;
  CLI::Option_group* const mode = app.add_option_group("mode", "exactly one of");
  mode->add_flag("--server", server, "wait for one client");
  mode->add_option("--client", options.host, "connect to the server at this host name, IPv4 or IPv6 address");
  mode->add_flag("--list", list, "print the names of the cases");
  mode->require_option(1);
  app.add_option("--port", options.port, "TCP port of the control connection")->capture_default_str();
  app.add_option("--device", options.device, "RDMA device (the first)");
  app.add_option("--gid-index", options.gid_index, "index of the source GID")
      ->check(CLI::Range(0, 255))
      ->capture_default_str();
  app.add_option("--case", names, "run only these (client)");
  try {
    app.parse(argc, argv);
    options.cases = indices_of(names);
  } catch (const CLI::ParseError& error) {
    const bool asked_for = app.exit(error) == 0;  // prints the help or the error
    std::exit(static_cast<int>(asked_for ? ExitCode::kOk : ExitCode::kUsage));
  }
  if (list) list_cases();
  return options;
}

uint64_t run(const Options& options) {
  transfer::Device device(options.device, options.gid_index);
  if (options.host.empty()) return Server(device, transfer::Control::serve(options.port, in_time())).run();
  Client client(device, transfer::Control::connect(options.host, options.port, in_time()));
  uint64_t failed = 0;
  for (const size_t index : options.cases) failed += client.run_case(index) ? 0 : 1;
  client.finish(failed);
  fmt::print("{} of {} cases ended as they have to\n", options.cases.size() - failed, options.cases.size());
  return failed;
}

}  // namespace
}  // namespace uroce::errors

int main(int argc, char** argv) {
  using uroce::transfer::ExitCode;
  const auto options = uroce::errors::parse(argc, argv);
  try {
    return static_cast<int>(uroce::errors::run(options) == 0 ? ExitCode::kOk : ExitCode::kMismatch);
  } catch (const uroce::transfer::Failure& failure) {
    std::fflush(stdout);
    fmt::print(stderr, "rc_errors: {}\n", failure.what());
    return static_cast<int>(failure.code);
  }
}
