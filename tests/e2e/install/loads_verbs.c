// SPDX-License-Identifier: BSD-2-Clause
/* Loads libibverbs at run time, as NCCL and others do, with the versions of symbols that these ask for; then opens
 * every device. Not linked with libibverbs. Usage: loads_verbs NAME     prints the file that it got, then a line for
 * each device. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>

static const struct {
  const char* name;
  const char* version;
} kWanted[] = {
    {"ibv_get_device_list", "IBVERBS_1.1"},
    {"ibv_free_device_list", "IBVERBS_1.1"},
    {"ibv_get_device_name", "IBVERBS_1.1"},
    {"ibv_open_device", "IBVERBS_1.1"},
    {"ibv_close_device", "IBVERBS_1.1"},
    {"ibv_get_async_event", "IBVERBS_1.1"},
    {"ibv_ack_async_event", "IBVERBS_1.1"},
    {"ibv_query_device", "IBVERBS_1.1"},
    {"ibv_query_port", "IBVERBS_1.1"},
    {"ibv_query_gid", "IBVERBS_1.1"},
    {"ibv_query_qp", "IBVERBS_1.1"},
    {"ibv_alloc_pd", "IBVERBS_1.1"},
    {"ibv_dealloc_pd", "IBVERBS_1.1"},
    {"ibv_reg_mr", "IBVERBS_1.1"},
    {"ibv_reg_mr_iova2", "IBVERBS_1.8"},
    {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
    {"ibv_dereg_mr", "IBVERBS_1.1"},
    {"ibv_create_comp_channel", "IBVERBS_1.0"},
    {"ibv_destroy_comp_channel", "IBVERBS_1.0"},
    {"ibv_create_cq", "IBVERBS_1.1"},
    {"ibv_destroy_cq", "IBVERBS_1.1"},
    {"ibv_create_qp", "IBVERBS_1.1"},
    {"ibv_modify_qp", "IBVERBS_1.1"},
    {"ibv_destroy_qp", "IBVERBS_1.1"},
    {"ibv_fork_init", "IBVERBS_1.1"},
    {"ibv_event_type_str", "IBVERBS_1.1"},
    {"ibv_query_ece", "IBVERBS_1.10"},
    {"ibv_set_ece", "IBVERBS_1.10"},
    {"ibv_get_device_list", "IBVERBS_1.0"},
    {"ibv_open_device", "IBVERBS_1.0"},
    {"ibv_create_qp", "IBVERBS_1.0"},
    {"ibv_reg_mr", "IBVERBS_1.0"},
};

static void* library;

static void* find(const char* name) {
  return dlvsym(library, name, "IBVERBS_1.1");
}

int main(int count, char** arguments) {
  struct ibv_device** (*get_device_list)(int*);
  const char* (*get_device_name)(struct ibv_device*);
  struct ibv_context* (*open_device)(struct ibv_device*);
  int (*query_device)(struct ibv_context*, struct ibv_device_attr*);
  int (*close_device)(struct ibv_context*);
  Dl_info info;

  if (count != 2) return 2;
  library = dlopen(arguments[1], RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  for (size_t i = 0; i < sizeof(kWanted) / sizeof(kWanted[0]); ++i) {
    if (dlvsym(library, kWanted[i].name, kWanted[i].version) != NULL) continue;
    fprintf(stderr, "no %s@%s: %s\n", kWanted[i].name, kWanted[i].version, dlerror());
    return 1;
  }
  *(void**)&get_device_list = find("ibv_get_device_list");
  *(void**)&get_device_name = find("ibv_get_device_name");
  *(void**)&open_device = find("ibv_open_device");
  *(void**)&query_device = find("ibv_query_device");
  *(void**)&close_device = find("ibv_close_device");
  if (dladdr(*(void**)&get_device_list, &info) == 0) return 1;
  printf("library %s\n", info.dli_fname);

  struct ibv_device** devices = get_device_list(NULL);
  for (int i = 0; devices != NULL && devices[i] != NULL; ++i) {
    struct ibv_device_attr attributes;
    struct ibv_context* context = open_device(devices[i]);
    if (context == NULL || query_device(context, &attributes) != 0) return 1;
    printf("device %s\n", get_device_name(devices[i]));
    if (close_device(context) != 0) return 1;
  }
  return 0;
}
