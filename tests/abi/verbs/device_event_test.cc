// SPDX-License-Identifier: BSD-2-Clause
// Asynchronous events of the device and its port: with and without QPs, on several netdevs, and when a netdev goes
// away. What changes the network for all runs as a process of its own, which has a network namespace of its own.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "alone.h"
#include "fixture.h"

namespace {

// Ends what still moves of its own accord: IPv6 addresses that the kernel is about to find free.
void settle(const std::string& netdev) {
  run("ip link set dev " + netdev + " addrgenmode none && ip -6 addr flush dev " + netdev);
}

// Waits for the next event. False: none came. A netdev that is just set up may send some of its own.
bool next_event(ibv_context* context, ibv_async_event& event) {
  pollfd entry{context->async_fd, POLLIN, 0};
  if (poll(&entry, 1, 10000) != 1 || ibv_get_async_event(context, &event) != 0) return false;
  ibv_ack_async_event(&event);
  return true;
}

bool wait_for(ibv_context* context, ibv_event_type type) {
  ibv_async_event event;
  while (next_event(context, event)) {
    if (event.event_type == type) return true;
  }
  return false;
}

// --- with nothing but an open device ---------------------------------------------------------------------------------

TEST(DeviceEvents, OfAddresses) {
  if (!alone()) return;
  settle("rdma0");
  client client{};
  ASSERT_EQ(client_open(&client), 0);
  ibv_async_event event;
  for (const char* command : {"add", "del"}) {
    run("ip addr " + std::string(command) + " 203.0.113.7/24 dev rdma0");
    do {
      ASSERT_TRUE(next_event(client.context, event));
    } while (event.event_type == IBV_EVENT_PORT_ACTIVE);
    EXPECT_EQ(event.event_type, IBV_EVENT_GID_CHANGE);
    EXPECT_EQ(event.element.port_num, 1);
  }
  client_close(&client);
}

TEST(DeviceEvents, OfThePort) {
  if (!alone()) return;
  client client{};
  ASSERT_EQ(client_open(&client), 0);
  run("ip link set rdma0 down");
  EXPECT_TRUE(wait_for(client.context, IBV_EVENT_PORT_ERR));
  ibv_port_attr port;
  ASSERT_EQ(ibv_query_port(client.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  EXPECT_EQ(port.phys_state, 3) << "disabled";
  run("ip link set other0 down && ip link set rdma0 up");
  // Without carrier the port stays down, but is not switched off.
  do {
    ASSERT_EQ(ibv_query_port(client.context, 1, &port), 0);
  } while (port.phys_state == 3);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  EXPECT_EQ(port.phys_state, 2) << "polling";
  run("ip link set other0 up");
  EXPECT_TRUE(wait_for(client.context, IBV_EVENT_PORT_ACTIVE));
  ASSERT_EQ(ibv_query_port(client.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.phys_state, 5) << "link up";
  client_close(&client);
}

// --- several netdevs in one process ----------------------------------------------------------------------------------

// All engines of a process watch the network through one socket: whoever reads it, every one learns of its own.
TEST(DeviceEvents, OfSeveralNetdevs) {
  if (!alone(kAllNetdevs)) return;
  settle("rdma0");
  run("ip addr add 198.18.0.1/24 dev other0");  // else it is no device unless named
  settle("other0");
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_EQ(count, 2);
  ibv_context* contexts[2] = {ibv_open_device(list[0]), ibv_open_device(list[1])};
  ASSERT_TRUE(contexts[0] != nullptr && contexts[1] != nullptr);
  for (int round = 0; round < 20; ++round) {
    const std::string suffix = std::to_string(round) + "/24 dev ";
    for (int i = 0; i < 2; ++i) {
      const std::string netdev = std::string(ibv_get_device_name(list[i])).substr(sizeof("uroce_") - 1);
      run("ip addr add 203.0.113." + suffix + netdev);
      EXPECT_TRUE(wait_for(contexts[i], IBV_EVENT_GID_CHANGE)) << netdev << ", round " << round;
      run("ip addr del 203.0.113." + suffix + netdev);
      EXPECT_TRUE(wait_for(contexts[i], IBV_EVENT_GID_CHANGE)) << netdev << ", round " << round;
    }
  }
  EXPECT_EQ(ibv_close_device(contexts[0]), 0);
  EXPECT_EQ(ibv_close_device(contexts[1]), 0);
  ibv_free_device_list(list);
}

// --- a netdev that goes away -----------------------------------------------------------------------------------------

using RemovalTest = ConnectedTest;

TEST_F(RemovalTest, IsFatalOnceAndEverythingStaysCallable) {
  if (!alone()) return;
  run("ip link del rdma0");
  std::vector<ibv_event_type> events;
  ibv_async_event event;
  do {
    ASSERT_TRUE(next_event(client_.context, event));
    events.push_back(event.event_type);
  } while (event.event_type != IBV_EVENT_DEVICE_FATAL);
  EXPECT_NE(std::find(events.begin(), events.end(), IBV_EVENT_PORT_ERR), events.end());

  ibv_context* context = client_.context;
  ibv_device_attr device;
  EXPECT_EQ(ibv_query_device(context, &device), 0);
  ibv_port_attr port;
  EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  ibv_gid gid;
  EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
  EXPECT_EQ(gid.global.interface_id, 0u) << "no address is left";
  ibv_gid_entry entry;
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), ENODATA);
  ibv_ah_attr address{};
  address.is_global = 1;
  address.port_num = 1;
  EXPECT_EQ(ibv_create_ah(client_.pd, &address), nullptr);
  int count = -1;
  ibv_free_device_list(ibv_get_device_list(&count));
  EXPECT_EQ(count, 0);

  ibv_pd* pd = ibv_alloc_pd(context);
  EXPECT_NE(pd, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  ibv_mr* mr = ibv_reg_mr(client_.pd, client_.memory, 4096, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_resize_cq(cq_, 200), 0);
  ibv_qp* qp = client_create_qp(&client_, cq_);
  ASSERT_NE(qp, nullptr);
  EXPECT_NE(client_connect(&client_, qp, a_->qp_num), 0) << "there is no address to connect from";
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  EXPECT_EQ(ibv_query_qp(a_, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);

  ibv_sge list = sge(4096, 8);
  ibv_send_wr wr = send_request(2, &list);
  EXPECT_EQ(post(a_, wr), 0);
  attr = {};
  attr.qp_state = IBV_QPS_ERR;
  EXPECT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
  ibv_wc wc;
  EXPECT_EQ(client_wait(cq_, &wc), 1);

  const int fd = context->async_fd;
  ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  while (ibv_get_async_event(context, &event) == 0) {
    EXPECT_NE(event.event_type, IBV_EVENT_DEVICE_FATAL) << "again";
    ibv_ack_async_event(&event);
  }
}

}  // namespace
