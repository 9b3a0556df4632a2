// SPDX-License-Identifier: BSD-2-Clause
#include "capture/session.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/utsname.h>
#include <system_error>
#include <unistd.h>

#include "base/fork.h"
#include "base/thread.h"
#include "capture/capture.h"
#include "capture/comment.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::io {
namespace {

// How soon packets that have come are written, and how long the rings are looked at so often after the last one. After
// that the thread sleeps longer.
constexpr std::chrono::milliseconds kPeriod{5};
constexpr std::chrono::milliseconds kIdlePeriod{50};
constexpr int kIdleRounds = 20;
// Packets that are written before the thread looks whether it is to stop: traffic may never leave the rings empty.
constexpr int kRound = 1024;

std::string program_name() {
  char name[32] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return program_invocation_short_name != nullptr ? program_invocation_short_name : name;
}

std::string operating_system() {
  utsname names{};
  if (uname(&names) != 0) return {};
  return std::string(names.sysname) + " " + names.release + " " + names.machine + ", host " + names.nodename;
}

Time wall_time(int64_t nanoseconds) {
  return Time(Duration(nanoseconds));
}

// What goes from one queue pair of this process to another comes in and goes out: it has no direction.
pcapng::Direction direction_of(const CapturedPacket& packet) {
  if (packet.seen_at == SeenAt::kLoop) return pcapng::Direction::kUnknown;
  return packet.outbound ? pcapng::Direction::kOut : pcapng::Direction::kIn;
}

}  // namespace

CaptureSession::CaptureSession(CaptureSettings settings, std::unique_ptr<CaptureOutput> output,
                               std::unique_ptr<CaptureControl> control)
    : settings_(std::move(settings)), output_(std::move(output)), control_(std::move(control)) {}

CaptureSession::~CaptureSession() {
  request_stop();
  if (thread_.joinable()) thread_.join();
  detach_all();
  ForkGuard().close(kick_descriptor_);
}

int CaptureSession::start() {
  {
    ForkGuard guard;
    kick_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (kick_descriptor_ < 0) return errno;
    guard.close_in_children(kick_descriptor_);
  }
  if (const int error = open_file(); error != 0) return error;
  try {
    thread_ = start_thread("uroce capture", [this] { run(); });
  } catch (const std::system_error& e) {
    return e.code().value();
  }
  return 0;
}

void CaptureSession::kick() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(kick_descriptor_, &one, sizeof(one));
}

void CaptureSession::add_tap(const std::shared_ptr<CaptureTap>& tap) {
  if (!settings_.device.empty() && settings_.device != tap->info().device && settings_.device != tap->info().netdev) {
    return;
  }
  std::lock_guard guard(lock_);
  if (stop_.load()) return;
  auto source = std::make_unique<Source>(tap, settings_, [this] { kick(); });
  if (tap->add(*source->channel)) sources_.push_back(std::move(source));
}

void CaptureSession::remove_tap(const CaptureTap& tap) {
  std::lock_guard guard(lock_);
  for (auto& source : sources_) {
    if (source->tap.get() != &tap) continue;
    source->tap->remove(*source->channel);
    source->tap.reset();
  }
}

void CaptureSession::detach_all() {
  std::lock_guard guard(lock_);
  stop_.store(true);
  for (auto& source : sources_) {
    if (source->tap) source->tap->remove(*source->channel);
    source->tap.reset();
  }
}

void CaptureSession::request_stop() {
  stop_.store(true);
  if (kick_descriptor_ >= 0) kick();
}

bool CaptureSession::wait(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!ended_.load()) {
    if (std::chrono::steady_clock::now() > end) return false;
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

uint64_t CaptureSession::dropped() const {
  uint64_t dropped = 0;
  for (const auto& source : sources_) dropped += source->channel->dropped.load(std::memory_order_relaxed);
  return dropped;
}

void CaptureSession::run() {
  while (!stop_.load() && !failed()) {
    const int moved = drain();
    if (!stop_.load() && !failed()) sleep(moved);
  }
  detach_all();  // from here on the rings only empty
  while (!failed() && drain() > 0) {
  }
  close_file();
  tell_end(captured_.load(), dropped(), error_);
  ended_.store(true);
}

void CaptureSession::tell_end(uint64_t captured, uint64_t missing, int error) {
  if (!told_.exchange(true) && control_) control_->on_end(captured, missing, error);
}

void CaptureSession::give_up() {
  std::unique_lock guard(lock_, std::try_to_lock);
  if (!guard) return;  // the thread hangs where it must not; the process still ends
  uint64_t seen = 0;
  for (const auto& source : sources_) {
    if (source->tap) source->tap->remove(*source->channel);
    source->tap.reset();
    seen += source->channel->seen.load();
  }
  const uint64_t captured = captured_.load();
  tell_end(captured, seen - captured, ETIMEDOUT);  // what is still in the rings is missing as well
}

// Writes what is in the rings, up to kRound packets. How many there were.
int CaptureSession::drain() {
  std::unique_lock guard(lock_);
  int moved = 0;
  while (Source* const source = moved < kRound ? oldest() : nullptr) {
    guard.unlock();  // sources stay where they are; writing may take long
    ++moved;
    if (!next_file_if_full() || !write(*source)) return 0;
    if (settings_.max_packets != 0 && captured_.load(std::memory_order_relaxed) == settings_.max_packets) {
      stop_.store(true);
      detach_all();
      guard.lock();
      for (auto& each : sources_) {
        while (!each->channel->ring.front().empty()) each->channel->ring.pop();
      }
      return 0;
    }
    guard.lock();
  }
  guard.unlock();
  if (moved > 0 && out_ && !out_->flush()) error_ = stream_->error();
  return moved;
}

CaptureSession::Source* CaptureSession::oldest() {
  Source* oldest = nullptr;
  int64_t oldest_time = 0;
  for (auto& source : sources_) {
    const std::span<uint8_t> entry = source->channel->ring.front();
    if (entry.empty()) continue;
    int64_t time;
    std::memcpy(&time, entry.data() + offsetof(CapturedPacket, time), sizeof(time));
    if (oldest != nullptr && time >= oldest_time) continue;
    oldest = source.get();
    oldest_time = time;
  }
  return oldest;
}

bool CaptureSession::write(Source& source) {
  const std::span<uint8_t> entry = source.channel->ring.front();
  CapturedPacket packet;
  std::memcpy(&packet, entry.data(), sizeof(packet));
  const std::span<uint8_t> frame = entry.subspan(sizeof(packet), packet.captured);
  if (packet.hidden_id) restore_ip_id(packet, frame);
  comment_.clear();
  capture_comment(packet, comment_);
  writer_->write(interface_of(source, packet.seen_at), wall_time(packet.time), direction_of(packet), frame, {},
                 packet.original, comment_);
  source.channel->ring.pop();
  if (!writer_->ok()) error_ = stream_->error();
  captured_.fetch_add(1, std::memory_order_relaxed);
  return !failed();
}

uint32_t CaptureSession::interface_of(Source& source, SeenAt seen_at) {
  std::optional<uint32_t>& interface = source.interfaces[static_cast<size_t>(seen_at)];
  if (interface) return *interface;
  if (seen_at != SeenAt::kWire) interface_of(source, SeenAt::kWire);  // the netdev comes first
  const TapInfo& info = source.info;
  static constexpr const char* kSuffixes[kSeenAtCount] = {"", ":not-delivered", ":loop"};
  interface = writer_->add_interface({.name = info.netdev + kSuffixes[static_cast<size_t>(seen_at)],
                                      .description = describe(info, seen_at),
                                      .addresses = info.addresses,
                                      .mac = info.mac,
                                      .snap_length = settings_.filter.snap});
  return *interface;
}

std::string CaptureSession::describe(const TapInfo& info, SeenAt seen_at) const {
  switch (seen_at) {
    case SeenAt::kWire:
      break;
    case SeenAt::kNotDelivered:
      return "packets that the fault injector of " + info.device + " took away before they were received";
    case SeenAt::kLoop:
      return "packets between queue pairs of this process on " + info.device +
             ", which never leave it; sent and received here, shown once";
  }
  const std::string process = "process " + std::to_string(getpid()) + " (" + program_name() + ")";
  const char* const rebuilt =
      info.kernel_routes ? ", Ethernet, IP and UDP headers rebuilt (UDP sockets do not show them)" : "";
  return info.device + ", " + info.description + ", " + process + rebuilt;
}

// A UDP socket hides the IPv4 header. The ICRC tells which identification the packet had.
void CaptureSession::restore_ip_id(CapturedPacket& packet, std::span<uint8_t> frame) const {
  wire::Envelope envelope;
  std::span<const uint8_t> ib;
  if (packet.captured < packet.original || wire::parse_frame(frame, envelope, ib) != wire::FrameError::kNone) return;
  envelope.ip_id_known = false;
  const std::optional<uint16_t> id = wire::icrc_ip_id(envelope, ib);
  if (!id || *id == envelope.ip_id) return;
  envelope.ip_id = *id;
  wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + ib.size()), frame.data());
}

// 0 or an errno value.
int CaptureSession::open_file() {
  const int fd = output_->open_next();
  if (fd < 0) return -fd;
  // Someone who asks to stop a capture that is stuck is heard through the control, else through the kick.
  const int stop = control_ && control_->descriptor() >= 0 ? control_->descriptor() : -1;
  stream_ = std::make_unique<DescriptorStream>(fd, stop);
  out_ = std::make_unique<std::ostream>(stream_.get());
  const std::string os = operating_system();
  const std::string application = "uroce, in " + program_name() + " (process " + std::to_string(getpid()) + ")";
  writer_ = std::make_unique<pcapng::PcapngWriter>(*out_, pcapng::SectionInfo{.application = application, .os = os});
  for (auto& source : sources_) {
    source->interfaces = {};
  }
  return out_->flush() ? 0 : stream_->error();
}

bool CaptureSession::next_file_if_full() {
  const uint64_t limit = output_->size_limit();
  if (limit == 0 || writer_->bytes_written() < limit) return true;
  close_file();
  if (failed()) return false;
  std::lock_guard guard(lock_);
  error_ = open_file();
  return !failed();
}

void CaptureSession::close_file() {
  if (!writer_) return;
  out_->flush();  // so that the rest fits into the buffer: nobody waits for a reader with the lock
  std::unique_lock guard(lock_);
  for (auto& source : sources_) {
    const uint64_t seen = source->channel->seen.load(), dropped = source->channel->dropped.load();
    const std::string comment =
        dropped == 0
            ? ""
            : "packets missing in the capture, because the disk or the reader was too slow: " + std::to_string(dropped);
    if (writer_->ok())
      writer_->write_statistics(interface_of(*source, SeenAt::kWire), wall_time(Capture::wall_clock()), seen, dropped,
                                comment);
  }
  guard.unlock();
  if (!out_->flush() && error_ == 0) error_ = stream_->error();
  writer_.reset();
  out_.reset();
  stream_.reset();
}

void CaptureSession::sleep(int moved) {
  idle_rounds_ = moved > 0 ? 0 : std::min(idle_rounds_ + 1, kIdleRounds);
  const std::chrono::milliseconds time = moved == kRound              ? std::chrono::milliseconds{}
                                         : idle_rounds_ < kIdleRounds ? kPeriod
                                                                      : kIdlePeriod;
  pollfd descriptors[2] = {{kick_descriptor_, POLLIN, 0}, {control_ ? control_->descriptor() : -1, POLLIN, 0}};
  const int ready = poll(descriptors, 2, static_cast<int>(time.count()));
  if (ready <= 0) return;
  if (descriptors[0].revents != 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t n = read(kick_descriptor_, &count, sizeof(count));
  }
  if (descriptors[1].revents != 0 && control_->stop_requested()) stop_.store(true);
}

}  // namespace uroce::io
