// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/notices.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/concat.h"

namespace uroce::io {

std::string text(const Notice& notice) {
  const std::string to = notice.to.is_unspecified() ? "" : " to " + notice.to.text();
  const std::string reason = std::generic_category().message(notice.error);
  switch (notice.what) {
    case Notice::What::kRunsRefused:
      return concat(
          "the kernel takes no runs of packets", to, " (", reason,
          "): they leave one by one, which is slower; runs are tried again after a second, then ever less often");
    case Notice::What::kTooLong:
      return concat("packets of ", notice.length, " bytes", to, " are longer than the path takes now (", reason,
                    "): they are lost; make its MTU larger again, or use a smaller path MTU");
  }
  return {};
}

Notices::Entry* Notices::find(Notice::What what, const wire::IpAddress& to) {
  Entry* const end = entries_.data() + count_.load(std::memory_order_relaxed);
  Entry* const found = std::find_if(
      entries_.data(), end, [&](const Entry& entry) { return entry.notice.what == what && entry.notice.to == to; });
  return found == end ? nullptr : found;
}

// What is looked at without the lock, nobody else changes.
void Notices::note(const Notice& notice) {
  Entry* const known = find(notice.what, notice.to);
  if (known != nullptr ? known->notice.length <= notice.length : count_ == kMost) return;
  std::lock_guard guard(lock_);
  if (known != nullptr) {
    known->notice.length = notice.length;
    return;
  }
  entries_[count_++] = {notice, false};
  fresh_ = true;
}

void Notices::end(Notice::What what, const wire::IpAddress& to, uint32_t length) {
  Entry* const known = find(what, to);
  if (known == nullptr || length < known->notice.length) return;
  std::lock_guard guard(lock_);
  *known = entries_[--count_];
}

std::vector<std::string> Notices::take() {
  std::vector<std::string> texts;
  if (!fresh_) return texts;
  std::array<Notice, kMost> fresh;
  size_t count = 0;
  {
    std::lock_guard guard(lock_);
    for (size_t i = 0; i < count_; ++i) {
      if (!std::exchange(entries_[i].taken, true)) fresh[count++] = entries_[i].notice;
    }
    fresh_ = false;
  }
  for (size_t i = 0; i < count; ++i) texts.push_back(text(fresh[i]));
  return texts;
}

}  // namespace uroce::io
