// SPDX-License-Identifier: BSD-2-Clause
// Memory that runs out while a QP is modified: nothing has changed, and the same call works later.
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>

#include "tests/engine/device/engine_rig.h"

namespace {
thread_local int allocations_left = -1;  // of this thread; negative: as many as it likes
}  // namespace

void* operator new(size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) --allocations_left;
  return std::malloc(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace uroce::engine::test {
namespace {

using namespace transport;

// The verbs shim makes ENOMEM of what is thrown.
TEST(EngineMemory, ModifyWithoutMemoryChangesNothing) {
  auto engine = make_engine();
  CompletionQueue cq(16, nullptr);
  QpInit init;
  init.pd = 1;
  init.send_cq = init.recv_cq = &cq;
  Qp* qp = nullptr;
  ASSERT_EQ(engine->create_qp(init, qp), 0);
  QpAttributes a;
  a.state = QpState::kInit;
  a.port = 1;
  ASSERT_EQ(engine->modify_qp(*qp, a, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), 0);
  a.state = QpState::kRtr;
  a.address.destination = kOwnAddress;
  a.address.global = true;
  a.path_mtu = 1024;
  a.max_dest_rd_atomic = 16;
  constexpr uint32_t kToRtr =
      kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
  const auto modify = [&](int allocations) {
    allocations_left = allocations;
    int error = ENOMEM;
    try {
      error = engine->modify_qp(*qp, a, kToRtr);
    } catch (const std::bad_alloc&) {
    }
    allocations_left = -1;
    return error;
  };
  int allocations = 0;
  for (; modify(allocations) == ENOMEM; ++allocations) {
    EXPECT_EQ(Engine::state(*qp), QpState::kInit);
    EXPECT_EQ(engine->query_qp(*qp).max_dest_rd_atomic, 0);
    ASSERT_LT(allocations, 100);
  }
  EXPECT_GT(allocations, 0) << "memory for what is remembered of the peer's READs";
  EXPECT_EQ(Engine::state(*qp), QpState::kRtr);
  EXPECT_EQ(engine->query_qp(*qp).max_dest_rd_atomic, 16);
  engine->destroy_qp(qp);
}

// More than there can be costs no memory either.
TEST(EngineMemory, DepthBeyondTheLimitIsRefused) {
  auto engine = make_engine();
  Connection c(*engine);
  QpAttributes a;
  a.state = QpState::kSqd;
  ASSERT_EQ(engine->modify_qp(*c.a, a, kQpState), 0);
  a.max_dest_rd_atomic = kMaxRdAtomic + 1;
  EXPECT_EQ(engine->modify_qp(*c.a, a, kQpMaxDestRdAtomic), EINVAL);
  a.max_dest_rd_atomic = kMaxRdAtomic;
  EXPECT_EQ(engine->modify_qp(*c.a, a, kQpMaxDestRdAtomic), 0);
}

}  // namespace
}  // namespace uroce::engine::test
