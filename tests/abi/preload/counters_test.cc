// SPDX-License-Identifier: BSD-2-Clause
// The counters of a port are those of the process's own engine.
#include <cstring>
#include <ctime>
#include <fstream>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/abi/verbs/fixture.h"
#include "view_paths.h"

namespace {

uint64_t counter(const std::string& name) {
  std::ifstream stream(kPort + "/" + name);
  uint64_t value = 0;
  EXPECT_TRUE(stream >> value) << name;
  return value;
}

class Counters : public ConnectedTest {
 protected:
  // What the QPs of one process send each other does not go over the wire; what goes to a host that is not there does.
  void connect_to_nobody(ibv_qp* qp) {
    ASSERT_EQ(client_init(qp), 0);
    ibv_qp_attr attr{};
    const uint8_t nobody[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 77};
    std::memcpy(attr.ah_attr.grh.dgid.raw, nobody, sizeof(nobody));
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = 4711;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    ASSERT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                IBV_QP_MAX_QP_RD_ATOMIC),
              0);
  }

  // Sends 10000 bytes and waits until the counters say so.
  void send_to_nobody() {
    ibv_qp* const qp = client_create_qp(&client_, cq_);
    ASSERT_NE(qp, nullptr);
    connect_to_nobody(qp);
    const uint64_t data = counter("counters/port_xmit_data");
    ibv_sge list = sge(0, 10'000);
    ibv_send_wr wr = send_request(1, &list, IBV_WR_RDMA_WRITE);
    wr.wr.rdma.remote_addr = 4096;
    ASSERT_EQ(post(qp, wr), 0);
    const time_t give_up = time(nullptr) + 10;
    while (counter("counters/port_xmit_data") < data + 10'000 / 4 && time(nullptr) < give_up) {
      ibv_poll_cq(cq_, 0, nullptr);
    }
    EXPECT_GE(counter("counters/port_xmit_data"), data + 10'000 / 4);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
};

TEST_F(Counters, CountWhatIsSent) {
  const uint64_t packets = counter("counters/port_xmit_packets");
  send_to_nobody();
  EXPECT_GE(counter("counters/port_xmit_packets"), packets + 10) << "10000 bytes at path MTU 1024";
  EXPECT_EQ(counter("counters/symbol_error"), 0u);
}

TEST_F(Counters, HaveTheNamesOfConnectX) {
  for (const char* name :
       {"out_of_buffer", "out_of_sequence", "packet_seq_err", "duplicate_request", "rnr_nak_retry_err",
        "local_ack_timeout_err", "np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets"}) {
    counter(std::string("hw_counters/") + name);
  }
}

TEST_F(Counters, OfAForkedChildAreZero) {
  send_to_nobody();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::_Exit(counter("counters/port_xmit_packets") == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
