// SPDX-License-Identifier: BSD-2-Clause
// Opening and closing a device: the ibv_context with its dispatch tables.

#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <unistd.h>

#include "abi/verbs/async_events.h"
#include "abi/verbs/command_file.h"
#include "abi/verbs/dispatch.h"
#include "abi/verbs/memory_objects.h"
#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "base/unique_fd.h"

namespace uroce::verbs {
namespace {

// The clock of completion timestamps, in the units of hca_core_clock: nanoseconds in tv_nsec, as providers with a
// 1 GHz counter give it.
int query_rt_values(ibv_context*, ibv_values_ex* values) {
  if (values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) return answer(EINVAL);
  if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    values->raw_clock = {0, now.tv_sec * 1'000'000'000 + now.tv_nsec};
  }
  return 0;
}

// Slots left null are answered with EOPNOTSUPP by the inline functions of verbs.h, except where an application can
// have got no object to call them with.
void fill_dispatch_tables(verbs_context& verbs) {
  ibv_context_ops& ops = verbs.context.ops;
  ops._compat_query_device = ibv_query_device;
  ops._compat_query_port = ibv_query_port;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.post_srq_recv = post_srq_recv;
  ops.alloc_mw = alloc_mw;
  ops.bind_mw = bind_mw;
  ops.dealloc_mw = dealloc_mw;
  verbs.advise_mr = advise_mr;
  verbs.alloc_null_mr = alloc_null_mr;
  verbs.alloc_dm = alloc_dm;
  verbs.free_dm = free_dm;
  verbs.reg_dm_mr = reg_dm_mr;
  verbs.query_port = query_port;
  verbs.query_device_ex = query_device_ex;
  verbs.query_rt_values = query_rt_values;
  verbs.create_cq_ex = create_cq_ex;
  verbs.modify_cq = modify_cq;
  verbs.alloc_td = alloc_td;
  verbs.dealloc_td = dealloc_td;
  verbs.alloc_parent_domain = alloc_parent_domain;
  verbs.create_qp_ex = create_qp_ex;
  verbs.open_qp = open_qp;
  verbs.create_srq_ex = create_srq_ex;
  verbs.get_srq_num = get_srq_num;
  verbs.open_xrcd = open_xrcd;
  verbs.close_xrcd = close_xrcd;
  verbs.sz = kNewestVerbsContextSize;
}

// `cmd_fd`: -1 for a new command file, else that of `command_file`, which the context owns from now on.
int open_context(Device& device, int cmd_fd, std::shared_ptr<CommandFile> command_file, std::unique_ptr<Context>& out) {
  engine::Host* host = engine::Host::instance();
  if (host == nullptr) return ENODEV;
  auto context = std::make_unique<Context>();
  context->engine = host->engine(device.info);
  if (context->engine == nullptr) return ENODEV;

  ibv_context& verbs = context->verbs.context;
  verbs.device = &device.verbs;
  verbs.num_comp_vectors = 1;
  verbs.mutex = PTHREAD_MUTEX_INITIALIZER;
  verbs.abi_compat = __VERBS_ABI_IS_EXTENDED;
  fill_dispatch_tables(context->verbs);

  // Ours until nothing can fail any more: an imported cmd_fd stays the caller's then.
  if (const int error = context->async_events.open(verbs.async_fd)) return error;
  UniqueFd async_fd(verbs.async_fd);
  UniqueFd new_cmd_fd;
  if (cmd_fd < 0) {
    if (const int error = CommandFile::open(device, *context->engine, cmd_fd, command_file)) return error;
    new_cmd_fd.reset(cmd_fd);
  }
  verbs.cmd_fd = cmd_fd;
  context->on_event = [target = context.get()](const engine::EventSubject& event) { queue_event(*target, event); };
  context->engine->add_event_handler(&context->on_event);
  if (!command_file->open_context()) {
    context->engine->remove_event_handler(&context->on_event);
    return EINVAL;
  }
  context->quota = command_file->quota();
  context->memory = command_file->memory();
  context->command_file = std::move(command_file);
  async_fd.release();
  new_cmd_fd.release();
  out = std::move(context);
  return 0;
}

}  // namespace
}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

ibv_context* ibv_open_device(ibv_device* device) {
  std::unique_ptr<Context> context;
  const int error = without_exceptions([&] { return open_context(from(device), -1, nullptr, context); });
  return error == 0 ? &context.release()->verbs.context : fail(error);
}

// A second context on what `cmd_fd` refers to, a duplicate of another context's; closing the new one closes it. Only
// within the process: objects of another one are out of reach.
ibv_context* ibv_import_device(int cmd_fd) {
  const std::shared_ptr<CommandFile> file = CommandFile::find(cmd_fd);
  if (file == nullptr) return fail(EINVAL);
  std::unique_ptr<Context> context;
  const int error = without_exceptions([&] { return open_context(file->device(), cmd_fd, file, context); });
  return error == 0 ? &context.release()->verbs.context : fail(error);
}

// Takes everything from the engine that the application has left, as the kernel does when the device file is closed.
// Applications do leave objects: perftest forgets a CQ.
int ibv_close_device(ibv_context* verbs) {
  const uroce::NoCancellation uncancelled;
  Context& context = from(verbs);
  if (orphaned(verbs)) {  // objects still point to it, and the engine is its parent's
    ::close(verbs->cmd_fd);
    ::close(verbs->async_fd);
    return 0;
  }
  context.engine->remove_event_handler(&context.on_event);
  for (Qp* qp : context.qps.take_all()) release_engine_qp(*qp);
  for (Srq* srq : context.srqs.take_all()) context.engine->destroy_srq(srq->engine_srq);
  for (const Ah* ah : context.ahs.take_all()) context.engine->destroy_address(ah->engine_handle);
  for (Cq* cq : context.moderated_cqs.take_all()) context.engine->moderate_cq(*cq, 0, {});
  close_memory(context);
  ::close(verbs->cmd_fd);
  ::close(verbs->async_fd);
  context.command_file->close_context();
  context.engine.reset();
  drop_user(context);
  return 0;
}

}  // extern "C"
