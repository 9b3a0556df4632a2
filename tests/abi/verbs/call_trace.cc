// SPDX-License-Identifier: BSD-2-Clause
// Loaded in front of liburoce.so, it stands between a program and every function and slot of the library, and writes
// down what the program calls: only what is entered from outside counts, not what the library calls itself. UROCE_TRACE
// names the file; each function or slot gets one line per process: its name, and the test that was the first to call it
// (UROCE_TRACE_TEST). verbs_table.py makes the list of what there is to call, and reads what was called.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace {

using Word = uintptr_t;  // an argument or an answer: numbers and pointers alike, and no function has more than eight
using Function = Word (*)(Word, Word, Word, Word, Word, Word, Word, Word);
using LookAt = void (*)(Word answer);

struct Entry {
  const char* name;              // "ibv_open_device@IBVERBS_1.1", "ibv_cq_ex.start_poll"
  LookAt look_at;                // for what returns an object with slots
  const char* symbol = nullptr;  // of an export
  const char* node = nullptr;
  std::atomic<Function> function = nullptr;
  std::atomic<bool> called = false;
};

thread_local int depth = 0;  // of calls: what the library calls itself is deeper than one

// Neither errno nor a cancellation is this library's business.
void write_down(const char* what, const char* name) {
  const char* const path = getenv("UROCE_TRACE");
  const char* const test = getenv("UROCE_TRACE_TEST");
  if (path == nullptr || test == nullptr) return;
  const int error = errno;
  int cancellation = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file >= 0) {
    dprintf(file, "%s %s %s\n", what, name, test);
    close(file);
  }
  pthread_setcancelstate(cancellation, nullptr);
  errno = error;
}

// The library's own. Exports are looked up late: the constructors of other libraries call some before ours could run.
Function function_of(Entry& entry) {
  Function function = entry.function.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function>(dlvsym(RTLD_NEXT, entry.symbol, entry.node));
    entry.function.store(function, std::memory_order_relaxed);
  }
  return function;
}

Word pass_on(Entry& entry, Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h) {
  if (depth++ == 0 && !entry.called.exchange(true, std::memory_order_relaxed)) write_down("call", entry.name);
  const Word answer = function_of(entry)(a, b, c, d, e, f, g, h);
  --depth;
  if (entry.look_at != nullptr && answer != 0) entry.look_at(answer);
  return answer;
}

void look_at_completion_queue(Word cq);
void look_at_device_memory(Word memory);
void look_at_queue_pair(Word qp);
void look_at_context(Word object);

constexpr struct {
  std::string_view name;
  LookAt look_at;
} kMakers[] = {
    {"ibv_open_device@IBVERBS_1.1", look_at_context},         {"ibv_import_device@IBVERBS_1.10", look_at_context},
    {"ibv_qp_to_qp_ex@IBVERBS_1.6", look_at_queue_pair},      {"ibv_import_dm@IBVERBS_1.13", look_at_device_memory},
    {"verbs_context.create_cq_ex", look_at_completion_queue}, {"verbs_context.alloc_dm", look_at_device_memory},
};

constexpr LookAt look_at_of(std::string_view name) {
  for (const auto& maker : kMakers) {
    if (maker.name == name) return maker.look_at;
  }
  return nullptr;
}

// Slots: where an object of the library has one, this library's function is put into it.

struct Slot {
  std::string_view table;
  size_t offset;
};

constexpr Slot kSlots[] = {
#define UROCE_EXPORT(index, name, node, symbol)
#define UROCE_SLOT(table, slot) {#table, offsetof(table, slot)},
#define UROCE_SLOT_AT_END(table, slot) {#table, sizeof(table)},
#include "call_trace_list.inc"
#undef UROCE_SLOT
#undef UROCE_SLOT_AT_END
};

constinit Entry slots[] = {
#define UROCE_SLOT(table, slot) {#table "." #slot, look_at_of(#table "." #slot)},
#define UROCE_SLOT_AT_END UROCE_SLOT
#include "call_trace_list.inc"
#undef UROCE_SLOT
#undef UROCE_SLOT_AT_END
#undef UROCE_EXPORT
};

template <size_t kIndex>
Word slot_function(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h) {
  return pass_on(slots[kIndex], a, b, c, d, e, f, g, h);
}

template <size_t... kIndices>
constexpr std::array<Function, sizeof...(kIndices)> all_slot_functions(std::index_sequence<kIndices...>) {
  return {slot_function<kIndices>...};
}

constexpr auto kSlotFunctions = all_slot_functions(std::make_index_sequence<std::size(kSlots)>());

void take_slot(size_t index, Function& slot) {
  if (slot == nullptr || slot == kSlotFunctions[index]) return;
  Function before = nullptr;
  if (slots[index].function.compare_exchange_strong(before, slot)) {
    write_down("slot", slots[index].name);
  } else if (before != slot) {
    fprintf(stderr, "call_trace: %s has two functions\n", slots[index].name);
    abort();
  }
  slot = kSlotFunctions[index];
}

void take_slots(std::string_view table, Word object) {
  for (size_t i = 0; i < std::size(kSlots); ++i) {
    if (kSlots[i].table == table) take_slot(i, *reinterpret_cast<Function*>(object + kSlots[i].offset));
  }
}

void look_at_completion_queue(Word cq) {
  take_slots("ibv_cq_ex", cq);
}

void look_at_device_memory(Word memory) {
  take_slots("ibv_dm", memory);
}

void look_at_queue_pair(Word qp) {
  take_slots("ibv_qp_ex", qp);
}

void look_at_context(Word object) {
  auto* const context = reinterpret_cast<ibv_context*>(object);
  take_slots("ibv_context_ops", reinterpret_cast<Word>(&context->ops));
  take_slots("verbs_context", reinterpret_cast<Word>(verbs_get_ctx(context)));
}

// Exports: this library has functions of the same names and versions, which are found first.

constinit Entry exports[] = {
#define UROCE_SLOT(table, slot)
#define UROCE_SLOT_AT_END(table, slot)
#define UROCE_EXPORT(index, name, node, symbol) {name "@" node, look_at_of(name "@" node), name, node},
#include "call_trace_list.inc"
#undef UROCE_EXPORT
};

}  // namespace

extern "C" {

#define UROCE_EXPORT(index, name, node, symbol)                                         \
  Word export_##index(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h) { \
    return pass_on(exports[index], a, b, c, d, e, f, g, h);                             \
  }                                                                                     \
  __asm__(".symver export_" #index "," symbol);
#include "call_trace_list.inc"

}  // extern "C"
