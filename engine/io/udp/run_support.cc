// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/run_support.h"

#include <cerrno>
#include <utility>

namespace uroce::io {

bool RunSupport::pauses(const wire::IpAddress& to) const {
  if (doubt_ && doubt_->to == to) return true;
  const Clock::time_point now = now_();
  const Destination* const known = find(to);
  return now < all_.end || (known != nullptr && now < known->pause.end);
}

// EINVAL is about the option, everything else about the route.
void RunSupport::settle(bool sent_alone) {
  const Doubt doubt = *std::exchange(doubt_, std::nullopt);
  if (!sent_alone) return;
  ++refusals_;
  Pause* const pause = doubt.error == EINVAL ? nullptr : pause_of(doubt.to);
  (pause != nullptr ? *pause : all_).extend(now_());
  notices_.note({.what = Notice::What::kRunsRefused,
                 .to = pause != nullptr ? doubt.to : wire::IpAddress{},
                 .error = doubt.error});
}

// A run has left for `to`.
void RunSupport::resume(const wire::IpAddress& to) {
  all_ = {};
  notices_.end(Notice::What::kRunsRefused, {});
  if (const Destination* const known = find(to)) {
    destinations_[static_cast<size_t>(known - destinations_.data())] = destinations_[--count_];
    notices_.end(Notice::What::kRunsRefused, to);
  }
}

// Null: all places are taken by pauses that go on.
RunSupport::Pause* RunSupport::pause_of(const wire::IpAddress& to) {
  Destination* place = const_cast<Destination*>(find(to));
  if (place != nullptr) return &place->pause;
  if (count_ < kDestinations) {
    place = &destinations_[count_++];
  } else {
    const Clock::time_point now = now_();
    place = std::find_if(destinations_.begin(), destinations_.end(), [=](const auto& d) { return d.pause.end <= now; });
    if (place == destinations_.end()) return nullptr;
  }
  *place = {to, {}};
  return &place->pause;
}

const RunSupport::Destination* RunSupport::find(const wire::IpAddress& to) const {
  const auto* const end = destinations_.begin() + count_;
  const auto* const found = std::find_if(destinations_.begin(), end, [&](const auto& d) { return d.to == to; });
  return found == end ? nullptr : found;
}

}  // namespace uroce::io
