// SPDX-License-Identifier: BSD-2-Clause
// Which connection a packet belongs to. A packet names only the QP that it goes to, so the two directions of a
// connection are found one by one, and belong together when they were declared, or when a response in one has a PSN
// that only one direction of requests between the same hosts can have asked for. Owned by Oracle.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "oracle/connection.h"

namespace uroce::oracle {

class ConnectionTable {
 public:
  ConnectionTable(Findings& findings, const Options& options) : findings_(findings), options_(options) {}

  Connection& declare(const ConnectionName& name, const Attributes& attributes);
  // What the connection manager says: nothing new of a QP that was declared. end_agreed(): it says that it is over.
  void agree(const ConnectionName& name, const Attributes& attributes);
  void end_agreed(const ConnectionName& name);
  // The connection of a packet between these hosts to `destination`; null if there was none yet.
  Connection* find(const wire::IpAddress& local, const wire::IpAddress& remote, wire::Qpn destination, bool out) const;
  // A new one, of which only this direction is known.
  Connection& add_direction(const wire::IpAddress& local, const wire::IpAddress& remote, wire::Qpn destination,
                            bool out);
  // Looks for the other direction of `connection`, for which a response to `psn` shows up. Returns the whole one, or
  // `connection` if there is none or more than one.
  Connection& pair(Connection& connection, wire::Psn psn, bool out);

  bool any_declared() const { return !declared_.empty(); }
  // In the order of their first packets or declarations.
  const std::vector<std::unique_ptr<Connection>>& all() const { return all_; }
  // The one declared last with this QP; null if none was.
  Connection* declared(wire::Qpn local_qpn) const;

 private:
  struct Key {
    wire::IpAddress local, remote;
    uint32_t destination;
    bool out;

    friend bool operator<(const Key& a, const Key& b) {
      if (a.destination != b.destination) return a.destination < b.destination;
      if (a.out != b.out) return b.out;
      if (a.local.bytes != b.local.bytes) return a.local.bytes < b.local.bytes;
      return a.remote.bytes < b.remote.bytes;
    }
  };

  Connection& add(const ConnectionName& name);
  Connection& add_pair(const ConnectionName& name);

  Findings& findings_;
  const Options& options_;
  std::vector<std::unique_ptr<Connection>> all_;
  std::map<Key, Connection*> by_direction_;
  std::map<std::pair<std::array<uint8_t, 16>, std::array<uint8_t, 16>>, std::vector<Connection*>> unpaired_;
  std::map<uint32_t, Connection*> declared_;  // by local QPN
};

}  // namespace uroce::oracle
