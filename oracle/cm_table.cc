// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/cm_table.h"

namespace uroce::oracle {
namespace {

uint32_t number(wire::CommId id) {
  return static_cast<uint32_t>(id);
}

template <class Map, class Key>
CmExchange* find_in(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : found->second;
}

template <class Map, class Key>
void erase_if_of(Map& map, const Key& key, const CmExchange* exchange) {
  const auto found = map.find(key);
  if (found != map.end() && found->second == exchange) map.erase(found);
}

}  // namespace

CmExchange& CmTable::add(const wire::IpAddress& local, const wire::IpAddress& remote) {
  if (all_.size() >= kMost) forget_oldest();
  CmExchange& added = *all_.emplace_back(std::make_unique<CmExchange>());
  added.local = local;
  added.remote = remote;
  return added;
}

void CmTable::forget_oldest() {
  const CmExchange& e = *all_.front();
  erase_if_of(ours_, OursKey{e.local.bytes, number(e.ours)}, &e);
  for (const bool sidr : {false, true}) {
    erase_if_of(theirs_, TheirsKey{e.local.bytes, e.remote.bytes, number(e.theirs), sidr}, &e);
  }
  erase_if_of(strays_, StrayKey{e.local.bytes, e.remote.bytes, number(e.ours), number(e.theirs)}, &e);
  all_.pop_front();
  ++forgotten_;
}

void CmTable::name_ours(CmExchange& exchange, wire::CommId id) {
  exchange.ours = id;
  ours_[{exchange.local.bytes, number(id)}] = &exchange;
}

void CmTable::name_theirs(CmExchange& exchange, wire::CommId id, bool sidr) {
  // One name at a time, so that forget_oldest() finds it.
  erase_if_of(theirs_, TheirsKey{exchange.local.bytes, exchange.remote.bytes, number(exchange.theirs), sidr},
              &exchange);
  exchange.theirs = id;
  if (id != wire::CommId{}) theirs_[{exchange.local.bytes, exchange.remote.bytes, number(id), sidr}] = &exchange;
}

CmExchange* CmTable::by_ours(const wire::IpAddress& local, wire::CommId id) const {
  return find_in(ours_, OursKey{local.bytes, number(id)});
}

CmExchange* CmTable::by_theirs(const wire::IpAddress& local, const wire::IpAddress& remote, wire::CommId id,
                               bool sidr) const {
  return find_in(theirs_, TheirsKey{local.bytes, remote.bytes, number(id), sidr});
}

CmExchange* CmTable::stray(const wire::IpAddress& local, const wire::IpAddress& remote, wire::CommId ours,
                           wire::CommId theirs) const {
  return find_in(strays_, StrayKey{local.bytes, remote.bytes, number(ours), number(theirs)});
}

CmExchange& CmTable::add_stray(const wire::IpAddress& local, const wire::IpAddress& remote, wire::CommId ours,
                               wire::CommId theirs) {
  CmExchange& added = add(local, remote);
  added.ours = ours;
  added.theirs = theirs;
  strays_[{local.bytes, remote.bytes, number(ours), number(theirs)}] = &added;
  return added;
}

}  // namespace uroce::oracle
