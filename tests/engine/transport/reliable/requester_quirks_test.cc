// SPDX-License-Identifier: BSD-2-Clause
// Peers as they are, as requesters: what Linux Soft-RoCE (rxe) and ConnectX do on the wire that the specification would
// not make one expect (wire.md "rxe as a peer", "ConnectX and DCQCN"). Each test is named after the quirk and shows
// that we get along with it.
#include <array>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using std::chrono::microseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::Opcode;

class QuirkyRequester : public testing::Test {
 protected:
  // A WRITE of `count` full packets from `psn` on into `buffer`, number `from` to the end; asks for ACKs where told.
  template <class Asks>
  void write(const Buffer& buffer, const Bytes& data, uint32_t psn, uint32_t count, Asks asks, uint32_t from = 0) {
    for (uint32_t n = from; n < count; ++n) {
      const Opcode opcode = n == 0           ? Opcode::kRcWriteFirst
                            : n + 1 == count ? Opcode::kRcWriteLast
                                             : Opcode::kRcWriteMiddle;
      PeerPacket packet = request(opcode, psn + n, part(data, n * kMtu, kMtu));
      if (n == 0) packet.reth(kIova, buffer.key, count * kMtu);
      if (asks(n)) packet.ack_request();
      host_.receive(packet);
    }
  }

  ScriptedQp host_;
};

// ConnectX: at least every 256 packets, and that is the last one here.
TEST_F(QuirkyRequester, AsksForAnAckOnlyWithTheLastOf256Packets) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(256 * kMtu);
  const Bytes data = pattern(256 * kMtu, 99);
  write(buffer, data, kRqPsn, 256, [](uint32_t n) { return n == 255; });
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsAck(kRqPsn + 255), HasMsn(1))));
  EXPECT_THAT(host_.drain(), IsEmpty());
  EXPECT_EQ(buffer.bytes, data);
}

// rxe: after 65 packets that did not ask, and with the last one.
TEST_F(QuirkyRequester, AsksForAnAckAfterMoreThan64Packets) {
  host_.to_rts();
  constexpr uint32_t kCount = 200;
  Buffer buffer = host_.make_buffer(kCount * kMtu);
  const Bytes data = pattern(kCount * kMtu, 99);
  std::vector<SentPacket> answers;
  write(buffer, data, kRqPsn, kCount, [&](uint32_t n) {
    for (SentPacket& answer : host_.drain()) answers.push_back(std::move(answer));
    return n % 66 == 65 || n + 1 == kCount;
  });
  for (SentPacket& answer : host_.drain()) answers.push_back(std::move(answer));
  EXPECT_THAT(answers, ElementsAre(IsAck(kRqPsn + 65), IsAck(kRqPsn + 131), IsAck(kRqPsn + 197), IsAck(kRqPsn + 199)));
  EXPECT_EQ(buffer.bytes, data);
}

// Nobody asks at all: nothing is owed, and the next one that asks is answered for all.
TEST_F(QuirkyRequester, AsksForNoAckUntilTheNextMessage) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(3 * kMtu);
  const Bytes data = pattern(3 * kMtu, 99);
  write(buffer, data, kRqPsn, 3, [](uint32_t) { return false; });
  EXPECT_THAT(host_.drain(), IsEmpty());
  write(buffer, data, kRqPsn + 3, 3, [](uint32_t n) { return n == 2; });
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsAck(kRqPsn + 5), HasMsn(2))));
}

// rxe sends 0, ConnectX 1; automatic path migration does not exist here.
TEST_F(QuirkyRequester, SetsMigReqOrNot) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(64);
  for (uint32_t i = 0; i < 4; ++i) {
    const Bytes data = pattern(64, 50 + i);
    Bytes bytes = request(Opcode::kRcWriteOnly, kRqPsn + i, data).reth(kIova, buffer.key, 64).ack_request().bytes();
    constexpr uint8_t kMigReq = 0x40;
    bytes[1] = static_cast<uint8_t>(i % 2 ? bytes[1] | kMigReq : bytes[1] & ~kMigReq);
    wire::Packet packet;
    ASSERT_EQ(wire::parse_packet(bytes, packet), wire::ParseError::kNone);
    ASSERT_EQ(packet.bth.mig_req, i % 2 == 1);
    host_.qp.on_packet(packet, host_.now);
    EXPECT_THAT(host_.drain(), ElementsAre(IsAck(kRqPsn + i)));
    EXPECT_EQ(buffer.bytes, data);
  }
}

// rxe: READ responses ahead of sequence are dropped until its timer expires; then the READ is asked for from the first
// that is missing, and what it has sent since comes again.
TEST_F(QuirkyRequester, DropsReadResponsesAheadOfSequenceUntilItsTimeout) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(4 * kMtu);
  host_.post_receive(1);
  const auto read = [&](uint32_t n) {
    host_.receive(read_request(kRqPsn + n, kIova + n * kMtu, buffer.key, (4 - n) * kMtu));
    host_.receive(request(Opcode::kRcSendOnly, kRqPsn + 4).ack_request());
  };
  read(0);
  EXPECT_THAT(host_.drain(), SizeIs(5));  // the second of them is lost
  host_.advance(LossRecovery::transport_timeout(14));
  read(1);
  EXPECT_THAT(host_.drain(),
              ElementsAre(IsReadResponse(Opcode::kRcReadResponseFirst, kRqPsn + 1, part(buffer.bytes, kMtu, kMtu)),
                          IsReadResponse(Opcode::kRcReadResponseMiddle, kRqPsn + 2, part(buffer.bytes, 2 * kMtu, kMtu)),
                          IsReadResponse(Opcode::kRcReadResponseLast, kRqPsn + 3, part(buffer.bytes, 3 * kMtu, kMtu)),
                          IsAck(kRqPsn + 4)));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, kOk)));
}

// ConnectX, adaptive retransmission: early resends of what was answered already.
constexpr std::array kEarlyResends = {microseconds(8600),   microseconds(16600),  microseconds(33700),
                                      microseconds(67000),  microseconds(100000), microseconds(201000),
                                      microseconds(537000), microseconds(537000)};

TEST_F(QuirkyRequester, ResendsASendEarlyAndLate) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(256);
  host_.post_receive(1, {buffer.sge(0, 256)});
  host_.post_receive(2, {buffer.sge(0, 256)});
  const PeerPacket send = request(Opcode::kRcSendOnly, kRqPsn, pattern(100, 99)).ack_request();
  host_.receive(send);
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsAck(kRqPsn), HasMsn(1))));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, kOk)));
  const Bytes before = buffer.bytes = pattern(256, 7);  // the application uses it again
  for (const Duration wait : kEarlyResends) {
    host_.advance(wait);
    host_.receive(send);
    EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsAck(kRqPsn), HasMsn(1))));
  }
  EXPECT_THAT(host_.receives(), IsEmpty());
  EXPECT_EQ(buffer.bytes, before);
}

TEST_F(QuirkyRequester, ResendsAReadEarlyAndLate) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(2 * kMtu);
  const auto is_answer = [&] {
    return ElementsAre(IsReadResponse(Opcode::kRcReadResponseFirst, kRqPsn, part(buffer.bytes, 0, kMtu)),
                       IsReadResponse(Opcode::kRcReadResponseLast, kRqPsn + 1, part(buffer.bytes, kMtu, kMtu)));
  };
  const PeerPacket read = read_request(kRqPsn, kIova, buffer.key, 2 * kMtu);
  host_.receive(read);
  EXPECT_THAT(host_.drain(), is_answer());
  for (const Duration wait : kEarlyResends) {
    host_.advance(wait);
    buffer.bytes[5] ^= 1;  // it is executed again
    host_.receive(read);
    EXPECT_THAT(host_.drain(), is_answer());
  }
  // The connection is where it was.
  host_.receive(read_request(kRqPsn + 2, kIova, buffer.key, 1));
  EXPECT_THAT(host_.drain(), ElementsAre(HasOpcode(Opcode::kRcReadResponseOnly)));
}

TEST_F(QuirkyRequester, ResendsAnAtomicEarlyAndLate) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(8);
  buffer.bytes.assign(8, 0);
  const PeerPacket add = PeerPacket(Opcode::kRcFetchAdd, kRqPsn).atomic(kIova, buffer.key, 5).ack_request();
  host_.receive(add);
  EXPECT_THAT(host_.drain(), ElementsAre(IsAtomicResponse(kRqPsn, 0u)));
  for (const Duration wait : kEarlyResends) {
    host_.advance(wait);
    host_.receive(add);
    EXPECT_THAT(host_.drain(), ElementsAre(IsAtomicResponse(kRqPsn, 0u)));
  }
  EXPECT_EQ(buffer.bytes, (Bytes{5, 0, 0, 0, 0, 0, 0, 0}));
}

// rxe goes back to a WRITE, takes an ACK from behind the READ or atomic that follows for the news that its answer is
// lost, and one with the PSN of an atomic for the answer, without its value.
TEST_F(QuirkyRequester, TakesAnAckForTheAnswerOfAnAtomic) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(2 * kMtu);
  const auto write_one = [&](uint32_t n) {
    host_.receive(request(Opcode::kRcWriteOnly, kRqPsn + n, pattern(8, 1)).reth(kIova, buffer.key, 8).ack_request());
  };
  const PeerPacket read = read_request(kRqPsn + 1, kIova, buffer.key, 2 * kMtu);
  const PeerPacket add = PeerPacket(Opcode::kRcFetchAdd, kRqPsn + 4).atomic(kIova, buffer.key, 5).ack_request();
  write_one(0);
  host_.receive(read);
  write_one(3);
  host_.receive(add);
  host_.drain();
  write_one(0);
  EXPECT_THAT(host_.drain(), ElementsAre(IsAck(kRqPsn)));
  write_one(3);
  EXPECT_THAT(host_.drain(), ElementsAre(IsAck(kRqPsn + 3)));
  write_one(0);
  write_one(3);
  EXPECT_THAT(host_.drain(), ElementsAre(IsAck(kRqPsn + 3)));
  write_one(3);  // and in the other order
  write_one(0);
  EXPECT_THAT(host_.drain(), ElementsAre(IsAck(kRqPsn + 3)));
  write_one(5);  // a new one acknowledges everything, whatever comes again behind it
  write_one(3);
  EXPECT_THAT(host_.drain(), ElementsAre(IsAck(kRqPsn + 5)));
  write_one(3);
  write_one(6);
  EXPECT_THAT(host_.drain(), ElementsAre(IsAck(kRqPsn + 6)));
  write_one(5);
  EXPECT_THAT(host_.drain(), ElementsAre(IsAck(kRqPsn + 6)));
  host_.receive(add);
  EXPECT_THAT(host_.drain(), SizeIs(1));
}

// Go-back-N far back: messages that are long over come again, and new ones directly behind them.
TEST_F(QuirkyRequester, ResendsSeveralMessagesFromAnOlderPsn) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(3 * kMtu);
  Buffer inbox = host_.make_buffer(2 * kMtu);
  for (uint64_t id = 1; id <= 3; ++id) host_.post_receive(id, {inbox.sge(0, 2 * kMtu)});
  const Bytes data = pattern(3 * kMtu, 99);
  const auto everything = [&] {
    write(buffer, data, kRqPsn, 3, [](uint32_t n) { return n == 2; });
    host_.receive(request(Opcode::kRcSendFirst, kRqPsn + 3, part(data, 0, kMtu)));
    host_.receive(request(Opcode::kRcSendLast, kRqPsn + 4, part(data, kMtu, kMtu)).ack_request());
    host_.receive(PeerPacket(Opcode::kRcWriteOnlyImmediate, kRqPsn + 5).reth(kIova, buffer.key, 0).ack_request());
  };
  everything();
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsAck(kRqPsn + 5), HasMsn(3))));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, kOk), IsCompletion(2, kOk)));
  const Bytes used = buffer.bytes = pattern(3 * kMtu, 7);
  const Bytes inbox_used = inbox.bytes = pattern(2 * kMtu, 8);
  everything();
  host_.receive(request(Opcode::kRcSendOnly, kRqPsn + 6).ack_request());
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsAck(kRqPsn + 6), HasMsn(4))));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(3, kOk)));
  EXPECT_EQ(buffer.bytes, used);
  EXPECT_EQ(inbox.bytes, inbox_used);
}

// ... and back into the middle of a message that is still arriving.
TEST_F(QuirkyRequester, ResendsTheBeginningOfTheMessageThatIsArriving) {
  host_.to_rts();
  constexpr uint32_t kCount = 6;
  Buffer buffer = host_.make_buffer(kCount * kMtu);
  const Bytes data = pattern(kCount * kMtu, 99);
  const auto never = [](uint32_t) { return false; };
  for (uint32_t cut = 1; cut < kCount; ++cut) {
    SCOPED_TRACE(cut);
    const uint32_t psn = kRqPsn + (cut - 1) * kCount;
    std::fill(buffer.bytes.begin(), buffer.bytes.end(), uint8_t{0});
    for (uint32_t n = 0; n < cut; ++n) {
      PeerPacket packet =
          request(n == 0 ? Opcode::kRcWriteFirst : Opcode::kRcWriteMiddle, psn + n, part(data, n * kMtu, kMtu));
      if (n == 0) packet.reth(kIova, buffer.key, kCount * kMtu);
      host_.receive(packet);
    }
    write(buffer, data, psn, kCount, never);
    EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsAck(psn + kCount - 1), HasMsn(cut))));
    EXPECT_EQ(buffer.bytes, data);
  }
}

}  // namespace
}  // namespace uroce::transport
