// SPDX-License-Identifier: BSD-2-Clause
// How glibc's functions are replaced. UROCE_HOOK defines the function of that name, under another one within C++, so
// that it does not meet the declarations of glibc's headers; Next finds what it replaces. Used by the hooks_*.cc.
//
// Hooks run before any constructor has: what they use is initialised at compile time.
#pragma once

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <type_traits>
#include <utility>

#define UROCE_HOOK(result, name, ...)                                                             \
  extern "C" [[gnu::visibility("default")]] result uroce_hook_##name(__VA_ARGS__) __asm__(#name); \
  extern "C" result uroce_hook_##name(__VA_ARGS__)

// int stat(const char* path, A): the path may be another one, what else there is passes. Numbers: of arguments behind
// it.
#define UROCE_PATH_HOOK_0(result, name)                     \
  UROCE_HOOK(result, name, const char* path) {              \
    static constinit Next<result(const char*)> next(#name); \
    return next(Redirect(path).path());                     \
  }
#define UROCE_PATH_HOOK_1(result, name, A)                     \
  UROCE_HOOK(result, name, const char* path, A a) {            \
    static constinit Next<result(const char*, A)> next(#name); \
    return next(Redirect(path).path(), a);                     \
  }
#define UROCE_PATH_HOOK_2(result, name, A, B)                     \
  UROCE_HOOK(result, name, const char* path, A a, B b) {          \
    static constinit Next<result(const char*, A, B)> next(#name); \
    return next(Redirect(path).path(), a, b);                     \
  }
#define UROCE_PATH_HOOK_3(result, name, A, B, C)                     \
  UROCE_HOOK(result, name, const char* path, A a, B b, C c) {        \
    static constinit Next<result(const char*, A, B, C)> next(#name); \
    return next(Redirect(path).path(), a, b, c);                     \
  }
// int fstatat(int directory, const char* path, A, B): the same with a directory in front.
#define UROCE_AT_HOOK_2(result, name, A, B)                             \
  UROCE_HOOK(result, name, int directory, const char* path, A a, B b) { \
    static constinit Next<result(int, const char*, A, B)> next(#name);  \
    return next(directory, Redirect(directory, path).path(), a, b);     \
  }
#define UROCE_AT_HOOK_3(result, name, A, B, C)                               \
  UROCE_HOOK(result, name, int directory, const char* path, A a, B b, C c) { \
    static constinit Next<result(int, const char*, A, B, C)> next(#name);    \
    return next(directory, Redirect(directory, path).path(), a, b, c);       \
  }

namespace uroce::files {

// The function of that name behind ours: glibc's, or that of another preloaded library.
template <class Function>
class Next {
 public:
  // `version`: glibc has several of that name, and this is the one that programs are linked to today.
  constexpr explicit Next(const char* name, const char* version = nullptr) : name_(name), version_(version) {}

  template <class... Arguments>
  auto operator()(Arguments... arguments) {
    using Result = decltype(std::declval<Function*>()(arguments...));
    Function* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) function = find();
    if (function != nullptr) return function(arguments...);
    errno = ENOSYS;  // a glibc without it: no program has been linked to it either
    if constexpr (std::is_pointer_v<Result>) {
      return Result(nullptr);
    } else {
      return Result(-1);
    }
  }

 private:
  Function* find() {
    const int error = errno;
    void* found = version_ == nullptr ? nullptr : dlvsym(RTLD_NEXT, name_, version_);
    if (found == nullptr) found = dlsym(RTLD_NEXT, name_);
    auto* function = reinterpret_cast<Function*>(found);
    function_.store(function, std::memory_order_relaxed);
    errno = error;
    return function;
  }

  const char* name_;
  const char* version_;
  std::atomic<Function*> function_{nullptr};
};

}  // namespace uroce::files
