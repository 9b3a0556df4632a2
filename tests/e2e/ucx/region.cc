// SPDX-License-Identifier: BSD-2-Clause
#include "region.h"

#include <cstring>

namespace exchange {

Region::Region(Session& session, size_t size, bool allocated_by_ucx) : session_(session), size_(size) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = size;
  if (allocated_by_ucx) {
    params.flags = UCP_MEM_MAP_ALLOCATE;
  } else {
    own_.resize(size + 16);
    // Odd, except where an atomic operation would have to be aligned: those regions are UCX's.
    params.address = own_.data() + 1;
  }
  session.require("memory map", ucp_mem_map(session.context, &params, &handle_));
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  session.require("memory query", ucp_mem_query(handle_, &attributes));
  data_ = static_cast<uint8_t*>(attributes.address);
}

Region::~Region() {
  session_.require("memory unmap", ucp_mem_unmap(session_.context, handle_));
}

Blob Region::advertisement() const {
  void* key = nullptr;
  size_t length = 0;
  session_.require("remote key", ucp_rkey_pack(session_.context, handle_, &key, &length));
  Blob blob(sizeof(uint64_t) + length);
  const auto address = reinterpret_cast<uint64_t>(data_);
  std::memcpy(blob.data(), &address, sizeof(address));
  std::memcpy(blob.data() + sizeof(address), key, length);
  ucp_rkey_buffer_release(key);
  return blob;
}

RemoteRegion::RemoteRegion(Session& session, const Blob& advertisement) {
  if (advertisement.size() <= sizeof(address_)) session.fail("remote key", "is missing");
  std::memcpy(&address_, advertisement.data(), sizeof(address_));
  session.require("remote key", ucp_ep_rkey_unpack(session.endpoint, advertisement.data() + sizeof(address_), &key_));
}

RemoteRegion::~RemoteRegion() {
  ucp_rkey_destroy(key_);
}

}  // namespace exchange
