// liburoce.so next to the libibverbs.so.1 of the system: the same symbols at the same versions, and for the functions
// that need no device the same answers.
#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> buffer;
  while (pipe != nullptr && fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) text += buffer.data();
  return text;
}

// "ibv_open_device (IBVERBS_1.0)" for all that a library defines; parentheses mark versions that are not the default.
std::set<std::string> exports_of(const std::string& library) {
  std::set<std::string> symbols;
  std::istringstream lines(output_of("objdump -T " + library));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("*UND*") != std::string::npos) continue;
    std::istringstream words(line);
    std::string word, version, name;
    while (words >> word) {
      version = name;
      name = word;
    }
    if (version.find("IBVERBS_") != std::string::npos) symbols.insert(name + " " + version);
  }
  return symbols;
}

TEST(Exports, HaveEverySymbolOfTheSystemLibrary) {
  const std::set<std::string> theirs = exports_of(SYSTEM_LIBRARY);
  ASSERT_GT(theirs.size(), 100u) << "objdump -T " << SYSTEM_LIBRARY;
  const std::set<std::string> ours = exports_of(UROCE_LIBRARY);
  for (const std::string& symbol : theirs) EXPECT_TRUE(ours.count(symbol)) << symbol;
}

TEST(Exports, HaveTheNewerNodesToo) {
  const std::set<std::string> ours = exports_of(UROCE_LIBRARY);
  const std::pair<const char*, std::vector<const char*>> kNodes[] = {
      {"IBVERBS_1.15", {"ibv_alloc_dmah", "ibv_dealloc_dmah", "ibv_reg_mr_ex"}},
      {"IBVERBS_1.16", {"ibv_dm_export_dmabuf_fd", "ibv_query_port_speed"}},
      {"IBVERBS_1.17", {"ibv_alloc_buf", "ibv_free_buf", "ibv_reg_buf_mr"}},
      {"IBVERBS_1.18",
       {"ibv_create_comp_cntr", "ibv_destroy_comp_cntr", "ibv_set_comp_cntr", "ibv_set_err_comp_cntr",
        "ibv_inc_comp_cntr", "ibv_inc_err_comp_cntr", "ibv_read_comp_cntr", "ibv_read_err_comp_cntr",
        "ibv_qp_attach_comp_cntr", "ibv_query_comp_cntr_caps", "ibv_export_buf_dmabuf_fd"}},
  };
  for (const auto& [node, symbols] : kNodes) {
    for (const char* symbol : symbols) EXPECT_TRUE(ours.count(std::string(symbol) + " " + node)) << symbol;
  }
}

// Programs linked with libmlx5 or libefa of a newer rdma-core ask for the private symbols under another node: all that
// the system's library has at its own, and those that came later.
TEST(Exports, HaveThePrivateSymbolsUnderNewerNodes) {
  const std::set<std::string> ours = exports_of(UROCE_LIBRARY);
  const std::string kOlder = " IBVERBS_PRIVATE_34";
  size_t count = 0;
  for (const std::string& symbol : exports_of(SYSTEM_LIBRARY)) {
    const size_t end = symbol.size() - std::min(symbol.size(), kOlder.size());
    if (symbol.compare(end, std::string::npos, kOlder) != 0) continue;
    const std::string name = symbol.substr(0, end);
    if (name == "verbs_register_driver_34" || name == "IBVERBS_PRIVATE_34") continue;
    ++count;
    for (const char* node : {"57", "59", "64", "65"}) {
      EXPECT_TRUE(ours.count(name + " (IBVERBS_PRIVATE_" + node + ")")) << name << " " << node;
    }
  }
  EXPECT_GT(count, 60u);
  for (const std::string node : {"57", "59", "64", "65"}) {
    EXPECT_TRUE(ours.count("verbs_register_driver_" + node + " IBVERBS_PRIVATE_" + node));
    const bool first = node == "57";
    for (const char* name : {"ibv_cmd_create_cq_ex2", "ibv_cmd_reg_mr_ex", "ibv_dmabuf_heap_alloc"}) {
      EXPECT_TRUE(ours.count(std::string(name) + (first ? " IBVERBS_PRIVATE_57" : " (IBVERBS_PRIVATE_" + node + ")")));
    }
  }
}

TEST(Exports, AreNothingElse) {
  std::istringstream lines(output_of("nm -D --defined-only " UROCE_LIBRARY));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, testing::AnyOf(testing::HasSubstr("IBVERBS_"), testing::HasSubstr("UROCE_1")));
  }
}

TEST(Exports, ComeUnderTheNameOfLibibverbs) {
  EXPECT_THAT(output_of("objdump -p " UROCE_LIBRARY), testing::ContainsRegex("SONAME +libibverbs.so.1\n"));
}

// Both libraries side by side in this process.
class SameAnswers : public testing::Test {
 protected:
  static void* open(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    return library;
  }
  void SetUp() override {
    ours_ = open(UROCE_LIBRARY);
    theirs_ = open(SYSTEM_LIBRARY);
    ASSERT_TRUE(ours_ != nullptr && theirs_ != nullptr);
  }

  template <class Result>
  void compare(const char* function, int from, int to) {
    using Function = Result (*)(int);
    const auto our_function = reinterpret_cast<Function>(dlsym(ours_, function));
    const auto their_function = reinterpret_cast<Function>(dlsym(theirs_, function));
    ASSERT_TRUE(our_function != nullptr && their_function != nullptr && our_function != their_function);
    for (int i = from; i <= to; ++i) {
      ASSERT_EQ(std::string(text(our_function(i))), text(their_function(i))) << function << "(" << i << ")";
    }
  }

 private:
  static std::string text(const char* value) { return value; }
  static std::string text(int value) { return std::to_string(value); }

  void* ours_ = nullptr;
  void* theirs_ = nullptr;
};

TEST_F(SameAnswers, Names) {
  for (const char* function : {"ibv_node_type_str", "ibv_port_state_str", "ibv_event_type_str", "ibv_wc_status_str"}) {
    compare<const char*>(function, -2, 300);
    compare<const char*>(function, INT_MAX - 2, INT_MAX - 1);
  }
}

TEST_F(SameAnswers, Rates) {
  for (const char* function : {"ibv_rate_to_mult", "ibv_rate_to_mbps", "mult_to_ibv_rate", "mbps_to_ibv_rate"}) {
    compare<int>(function, -300, 1'300'000);
    compare<int>(function, INT_MIN, INT_MIN + 2);
    compare<int>(function, INT_MAX - 2, INT_MAX - 1);
  }
}

}  // namespace
