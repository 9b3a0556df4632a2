// SPDX-License-Identifier: BSD-2-Clause
// Put and get: both ways at once, into and out of regions of several sizes, in pieces of random lengths that are under
// way together and in any order. What no put went to has to stay as it was.
#include <algorithm>
#include <cstring>
#include <string>

#include "region.h"

namespace exchange {
namespace {

constexpr size_t kMostPieces = 48;
constexpr size_t kInFlight = 12;
enum Way : unsigned { kData, kBefore };

std::vector<Piece> pieces_of(const Session& session, Part part, unsigned side, size_t size) {
  return cut(Random(session.options.seed ^ name_of(part, kData, side, size, 0)), size, kMostPieces);
}

uint64_t piece_name(Part part, unsigned side, size_t region, size_t number) {
  return name_of(part, kData, side, region, static_cast<unsigned>(number));
}

// Every other operation names the registered memory that its buffer lies in.
ucp_request_param_t parameters(const Region& buffer, size_t number) {
  ucp_request_param_t param{};
  if (number % 2 == 0) {
    param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
    param.memh = buffer.handle();
  }
  return param;
}

// The first piece, when there are several, is not put.
bool is_hole(const std::vector<Piece>& pieces, size_t number) {
  return number == 0 && pieces.size() > 1;
}

void put_all(Session& session, size_t size, const Region& source, const RemoteRegion& target) {
  const std::vector<Piece> pieces = pieces_of(session, Part::kPut, session.side(), size);
  for (size_t begin = 0; begin < pieces.size(); begin += kInFlight) {
    const size_t end = std::min(begin + kInFlight, pieces.size());
    std::vector<ucs_status_ptr_t> requests;
    for (size_t i = begin; i < end; ++i) {
      if (is_hole(pieces, i)) continue;
      const auto data = session.outgoing(piece_name(Part::kPut, session.side(), size, i), pieces[i].length);
      std::copy(data.begin(), data.end(), source.data() + pieces[i].offset);
      const ucp_request_param_t param = parameters(source, i);
      requests.push_back(ucp_put_nbx(session.endpoint, source.data() + pieces[i].offset, pieces[i].length,
                                     target.address() + pieces[i].offset, target.key(), &param));
    }
    session.wait_all("put", requests);
    for (size_t i = begin; i < end; ++i) std::memset(source.data() + pieces[i].offset, 0xdd, pieces[i].length);
  }
}

void check_region(Session& session, const Region& region, const std::vector<uint8_t>& before) {
  const std::vector<Piece> pieces = pieces_of(session, Part::kPut, session.peer_side(), region.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint8_t* at = region.data() + pieces[i].offset;
    if (!is_hole(pieces, i)) {
      session.verify("put", piece_name(Part::kPut, session.peer_side(), region.size(), i), at, pieces[i].length);
    } else if (std::memcmp(at, before.data() + pieces[i].offset, pieces[i].length) != 0) {
      session.fail("put", "memory has changed that nothing was put to");
    }
  }
}

void put_region(Session& session, const Region& region, const Region& local, const RemoteRegion& remote, bool worker) {
  const auto before = content(session.options.seed, name_of(Part::kPut, kBefore, 0, region.size(), 0), region.size());
  std::copy(before.begin(), before.end(), region.data());
  session.barrier();
  put_all(session, region.size(), local, remote);
  if (worker) {
    session.flush_worker();
  } else {
    session.flush_endpoint();
  }
  session.barrier();
  check_region(session, region, before);
}

void get_region(Session& session, const Region& region, const Region& local, const RemoteRegion& remote) {
  const size_t size = region.size();
  const std::vector<Piece> offered = pieces_of(session, Part::kGet, session.side(), size);
  for (size_t i = 0; i < offered.size(); ++i) {
    const auto data = session.outgoing(piece_name(Part::kGet, session.side(), size, i), offered[i].length);
    std::copy(data.begin(), data.end(), region.data() + offered[i].offset);
  }
  std::memset(local.data(), 0, size);
  session.barrier();
  const std::vector<Piece> pieces = pieces_of(session, Part::kGet, session.peer_side(), size);
  std::vector<ucs_status_ptr_t> requests;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ucp_request_param_t param = parameters(local, i);
    requests.push_back(ucp_get_nbx(session.endpoint, local.data() + pieces[i].offset, pieces[i].length,
                                   remote.address() + pieces[i].offset, remote.key(), &param));
    if (requests.size() == kInFlight || i + 1 == pieces.size()) session.wait_all("get", requests);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    session.verify("get", piece_name(Part::kGet, session.peer_side(), size, i), local.data() + pieces[i].offset,
                   pieces[i].length);
  }
  session.barrier();  // the other one may still be reading
}

}  // namespace

void exchange_memory(Session& session, Part part) {
  const size_t max = session.options.max_size;
  bool other = false;
  for (const size_t wanted : {size_t{1}, size_t{61}, size_t{4'097}, size_t{70'001}, max / 2 + 1, max}) {
    const size_t size = std::min(wanted, max);
    Region region(session, size, other), local(session, size, !other);
    const RemoteRegion remote(session, session.exchange(region.advertisement()));
    if (part == Part::kPut) {
      put_region(session, region, local, remote, other);
    } else {
      get_region(session, region, local, remote);
    }
    other = !other;
  }
}

}  // namespace exchange
