// SPDX-License-Identifier: BSD-2-Clause
// What the soak has made and not destroyed, and who uses what: so it knows whether a destroy function has to say EBUSY.
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>
#include <initializer_list>
#include <memory>
#include <vector>

#include "tests/stress/random.h"
#include "tests/stress/report.h"

namespace uroce::stress {

// A verbs object with a count of those that keep it from going.
template <class T>
struct Object {
  T* verbs = nullptr;
  int users = 0;
  std::vector<int*> uses;  // the counts of those that it uses itself
  ~Object() {
    for (int* count : uses) --*count;
  }
  void use(int& count) {
    ++count;
    uses.push_back(&count);
  }
};

template <class T>
class Pool {
 public:
  explicit Pool(size_t most) : most_(most) {}
  bool full() const { return all_.size() >= most_; }
  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  Object<T>& add(T* verbs) {
    all_.push_back(std::make_unique<Object<T>>());
    all_.back()->verbs = verbs;
    return *all_.back();
  }
  // Null if there is none.
  Object<T>* any(Random& random) {
    return all_.empty() ? nullptr : all_[random.below(static_cast<uint32_t>(all_.size()))].get();
  }
  Object<T>* first() { return all_.empty() ? nullptr : all_.front().get(); }
  void remove(Object<T>* object) {
    std::erase_if(all_, [object](const auto& candidate) { return candidate.get() == object; });
  }

 private:
  size_t most_;
  std::vector<std::unique_ptr<Object<T>>> all_;  // addresses stay
};

struct Objects {
  explicit Objects(Random& numbers) : random(numbers) {}

  Random& random;
  std::vector<ibv_context*> contexts;
  std::vector<uint8_t> arena = std::vector<uint8_t>(1 << 20);  // where random requests read and write
  Pool<ibv_pd> pds{8}, parents{4};
  Pool<ibv_td> tds{4};
  Pool<ibv_comp_channel> channels{4};
  Pool<ibv_cq> cqs{12};
  Pool<ibv_xrcd> xrcds{4};
  Pool<ibv_srq> srqs{8}, xrc_srqs{4};
  Pool<ibv_mr> mrs{24};
  Pool<ibv_mw> mws{8};
  Pool<ibv_dm> dms{4};
  Pool<ibv_ah> ahs{8};
  Pool<ibv_qp> qps{32};
  std::vector<uint32_t> stale_keys{0, 1, 0xffffffff};
  Activity activity;
  uint64_t successes = 0, failures = 0, busy = 0, transfers = 0;

  ibv_context* context() { return contexts[random.below(static_cast<uint32_t>(contexts.size()))]; }
  // Of the context if there is one, else any: null if there is none at all.
  Object<ibv_pd>* pd() { return random.one_in(5) && !parents.empty() ? parents.any(random) : pds.any(random); }
};

// Judges an answer: 0 or one of these errno values. True: it was 0.
bool judge(Objects& objects, const char* what, int result, std::initializer_list<int> allowed);
// Likewise of a function that makes something.
bool judge_made(Objects& objects, const char* what, const void* made, std::initializer_list<int> allowed);
// Of one that destroys: EBUSY exactly if it is in use. True: it went.
bool judge_gone(Objects& objects, const char* what, int result, int users);

// One random call, or a few that belong together.
void random_call(Objects& objects);         // soak_calls.cc
void destroy_everything(Objects& objects);  // soak_calls.cc: in an order in which all has to go
void random_query(Objects& objects);        // soak_queries.cc
void random_work(Objects& objects);         // soak_work.cc: requests, completions, state changes
void transfer(Objects& objects);            // soak_work.cc: a valid one, data checked

}  // namespace uroce::stress
