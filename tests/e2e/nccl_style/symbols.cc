// SPDX-License-Identifier: BSD-2-Clause
#include "symbols.h"

#include <cstring>
#include <dlfcn.h>

namespace uroce::nccl_style {
namespace {

// The development package's name is tried first, as NCCL does.
void* load_library() {
  void* library = dlopen("libibverbs.so", RTLD_NOW);
  if (library == nullptr) library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (library == nullptr) throw Failure(std::string("no libibverbs: ") + dlerror());
  return library;
}

template <typename Function>
bool find(void* library, Function*& pointer, const char* name, const char* version) {
  pointer = reinterpret_cast<Function*>(dlvsym(library, name, version));
  return pointer != nullptr;
}

template <typename Function>
void need(void* library, Function*& pointer, const char* name, const char* version = "IBVERBS_1.1") {
  if (!find(library, pointer, name, version)) throw Failure(std::string("no ") + name + "@" + version);
}

}  // namespace

Symbols load_symbols(std::string& file) {
  void* library = load_library();
  Symbols found{};
  need(library, found.fork_init, "ibv_fork_init");
  need(library, found.get_device_list, "ibv_get_device_list");
  need(library, found.free_device_list, "ibv_free_device_list");
  need(library, found.get_device_name, "ibv_get_device_name");
  need(library, found.open_device, "ibv_open_device");
  need(library, found.close_device, "ibv_close_device");
  need(library, found.get_async_event, "ibv_get_async_event");
  need(library, found.ack_async_event, "ibv_ack_async_event");
  need(library, found.event_type_str, "ibv_event_type_str");
  need(library, found.query_device, "ibv_query_device");
  need(library, found.query_port, "ibv_query_port");
  need(library, found.query_gid, "ibv_query_gid");
  need(library, found.query_qp, "ibv_query_qp");
  need(library, found.alloc_pd, "ibv_alloc_pd");
  need(library, found.dealloc_pd, "ibv_dealloc_pd");
  need(library, found.reg_mr, "ibv_reg_mr");
  need(library, found.dereg_mr, "ibv_dereg_mr");
  need(library, found.create_comp_channel, "ibv_create_comp_channel", "IBVERBS_1.0");
  need(library, found.destroy_comp_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0");
  need(library, found.create_cq, "ibv_create_cq");
  need(library, found.destroy_cq, "ibv_destroy_cq");
  need(library, found.create_qp, "ibv_create_qp");
  need(library, found.modify_qp, "ibv_modify_qp");
  need(library, found.destroy_qp, "ibv_destroy_qp");
  find(library, found.reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8");
  find(library, found.query_ece, "ibv_query_ece", "IBVERBS_1.10");
  find(library, found.set_ece, "ibv_set_ece", "IBVERBS_1.10");
  find(library, found.reg_dmabuf_mr, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
  Dl_info about{};
  if (dladdr(reinterpret_cast<void*>(found.get_device_list), &about) != 0) file = about.dli_fname;
  return found;
}

void fail(const std::string& what, int error) {
  throw Failure(what + ": " + std::strerror(error));
}

void expect_ok(int result, const std::string& what) {
  if (result != 0) fail(what, result > 0 ? result : errno);
}

}  // namespace uroce::nccl_style
