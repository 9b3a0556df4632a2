// SPDX-License-Identifier: BSD-2-Clause
#include "capture/hub.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "base/fork.h"

namespace uroce::io {

CaptureHub& CaptureHub::instance() {
  return per_process<CaptureHub>();
}

void CaptureHub::add_tap(std::shared_ptr<CaptureTap> tap) {
  std::lock_guard guard(lock_);
  for (auto& session : sessions_) session->add_tap(tap);
  taps_.push_back(std::move(tap));
}

void CaptureHub::remove_tap(const CaptureTap& tap) {
  std::lock_guard guard(lock_);
  for (auto& session : sessions_) session->remove_tap(tap);
  std::erase_if(taps_, [&](const auto& each) { return each.get() == &tap; });
}

int CaptureHub::start(CaptureSettings settings, std::unique_ptr<CaptureOutput> output,
                      std::unique_ptr<CaptureControl> control) {
  std::lock_guard guard(lock_);
  std::erase_if(sessions_, [](const auto& session) { return session->ended(); });
  if (sessions_.size() >= CaptureTap::kMaxListeners) return EBUSY;
  try {
    auto session = std::make_unique<CaptureSession>(std::move(settings), std::move(output), std::move(control));
    if (const int error = session->start(); error != 0) return error;
    for (const auto& tap : taps_) session->add_tap(tap);
    sessions_.push_back(std::move(session));
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  return 0;
}

void CaptureHub::finish() {
  std::lock_guard guard(lock_);
  for (auto& session : sessions_) session->request_stop();
  for (auto& session : sessions_) {
    // One that hangs is left alone with its thread, which the end of the process ends.
    if (session->wait(kFarewell)) continue;
    session->give_up();
    [[maybe_unused]] auto* const left = session.release();
  }
  sessions_.clear();
}

void CaptureHub::end_now() {
  const std::unique_lock guard(lock_, std::try_to_lock);
  if (!guard) return;
  for (auto& session : sessions_) session->request_stop();
  for (auto& session : sessions_) session->wait(kFarewell);
}

std::string CaptureHub::description() {
  std::lock_guard guard(lock_);
  std::string text;
  for (const auto& tap : taps_) {
    const TapInfo& info = tap->info();
    text += info.device + " (" + info.netdev + "): " + info.description + "\n";
  }
  return text;
}

void CaptureHub::say(const std::string& text) {
  const std::string line = "uroce: " + text + "\n";  // one write, so that lines of several processes do not mix
  std::fputs(line.c_str(), stderr);
}

}  // namespace uroce::io
