// SPDX-License-Identifier: BSD-2-Clause
// The captures of truth.h as files.
// Usage: make_captures DIRECTORY [SEED [no-ids]]. Writes for each case and each end NAME-a.pcapng, NAME-b.pcapng (what
// that host's NIC saw) and beside it NAME-a.truth: lines "FRAME KIND".
// no-ids: as if the senders left the IPv4 ID zero, as with IPv6.
#include <cstdio>
#include <fstream>
#include <string>

#include "pcapng/pcapng_writer.h"
#include "tests/dissector/truth.h"

namespace uroce::simulator {
namespace {

void write_capture(const View& view, const std::string& name, const std::string& path, bool ids) {
  std::ofstream file(path, std::ios::binary);
  pcapng::PcapngWriter writer(file, "uroce simulator");
  writer.add_interface(name);
  for (pcapng::Record record : view.records) {
    record.interface = 0;
    if (!ids) remove_ip_id(record.frame);
    writer.write(record);
  }
}

void write_truth(const Truth& truth, const std::string& path) {
  std::ofstream out(path);
  for (const auto& [frame, kind] : truth) out << frame << ' ' << kind << '\n';
}

void write_all(const std::string& directory, uint64_t seed, bool ids) {
  std::vector<Case> cases = fixed_cases();
  cases.push_back(random_case(seed));
  for (const Case& c : cases) {
    const std::vector<View> views = run(c, seed);
    std::printf("%-12s %zu and %zu frames\n", c.name.c_str(), views[0].records.size(), views[1].records.size());
    for (size_t i = 0; i < 2; ++i) {
      const std::string base = directory + "/" + c.name + (i == 0 ? "-a" : "-b");
      write_capture(views[i], "host" + std::to_string(i + 1), base + ".pcapng", ids);
      write_truth(truth_of(views[i], views[1 - i], c.attributes.path_mtu), base + ".truth");
    }
  }
}

}  // namespace
}  // namespace uroce::simulator

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: make_captures DIRECTORY [SEED [no-ids]]\n");
    return 2;
  }
  uroce::simulator::write_all(argv[1], argc > 2 ? std::stoull(argv[2]) : 1, argc < 4);
  return 0;
}
