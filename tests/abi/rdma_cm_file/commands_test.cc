// SPDX-License-Identifier: BSD-2-Clause
// Each command's good and bad ways: lengths, ids, states, pointers, values.
#include <cstring>
#include <sys/mman.h>

#include "lab.h"

namespace uroce::rdma_cm::test {
namespace {

using abi::Command;
using abi::EventKind;
using wire::PortSpace;

TEST(Commands, HeadersThatDoNotFit) {
  Pair pair;
  std::array<uint8_t, 336> bytes{};
  EXPECT_EQ(pair.a.write(bytes.data(), 7), -EINVAL);
  const auto with = [&](uint32_t command, uint16_t in, size_t size) {
    const abi::Header header{command, in, 336};
    std::memcpy(bytes.data(), &header, sizeof(header));
    return pair.a.write(bytes.data(), size);
  };
  EXPECT_EQ(with(25, 8, 16), -EINVAL) << "no such command";
  EXPECT_EQ(with(UINT32_MAX, 8, 16), -EINVAL);
  EXPECT_EQ(with(0, 25, 32), -EINVAL) << "longer than what was written";
  EXPECT_EQ(with(13, 8, 16), -ENOSYS) << "GET_OPTION";
  EXPECT_EQ(with(23, 88, 96), -EOPNOTSUPP);
  for (uint32_t command = 0; command < 23; ++command) {
    const int expected = command == 13 ? -ENOSYS : -EINVAL;
    EXPECT_EQ(with(command, 0, 8), expected) << command << " without its fields";
  }
}

TEST(Commands, UnknownIdsAndThoseOfOthers) {
  Pair pair;
  Client other(pair.host_a.manager());
  const uint32_t foreign = other.create(PortSpace::kTcp);
  for (const auto& [id, error] : {std::pair<uint32_t, int>{99, ENOENT}, {UINT32_MAX, ENOENT}, {foreign, EINVAL}}) {
    abi::QueryAddrAnswer address{};
    abi::QueryPathAnswer path{};
    abi::QueryRouteAnswer route{};
    abi::QpAttr attr{};
    const uint8_t tos = 1;
    uint32_t group = 0;
    Client& a = pair.a;
    EXPECT_EQ(a.destroy(id), error);
    EXPECT_EQ(a.bind(id, sockaddr_of("0.0.0.0", 0)), error);
    EXPECT_EQ(a.listen(id), error);
    EXPECT_EQ(a.resolve(id, sockaddr_of("192.0.2.2", 1)), error);
    EXPECT_EQ(a.resolve_route(id), error);
    EXPECT_EQ(a.connect(id, 1), error);
    EXPECT_EQ(a.accept(id, 1, 1), error);
    EXPECT_EQ(a.reject(id, ""), error);
    EXPECT_EQ(a.disconnect(id), error);
    EXPECT_EQ(a.notify(id, 4), error);
    EXPECT_EQ(a.query(id, abi::kQueryAddr, address), error);
    EXPECT_EQ(a.query_path(id, path), error);
    EXPECT_EQ(a.query_route(id, route), error);
    EXPECT_EQ(a.init_qp_attr(id, abi::kInit, attr), error);
    EXPECT_EQ(a.set_option(id, 0, abi::kOptionTos, &tos, 1), error);
    EXPECT_EQ(a.join(id, sockaddr_of("239.1.2.3", 0), 1, group), error);
    EXPECT_EQ(a.migrate(a, id), error);
  }
  EXPECT_EQ(pair.a.leave(99), ENOENT);
}

TEST(Commands, WhatNeedsADevice) {
  Pair pair;
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  abi::QpAttr attr{};
  uint32_t group = 0;
  EXPECT_EQ(pair.a.resolve_route(id), EINVAL);
  EXPECT_EQ(pair.a.connect(id, 1), EINVAL);
  EXPECT_EQ(pair.a.accept(id, 1, 1), EINVAL);
  EXPECT_EQ(pair.a.reject(id, ""), EINVAL);
  EXPECT_EQ(pair.a.disconnect(id), EINVAL);
  EXPECT_EQ(pair.a.notify(id, 4), EINVAL);
  EXPECT_EQ(pair.a.init_qp_attr(id, abi::kInit, attr), EINVAL);
  EXPECT_EQ(pair.a.join(id, sockaddr_of("239.1.2.3", 0), 1, group), EINVAL);
  abi::QueryAddrAnswer address{};
  EXPECT_EQ(pair.a.query(id, abi::kQueryAddr, address), 0);
  EXPECT_EQ(address.node_guid, 0u);
  EXPECT_EQ(address.src_size, 0);
}

TEST(Commands, StatesInOrder) {
  Pair pair;
  uint16_t port = 0;
  const uint32_t listener = pair.listen(port);
  EXPECT_EQ(pair.b.listen(listener), EINVAL) << "listens already";
  EXPECT_EQ(pair.b.bind(listener, sockaddr_of("0.0.0.0", 0)), EINVAL);
  EXPECT_EQ(pair.b.resolve(listener, sockaddr_of("192.0.2.1", 1)), EINVAL);
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  ASSERT_EQ(pair.a.bind(id, sockaddr_of("192.0.2.1", 0)), 0);
  EXPECT_EQ(pair.a.resolve_route(id), EINVAL);
  EXPECT_EQ(pair.a.connect(id, 1), EINVAL);
  ASSERT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.2", port)), 0);
  EXPECT_EQ(pair.a.resolve_route(id, 0), EINVAL) << "no time";
  EXPECT_EQ(pair.a.connect(id, 1), EINVAL);
  ASSERT_EQ(pair.a.resolve_route(id), 0);
  EXPECT_EQ(pair.a.resolve_route(id), EINVAL);
  EXPECT_EQ(pair.a.accept(id, 1, 1), EINVAL);
  abi::Connect invalid{};
  invalid.id = id;
  EXPECT_EQ(pair.a.command(Command::kConnect, invalid), EINVAL) << "parameters are not valid";
  ASSERT_EQ(pair.a.connect(id, 1), 0);
  EXPECT_EQ(pair.a.connect(id, 1), EINVAL);
}

TEST(Commands, CreatingTakesTheLowestNumber) {
  Pair pair;
  Client other(pair.host_a.manager());
  EXPECT_EQ(pair.a.create(PortSpace::kTcp), 0u);
  EXPECT_EQ(other.create(PortSpace::kUdp), 1u) << "one table for all channels";
  EXPECT_EQ(pair.a.create(PortSpace::kIb), 2u);
  EXPECT_EQ(other.destroy(1), 0);
  EXPECT_EQ(pair.a.create(PortSpace::kTcp), 1u);
  uint32_t id = 0;
  EXPECT_EQ(pair.a.create(wire::PortSpace{7}, 1, id), EINVAL);
  abi::CreateId body{};
  body.ps = static_cast<uint16_t>(PortSpace::kTcp);
  EXPECT_EQ(pair.a.command(Command::kCreateId, body, 0), ENOSPC);
  EXPECT_EQ(pair.a.create(PortSpace::kTcp), 3u) << "nothing is left of that";
}

#if !defined(__SANITIZE_THREAD__)  // which does not let a fault in its memcpy() be caught
// Memory that nobody may touch. Not any number: the sanitizers look at an address before it is touched.
uint64_t nowhere() {
  static void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return reinterpret_cast<uintptr_t>(page);
}

TEST(Commands, HostilePointers) {
  Pair pair;
  EXPECT_EQ(pair.a.write(reinterpret_cast<const void*>(nowhere()), 32), -EFAULT);
  abi::CreateId create{};
  create.ps = static_cast<uint16_t>(PortSpace::kTcp);
  create.response = nowhere();
  EXPECT_EQ(pair.a.command(Command::kCreateId, create, 4), EFAULT);
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  EXPECT_EQ(id, 0u) << "nothing is left of the one that failed";
  ASSERT_EQ(pair.a.bind(id, sockaddr_of("192.0.2.1", 0)), 0);
  EXPECT_EQ(pair.a.command(Command::kQuery, abi::Query{nowhere(), id, 0}, 280), EFAULT);
  EXPECT_EQ(pair.a.command(Command::kQueryRoute, abi::QueryRoute{nowhere(), id, 0}, 208), EFAULT);
  EXPECT_EQ(pair.a.command(Command::kInitQpAttr, abi::InitQpAttr{nowhere(), id, abi::kInit}, 144), EFAULT);
  EXPECT_EQ(pair.a.command(Command::kSetOption, abi::SetOption{nowhere(), id, 0, 0, 1}), EFAULT);
  ASSERT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.2", 1)), 0);
  EXPECT_EQ(pair.a.command(Command::kGetEvent, abi::GetEvent{nowhere()}, 336), EFAULT);
  pair.a.expect(EventKind::kAddrResolved);  // it is still there
  EXPECT_EQ(pair.a.command(Command::kDestroyId, abi::DestroyId{nowhere(), id, 0}, 4), EFAULT);
  EXPECT_EQ(pair.a.destroy(id), ENOENT) << "it is destroyed all the same";
}
#endif

TEST(Commands, RoomForAnswers) {
  Pair pair;
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  ASSERT_EQ(pair.a.bind(id, sockaddr_of("192.0.2.1", 0)), 0);
  std::array<uint8_t, 336> room{};
  const auto at = reinterpret_cast<uintptr_t>(room.data());
  EXPECT_EQ(pair.a.command(Command::kQuery, abi::Query{at, id, 0}, 271), ENOSPC);
  EXPECT_EQ(pair.a.command(Command::kQuery, abi::Query{at, id, 0}, 272), 0) << "before ibdev_index there was none";
  EXPECT_EQ(pair.a.command(Command::kQuery, abi::Query{at, id, 3}, 280), ENOSYS);
  EXPECT_EQ(pair.a.command(Command::kQueryRoute, abi::QueryRoute{at, id, 0}, 199), ENOSPC);
  EXPECT_EQ(pair.a.command(Command::kInitQpAttr, abi::InitQpAttr{at, id, 1}, 143), ENOSPC);
  EXPECT_EQ(pair.a.command(Command::kGetEvent, abi::GetEvent{at}, 323), ENOSPC);
  EXPECT_EQ(pair.a.command(Command::kDestroyId, abi::DestroyId{at, id, 0}, 3), ENOSPC);
}

TEST(Commands, OptionsAndTheirValues) {
  Pair pair;
  const uint32_t id = pair.a.create(PortSpace::kTcp), datagrams = pair.a.create(PortSpace::kUdp);
  const uint32_t value = 1;
  EXPECT_EQ(pair.a.set_option(id, 0, abi::kOptionTos, &value, 4), EINVAL);
  EXPECT_EQ(pair.a.set_option(id, 0, abi::kOptionReuseAddress, &value, 1), EINVAL);
  EXPECT_EQ(pair.a.set_option(id, 0, abi::kOptionReuseAddress, &value, 4), 0);
  EXPECT_EQ(pair.a.set_option(id, 0, abi::kOptionAfOnly, &value, 4), 0);
  EXPECT_EQ(pair.a.set_option(datagrams, 0, abi::kOptionAckTimeout, &value, 1), EINVAL);
  EXPECT_EQ(pair.a.set_option(id, 0, 4, &value, 1), ENOSYS);
  EXPECT_EQ(pair.a.set_option(id, 1, 2, &value, 4), ENOSYS);
  EXPECT_EQ(pair.a.set_option(id, 2, 0, &value, 4), ENOSYS);
  EXPECT_EQ(pair.a.set_option(id, 0, 0, &value, UINT32_MAX), EINVAL);
}

TEST(Commands, APathFromElsewhereIsARoute) {
  Pair pair;
  const uint32_t id = pair.a.create(PortSpace::kTcp);
  abi::PathData path{};
  path.flags = abi::kPathFlags;
  EXPECT_EQ(pair.a.set_option(id, 1, 1, &path, sizeof(path)), EINVAL) << "no device";
  ASSERT_EQ(pair.a.resolve(id, sockaddr_of("192.0.2.2", 1)), 0);
  pair.a.expect(EventKind::kAddrResolved);
  EXPECT_EQ(pair.a.set_option(id, 1, 1, &path, 71), EINVAL);
  EXPECT_EQ(pair.a.set_option(id, 1, 1, &path, 0), EINVAL);
  ASSERT_EQ(pair.a.set_option(id, 1, 1, &path, sizeof(path)), 0);
  pair.a.expect(EventKind::kRouteResolved);
}

TEST(Commands, EventsOfTheApplication) {
  Pair pair;
  const uint32_t id = pair.a.create(PortSpace::kTcp, 77);
  abi::WriteCmEvent body{};
  body.id = id;
  body.event = static_cast<uint32_t>(EventKind::kUser);
  body.status = 5;
  const uint64_t argument = 0x1122334455667788;
  std::memcpy(body.param, &argument, sizeof(argument));
  ASSERT_EQ(pair.a.command(Command::kWriteCmEvent, body), 0);
  const abi::Event event = pair.a.expect(EventKind::kUser);
  EXPECT_EQ(event.uid, 77u);
  EXPECT_EQ(event.status, 5u);
  EXPECT_EQ(std::memcmp(event.param.arg, &argument, sizeof(argument)), 0);
  body.event = 3;
  EXPECT_EQ(pair.a.command(Command::kWriteCmEvent, body), EINVAL);
}

TEST(Commands, MulticastGroups) {
  Pair pair;
  const uint32_t id = pair.a.create(PortSpace::kUdp, 5), connected = pair.a.create(PortSpace::kTcp);
  uint32_t group = 0;
  ASSERT_EQ(pair.a.bind(id, sockaddr_of("192.0.2.1", 0)), 0);
  ASSERT_EQ(pair.a.bind(connected, sockaddr_of("192.0.2.1", 0)), 0);
  EXPECT_EQ(pair.a.join(connected, sockaddr_of("239.1.2.3", 0), 9, group), EINVAL) << "not of datagrams";
  EXPECT_EQ(pair.a.join(id, sockaddr_of("192.0.2.2", 0), 9, group), EINVAL) << "no group";
  EXPECT_EQ(pair.a.join(id, sockaddr_of("239.1.2.3", 0), 9, group, 2), EINVAL) << "no such way";
  ASSERT_EQ(pair.a.join(id, sockaddr_of("239.1.2.3", 0), 9, group), 0);
  EXPECT_EQ(group, 0u) << "groups have numbers of their own";
  const abi::Event event = pair.a.expect(EventKind::kMulticastJoin);
  EXPECT_EQ(event.uid, 9u) << "the group's";
  EXPECT_EQ(event.id, id);
  EXPECT_EQ(event.param.ud.qp_num, 0xffffffu);
  EXPECT_EQ(event.param.ud.qkey, 0x01234567u);
  EXPECT_EQ(event.param.ud.ah_attr.dgid, ip("239.1.2.3").bytes);
  uint32_t second = 0, reported = 0;
  ASSERT_EQ(pair.a.join(id, sockaddr_of("239.1.2.4", 0), 10, second, abi::kJoinSendOnly), 0);
  EXPECT_EQ(pair.a.leave(second, &reported), 0);
  EXPECT_EQ(reported, 0u);
  EXPECT_FALSE(pair.a.readable()) << "its event goes with it";
  EXPECT_EQ(pair.a.leave(group, &reported), 0);
  EXPECT_EQ(reported, 1u);
  EXPECT_EQ(pair.a.leave(group), ENOENT);
  EXPECT_EQ(pair.a.destroy(id, &reported), 0);
  EXPECT_EQ(reported, 1u) << "events of groups count for the id too";
}

TEST(Commands, WithoutAConnectionManager) {
  Wire wire;
  LabHost host(wire);
  host.view().add_netdev(2, {"192.0.2.1"});
  host.refuse_agent();
  Client client(host.manager());
  const uint32_t id = client.create(PortSpace::kTcp);
  testing::internal::CaptureStderr();
  EXPECT_EQ(client.bind(id, sockaddr_of("192.0.2.1", 0)), ENODEV);
  EXPECT_EQ(client.bind(id, sockaddr_of("192.0.2.1", 0)), ENODEV);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "uroce: rdma_cm: the test wants no agent\n") << "once";
}

}  // namespace
}  // namespace uroce::rdma_cm::test
