// SPDX-License-Identifier: BSD-2-Clause
// The memory layout that compiled applications rely on: docs/reference/verbs-abi.md "Inline dispatch".
#include <gtest/gtest.h>

#include "abi/verbs/objects.h"

namespace uroce::verbs {
namespace {

// Offsets from the ibv_context pointer that the application has.
static_assert(offsetof(ibv_context, ops) == 8);
static_assert(offsetof(ibv_context, ops.poll_cq) == 8 + 88);
static_assert(offsetof(ibv_context, ops.req_notify_cq) == 8 + 96);
static_assert(offsetof(ibv_context, ops.post_srq_recv) == 8 + 160);
static_assert(offsetof(ibv_context, ops.post_send) == 8 + 200);
static_assert(offsetof(ibv_context, ops.post_recv) == 8 + 208);
static_assert(offsetof(ibv_context, cmd_fd) == 264);
static_assert(offsetof(ibv_context, async_fd) == 268);
static_assert(offsetof(ibv_context, num_comp_vectors) == 272);
static_assert(offsetof(ibv_context, mutex) == 280);
static_assert(offsetof(ibv_context, abi_compat) == 320);
static_assert(sizeof(ibv_context) == 328);

// The newest verbs_context ends where ours ends, and all of it is ours.
static_assert(sizeof(ContextAbi) == kNewestVerbsContextSize + sizeof(void*));
static_assert(offsetof(ContextAbi, verbs) + sizeof(verbs_context) == sizeof(ContextAbi));
static_assert(offsetof(verbs_context, sz) + sizeof(size_t) == offsetof(verbs_context, context));

static_assert(sizeof(ibv_device) == 664);
static_assert(offsetof(DeviceAbi, provider_marks) == sizeof(ibv_device));

static_assert(kWrFlushOffset == 352);
static_assert(sizeof(QpAbi) >= 360);
static_assert(sizeof(ibv_cq_ex) == 288);
static_assert(sizeof(ibv_device_attr_ex) == 400);
static_assert(sizeof(ibv_port_attr) == 52);
static_assert(offsetof(ibv_port_attr, port_cap_flags2) == 48);

// ibv_cq and ibv_qp are prefixes of their extended forms.
static_assert(offsetof(ibv_cq, async_events_completed) == offsetof(ibv_cq_ex, async_events_completed));
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);

// Enumerators that are cast between verbs and the engine.
static_assert(int{IBV_WR_SEND_WITH_INV} == static_cast<int>(queue::WrOpcode::kSendWithInvalidate));
static_assert(int{IBV_WR_ATOMIC_FETCH_AND_ADD} == static_cast<int>(queue::WrOpcode::kFetchAdd));
static_assert(int{IBV_SEND_INLINE} == queue::kInline && int{IBV_SEND_SOLICITED} == queue::kSolicited);
static_assert(int{IBV_SEND_FENCE} == queue::kFence && int{IBV_SEND_SIGNALED} == queue::kSignaled);
static_assert(int{IBV_WC_GENERAL_ERR} == static_cast<int>(queue::WcStatus::kGeneralError));
static_assert(int{IBV_WC_RECV_RDMA_WITH_IMM} == static_cast<int>(queue::WcOpcode::kReceiveRdmaWithImmediate));
static_assert(int{IBV_WC_WITH_INV} == queue::kWcWithInvalidate && int{IBV_WC_WITH_IMM} == queue::kWcWithImmediate);
static_assert(int{IBV_ACCESS_REMOTE_ATOMIC} == memory::kRemoteAtomic);
static_assert(int{IBV_ACCESS_REMOTE_READ} == memory::kRemoteRead);
static_assert(int{IBV_EVENT_GID_CHANGE} == static_cast<int>(transport::AsyncEvent::kGidChange));
static_assert(int{IBV_EVENT_QP_LAST_WQE_REACHED} == static_cast<int>(transport::AsyncEvent::kQpLastWqeReached));
static_assert(int{IBV_QP_RATE_LIMIT} == transport::kQpRateLimit && int{IBV_QP_DEST_QPN} == transport::kQpDestQpn);
static_assert(int{IBV_QPS_ERR} == static_cast<int>(transport::QpState::kErr));

TEST(Layout, ObjectsAreFoundFromTheirVerbsPointers) {
  Device device{};
  EXPECT_EQ(&from(&device.verbs), &device);
  Context context;
  EXPECT_EQ(&from(&context.verbs.context), &context);
  Qp qp(true);
  EXPECT_EQ(&from(&qp.verbs.qp_base), &qp);
  EXPECT_EQ(&from(&qp.verbs), &qp);
  Cq cq(1, nullptr, queue::CompletionQueue::Overrun::kFail, queue::CompletionQueue::Consumers::kMany, {});
  ibv_cq_ex* verbs = &cq;
  EXPECT_EQ(&from(ibv_cq_ex_to_cq(verbs)), &cq);
}

TEST(Layout, NothingFollowsADeviceThatAProviderCouldTakeForItsMark) {
  const auto device = std::make_unique<Device>();
  for (const uint64_t word : device->provider_marks) EXPECT_EQ(word, 0u);
}

}  // namespace
}  // namespace uroce::verbs
