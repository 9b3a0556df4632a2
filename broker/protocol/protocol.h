// SPDX-License-Identifier: BSD-2-Clause
// What a process that uses uroce and the broker of its host say to each other, over a UNIX socket (address.h). One
// message is one packet of fixed size; both are on one machine, so numbers are in host order.
//
//   client                                   broker
//   kHello (text: program)              ->
//                                       <-   kWelcome (text: version of uroced), or kRefused
//   kLease (netdev, plane)              ->
//                                       <-   kGranted (range, with sockets: port_sockets.h), or kRefused
//   kReturn (range)                     ->   (no answer)
//   kCm                                 ->
//                                       <-   kGranted (with a socket), or kRefused: what the client asks there, and is
//                                            told, is in cm/codec.h. A second one ends the first one
//   kClaim (netdev, with sockets)       ->   after the broker before this one died: the leases that the client has
//                                       <-   kGranted (range), or kRefused
//
//   kMeet (range, other)                ->   (no answer) it sends packets to QPs of the other range
//   kSealed (range, other)              ->   (no answer) to kMemory: it has mapped and sealed it
//   kStay                               ->   (no answer) the broker is to stay there as long as the connection does;
//                                            others may inherit it: whatever is said after this ends it
//
//   kHold (text: port)                  ->   a DPDK port that one process at a time can use; also to say that one has
//                                       <-   kGranted, or kRefused: who has it
//   kRelease (text: port)               ->   (no answer)
//
// kWelcome brings a second socket, on which the broker says what is no answer:
//
//                                       <-   kReport (most_qps, with a file and a bell): the client's statistics are to
//                                            be written to the file, and the bell is closed then (statistics.h)
//                                       <-   kMemory (range, other, of_stranger, with memory): to each of two who are
//                                            to meet, where it is to write what the other one reads
//                                            (io/same_host/peer_memory.h). Both have asked for it, or one of them who
//                                            is of the same user or root's. Of stranger here: of another user, so that
//                                            all pages of it have to be there
//                                       <-   kPeer (range, other, of_stranger, with memory and a bell): when both have
//                                            sealed theirs, what connects the two (io/same_host/peer.h)
//                                       <-   kPart (range, other): who had the other range has it no longer,
//                                            or does not meet after kMemory
//
// Who looks at the statistics (broker/client/observer.h) and is no client:
//
//   kLook                               ->
//                                       <-   kWelcome, or kRefused
//   kNext (client, most_qps)            ->   the first client behind that one, by number
//                                       <-   kProcess (client, pid, uid, text: program; with the file and the other
//                                            end of the bell, if the client could be asked), or kNoMore
//
//   kIds (client: a place, 0 at first)  ->
//                                       <-   kGranted (client: the next place, or 0; text): some lines of what the
//                                            connection manager is about (connections.h); none: there is no such thing
//
// Each request has one answer, which is read before there is a next request: else the connection ends, and with it the
// leases.
// The size of Message, its first three fields and `text` stay as they are in every version, so that each side can tell
// the other what it does not speak.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/message_socket.h"
#include "broker/protocol/port_sockets.h"

namespace uroce::broker {

inline constexpr uint32_t kMagic = 0x75726f63;
inline constexpr uint16_t kProtocolVersion = 5;

enum class Kind : uint16_t {
  kHello = 1,
  kWelcome,
  kRefused,
  kLease,
  kGranted,
  kReturn,
  kClaim,
  kLook,
  kNext,
  kProcess,
  kNoMore,
  kReport,
  kMeet,
  kPeer,
  kCm,
  kIds,
  kHold,
  kRelease,
  kStay,
  kPart,
  kMemory,
  kSealed
};
inline constexpr Kind kLastKind = Kind::kSealed;

// What packets move by. One client at a time has a netdev's AF_XDP queues; it gets sockets too, for what does not come
// through them (engine/io/frames_and_sockets.h). Ports of DPDK on a netdev are as many as clients want; their sockets
// bring no copies of what comes by the port (LeaseId::without_copies).
enum class Plane : uint32_t { kSockets, kAfXdp, kDpdk };
inline constexpr Plane kLastPlane = Plane::kDpdk;

struct Message {
  uint32_t magic = kMagic;
  uint16_t version = kProtocolVersion;
  Kind kind{};
  std::array<char, 192> text{};  // always ends with 0
  int32_t error = 0;             // errno value
  int32_t ifindex = 0;
  uint32_t range = 0;  // number of a LeaseRange
  Plane plane{};
  uint32_t has_v6 = 0;  // there is one among the sockets
  uint32_t uid = 0;
  uint64_t network_namespace = 0;  // its inode
  uint64_t client = 0;             // the broker counts them from 1 on
  int32_t pid = 0;                 // as the broker sees it; 0: not visible
  uint32_t most_qps = 0;           // to be listed one by one
  uint32_t other = 0;              // number of another client's LeaseRange
  uint32_t of_stranger = 0;        // io::PeerEnd
  uint64_t reserved = 0;
};
static_assert(std::has_unique_object_representations_v<Message>, "no byte of the sender's memory goes along");
static_assert(sizeof(Message) == 264, "what is shorter or longer is no message");

// Sockets as they go with a message: IPv4, IPv6 if there is one, PortSockets::kept if there is any.
class SocketList {
 public:
  explicit SocketList(const PortSockets& sockets) {
    for (const UniqueFd* const socket : {&sockets.v4, &sockets.v6, &sockets.kept}) {
      if (*socket) numbers_[count_++] = socket->get();
    }
  }
  std::span<const int> span() const { return std::span(numbers_).first(count_); }

 private:
  std::array<int, 3> numbers_{};
  size_t count_ = 0;
};
PortSockets sockets_from(Descriptors& descriptors, bool has_v6);

Message make_message(Kind kind, const std::string& text = {});
// For people: what is not printable ASCII, which a terminal might obey, is replaced.
std::string text_of(const Message& message);
uint64_t own_network_namespace();  // inode; 0: unknown

// As send_message() and receive_message(); EPROTO as well for what is no message. ENOTSUP: a message of another
// version, whose fields but the first three and `text` mean nothing. EMFILE: a message without what came along.
int send(int socket, const Message& message, std::span<const int> descriptors = {});
int receive(int socket, Message& message, Descriptors& descriptors, int timeout_ms);
// As peek_message().
int peek(int socket, Message& message, bool& brings);

}  // namespace uroce::broker
