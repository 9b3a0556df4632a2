// SPDX-License-Identifier: BSD-2-Clause
// What `uroce stat` shows: totals and rates from what the processes of a broker have said (broker/client/observer.h) at
// two times.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "broker/client/observer.h"

namespace uroce::cli {

// What is counted of a device; as rates, per second.
template <class T>
struct Traffic {
  T tx_packets{}, tx_bytes{}, rx_packets{}, rx_bytes{}, retransmissions{}, drops{};

  // f(name, value) for each.
  template <class F>
  void for_each(F&& f) const {
    f("tx_packets", tx_packets);
    f("tx_bytes", tx_bytes);
    f("rx_packets", rx_packets);
    f("rx_bytes", rx_bytes);
    f("retransmissions", retransmissions);
    f("drops", drops);
  }
};

struct QpFigures {
  broker::QpStatistics now;
  double sent = 0, received = 0;  // PSNs per second
};

struct DropFigures {
  uint64_t total = 0;
  double rate = 0;
};

struct DeviceFigures {
  broker::DeviceStatistics now;
  Traffic<uint64_t> totals;
  Traffic<double> rates;
  std::map<std::string, DropFigures> drops;  // by reason: "bad_icrc"
  std::vector<QpFigures> qps;                // the busiest first
  uint64_t qp_count = 0;                     // listed or not
};

struct ProcessFigures {
  broker::Process process;  // its devices are below
  std::string user;         // name, or number
  bool has_rates = false;   // it answered both times
  std::vector<DeviceFigures> devices;
};

struct Figures {
  std::string broker;
  double interval = 0;  // seconds for which there are rates; 0: there are none
  std::vector<ProcessFigures> processes;
  std::optional<broker::ConnectionsStatistics> connections{};  // of the broker's connection manager, if it has one
};

// `before`: likewise, earlier; may be empty. Time is what each process says of its own.
std::vector<ProcessFigures> figures_of(std::vector<broker::Process> now, const std::vector<broker::Process>& before);

// The port space of a service id of the connection manager: "tcp". Null: it is of none.
const char* cm_port_space(uint64_t service);

// "root", or "1000" if nobody is called so.
std::string user_name(uid_t uid);

}  // namespace uroce::cli
