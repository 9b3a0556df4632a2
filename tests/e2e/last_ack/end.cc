// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/last_ack/end.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace uroce::last_ack {
namespace {

[[noreturn]] void gone() {
  for (;;) syscall(SYS_exit_group, 0);
}

void* poll_for_ever(void* endpoint) {
  for (;;) {
    static_cast<Endpoint*>(endpoint)->poll_once();
    pthread_testcancel();
  }
}

// A thread is cancelled while it polls, and nobody polls any more: the rest of the process lives on.
void cancel_a_thread(Endpoint& endpoint) {
  pthread_t thread;
  check(pthread_create(&thread, nullptr, poll_for_ever, &endpoint) == 0, "pthread_create");
  pthread_cancel(thread);
  pthread_join(thread, nullptr);
  const timespec second{1, 0};
  nanosleep(&second, nullptr);
}

void end_in_handler(int) {
  _exit(0);
}

// As a program that crashes, whose handler prints a trace and leaves.
void crash() {
  std::signal(SIGSEGV, end_in_handler);
  raise(SIGSEGV);
}

const std::map<std::string, std::function<void(Endpoint&)>> kEnds = {
    {"destroy", [](Endpoint& endpoint) { endpoint.destroy_qp(); }},
    {"error", [](Endpoint& endpoint) { endpoint.modify(IBV_QPS_ERR); }},
    {"reset", [](Endpoint& endpoint) { endpoint.modify(IBV_QPS_RESET); }},
    {"close", [](Endpoint& endpoint) { endpoint.close(); }},
    {"cancel", cancel_a_thread},
    {"exit", [](Endpoint&) { std::exit(0); }},
    {"_exit", [](Endpoint&) { _exit(0); }},
    {"_Exit", [](Endpoint&) { std::_Exit(0); }},
    {"quick_exit", [](Endpoint&) { std::quick_exit(0); }},
    {"handler", [](Endpoint&) { crash(); }},
    {"execv",
     [](Endpoint&) {
       std::array<char*, 2> arguments{const_cast<char*>("true"), nullptr};
       execv("/bin/true", arguments.data());
     }},
    {"execlp", [](Endpoint&) { execlp("true", "true", "--", nullptr); }},
    {"kill", [](Endpoint&) { kill(getpid(), SIGKILL); }},
};

}  // namespace

void check_name(const std::string& how) {
  check(kEnds.count(how) != 0, "no such end: " + how);
}

void end(const std::string& how, Endpoint& endpoint) {
  kEnds.at(how)(endpoint);
  gone();
}

}  // namespace uroce::last_ack
