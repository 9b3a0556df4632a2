// SPDX-License-Identifier: BSD-2-Clause
// The longest message of all: 2^31 - 1 bytes (IBTA 9.7.2: up to 2^31, and max_msg_sz says one less), and one byte more.
#include <algorithm>
#include <sys/mman.h>
#include <utility>

#include "memory_fixture.h"

namespace {

constexpr uint32_t kLongest = 0x7fffffff;
// Of the pattern; no power of two, so that nothing that is misplaced by one looks right.
constexpr size_t kPeriod = 255 * 4096;

// 2^31 bytes of one period of memory, mapped again and again.
class Pattern {
 public:
  Pattern() : file_(memfd_create("pattern", MFD_CLOEXEC)), pages_(size_t{1} << 19) {
    EXPECT_EQ(ftruncate(file_, kPeriod), 0);
    for (size_t at = 0; at < pages_.bytes(); at += kPeriod) {
      unsigned char* const place = pages_.at(0) + at;
      const size_t size = std::min(kPeriod, pages_.bytes() - at);
      EXPECT_EQ(mmap(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, 0), place);
    }
    uint64_t word = 1;
    for (size_t i = 0; i < kPeriod; i += sizeof(word)) {
      word = word * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(begin() + i, &word, sizeof(word));
    }
  }
  ~Pattern() { close(file_); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  unsigned char* begin() { return pages_.at(0); }
  size_t bytes() const { return pages_.bytes(); }
  // Where `bytes` differs from it first, or kLongest.
  size_t first_difference(const unsigned char* bytes) {
    for (size_t at = 0; at < kLongest; at += kPeriod) {
      const size_t size = std::min<size_t>(kPeriod, kLongest - at);
      if (std::memcmp(bytes + at, begin() + at, size) == 0) continue;
      return at + static_cast<size_t>(std::mismatch(bytes + at, bytes + at + size, begin() + at).first - (bytes + at));
    }
    return kLongest;
  }

 private:
  const int file_;
  Pages pages_;
};

class LongMessages : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    from_ = ibv_reg_mr(client_.pd, pattern_.begin(), pattern_.bytes(), kAllRights);
    to_ = ibv_reg_mr(client_.pd, target_.at(0), target_.bytes(), kAllRights);
    ASSERT_NE(from_, nullptr);
    ASSERT_NE(to_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dereg_mr(from_), 0);
    EXPECT_EQ(ibv_dereg_mr(to_), 0);
    MemoryTest::TearDown();
  }
  static ibv_sge all_of(const ibv_mr* mr, uint32_t length = kLongest) {
    return {address_of(mr->addr), length, mr->lkey};
  }
  // The next completion is of the longest message.
  void expect_completion(ibv_wc_opcode opcode) {
    ibv_wc wc{};
    int count = 0;
    for (int tries = 0; tries < 10 && count == 0; ++tries) count = client_wait(cq_, &wc);
    ASSERT_EQ(count, 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, opcode);
    if (opcode == IBV_WC_RECV) {
      EXPECT_EQ(wc.byte_len, kLongest);
    }
  }
  // It is all there, and not one byte more.
  void expect_arrived() {
    EXPECT_EQ(pattern_.first_difference(target_.at(0)), kLongest);
    EXPECT_EQ(target_.at(0)[kLongest], 0);
    madvise(target_.at(0), target_.bytes(), MADV_DONTNEED);
    EXPECT_EQ(target_.at(0)[0], 0);
  }

  Pattern pattern_;
  Pages target_{size_t{1} << 19};
  ibv_mr *from_ = nullptr, *to_ = nullptr;
};

TEST_F(LongMessages, OfTwoGibibytesButOneByteArrive) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(client_.context, 1, &port), 0);
  EXPECT_EQ(port.max_msg_sz, kLongest);

  ibv_sge from = all_of(from_), to = all_of(to_);
  for (const auto& [opcode, completion] :
       {std::pair(IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE), std::pair(IBV_WR_RDMA_READ, IBV_WC_RDMA_READ)}) {
    const bool writes = opcode == IBV_WR_RDMA_WRITE;
    ibv_send_wr request = send_request(1, writes ? &from : &to, opcode);
    request.wr.rdma.remote_addr = writes ? to.addr : from.addr;
    request.wr.rdma.rkey = (writes ? to_ : from_)->rkey;
    ASSERT_EQ(post(a_, request), 0);
    expect_completion(completion);
    expect_arrived();
  }

  ibv_recv_wr receive{};
  receive.sg_list = &to;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(b_, &receive, &bad), 0);
  ibv_send_wr send = send_request(3, &from);
  send.send_flags = 0;
  ASSERT_EQ(post(a_, send), 0);
  expect_completion(IBV_WC_RECV);
  expect_arrived();
}

TEST_F(LongMessages, OfTwoGibibytesAreRefused) {
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    ibv_sge whole[] = {all_of(from_, kLongest + 1u)}, parts[] = {all_of(from_, kLongest), all_of(from_, 1)};
    for (ibv_sge* const list : {whole, parts}) {
      ibv_send_wr wr = send_request(1, list, opcode);
      wr.num_sge = list == whole ? 1 : 2;
      wr.wr.rdma.remote_addr = address_of(to_->addr);
      wr.wr.rdma.rkey = to_->rkey;
      EXPECT_EQ(post(a_, wr), EINVAL) << opcode;
    }
  }
  EXPECT_EQ(ibv_poll_cq(cq_, 1, nullptr), 0) << "and nothing of it is under way";
  EXPECT_EQ(write(sge(0, 8), address_of(to_->addr), to_->rkey), IBV_WC_SUCCESS) << "the queue goes on";
}

}  // namespace
