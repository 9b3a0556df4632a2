// liburoce.so next to the libibverbs.so.1 of the system: the same symbols at the same versions, and for the functions
// that need no device the same answers.
#include <array>
#include <cstdio>
#include <dlfcn.h>
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

TEST(Exports, HaveTheNewerNodesToo) {
  const std::set<std::string> ours = exports_of(UROCE_LIBRARY);
  EXPECT_TRUE(ours.count("ibv_reg_mr_ex IBVERBS_1.15"));
  EXPECT_TRUE(ours.count("ibv_query_port_speed IBVERBS_1.16"));
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
  compare<const char*>("ibv_node_type_str", -2, 20);
  compare<const char*>("ibv_port_state_str", -2, 20);
  compare<const char*>("ibv_event_type_str", -2, 40);
  compare<const char*>("ibv_wc_status_str", -2, 40);
}

TEST_F(SameAnswers, Rates) {
  compare<int>("ibv_rate_to_mult", -2, 40);
  compare<int>("ibv_rate_to_mbps", -2, 40);
  compare<int>("mult_to_ibv_rate", -2, 600);
  compare<int>("mbps_to_ibv_rate", -2, 1'300'000);
}

}  // namespace
