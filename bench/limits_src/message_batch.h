// SPDX-License-Identifier: BSD-2-Clause
// What sendmmsg() and recvmmsg() take: several messages, all with the same buffer. Used by socket_bench.
#pragma once

#include <cstdint>
#include <sys/socket.h>
#include <vector>

namespace uroce::limits {

struct MessageBatch {
  MessageBatch(size_t bytes, size_t count) : buffer(bytes), part{buffer.data(), buffer.size()}, headers(count) {
    for (mmsghdr& header : headers) {
      header = {};
      header.msg_hdr.msg_iov = &part;
      header.msg_hdr.msg_iovlen = 1;
    }
  }
  MessageBatch(const MessageBatch&) = delete;  // the headers point into it
  MessageBatch& operator=(const MessageBatch&) = delete;

  std::vector<uint8_t> buffer;
  iovec part;
  std::vector<mmsghdr> headers;
};

}  // namespace uroce::limits
