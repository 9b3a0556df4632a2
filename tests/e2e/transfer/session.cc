// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/transfer/session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <endian.h>
#include <fmt/format.h>
#include <poll.h>
#include <utility>

#include "tests/e2e/transfer/failure.h"

namespace uroce::transfer {
namespace {

constexpr uint64_t kMaxRdAtomic = 16;  // READs and atomics outstanding per QP
constexpr size_t kWordSlot = 128;      // bytes; each word for atomics lies amid guard bytes

void store_word(uint8_t* to, uint64_t value) {
  std::memcpy(to, &value, sizeof value);
}

// Half of the PSNs wrap soon after the start.
uint32_t starting_psn(uint64_t key) {
  Random random(key);
  const bool wraps = random.below(2) == 0;
  return static_cast<uint32_t>(wraps ? 0x1000000 - 1 - random.below(64) : random.below(0x1000000));
}

}  // namespace

Session::Session(Options& options, bool is_server, Control control, Device& device, std::atomic<uint64_t>& heartbeat)
    : options_(options),
      is_server_(is_server),
      outgoing_(is_server ? Direction::kServerToClient : Direction::kClientToServer),
      incoming_(is_server ? Direction::kClientToServer : Direction::kServerToClient),
      control_(std::move(control)),
      device_(device),
      heartbeat_(heartbeat) {
  moved();
}

Result Session::run() {
  try {
    agree_on_plan();
    agree_on_parameters();
    check_capabilities();
    create_channels();
    connect_channels();
    transfer();
    watch_silence();
    check_words();
    const Result result = summarise();
    compare_verdicts(result);
    return result;
  } catch (const Failure& failure) {
    if (!failure.echo) {
      control_.send(RecordType::kFailed, {static_cast<uint64_t>(failure.code)});
      throw;
    }
    if (failure.code != ExitCode::kTimeout) throw;
    // Both views tell where a message got lost.
    throw Failure(failure.code, failure.what() + outstanding(), true);
  }
}

// --- set-up
// -----------------------------------------------------------------------------------------------------------

void Session::agree_on_plan() {
  if (!is_server_) {
    control_.send(RecordType::kOptions, options_.plan.to_words());
    return;
  }
  const PlanOptions plan = PlanOptions::from_words(control_.expect(RecordType::kOptions, 0, deadline()).words);
  if (options_.mode == Mode::kServer) options_.plan = plan;  // with --self both sides share the options
  moved();
}

void Session::agree_on_parameters() {
  pd_.reset(ibv_alloc_pd(device_.context()));
  if (!pd_) fail_verbs("ibv_alloc_pd", errno);
  words_ = std::make_unique<RegisteredMemory>(pd_.get(), 1 + options_.plan.qps, kWordSlot, mix(options_.plan.seed),
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  const ibv_gid& gid = device_.gid();
  const auto accepts =
      std::clamp<uint64_t>(static_cast<uint64_t>(device_.attributes().max_qp_rd_atom), 1, kMaxRdAtomic);
  control_.send(RecordType::kEndpoint,
                {be64toh(gid.global.subnet_prefix), be64toh(gid.global.interface_id), device_.active_mtu(), accepts,
                 reinterpret_cast<uintptr_t>(word(0)), words_->mr->rkey});
  const Record peer = control_.expect(RecordType::kEndpoint, 6, deadline());
  parameters_.remote_gid.global.subnet_prefix = htobe64(peer.words[0]);
  parameters_.remote_gid.global.interface_id = htobe64(peer.words[1]);
  const auto usable_mtu = static_cast<uint32_t>(std::min<uint64_t>(device_.active_mtu(), peer.words[2]));
  parameters_.mtu = options_.plan.mtu == 0 ? usable_mtu : options_.plan.mtu;
  if (parameters_.mtu > usable_mtu) {
    throw Failure(ExitCode::kUsage, fmt::format("--mtu {} exceeds the active MTU of {}", parameters_.mtu, usable_mtu));
  }
  const auto issues =
      std::clamp<uint64_t>(static_cast<uint64_t>(device_.attributes().max_qp_init_rd_atom), 1, kMaxRdAtomic);
  parameters_.initiator_depth = static_cast<uint8_t>(std::min(issues, peer.words[3]));
  parameters_.responder_depth = static_cast<uint8_t>(accepts);
  parameters_.ack_timeout = options_.ack_timeout;
  peer_words_.add_word = peer.words[4];
  peer_words_.atomic_rkey = static_cast<uint32_t>(peer.words[5]);
  moved();
}

void Session::check_capabilities() const {
  const PlanOptions& plan = options_.plan;
  const ibv_device_attr& device = device_.attributes();
  if ((plan.mixes(Kind::kCompareSwap) || plan.mixes(Kind::kFetchAdd)) && device.atomic_cap == IBV_ATOMIC_NONE) {
    throw Failure(ExitCode::kUsage, "the device has no atomics; leave cas and faa out of --mix");
  }
  const unsigned type_2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  if (plan.mixes(Kind::kSendInv) && (device.device_cap_flags & type_2) == 0) {
    throw Failure(ExitCode::kUsage, "the device has no memory windows of type 2; leave send_inv out of --mix");
  }
}

void Session::create_channels() {
  PlanOptions plan = options_.plan;
  plan.mtu = parameters_.mtu;
  const bool requests = !is_server_ || plan.bidirectional;
  const bool responds = is_server_ || plan.bidirectional;
  const auto slots = static_cast<uint32_t>(plan.slots());
  const uint32_t binds = plan.mixes(Kind::kSendInv) && responds ? slots : 0;
  const QueuePair::Depths depths = {
      plan.queue_depth + binds, slots,
      plan.mixes(Variation::kMultiSge)
          ? std::clamp<uint32_t>(static_cast<uint32_t>(device_.attributes().max_sge), 1, kMaxPieces)
          : 1,
      plan.mixes(Variation::kInline) ? kMaxInline : 0};
  completions_ = std::make_unique<Completions>(device_.context(), static_cast<int>(depths.sends * plan.qps),
                                               static_cast<int>(depths.receives * plan.qps), options_.events);
  store_word(word(0), initial_add_word(plan, incoming_));
  for (uint32_t index = 0; index < plan.qps; ++index) {
    Channel channel;
    channel.qp = std::make_unique<QueuePair>(pd_.get(), *completions_, index, depths);
    Plan outgoing(plan, index, outgoing_);
    Plan incoming(plan, index, incoming_);
    channel.address = {channel.qp->qpn(), starting_psn(outgoing.payload_key(~4ull))};
    store_word(word(1 + index), incoming.initial_swap_word());
    if (requests) {
      channel.requester = std::make_unique<Requester>(std::move(outgoing), device_, pd_.get(), *channel.qp);
    }
    if (responds) {
      channel.responder =
          std::make_unique<Responder>(std::move(incoming), device_, pd_.get(), *channel.qp, options_.starve);
    }
    channels_.push_back(std::move(channel));
  }
}

std::vector<uint64_t> Session::describe_channel(uint32_t index) const {
  const Channel& channel = channels_[index];
  std::vector<uint64_t> words = {
      index, channel.address.qpn, channel.address.psn, 0, 0, reinterpret_cast<uintptr_t>(word(1 + index))};
  if (channel.responder) {
    words[3] = channel.responder->target_address();
    words[4] = channel.responder->target_rkey();
    for (const uint32_t rkey : channel.responder->window_rkeys()) words.push_back(rkey);
  }
  return words;
}

void Session::connect_channels() {
  for (uint32_t index = 0; index < channels_.size(); ++index) {
    control_.send(RecordType::kQueuePair, describe_channel(index));
  }
  for (size_t i = 0; i < channels_.size(); ++i) {
    connect_channel(control_.expect(RecordType::kQueuePair, 6, deadline()).words);
    moved();
  }
}

void Session::connect_channel(std::span<const uint64_t> words) {
  if (words[0] >= channels_.size()) throw Failure(ExitCode::kMismatch, "the other side names a QP that does not exist");
  Channel& channel = channels_[words[0]];
  const QueuePairAddress remote = {static_cast<uint32_t>(words[1]), static_cast<uint32_t>(words[2])};
  channel.qp->connect(device_, channel.address, remote, parameters_);
  if (!channel.requester) return;
  RemoteTarget target = peer_words_;
  target.address = words[3];
  target.rkey = static_cast<uint32_t>(words[4]);
  target.swap_word = words[5];
  for (const uint64_t rkey : words.subspan(6)) target.window_rkeys.push_back(static_cast<uint32_t>(rkey));
  if (options_.plan.mixes(Kind::kSendInv) && target.window_rkeys.size() != options_.plan.slots()) {
    throw Failure(ExitCode::kMismatch, "the other side does not name a memory window for every slot");
  }
  channel.requester->set_target(std::move(target));
}

// --- the transfer
// -----------------------------------------------------------------------------------------------------

void Session::transfer() {
  while (!finished_ || !peer_finished_) {
    bool active = take_completions();
    active |= take_records();
    active |= post();
    active |= report(!active);
    announce_finish();
    if (active) {
      moved();
    } else {
      check_deadline();
      if (options_.events) wait_for_something();
    }
  }
}

bool Session::take_completions() {
  completions_->poll(batch_);
  for (const ibv_wc& wc : batch_) take_completion(wc);
  return !batch_.empty();
}

void Session::take_completion(const ibv_wc& wc) {
  const WorkId completed = WorkId::decode(wc.wr_id);
  if (completed.qp >= channels_.size()) {
    throw Failure(ExitCode::kMismatch, fmt::format("completion with wr_id {:#x}, which was never posted", wc.wr_id));
  }
  Channel& channel = channels_[completed.qp];
  for (const auto& [id, its_wc] : channel.qp->retire(wc)) {
    if (id.role == Role::kRequest) channel.requester->retire(id.number, its_wc);
    if (id.role == Role::kReceive) channel.responder->received(id.number, wc);
    if (id.role == Role::kBind) channel.responder->bound(id.number, wc);
  }
}

bool Session::take_records() {
  control_.pump();
  bool any = false;
  // A finished peer says nothing more before the verdict, which is not for here.
  while (!peer_finished_) {
    const std::optional<Record> record = control_.next();
    if (!record) break;
    any = true;
    if (record->type == RecordType::kProgress) {
      take_progress(record->words);
    } else if (record->type == RecordType::kFinished) {
      peer_finished_ = true;
    } else {
      throw Failure(ExitCode::kMismatch, "unexpected control record during the transfer");
    }
  }
  return any;
}

void Session::take_progress(std::span<const uint64_t> words) {
  if (words.size() < 2 || words[0] >= channels_.size()) {
    throw Failure(ExitCode::kMismatch, "malformed progress record");
  }
  Channel& channel = channels_[words[0]];
  if (channel.requester) channel.requester->allow(words[1]);
  if (channel.responder) channel.responder->peer_completed(words.subspan(2));
}

bool Session::post() {
  uint64_t count = 0;
  for (Channel& channel : channels_) {
    if (channel.responder) count += channel.responder->prepare();
    if (channel.requester) count += channel.requester->post();
  }
  return count > 0;
}

// Tells the peer what has moved, in large steps unless there is nothing else to do.
bool Session::report(bool everything) {
  const uint64_t step = everything ? 1 : std::max<uint64_t>(1, options_.plan.slots() / 4);
  bool any = false;
  for (uint32_t index = 0; index < channels_.size(); ++index) {
    Channel& channel = channels_[index];
    const uint64_t allowed = channel.responder ? channel.responder->allowed() : 0;
    const uint64_t completed = channel.requester ? channel.requester->hashes_waiting() : 0;
    if (allowed - channel.announced < step && completed < step) continue;
    channel.announced = allowed;
    std::vector<uint64_t> words = {index, allowed};
    if (channel.requester) {
      const std::vector<uint64_t> hashes = channel.requester->take_hashes();
      words.insert(words.end(), hashes.begin(), hashes.end());
    }
    control_.send(RecordType::kProgress, words);
    any = true;
  }
  return any;
}

void Session::announce_finish() {
  if (finished_) return;
  for (const Channel& channel : channels_) {
    if (channel.requester && (!channel.requester->done() || channel.requester->hashes_waiting() > 0)) return;
    if (channel.responder && !channel.responder->done()) return;
  }
  finished_ = true;
  control_.send(RecordType::kFinished, {});
}

void Session::wait_for_something() const {
  std::array<pollfd, 2> fds = {
      {{completions_->descriptor(), POLLIN, 0},
       {control_.descriptor(), static_cast<short>(POLLIN | (control_.output_pending() ? POLLOUT : 0)), 0}}};
  const auto left = last_move_ + options_.timeout - Clock::now();
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  ::poll(fds.data(), fds.size(), static_cast<int>(std::max<int64_t>(0, milliseconds)));
}

void Session::moved() {
  last_move_ = Clock::now();
  heartbeat_.fetch_add(1, std::memory_order_relaxed);
}

void Session::check_deadline() {
  if (Clock::now() - last_move_ < options_.timeout) return;
  throw Failure(ExitCode::kTimeout,
                fmt::format("nothing moved for {} s at the {}", options_.timeout.count(), name()) + outstanding());
}

std::string Session::outstanding() {
  std::string text;
  if (options_.events && completions_) {
    if (const size_t missed = completions_->count_without_event(); missed > 0) {
      text += fmt::format("\n  {}: {} completions are in the CQs and no event told so", name(), missed);
    }
  }
  for (const Channel& channel : channels_) {
    const std::string qp = fmt::format("\n  {} qp {} ({:#08x}) ", name(), channel.qp->index(), channel.qp->qpn());
    if (channel.requester) text += qp + channel.requester->state();
    if (channel.responder) text += qp + channel.responder->state();
  }
  if (finished_) text += fmt::format("\n  {}: finished, waits for the other side", name());
  return text;
}

}  // namespace uroce::transfer
