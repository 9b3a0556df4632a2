// SPDX-License-Identifier: BSD-2-Clause
// What the memory tests do with regions: traffic between the two QPs that names them.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"

// Pages of our own, mapped anew for each test that unmaps or protects some.
class Pages {
 public:
  explicit Pages(size_t count, int protection = PROT_READ | PROT_WRITE)
      : size_(count * size()),
        address_(static_cast<unsigned char*>(
            mmap(nullptr, size_, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    EXPECT_NE(address_, MAP_FAILED);
  }
  ~Pages() { munmap(address_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  static size_t size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  unsigned char* at(size_t page) { return address_ + page * size(); }
  size_t bytes() const { return size_; }
  // The application changes its mind about one page.
  void unmap(size_t page) { EXPECT_EQ(munmap(at(page), size()), 0); }
  void map(size_t page) {
    EXPECT_EQ(mmap(at(page), size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at(page));
  }

 private:
  const size_t size_;
  unsigned char* const address_;
};

class MemoryTest : public ConnectedTest {
 protected:
  static constexpr int kAllRights =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

  void SetUp() override {
    ConnectedTest::SetUp();
    std::iota(client_.memory, client_.memory + 16384, static_cast<unsigned char>(1));
  }
  static uint64_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

  // An RDMA operation of QP a, to its end.
  ibv_wc_status transfer(ibv_wr_opcode opcode, ibv_sge local, uint64_t remote, uint32_t rkey) {
    ibv_send_wr wr = send_request(7, &local, opcode);
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    EXPECT_EQ(post(a_, wr), 0);
    return finish();
  }
  ibv_wc_status write(ibv_sge local, uint64_t remote, uint32_t rkey) {
    return transfer(IBV_WR_RDMA_WRITE, local, remote, rkey);
  }
  ibv_wc_status read(ibv_sge local, uint64_t remote, uint32_t rkey) {
    return transfer(IBV_WR_RDMA_READ, local, remote, rkey);
  }
  // A SEND from QP a to a receive of QP b; the receive's outcome.
  ibv_wc_status send(ibv_sge from, ibv_sge to) {
    ibv_recv_wr receive{};
    receive.sg_list = &to;
    receive.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(b_, &receive, &bad), 0);
    ibv_send_wr wr = send_request(7, &from);
    wr.send_flags = 0;
    EXPECT_EQ(post(a_, wr), 0);
    return finish();
  }
  ibv_wc_status finish() {
    ibv_wc wc{};
    EXPECT_EQ(client_wait(cq_, &wc), 1);
    return wc.status;
  }
  // QPs that an expected error has ended.
  void reconnect() {
    for (ibv_qp* qp : {a_, b_}) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_RESET;
      ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    }
    ibv_wc wc;
    while (ibv_poll_cq(cq_, 1, &wc) > 0) {
    }
    ASSERT_EQ(client_connect(&client_, a_, b_->qp_num), 0);
    ASSERT_EQ(client_connect(&client_, b_, a_->qp_num), 0);
  }
  // Pattern from the client's memory to `target` through QP a, and whether it arrived.
  bool writes_to(unsigned char* target, uint32_t length, uint64_t remote, uint32_t rkey) {
    return write(sge(0, length), remote, rkey) == IBV_WC_SUCCESS && std::memcmp(target, client_.memory, length) == 0;
  }
};
