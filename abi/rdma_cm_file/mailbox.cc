// SPDX-License-Identifier: BSD-2-Clause
#include "abi/rdma_cm_file/mailbox.h"

#include <cerrno>
#include <new>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/fork.h"

namespace uroce::rdma_cm {

Mailbox::Mailbox() {
  ForkGuard guard;
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  guard.close_in_children(wake_);
}

Mailbox::~Mailbox() {
  ForkGuard().close(wake_);
}

void Mailbox::put(const Letter& letter) {
  try {
    const std::lock_guard guard(lock_);
    letters_.push_back(letter);
  } catch (const std::bad_alloc&) {
    return;
  }
  wake();
}

void Mailbox::network_has_changed() {
  if (!network_changed_.exchange(true)) wake();
}

void Mailbox::wake() {
  eventfd_write(wake_, 1);
}

void Mailbox::end() {
  ended_ = true;
  wake();
}

std::vector<Mailbox::Letter> Mailbox::take() {
  eventfd_t count = 0;
  eventfd_read(wake_, &count);
  const std::lock_guard guard(lock_);
  return std::exchange(letters_, {});
}

}  // namespace uroce::rdma_cm
