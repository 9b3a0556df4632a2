// SPDX-License-Identifier: BSD-2-Clause
// One capture under way: a ring at each tap, and a thread that empties them into a pcapng file or stream. Made by
// CaptureHub. Traffic never waits: what a slow disk or reader leaves no room for is missing in the capture, and
// counted.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "capture/output.h"
#include "capture/tap.h"
#include "pcapng/pcapng_writer.h"

namespace uroce::io {

struct CaptureSettings {
  CaptureChannel::Filter filter;
  std::string device;        // only this device or netdev; empty: all
  uint64_t max_packets = 0;  // ends by itself after so many; 0: does not
  size_t ring_size = size_t{16} << 20;
};

class CaptureSession {
 public:
  CaptureSession(CaptureSettings settings, std::unique_ptr<CaptureOutput> output,
                 std::unique_ptr<CaptureControl> control);
  ~CaptureSession();
  CaptureSession(const CaptureSession&) = delete;
  CaptureSession& operator=(const CaptureSession&) = delete;

  // 0 or an errno value: the first file cannot be opened, or there is no thread to be had.
  int start();

  // --- by the hub, one call at a time -------------------------------------------------------------------------------
  void add_tap(const std::shared_ptr<CaptureTap>& tap);
  // What the tap has given so far is still written.
  void remove_tap(const CaptureTap& tap);

  // Ends it: all that is in the rings is written, as far as the reader lets it. Returns at once; see wait().
  void request_stop();
  // False: it has not ended within that time.
  bool wait(std::chrono::milliseconds time);
  // It has not ended, the process does: tells how far it got, which it then does not do itself any more.
  void give_up();
  bool ended() const { return ended_.load(); }

 private:
  struct Source {
    std::shared_ptr<CaptureTap> tap;  // null: it is gone
    TapInfo info;
    std::unique_ptr<CaptureChannel> channel;
    std::array<std::optional<uint32_t>, kSeenAtCount> interfaces;  // in the current file
    Source(const std::shared_ptr<CaptureTap>& at, const CaptureSettings& settings, std::function<void()> kick)
        : tap(at),
          info(at->info()),
          channel(std::make_unique<CaptureChannel>(info, settings.filter, settings.ring_size, std::move(kick))) {}
  };

  void run();
  int drain();
  Source* oldest();
  bool write(Source& source);
  uint32_t interface_of(Source& source, SeenAt seen_at);
  std::string describe(const TapInfo& info, SeenAt seen_at) const;
  void restore_ip_id(CapturedPacket& packet, std::span<uint8_t> frame) const;
  int open_file();
  bool next_file_if_full();
  void close_file();
  void detach_all();
  void sleep(int moved);
  void tell_end(uint64_t captured, uint64_t missing, int error);
  uint64_t dropped() const;
  bool failed() const { return error_ != 0; }
  void kick() const;

  const CaptureSettings settings_;
  const std::unique_ptr<CaptureOutput> output_;
  const std::unique_ptr<CaptureControl> control_;

  std::mutex lock_;                               // `sources_`, between the hub and the thread
  std::vector<std::unique_ptr<Source>> sources_;  // grows only: the statistics are of all
  int kick_descriptor_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> told_{false};  // how it ended
  std::atomic<uint64_t> captured_{0};

  // The thread's.
  std::unique_ptr<DescriptorStream> stream_;
  std::unique_ptr<std::ostream> out_;
  std::unique_ptr<pcapng::PcapngWriter> writer_;
  std::string comment_;  // reused
  int idle_rounds_ = 0;
  int error_ = 0;
  std::thread thread_;
};

}  // namespace uroce::io
