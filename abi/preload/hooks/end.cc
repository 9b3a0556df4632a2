// SPDX-License-Identifier: BSD-2-Clause
// The end of the process where no exit handler runs: _exit(), quick_exit(), and exec, which makes it another program.
// An adapter acknowledges what it has received whatever becomes of the program; liburoce.so does so here. fork() and
// vfork() lead to most calls of these: a child costs nothing but a call.
#include <alloca.h>
#include <cstdarg>
#include <cstddef>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/preload/hooks/hook.h"

namespace uroce::files {
namespace {

using BeforeEnd = void(int exec);

// Found while nothing is wrong yet: a process may end in a signal handler.
BeforeEnd* before_end = nullptr;

[[gnu::constructor]] void find_before_end() {
  before_end = reinterpret_cast<BeforeEnd*>(dlsym(RTLD_DEFAULT, "uroce_before_end"));
}

void exits() {
  if (before_end != nullptr) before_end(0);
}
void executes() {
  const int error = errno;
  if (before_end != nullptr) before_end(1);
  errno = error;
}

}  // namespace

#define UROCE_EXIT_HOOK(name)                     \
  UROCE_HOOK(void, name, int status) {            \
    static constinit Next<void(int)> next(#name); \
    exits();                                      \
    next(status);                                 \
    for (;;) syscall(SYS_exit_group, status);     \
  }

UROCE_EXIT_HOOK(_exit)
UROCE_EXIT_HOOK(_Exit)
UROCE_EXIT_HOOK(quick_exit)

using Strings = char* const*;

UROCE_HOOK(int, execve, const char* path, Strings arguments, Strings environment) {
  static constinit Next<int(const char*, Strings, Strings)> next("execve");
  executes();
  return next(path, arguments, environment);
}
UROCE_HOOK(int, execv, const char* path, Strings arguments) {
  static constinit Next<int(const char*, Strings)> next("execv");
  executes();
  return next(path, arguments);
}
UROCE_HOOK(int, execvp, const char* file, Strings arguments) {
  static constinit Next<int(const char*, Strings)> next("execvp");
  executes();
  return next(file, arguments);
}
UROCE_HOOK(int, execvpe, const char* file, Strings arguments, Strings environment) {
  static constinit Next<int(const char*, Strings, Strings)> next("execvpe");
  executes();
  return next(file, arguments, environment);
}
UROCE_HOOK(int, fexecve, int fd, Strings arguments, Strings environment) {
  static constinit Next<int(int, Strings, Strings)> next("fexecve");
  executes();
  return next(fd, arguments, environment);
}
UROCE_HOOK(int, execveat, int directory, const char* path, Strings arguments, Strings environment, int flags) {
  static constinit Next<int(int, const char*, Strings, Strings, int)> next("execveat");
  executes();
  return next(directory, path, arguments, environment, flags);
}

// execl(path, argument, ..., nullptr): on the stack they become what execv() takes. Defines `array`, and `rest` behind
// the null pointer. As macros, since what alloca() gives lives as long as the function.
#define UROCE_ARGUMENTS(first)                                                               \
  size_t count = 0;                                                                          \
  va_list rest;                                                                              \
  va_start(rest, first);                                                                     \
  for (const char* each = first; each != nullptr; each = va_arg(rest, const char*)) ++count; \
  va_end(rest);                                                                              \
  auto** const array = static_cast<char**>(alloca((count + 1) * sizeof(char*)));             \
  array[0] = const_cast<char*>(first);                                                       \
  va_start(rest, first);                                                                     \
  for (size_t i = 1; i <= count; ++i) array[i] = va_arg(rest, char*)

UROCE_HOOK(int, execl, const char* path, const char* first, ...) {
  static constinit Next<int(const char*, Strings)> next("execv");
  UROCE_ARGUMENTS(first);
  va_end(rest);
  executes();
  return next(path, array);
}
UROCE_HOOK(int, execlp, const char* file, const char* first, ...) {
  static constinit Next<int(const char*, Strings)> next("execvp");
  UROCE_ARGUMENTS(first);
  va_end(rest);
  executes();
  return next(file, array);
}
UROCE_HOOK(int, execle, const char* path, const char* first, ...) {
  static constinit Next<int(const char*, Strings, Strings)> next("execve");
  UROCE_ARGUMENTS(first);
  auto* const environment = va_arg(rest, Strings);
  va_end(rest);
  executes();
  return next(path, array, environment);
}

}  // namespace uroce::files
