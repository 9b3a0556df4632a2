// SPDX-License-Identifier: BSD-2-Clause
// What liburoce.so exports: the symbols at the version nodes that releases of rdma-core have them at, and no others.
// The files in symbols/ say what those are: facts of rdma-core's debian/libibverbs1.symbols and
// libibverbs/libibverbs.map.in as tagged. And next to the libibverbs.so.1 of the system: the same answers of the
// functions that need no device.
#include <array>
#include <climits>
#include <cstdio>
#include <dlfcn.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <memory>
#include <set>
#include <sstream>
#include <string>

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

// "ibv_open_device IBVERBS_1.1", whether or not that is the default version.
std::set<std::string> without_parentheses(const std::set<std::string>& symbols) {
  std::set<std::string> plain;
  for (std::string symbol : symbols) {
    std::erase_if(symbol, [](char c) { return c == '(' || c == ')'; });
    plain.insert(symbol);
  }
  return plain;
}

std::set<std::string> symbols_of_release(const std::string& release) {
  std::ifstream file(SYMBOLS_DIRECTORY "/rdma-core-" + release + ".txt");
  std::set<std::string> symbols;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) symbols.insert(line);
  }
  return symbols;
}

TEST(Exports, AreTheSymbolsOfReleases) {
  std::set<std::string> ours;
  for (const std::string& symbol : without_parentheses(exports_of(UROCE_LIBRARY))) {
    const size_t space = symbol.find(' ');
    if (symbol.substr(0, space) != symbol.substr(space + 1)) ours.insert(symbol);  // else it is the node itself
  }
  std::set<std::string> released;
  for (const char* release : {"44", "50", "56", "57", "59", "62", "64", "65"}) {
    const std::set<std::string> theirs = symbols_of_release(release);
    ASSERT_GT(theirs.size(), 170u) << release;
    for (const std::string& symbol : theirs) EXPECT_TRUE(ours.count(symbol)) << symbol << " of " << release;
    released.insert(theirs.begin(), theirs.end());
  }
  for (const std::string& symbol : ours) EXPECT_TRUE(released.count(symbol)) << symbol << " is of no release";
}

// The judge is judged: the file of the release that the system has says what its library has.
TEST(Exports, SymbolFilesSayWhatALibraryHas) {
  const std::set<std::string> theirs = without_parentheses(exports_of(SYSTEM_LIBRARY));
  if (!theirs.count("verbs_register_driver_34 IBVERBS_PRIVATE_34") ||
      theirs.count("ibv_wr_opcode_str IBVERBS_PRIVATE_34")) {
    GTEST_SKIP() << SYSTEM_LIBRARY << " is not that of rdma-core 44";
  }
  for (const std::string& symbol : symbols_of_release("44")) EXPECT_TRUE(theirs.count(symbol)) << symbol;
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

  void* ours_ = nullptr;
  void* theirs_ = nullptr;

 private:
  static std::string text(const char* value) { return value; }
  static std::string text(int value) { return std::to_string(value); }
};

TEST_F(SameAnswers, Names) {
  for (const char* function : {"ibv_node_type_str", "ibv_port_state_str", "ibv_wc_status_str"}) {
    compare<const char*>(function, -2, 300);
    compare<const char*>(function, INT_MAX - 2, INT_MAX - 1);
  }
  compare<const char*>("ibv_event_type_str", -2, 19);
  compare<const char*>("ibv_event_type_str", 21, 300);
  const auto name_of_event = reinterpret_cast<const char* (*)(int)>(dlsym(ours_, "ibv_event_type_str"));
  EXPECT_STREQ(name_of_event(20), "Device link speed change") << "since rdma-core 62";
}

TEST_F(SameAnswers, Rates) {
  for (const char* function : {"ibv_rate_to_mult", "ibv_rate_to_mbps", "mult_to_ibv_rate", "mbps_to_ibv_rate"}) {
    compare<int>(function, -300, 1'300'000);
    compare<int>(function, INT_MIN, INT_MIN + 2);
    compare<int>(function, INT_MAX - 2, INT_MAX - 1);
  }
}

}  // namespace
