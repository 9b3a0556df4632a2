// SPDX-License-Identifier: BSD-2-Clause
#include "process/capture_setup.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <mutex>
#include <unistd.h>

#include "base/concat.h"
#include "base/fork.h"
#include "capture/capture.h"
#include "capture/hub.h"
#include "capture/server.h"
#include "capture/settings.h"
#include "engine/io/fault_injector.h"
#include "engine/io/memory_link.h"
#include "engine/net/device_identity.h"
#include "engine/net/device_names.h"

namespace uroce::engine {
namespace {

// The files that this process captures to.
struct CaptureFilesOpen {
  std::mutex lock;
  std::vector<std::string> names;
};

// Says how a capture to a file ended.
class FileControl final : public io::CaptureControl {
 public:
  FileControl(std::string name, bool quiet) : name_(std::move(name)), quiet_(quiet) {}
  void on_end(uint64_t captured, uint64_t dropped, int error) override {
    if (quiet_ && dropped == 0 && error == 0) return;
    std::string text = concat(name_, ": ", captured, " packets captured");
    if (dropped > 0) text += concat(", ", dropped, " missing because the disk was too slow");
    if (error == ETIMEDOUT) {
      text += "; the reader did not take the rest";
    } else if (error != 0) {
      text += concat("; then the capture ended: ", io::capture_error_text(error));
    }
    io::CaptureHub::say(text);
  }

 private:
  const std::string name_;
  const bool quiet_;
};

void capture_to_file(const std::string& device, const Options& options) {
  const auto name = io::expand_capture_name(options.capture, getpid(), device);  // the pattern has been checked
  CaptureFilesOpen& open = per_process<CaptureFilesOpen>();
  std::lock_guard guard(open.lock);
  if (std::find(open.names.begin(), open.names.end(), *name) != open.names.end()) return;
  open.names.push_back(*name);
  io::CaptureSettings settings;
  settings.filter = {.snap = options.capture_snap, .qpns = options.capture_qpns};
  if (io::names_device(options.capture)) settings.device = device;
  const int error = io::CaptureHub::instance().start(
      std::move(settings), std::make_unique<io::CaptureFiles>(*name, options.capture_files, options.capture_size),
      std::make_unique<FileControl>(*name, options.quiet));
  if (error != 0) io::CaptureHub::say(concat("cannot capture to ", *name, ": ", io::capture_error_text(error)));
}

}  // namespace

void add_faults_and_capture(OpenedIo& opened, const net::Netdev& netdev, const Options& options) {
  assert(opened.io.size() == 1);  // what packets are captured of has one shard
  std::unique_ptr<io::PacketIo> io = std::move(opened.io.front());
  io::PacketIo& backend = *io;
  io::PacketIo* inside = io.get();
  std::unique_ptr<io::FaultInjector> injector;
  if (!options.faults.empty()) {
    const auto spec = io::parse_fault_spec(options.faults);  // has been checked when the environment was read
    injector = std::make_unique<io::FaultInjector>(std::move(io), std::get<io::FaultSpec>(spec));
    inside = injector.get();
  }
  io::TapInfo info{.netdev = netdev.name,
                   .device = device_name(netdev, options.names),
                   .description = inside->description(),
                   .mac = netdev.mac,
                   .addresses = netdev.addresses,
                   .kernel_routes = inside->kernel_routes()};
  const auto tap = std::make_shared<io::CaptureTap>(std::move(info));
  backend.observe_malformed([tap](std::span<const uint8_t> frame, wire::FrameError error) {
    if (tap->listening()) tap->malformed(frame, error, io::Capture::wall_clock());
  });
  if (injector) {
    injector->observe_dropped([tap](const io::RxPacket& packet) {
      if (tap->listening()) tap->not_delivered(packet, io::Capture::wall_clock());
    });
    io = std::move(injector);
  }
  if (!options.capture.empty()) capture_to_file(tap->info().device, options);
  io::CaptureHub::instance().add_tap(tap);
  io::CaptureServer::start();
  opened.io.front() =
      std::make_unique<io::Capture>(std::move(io), tap, [tap] { io::CaptureHub::instance().remove_tap(*tap); });
  opened.loops.push_back(
      std::make_unique<io::Capture>(io::make_memory_loop(), tap, std::function<void()>{}, io::Capture::Link::kLoop));
}

void end_captures_now() {
  io::CaptureHub::instance().end_now();
}

void finish_captures() {
  io::CaptureServer::finish();
  io::CaptureHub::instance().finish();
}

}  // namespace uroce::engine
