// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/dpdk/devargs.h"

#include <gtest/gtest.h>

namespace uroce::io {
namespace {

TEST(DpdkDevargs, DeviceOptionsAndQueues) {
  const auto devargs = parse_dpdk_devargs("net_af_packet0,iface=eth0,qpairs=4");
  ASSERT_TRUE(devargs);
  EXPECT_EQ(devargs->device, "net_af_packet0");
  EXPECT_EQ(devargs->value("iface"), "eth0");
  EXPECT_EQ(devargs->value("face"), "");
  EXPECT_EQ(devargs->queues, 4u);
  EXPECT_EQ(devargs->text(), "net_af_packet0,iface=eth0,qpairs=4");
  EXPECT_EQ(parse_dpdk_devargs("0000:01:00.0")->text(), "0000:01:00.0");
  EXPECT_EQ(parse_dpdk_devargs("net_virtio_user0,queues=2")->queues, 2u);
}

TEST(DpdkDevargs, WhatIsNone) {
  for (const char* text : {"", ",", ",iface=eth0", "-h", "--huge-dir=/", "net_tap0 x", "net_tap0,\n",
                           "net_null0,queues=0", "net_null0,queues=17", "net_null0,queues=2x", "net_null0,qpairs=-1"}) {
    EXPECT_FALSE(parse_dpdk_devargs(text)) << text;
  }
  EXPECT_FALSE(parse_dpdk_devargs(std::string(256, 'x')));
}

TEST(DpdkDevargs, WhatHasNotBeenSaidOfAPacketSocket) {
  const std::string sizes = "blocksz=65536,framesz=2048,framecnt=1024";
  EXPECT_EQ(complete_dpdk_devargs({}, "eth0", 2048, 3).text(), "net_af_packet_uroce3,iface=eth0," + sizes);
  const auto named = complete_dpdk_devargs(*parse_dpdk_devargs("net_af_packet7,qpairs=2"), "eth0", 2048, 3);
  EXPECT_EQ(named.text(), "net_af_packet7,qpairs=2,iface=eth0," + sizes);
  EXPECT_EQ(named.queues, 2u);
  for (const char* whole : {"net_af_packet7,iface=eth1,framesz=4096", "net_tap0,iface=tap3", "0000:01:00.0"}) {
    EXPECT_EQ(complete_dpdk_devargs(*parse_dpdk_devargs(whole), "eth1", 2048, 3).text(), whole);
  }
}

// The same for all processes that mean the same port, and another one for two ends of one.
TEST(DpdkDevargs, NameOfAPortThatOneProcessCanUse) {
  const auto name_of = [](const std::string& text) { return parse_dpdk_devargs(text)->exclusive_name(); };
  EXPECT_EQ(name_of("0000:01:00.0"), "0000:01:00.0");
  EXPECT_EQ(name_of("01:00.0,queues=4"), "0000:01:00.0");
  EXPECT_EQ(name_of("net_memif0,role=server,socket=/s"), "net_memif server 0 of /s");
  EXPECT_EQ(name_of("net_memif7,socket=/s,role=master,bsize=2048"), "net_memif server 0 of /s");
  EXPECT_EQ(name_of("net_memif7,id=3"), "net_memif client 3 of /run/memif.sock");
  EXPECT_EQ(name_of("net_tap0"), "net_tap dtap0");
  EXPECT_EQ(name_of("net_tap1,iface=t"), "net_tap t");
  EXPECT_EQ(name_of("net_virtio_user0,path=/dev/vhost-net"), "net_virtio_user /dev/vhost-net");
  for (const char* const own : {"net_af_packet0,iface=eth0", "net_null0", "net_ring0", "net_pcap0,rx_pcap=/x"}) {
    EXPECT_EQ(name_of(own), "") << own;
  }
  EXPECT_EQ(name_of("net_memif0,socket=/" + std::string(200, 's')).size(), 160u);
}

}  // namespace
}  // namespace uroce::io
