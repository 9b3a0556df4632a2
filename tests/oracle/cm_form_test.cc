// SPDX-License-Identifier: BSD-2-Clause
// What each message of the connection manager has to keep by itself.
#include <gtest/gtest.h>

#include "tests/oracle/cm_builder.h"

namespace uroce::oracle {
namespace {

// What the oracle finds at a REQ that is changed like this.
std::string found_in_req(const std::function<void(wire::Req&)>& change) {
  CmTrace t;
  wire::Req req = t.req();
  change(req);
  t.out(req);
  return t.found();
}
std::string found_in_packet(const std::function<void(std::vector<uint8_t>&)>& change) {
  CmTrace t;
  t.spoil_packet = change;
  t.out(t.req());
  return t.found();
}
std::string found_in_mad(size_t byte, uint8_t value) {
  CmTrace t;
  t.spoil_mad = [=](wire::Mad& mad) { mad[byte] = value; };
  t.out(t.req());
  return t.found();
}

TEST(CmForm, GoodMessagesHaveNothing) {
  EXPECT_EQ(found_in_req([](wire::Req&) {}), "");
}

TEST(CmForm, PacketBetweenTheTwoQp1) {
  constexpr size_t kQkeyAt = wire::kBthSize, kSourceQpAt = wire::kBthSize + 5;
  EXPECT_EQ(found_in_packet([](auto& ib) { ib[kQkeyAt] = 0; }), "cm-packet@1");
  EXPECT_EQ(found_in_packet([](auto& ib) { ib[kSourceQpAt + 2] = 2; }), "cm-packet@1");
  EXPECT_EQ(found_in_packet([](auto& ib) { ib.resize(ib.size() - 4); }), "cm-packet@1");
  EXPECT_EQ(found_in_packet([](auto& ib) { ib[2] = 0x12; }), "cm-packet@1 cm-field@1") << "another P_Key";
}

TEST(CmForm, HeaderOfTheMad) {
  EXPECT_EQ(found_in_mad(0, 2), "cm-header@1");
  EXPECT_EQ(found_in_mad(1, 3), "") << "another class is not the connection manager's";
  EXPECT_EQ(found_in_mad(2, 1), "cm-header@1");
  EXPECT_EQ(found_in_mad(3, 1), "cm-header@1");
  EXPECT_EQ(found_in_mad(4, 1), "cm-header@1");
  EXPECT_EQ(found_in_mad(17, 0x2f), "cm-header@1");
  EXPECT_EQ(found_in_mad(23, 5), "") << "ECE options of a REQ";
  CmTrace t;
  t.connect();
  t.spoil_mad = [](wire::Mad& mad) { mad[23] = 5; };
  t.out(t.dreq());
  EXPECT_EQ(t.found(), "cm-header@4");
}

TEST(CmForm, ReservedBits) {
  EXPECT_EQ(found_in_mad(7, 1), "cm-reserved@1");
  EXPECT_EQ(found_in_mad(wire::kMadHeaderSize + 4, 1), "cm-reserved@1");
}

TEST(CmForm, FieldsOfReq) {
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.qpn = wire::Qpn(1); }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.path_mtu = 0; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.path_mtu = 6; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.transport = wire::CmTransport::kRd; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.extended_transport = 1; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.ca_guid = {}; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.pkey = 1; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.alternate.hop_limit = 1; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.primary.local_lid = 0; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.primary.local_gid = address(9); }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.primary.remote_gid = address(9); }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.primary.hop_limit = 0; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.primary.subnet_local = true; }), "cm-field@1");
  EXPECT_EQ(found_in_req([](wire::Req& m) { m.local_id = {}; }), "cm-id@1");
}

// Without routers any LIDs do.
TEST(CmForm, LidsOfOneHop) {
  EXPECT_EQ(found_in_req([](wire::Req& m) {
              m.primary.hop_limit = 1;
              m.primary.subnet_local = true;
              m.primary.local_lid = 0;
            }),
            "");
}

TEST(CmForm, NamesOfIpServices) {
  const auto without_names = [](wire::Req& m) { m.private_data = {}; };
  EXPECT_EQ(found_in_req(without_names), "cm-names@1");
  EXPECT_EQ(found_in_req([&](wire::Req& m) {
              without_names(m);
              m.service_id = wire::ServiceId{0x12345};
            }),
            "");
  EXPECT_EQ(found_in_req([&](wire::Req& m) {
              without_names(m);
              m.service_id = wire::service_id(wire::PortSpace::kIb, 1);
            }),
            "");
}

TEST(CmForm, XrcHasItsQpInAnotherPlace) {
  CmTrace t;
  wire::Req req = t.req(false);
  req.transport = wire::CmTransport::kExtended;
  req.extended_transport = wire::kExtendedTransportXrc;
  t.in(req);
  wire::Rep rep = t.rep();
  rep.qpn = {};
  rep.eecn = 0x101;
  t.out(rep);
  EXPECT_EQ(t.found(), "");

  CmTrace without;
  without.in(without.req(false));
  rep.eecn = 0;
  without.out(rep);
  EXPECT_EQ(without.found(), "cm-field@2");
}

TEST(CmForm, Rej) {
  const auto found = [](auto change) {
    CmTrace t;
    t.in(t.req(false));
    wire::Rej rej = t.rej(wire::CmAnswered::kReq);
    change(rej);
    t.out(rej);
    return t.found();
  };
  EXPECT_EQ(found([](wire::Rej&) {}), "");
  EXPECT_EQ(found([](wire::Rej& m) { m.local_id = {}; }), "") << "Linux has none yet";
  EXPECT_EQ(found([](wire::Rej& m) { m.reason = wire::RejReason{0}; }), "cm-reject@2");
  EXPECT_EQ(found([](wire::Rej& m) { m.reason = wire::RejReason{99}; }), "cm-reject@2");
  EXPECT_EQ(found([](wire::Rej& m) { m.info_length = 73; }), "cm-reject@2");
  EXPECT_EQ(found([](wire::Rej& m) { m.additional_info[3] = 1; }), "cm-reject@2") << "behind its length";
  EXPECT_EQ(found([](wire::Rej& m) { m.reason = wire::RejReason::kTimeout; }), "cm-reject@2") << "no GUID";
}

TEST(CmForm, CutMessagesAreNotJudged) {
  CmTrace whole;
  whole.out(whole.req());
  pcapng::Record record = whole.records.front();
  record.original_length = static_cast<uint32_t>(record.frame.size());
  record.frame.resize(100);
  Oracle oracle;
  oracle.add_local(address(1));
  oracle.add(record);
  oracle.finish(record.time);
  EXPECT_EQ(oracle.violation_count(), 0u);
  EXPECT_TRUE(oracle.cm_summary().empty());
}

}  // namespace
}  // namespace uroce::oracle
