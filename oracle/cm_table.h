// SPDX-License-Identifier: BSD-2-Clause
// Which exchange a message of the connection manager belongs to, by the communication ids of both sides. Owned by
// CmJudge.
//
// What bounds it: kMost exchanges; beyond that the oldest is forgotten.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>

#include "oracle/cm_exchange.h"

namespace uroce::oracle {

class CmTable {
 public:
  static constexpr size_t kMost = 65536;

  CmExchange& add(const wire::IpAddress& local, const wire::IpAddress& remote);
  // Makes the exchange known by its id (a later one with the same takes its place).
  void name_ours(CmExchange& exchange, wire::CommId id);
  // Requests have two kinds of names: those of connections and those of SIDR.
  void name_theirs(CmExchange& exchange, wire::CommId id, bool sidr);

  // Null if there is none.
  CmExchange* by_ours(const wire::IpAddress& local, wire::CommId id) const;
  CmExchange* by_theirs(const wire::IpAddress& local, const wire::IpAddress& remote, wire::CommId id, bool sidr) const;
  // With exactly these ids, of which the judged host may have none.
  CmExchange* stray(const wire::IpAddress& local, const wire::IpAddress& remote, wire::CommId ours,
                    wire::CommId theirs) const;
  CmExchange& add_stray(const wire::IpAddress& local, const wire::IpAddress& remote, wire::CommId ours,
                        wire::CommId theirs);

  // In the order of their beginning.
  const std::deque<std::unique_ptr<CmExchange>>& all() const { return all_; }
  uint64_t forgotten() const { return forgotten_; }

 private:
  using Bytes = std::array<uint8_t, 16>;
  using OursKey = std::pair<Bytes, uint32_t>;
  using TheirsKey = std::tuple<Bytes, Bytes, uint32_t, bool>;
  using StrayKey = std::tuple<Bytes, Bytes, uint32_t, uint32_t>;

  void forget_oldest();

  std::deque<std::unique_ptr<CmExchange>> all_;
  std::map<OursKey, CmExchange*> ours_;
  std::map<TheirsKey, CmExchange*> theirs_;
  std::map<StrayKey, CmExchange*> strays_;
  uint64_t forgotten_ = 0;
};

}  // namespace uroce::oracle
