// SPDX-License-Identifier: BSD-2-Clause
// ucx_exchange: memory that the other host may write to, read and operate on, and the same of the other host's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "session.h"

namespace exchange {

// Registered memory of this host. Every other one is allocated by UCX, the others are ours, at an odd address.
class Region {
 public:
  Region(Session& session, size_t size, bool allocated_by_ucx);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  ucp_mem_h handle() const { return handle_; }
  // What the other host needs to know.
  Blob advertisement() const;

 private:
  Session& session_;
  std::vector<uint8_t> own_;
  size_t size_;
  uint8_t* data_ = nullptr;
  ucp_mem_h handle_ = nullptr;
};

// The other host's region.
class RemoteRegion {
 public:
  RemoteRegion(Session& session, const Blob& advertisement);
  RemoteRegion(const RemoteRegion&) = delete;
  RemoteRegion& operator=(const RemoteRegion&) = delete;
  ~RemoteRegion();

  uint64_t address() const { return address_; }
  ucp_rkey_h key() const { return key_; }

 private:
  uint64_t address_ = 0;
  ucp_rkey_h key_ = nullptr;
};

}  // namespace exchange
