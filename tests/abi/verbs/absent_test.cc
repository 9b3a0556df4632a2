// SPDX-License-Identifier: BSD-2-Clause
// What is not there says so: slots of the dispatch tables, functions that are not supported, the private symbols of
// rdma-core's providers and the entry points of the ABI before 2007. Together with the other tests this calls
// everything that the library exports; verbs_table.py holds it to that and takes the answers from here.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "fixture.h"

namespace {

using Any = void*;

// For the table, if it is being made.
void note_answer(const std::string& name, int error) {
  const char* const path = getenv("UROCE_TRACE");
  if (path == nullptr) return;
  std::ofstream(path, std::ios::app) << "answer " << name << ' ' << strerrorname_np(error) << ' '
                                     << getenv("UROCE_TRACE_TEST") << '\n';
}

void expect_absent(const std::string& name, int error) {
  EXPECT_TRUE(error == EOPNOTSUPP || error == ENOSYS) << name << ": " << std::strerror(error);
  note_answer(name, error);
}

void expect_absent(const std::string& name, const void* made) {
  EXPECT_EQ(made, nullptr) << name;
  expect_absent(name, errno);
}

using AbsentTest = ConnectedTest;

TEST_F(AbsentTest, WorkQueues) {
  ibv_wq_init_attr attr{};
  expect_absent("create_wq", ibv_create_wq(client_.context, &attr));
  ibv_rwq_ind_table_init_attr table_attr{};
  expect_absent("create_rwq_ind_table", ibv_create_rwq_ind_table(client_.context, &table_attr));
  ibv_wq wq{};
  wq.context = client_.context;
  ibv_wq_attr change{};
  expect_absent("modify_wq", ibv_modify_wq(&wq, &change));
  expect_absent("destroy_wq", ibv_destroy_wq(&wq));
  ibv_rwq_ind_table table{};
  table.context = client_.context;
  expect_absent("destroy_rwq_ind_table", ibv_destroy_rwq_ind_table(&table));
}

TEST_F(AbsentTest, FlowsAndCounters) {
  ibv_flow_attr flow_attr{};
  expect_absent("ibv_create_flow", ibv_create_flow(a_, &flow_attr));
  ibv_flow flow{};
  flow.context = client_.context;
  expect_absent("ibv_destroy_flow", ibv_destroy_flow(&flow));
  ibv_flow_action_esp_attr esp{};
  expect_absent("create_flow_action_esp", ibv_create_flow_action_esp(client_.context, &esp));
  ibv_flow_action action{};
  action.context = client_.context;
  expect_absent("modify_flow_action_esp", ibv_modify_flow_action_esp(&action, &esp));
  expect_absent("destroy_flow_action", ibv_destroy_flow_action(&action));
  ibv_counters_init_attr attr{};
  expect_absent("create_counters", ibv_create_counters(client_.context, &attr));
  ibv_counters counters{};
  counters.context = client_.context;
  ibv_counter_attach_attr attach{};
  expect_absent("attach_counters_point_flow", ibv_attach_counters_point_flow(&counters, &attach, &flow));
  uint64_t values[1];
  expect_absent("read_counters", ibv_read_counters(&counters, values, 1, 0));
  expect_absent("destroy_counters", ibv_destroy_counters(&counters));
}

TEST_F(AbsentTest, TagMatchingRateLimitsAndSegmentation) {
  ibv_srq_init_attr attr{nullptr, {1, 1, 0}};
  ibv_srq* srq = ibv_create_srq(client_.pd, &attr);
  ASSERT_NE(srq, nullptr);
  ibv_ops_wr operation{};
  ibv_ops_wr* bad = nullptr;
  expect_absent("post_srq_ops", ibv_post_srq_ops(srq, &operation, &bad));
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  ibv_qp_rate_limit_attr limit{};
  expect_absent("modify_qp_rate_limit", ibv_modify_qp_rate_limit(a_, &limit));
  ibv_cq_init_attr_ex cq_attr{};
  cq_attr.cqe = 1;
  cq_attr.wc_flags = IBV_WC_EX_WITH_TM_INFO;
  expect_absent("read_tm_info", ibv_create_cq_ex(client_.context, &cq_attr));
  ibv_qp_init_attr plain = client_qp_attributes(cq_);
  ibv_qp_init_attr_ex qp_attr{};
  std::memcpy(&qp_attr, &plain, sizeof(plain));
  qp_attr.pd = client_.pd;
  qp_attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  qp_attr.send_ops_flags = IBV_QP_EX_WITH_TSO;
  expect_absent("wr_send_tso", ibv_create_qp_ex(client_.context, &qp_attr));
}

// Those of newer releases, and the exports of this one that stand for nothing.
TEST_F(AbsentTest, Functions) {
  const auto dealloc_dmah = reinterpret_cast<int (*)(Any)>(dlvsym(RTLD_DEFAULT, "ibv_dealloc_dmah", "IBVERBS_1.15"));
  const auto alloc_dmah = reinterpret_cast<Any (*)(Any, Any)>(dlvsym(RTLD_DEFAULT, "ibv_alloc_dmah", "IBVERBS_1.15"));
  const auto export_dm =
      reinterpret_cast<int (*)(Any)>(dlvsym(RTLD_DEFAULT, "ibv_dm_export_dmabuf_fd", "IBVERBS_1.16"));
  ASSERT_TRUE(dealloc_dmah != nullptr && alloc_dmah != nullptr && export_dm != nullptr);
  expect_absent("ibv_dealloc_dmah", dealloc_dmah(nullptr));
  expect_absent("ibv_alloc_dmah", alloc_dmah(client_.context, nullptr));
  EXPECT_EQ(export_dm(nullptr), -1);
  expect_absent("ibv_dm_export_dmabuf_fd", errno);
}

// Of rdma-core 65. None of them takes a counter, since there is none.
TEST_F(AbsentTest, CompletionCounters) {
  const auto function = [](const char* name) {
    void* const found = dlvsym(RTLD_DEFAULT, name, "IBVERBS_1.18");
    EXPECT_NE(found, nullptr) << name;
    return found;
  };
  const auto create = reinterpret_cast<Any (*)(Any, Any)>(function("ibv_create_comp_cntr"));
  expect_absent("ibv_create_comp_cntr", create(client_.context, nullptr));
  for (const char* name : {"_ibv_query_comp_cntr_caps", "ibv_destroy_comp_cntr", "ibv_set_comp_cntr",
                           "ibv_set_err_comp_cntr", "ibv_inc_comp_cntr", "ibv_inc_err_comp_cntr", "ibv_read_comp_cntr",
                           "ibv_read_err_comp_cntr", "ibv_qp_attach_comp_cntr"}) {
    expect_absent(name, reinterpret_cast<int (*)(Any, Any, Any)>(function(name))(nullptr, nullptr, nullptr));
  }
  const auto export_buffer = reinterpret_cast<int (*)(Any)>(function("ibv_export_buf_dmabuf_fd"));
  EXPECT_EQ(export_buffer(nullptr), -1);
  expect_absent("ibv_export_buf_dmabuf_fd", errno);
}

struct Symbol {
  std::string name, node;
};

// The functions that a program can only ask for by an old or a private version, as objdump lists them.
std::vector<Symbol> hidden_symbols() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&ibv_get_device_list), &info) == 0) return {};
  const std::string command = std::string("LD_PRELOAD= objdump -T ") + info.dli_fname;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<Symbol> symbols;
  char line[512];
  while (pipe != nullptr && fgets(line, sizeof(line), pipe.get()) != nullptr) {
    std::istringstream words(line);
    std::string word, node, name;
    while (words >> word) {
      node = name;
      name = word;
    }
    const bool hidden = node.find("(IBVERBS_1.") == 0 || node.find("IBVERBS_PRIVATE_") < 2;
    if (!hidden || std::strstr(line, " DF ") == nullptr) continue;
    if (node[0] == '(') node = node.substr(1, node.size() - 2);
    symbols.push_back({name, node});
  }
  return symbols;
}

// A function of these answers with an errno value, with null and errno, or not at all.
TEST_F(AbsentTest, PrivateSymbolsAndThoseBefore2007) {
  const std::vector<Symbol> symbols = hidden_symbols();
  ASSERT_GT(symbols.size(), 300u) << "objdump -T";
  for (const auto& [name, node] : symbols) {
    if (name == "ibv_query_gid_type") continue;  // works: below
    void* const found = dlvsym(RTLD_DEFAULT, name.c_str(), node.c_str());
    ASSERT_NE(found, nullptr) << name << "@" << node;
    reinterpret_cast<Any (*)()>(found)();  // whatever it returns, it takes no arguments here
  }
  const auto stub = reinterpret_cast<int (*)()>(dlvsym(RTLD_DEFAULT, "ibv_cmd_reg_mr", "IBVERBS_PRIVATE_34"));
  EXPECT_EQ(stub(), EOPNOTSUPP);
  const auto old = reinterpret_cast<Any (*)()>(dlvsym(RTLD_DEFAULT, "ibv_open_device", "IBVERBS_1.0"));
  errno = 0;
  EXPECT_EQ(old(), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  for (const char* node : {"34", "57", "59", "64", "65"}) {
    const std::string version = std::string("IBVERBS_PRIVATE_") + node;
    const auto query = reinterpret_cast<int (*)(ibv_context*, uint8_t, unsigned, int*)>(
        dlvsym(RTLD_DEFAULT, "ibv_query_gid_type", version.c_str()));
    ASSERT_NE(query, nullptr) << version;
    int type = -1;
    EXPECT_EQ(query(client_.context, 1, 0, &type), 0) << version;
    EXPECT_EQ(type, 1) << "RoCE v2";
  }
}

}  // namespace
