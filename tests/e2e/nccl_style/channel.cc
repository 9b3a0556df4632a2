// SPDX-License-Identifier: BSD-2-Clause
#include "channel.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace uroce::nccl_style {
namespace {

constexpr size_t kPart = 128;  // a queue pair's share of a message is a multiple of it
constexpr size_t kGuard = 64;  // bytes behind a message that have to stay as they are
constexpr std::byte kUntouched{0xA5};
constexpr size_t kStride = kMostBytes + 4096;                           // of buffers
constexpr uint64_t kFlush = 1 << 8, kGrant = 1 << 9, kSlotMask = 0xFF;  // in wr_id
constexpr std::array<size_t, 8> kSizes{0, 1, 127, 128, 4096, 65537, 300001, kMostBytes};

size_t size_of(size_t message) {
  return kSizes[message % kSizes.size()];
}

uint64_t word_of(unsigned rank, size_t message, size_t position) {
  uint64_t x = (uint64_t{rank} << 56) + (uint64_t{message} << 24) + position + 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  return x ^ (x >> 27);
}

template <typename Each>
void for_each_word(size_t size, Each each) {
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) each(at, std::min(sizeof(uint64_t), size - at));
}

}  // namespace

Domain::Domain(const Symbols& symbols, const Device& chosen, int gid_index_chosen)
    : verbs(symbols), device(chosen), gid_index(gid_index_chosen) {
  expect_ok(verbs.query_gid(device.context, device.port, gid_index, &gid), "ibv_query_gid");
  pd = expect_made(verbs.alloc_pd(device.context), "ibv_alloc_pd");
}

Domain::~Domain() {
  verbs.dealloc_pd(pd);
}

Region::Region(Domain& domain, size_t size, Kind kind) : domain_(domain), size_(size) {
  constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (kind == Kind::kDmabuf) {
    fd_ = memfd_create("gpu", MFD_CLOEXEC);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(size)) != 0) fail("memfd", errno);
  }
  void* mapped =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, fd_ < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) fail("mmap", errno);
  data_ = static_cast<std::byte*>(mapped);
  if (kind == Kind::kDmabuf) {
    mr_ = expect_made(domain.verbs.reg_dmabuf_mr(domain.pd, 0, size, address(), fd_, kAccess), "ibv_reg_dmabuf_mr");
  } else if (domain.verbs.reg_mr_iova2 != nullptr) {
    constexpr unsigned kRelaxed = kAccess | IBV_ACCESS_RELAXED_ORDERING;
    mr_ = expect_made(domain.verbs.reg_mr_iova2(domain.pd, data_, size, address(), kRelaxed), "ibv_reg_mr_iova2");
  } else {
    mr_ = expect_made(domain.verbs.reg_mr(domain.pd, data_, size, kAccess), "ibv_reg_mr");
  }
}

Region::~Region() {
  domain_.verbs.dereg_mr(mr_);
  munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

Endpoint::Endpoint(Domain& of_domain, unsigned access) : domain(of_domain) {
  constexpr int kCompletions = 2 * kSlots * (kQps + 1);
  cq = expect_made(domain.verbs.create_cq(domain.device.context, kCompletions, nullptr, nullptr, 0), "ibv_create_cq");
  for (ibv_qp*& qp : qps) qp = make_qp(access);
}

Endpoint::~Endpoint() {
  for (ibv_qp* qp : qps) domain.verbs.destroy_qp(qp);
  domain.verbs.destroy_cq(cq);
}

ibv_qp* Endpoint::make_qp(unsigned access) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {.max_send_wr = 2 * kSlots,
                .max_recv_wr = kSlots,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = sizeof(Grant)};
  ibv_qp* qp = expect_made(domain.verbs.create_qp(domain.pd, &wanted), "ibv_create_qp");
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = domain.device.port;
  init.qp_access_flags = access;
  constexpr int kMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  expect_ok(domain.verbs.modify_qp(qp, &init, kMask), "to INIT");
  return qp;
}

void Endpoint::connect(ibv_qp* qp, uint32_t peer, const ibv_gid& gid, ibv_mtu mtu) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = domain.device.port;
  attr.ah_attr.grh.dgid = gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(domain.gid_index);
  attr.ah_attr.grh.hop_limit = 255;
  constexpr int kToReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  expect_ok(domain.verbs.modify_qp(qp, &attr, kToReceive), "to RTR");
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 20;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  constexpr int kToSend =
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  expect_ok(domain.verbs.modify_qp(qp, &attr, kToSend), "to RTS");

  ibv_qp_init_attr made{};
  expect_ok(domain.verbs.query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU, &made), "ibv_query_qp");
  if (attr.qp_state != IBV_QPS_RTS || attr.path_mtu != mtu) throw Failure("ibv_query_qp tells of another QP");
}

Side Endpoint::describe() const {
  Side side{};
  for (size_t i = 0; i < kQps; ++i) {
    side.qps[i].qpn = qps[i]->qp_num;
    if (domain.verbs.query_ece == nullptr) continue;
    const int result = domain.verbs.query_ece(qps[i], &side.qps[i].ece);
    if (result != 0 && result != EOPNOTSUPP) fail("ibv_query_ece", result);
    side.qps[i].has_ece = result == 0;
  }
  side.gid = domain.gid;
  side.mtu = domain.device.attributes.active_mtu;
  return side;
}

void Endpoint::take_ece(const Side& peer) {
  for (size_t i = 0; i < kQps; ++i) {
    ibv_ece ece = peer.qps[i].ece;
    if (peer.qps[i].has_ece == 0 || domain.verbs.set_ece == nullptr) continue;
    const int result = domain.verbs.set_ece(qps[i], &ece);
    if (result != 0 && result != EOPNOTSUPP) fail("ibv_set_ece", result);
  }
}

void Endpoint::connect_all(const Side& peer) {
  const auto mtu = static_cast<ibv_mtu>(std::min(peer.mtu, uint32_t{domain.device.attributes.active_mtu}));
  for (size_t i = 0; i < kQps; ++i) connect(qps[i], peer.qps[i].qpn, peer.gid, mtu);
}

bool Endpoint::poll(ibv_wc& completion) {
  const int count = ibv_poll_cq(cq, 1, &completion);
  if (count < 0) throw Failure("ibv_poll_cq");
  if (count == 1 && completion.status != IBV_WC_SUCCESS) {
    throw Failure("completion with status " + std::to_string(completion.status));
  }
  return count == 1;
}

Sender::Sender(Domain& domain, unsigned rank, size_t messages)
    : rank_(rank),
      messages_(messages),
      buffers_(domain, kSlots * kStride, Region::Kind::kHost),
      ring_(domain, kSlots * sizeof(Grant), Region::Kind::kHost),
      endpoint_(domain, IBV_ACCESS_REMOTE_WRITE) {}

Side Sender::describe() const {
  Side side = endpoint_.describe();
  side.ring_address = ring_.address();
  side.ring_rkey = ring_.mr().rkey;
  return side;
}

void Sender::progress() {
  ibv_wc completion;
  while (endpoint_.poll(completion)) {
    if (completion.opcode != IBV_WC_RDMA_WRITE) throw Failure("a completion of what was not posted");
    if (--pending_.at(completion.wr_id) == 0) ++completed_;
  }
  const size_t slot = posted_ % kSlots;
  if (posted_ == messages_ || pending_[slot] != 0) return;
  const auto* const ring = reinterpret_cast<const Grant*>(ring_.data());
  if (__atomic_load_n(&ring[slot].number, __ATOMIC_ACQUIRE) != posted_ + 1) return;
  send(posted_++, ring[slot]);
}

void Sender::send(size_t message, const Grant& grant) {
  const size_t slot = message % kSlots, size = size_of(message);
  if (grant.bytes != kMostBytes) throw Failure("a part of a grant is not there yet");
  std::byte* const data = buffers_.data() + slot * kStride;
  for_each_word(size, [&](size_t at, size_t length) {
    const uint64_t word = word_of(rank_, message, at);
    std::memcpy(data + at, &word, length);
  });
  pending_[slot] = kQps;
  for (size_t qp = 0; qp < kQps; ++qp) post(qp, message, grant, size);
}

// Every other message in one request, the others with the immediate data behind them, as where packets may overtake.
void Sender::post(size_t qp, size_t message, const Grant& grant, size_t size) {
  const size_t slot = message % kSlots;
  const size_t part = (size / kQps + kPart - 1) / kPart * kPart;
  const size_t begin = std::min(size, qp * part);
  const size_t end = qp + 1 == kQps ? size : std::min(size, begin + part);
  ibv_sge sge{.addr = buffers_.address() + slot * kStride + begin,
              .length = static_cast<uint32_t>(end - begin),
              .lkey = buffers_.mr().lkey};
  ibv_send_wr requests[2]{};
  for (ibv_send_wr& request : requests) {
    request.wr_id = slot;
    request.wr.rdma.remote_addr = grant.address + begin;
    request.wr.rdma.rkey = grant.rkey;
  }
  const bool apart = message % 2 == 1 && end > begin;
  requests[0].sg_list = &sge;
  requests[0].num_sge = end > begin ? 1 : 0;
  requests[0].opcode = IBV_WR_RDMA_WRITE;
  if (apart) requests[0].next = &requests[1];
  ibv_send_wr& last = requests[apart ? 1 : 0];
  last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  last.send_flags = IBV_SEND_SIGNALED;
  last.imm_data = static_cast<uint32_t>(size);
  ibv_send_wr* refused = nullptr;
  expect_ok(ibv_post_send(endpoint_.qps[qp], requests, &refused), "ibv_post_send of a message");
}

Receiver::Receiver(Domain& domain, unsigned peer_rank, size_t messages, Region::Kind kind)
    : peer_rank_(peer_rank),
      messages_(messages),
      buffers_(domain, kSlots * kStride, kind),
      grants_(domain, kSlots * sizeof(Grant), Region::Kind::kHost),
      flushed_(domain, sizeof(int), Region::Kind::kHost),
      endpoint_(domain, IBV_ACCESS_REMOTE_WRITE),
      flush_qp_(endpoint_.make_qp(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)) {}

Side Receiver::connect(const Side& sender) {
  sender_ = sender;
  endpoint_.take_ece(sender);
  endpoint_.connect_all(sender);
  const Domain& domain = endpoint_.domain;
  endpoint_.connect(flush_qp_, flush_qp_->qp_num, domain.gid, domain.device.attributes.active_mtu);
  return endpoint_.describe();
}

void Receiver::progress() {
  while (granted_ < messages_ && !slots_[granted_ % kSlots].busy) grant(granted_++);
  ibv_wc completion;
  while (endpoint_.poll(completion)) take(completion);
}

void Receiver::grant(size_t message) {
  const size_t slot = message % kSlots;
  slots_[slot] = {.message = message, .waits_for = kQps, .busy = true};
  std::memset(buffers_.data() + slot * kStride, static_cast<int>(kUntouched), size_of(message) + kGuard);
  for (ibv_qp* qp : endpoint_.qps) {
    ibv_recv_wr request{};
    request.wr_id = slot;
    ibv_recv_wr* refused = nullptr;
    expect_ok(ibv_post_recv(qp, &request, &refused), "ibv_post_recv");
  }
  Grant& mine = reinterpret_cast<Grant*>(grants_.data())[slot];
  mine = {.address = buffers_.address() + slot * kStride,
          .rkey = buffers_.mr().rkey,
          .bytes = kMostBytes,
          .padding = 0,
          .number = message + 1};
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(&mine), .length = sizeof(Grant), .lkey = grants_.mr().lkey};
  ibv_send_wr request{};
  request.wr_id = kGrant;
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_INLINE;
  if (slot < kQps) request.send_flags |= IBV_SEND_SIGNALED;  // often enough for the queue
  request.wr.rdma.remote_addr = sender_.ring_address + slot * sizeof(Grant);
  request.wr.rdma.rkey = sender_.ring_rkey;
  ibv_send_wr* refused = nullptr;
  expect_ok(ibv_post_send(endpoint_.qps[slot % kQps], &request, &refused), "ibv_post_send of a grant");
}

void Receiver::take(const ibv_wc& completion) {
  if (completion.wr_id == kGrant) return;
  const size_t number = completion.wr_id & kSlotMask;
  if ((completion.wr_id & kFlush) != 0) return verify(number);
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) throw Failure("a completion of what was not posted");
  Slot& slot = slots_.at(number);
  slot.size = completion.imm_data;
  if (--slot.waits_for == 0) flush(number);
}

void Receiver::flush(size_t slot) {
  ibv_sge sge{.addr = flushed_.address(), .length = 1, .lkey = flushed_.mr().lkey};
  ibv_send_wr request{};
  request.wr_id = kFlush | slot;
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = buffers_.address() + slot * kStride;
  request.wr.rdma.rkey = buffers_.mr().rkey;
  ibv_send_wr* refused = nullptr;
  expect_ok(ibv_post_send(flush_qp_, &request, &refused), "ibv_post_send of a flush");
}

void Receiver::verify(size_t number) {
  Slot& slot = slots_.at(number);
  const std::byte* const data = buffers_.data() + number * kStride;
  const std::string which = "message " + std::to_string(slot.message);
  if (slot.size != size_of(slot.message)) throw Failure(which + ": wrong immediate data");
  for_each_word(slot.size, [&](size_t at, size_t length) {
    const uint64_t word = word_of(peer_rank_, slot.message, at);
    if (std::memcmp(data + at, &word, length) != 0) throw Failure(which + ": wrong at byte " + std::to_string(at));
  });
  if (!std::all_of(data + slot.size, data + slot.size + kGuard, [](std::byte b) { return b == kUntouched; })) {
    throw Failure(which + ": bytes behind it have changed");
  }
  bytes_ += slot.size;
  slot.busy = false;
  ++verified_;
}

}  // namespace uroce::nccl_style
