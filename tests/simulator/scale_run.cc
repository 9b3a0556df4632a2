// SPDX-License-Identifier: BSD-2-Clause
#include "tests/simulator/scale_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>
#include <random>

#include "tests/simulator/network.h"

namespace uroce::simulator {

namespace {

using queue::WrOpcode;

constexpr uint32_t kHeaders = 14 + 20 + 8 + 12 + 4 + 24;  // around a packet's payload: Ethernet to ICRC, FCS, gap

LinkConfig link_of(const ScaleConfig& config, double speed, uint32_t frames) {
  LinkConfig link;
  link.bits_per_second = config.gigabits * 1e9 * speed;
  link.delay = config.hop_delay;
  link.queue_frames = frames;
  return link;
}

FabricConfig fabric_of(const ScaleConfig& config) {
  FabricConfig fabric;
  fabric.hosts = config.hosts;
  fabric.algorithm = config.algorithm;
  fabric.host_link = link_of(config, 1, config.nic_frames);
  const auto port = [&](double speed) {
    LinkConfig link = link_of(config, speed, config.queue_frames);
    if (!config.ecn) return link;
    link.mark_from = static_cast<uint32_t>(config.mark_from * speed);
    link.mark_all_from = static_cast<uint32_t>(config.mark_all_from * speed);
    link.mark_at_most = config.mark_at_most;
    return link;
  };
  fabric.leaf_link = port(1);
  fabric.trunk_link = port(config.trunk);
  return fabric;
}

// What all applications write and read: nobody looks at the bytes, and memory that stays in the cache costs least.
using Buffer = std::vector<uint8_t>;

bool takes_receives(Work work) {
  return work == Work::kSend || work == Work::kMix;
}

// A connection of which one end asks for the data to be moved. SENDs need receive requests at the other end.
struct Connection {
  SimQp& asking;
  SimQp& answering;
  uint32_t local_key, remote_key;
};

// An application that moves messages to one or several others, as many under way as it may.
class Sender {
 public:
  Sender(const ScaleConfig& config, Buffer& buffer, std::mt19937_64& random)
      : config_(config), buffer_(buffer), random_(random) {}

  // Messages go to the first connection, and a share of them (ScaleConfig::hot_share) to one of the others.
  void connect(const Connection& connection) {
    connections_.push_back(connection);
    for (uint32_t i = 0; i < 2 * config_.depth; ++i) post_receive(connection);
  }
  const std::vector<Connection>& connections() const { return connections_; }

  // A message is wanted. Without load all that there can be are always wanted.
  void want(Time now) {
    wanted_.push_back(now);
    post_wanted(now);
  }
  // Looks for completions, and posts what there is room for.
  void poll(Time now) {
    for (size_t i = 0; i < connections_.size(); ++i) {
      const Connection& c = connections_[i];
      while (auto cqe = c.answering.poll(c.answering.recv_cq)) {
        if (cqe->status == queue::WcStatus::kSuccess) post_receive(c);
      }
      while (auto cqe = c.asking.poll(c.asking.send_cq)) {
        --under_way_;
        if (cqe->status != queue::WcStatus::kSuccess) continue;
        bytes_ += config_.message_size;
        times_.push_back(now - Time(Duration(static_cast<int64_t>(cqe->wr_id))));
      }
    }
    post_wanted(now);
  }

  void forget_counts() {
    bytes_ = 0;
    times_.clear();
  }
  uint64_t bytes() const { return bytes_; }  // of messages that have completed
  const std::vector<Duration>& times() const { return times_; }
  bool failed() const {
    return std::any_of(connections_.begin(), connections_.end(), [](const Connection& c) {
      return c.asking.rc.state() != transport::QpState::kRts || c.answering.rc.state() != transport::QpState::kRts;
    });
  }

 private:
  void post_wanted(Time now) {
    while (under_way_ < config_.depth && (config_.load == 0 || !wanted_.empty())) {
      const Time since = config_.load == 0 ? now : wanted_.front();
      if (!post(since)) return;
      if (config_.load != 0) wanted_.pop_front();
    }
  }
  bool post(Time since) {
    const bool hot = connections_.size() > 1 && std::uniform_real_distribution(0.0, 1.0)(random_) < config_.hot_share;
    const Connection& c = connections_[hot ? 1 + random_() % (connections_.size() - 1) : 0];
    queue::SendWqe wqe{};
    wqe.opcode = opcode();
    wqe.wr_id = static_cast<uint64_t>(since.time_since_epoch().count());
    wqe.flags = queue::kSignaled;
    wqe.remote_address = reinterpret_cast<uint64_t>(buffer_.data());
    wqe.rkey = c.remote_key;
    if (c.asking.rc.state() != transport::QpState::kRts) return false;
    if (!c.asking.post(wqe, {{wqe.remote_address, config_.message_size, c.local_key}})) return false;
    ++under_way_;
    return true;
  }
  void post_receive(const Connection& c) {
    if (!takes_receives(config_.work)) return;
    c.answering.post_receive(
        0, std::vector<queue::Sge>{{reinterpret_cast<uint64_t>(buffer_.data()), config_.message_size, c.remote_key}});
  }
  WrOpcode opcode() {
    switch (config_.work) {
      case Work::kWrite:
        return WrOpcode::kRdmaWrite;
      case Work::kSend:
        return WrOpcode::kSend;
      case Work::kRead:
        return WrOpcode::kRdmaRead;
      case Work::kMix:
        break;
    }
    return random_() % 2 == 0 ? WrOpcode::kRdmaWrite : WrOpcode::kSend;
  }

  const ScaleConfig& config_;
  Buffer& buffer_;
  std::mt19937_64& random_;
  std::vector<Connection> connections_;
  std::deque<Time> wanted_;
  uint32_t under_way_ = 0;
  uint64_t bytes_ = 0;
  std::vector<Duration> times_;
};

class ScaleRun {
 public:
  explicit ScaleRun(const ScaleConfig& config)
      : config_(config),
        random_(config.seed),
        fabric_(events_, random_, fabric_of(config)),
        buffer_(config.message_size) {
    for (uint32_t i = 0; i < config_.hosts; ++i) {
      constexpr uint32_t kAll = memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead;
      keys_.push_back(fabric_.host(i).register_memory(buffer_.data(), buffer_.size(), kAll));
    }
    connect_all();
  }

  ScaleResult go(const std::function<void(Duration)>& on_progress) {
    begin();
    events_.run_for(config_.warm_up);
    for (const auto& sender : senders_) sender->forget_counts();
    fabric_.count_lengths();
    const Totals before = totals();
    constexpr int kSteps = 200;
    for (int step = 1; step <= kSteps; ++step) {
      events_.run_for(config_.duration / kSteps);
      if (on_progress) on_progress(config_.duration / kSteps * step);
    }
    return result(before);
  }

 private:
  struct Totals {
    uint64_t retransmissions = 0, timeouts = 0, cnps = 0, rate_cuts = 0;
    LinkCounters links[Fabric::kTiers];
  };

  // Every host has a connection to another one, also those that do not send.
  void connect_all() {
    std::vector<uint32_t> order(config_.hosts);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), random_);
    const uint32_t senders = std::min(config_.senders, config_.hosts - 1);
    for (uint32_t i = 0; i < config_.hosts; ++i) {
      Sender& sender = *senders_.emplace_back(std::make_unique<Sender>(config_, buffer_, random_));
      const uint32_t from = order[i];
      const bool incast = config_.pattern == Pattern::kIncast && i < senders;
      sender.connect(connect(from, incast ? order.back() : order[(i + 1) % config_.hosts]));
      if (config_.pattern != Pattern::kHotSpot || i >= senders) continue;
      for (uint32_t k = 0; k < config_.hot_hosts; ++k) {
        const uint32_t hot = order[config_.hosts - 1 - k];
        if (hot != from) sender.connect(connect(from, hot));
      }
    }
    senders_.resize(senders);
  }

  Connection connect(uint32_t data_from, uint32_t data_to) {
    auto attributes = Network::default_attributes();
    attributes.path_mtu = config_.path_mtu;
    attributes.timeout = config_.timeout;
    const bool read = config_.work == Work::kRead;
    const uint32_t asking = read ? data_to : data_from, answering = read ? data_from : data_to;
    const QpConfig qp{.depth = 2 * config_.depth, .max_sge = 1, .max_inline = 0, .cq_capacity = 4 * config_.depth};
    SimQp& a = fabric_.host(asking).add_qp(qp);
    SimQp& b = fabric_.host(answering).add_qp(qp);
    const auto go = [&](SimQp& from, uint32_t peer, SimQp& to) {
      from.connect(fabric_.host(peer).address(), to.rc.qpn().value(), attributes);
    };
    go(a, answering, b);
    go(b, asking, a);
    return {a, b, keys_[asking], keys_[answering]};
  }

  // Hosts look at all applications that have a QP there. They begin at different times.
  void begin() {
    std::vector<std::vector<Sender*>> of_host(config_.hosts);
    for (const auto& sender : senders_) {
      Sender* const s = sender.get();
      for (const Connection& c : s->connections()) {
        for (const SimQp* qp : {&c.asking, &c.answering}) {
          auto& here = of_host[qp->host().number()];
          const bool completes = qp == &c.asking || takes_receives(config_.work);
          if (completes && std::find(here.begin(), here.end(), s) == here.end()) here.push_back(s);
        }
      }
      const auto within = static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::microseconds(100)).count());
      const Duration start(static_cast<int64_t>(random_() % within));
      if (config_.load == 0) {
        events_.after(start, [this, s] { s->poll(events_.now()); });
      } else {
        events_.after(start + pause(), [this, s] { want(s); });
      }
    }
    for (uint32_t i = 0; i < config_.hosts; ++i) {
      if (of_host[i].empty()) continue;
      fabric_.host(i).on_round([this, here = std::move(of_host[i])] {
        for (Sender* sender : here) sender->poll(events_.now());
      });
    }
  }

  void want(Sender* sender) {
    sender->want(events_.now());
    events_.after(pause(), [this, sender] { want(sender); });
  }
  Duration pause() {
    const double mean = 8.0 * config_.message_size / (config_.load * config_.gigabits);
    return Duration(static_cast<int64_t>(std::exponential_distribution(1 / mean)(random_)) + 1);
  }

  Totals totals() {
    Totals t;
    for (uint32_t i = 0; i < config_.hosts; ++i) {
      const Counters& c = fabric_.host(i).counters;
      t.retransmissions += c.get(Counter::kTxRetransmissions);
      t.timeouts += c.get(Counter::kTimeouts);
      t.cnps += c.get(Counter::kTxCnps);
      t.rate_cuts += c.get(Counter::kRateCuts);
    }
    for (size_t tier = 0; tier < Fabric::kTiers; ++tier) {
      t.links[tier] = fabric_.counters(static_cast<Fabric::Tier>(tier));
    }
    return t;
  }

  // What the links of hosts could carry of it, with headers.
  double possible() const {
    const double packets = std::ceil(static_cast<double>(config_.message_size) / config_.path_mtu);
    const double share = config_.message_size / (config_.message_size + packets * kHeaders);
    const double link = config_.gigabits * share;
    const auto senders = static_cast<double>(senders_.size());
    const double offered = senders * (config_.load == 0 ? link : std::min(link, config_.load * config_.gigabits));
    switch (config_.pattern) {
      case Pattern::kIncast:
        return std::min(offered, link);
      case Pattern::kPermutation:
        return offered;
      case Pattern::kHotSpot:
        return std::min(offered, config_.hot_hosts * link / config_.hot_share);
    }
    return offered;
  }

  ScaleResult result(const Totals& before) {
    const Totals now = totals();
    ScaleResult r;
    double sum = 0, squares = 0;
    for (const auto& sender : senders_) {
      const auto bytes = static_cast<double>(sender->bytes());
      sum += bytes;
      squares += bytes * bytes;
      r.failed_qps += sender->failed();
      r.message_times.insert(r.message_times.end(), sender->times().begin(), sender->times().end());
    }
    std::sort(r.message_times.begin(), r.message_times.end());
    r.jain = squares == 0 ? 0 : sum * sum / (static_cast<double>(senders_.size()) * squares);
    r.goodput = 8 * sum / static_cast<double>(config_.duration.count());
    r.possible = possible();
    r.retransmissions = now.retransmissions - before.retransmissions;
    r.timeouts = now.timeouts - before.timeouts;
    r.cnps = now.cnps - before.cnps;
    r.rate_cuts = now.rate_cuts - before.rate_cuts;
    r.events = events_.count();
    for (size_t tier = 0; tier < Fabric::kTiers; ++tier) {
      const QueueLengths& lengths = fabric_.lengths(static_cast<Fabric::Tier>(tier));
      const LinkCounters& a = before.links[tier];
      const LinkCounters& b = now.links[tier];
      r.queues[tier] = {lengths.mean(),  lengths.quantile(0.99),      lengths.longest(),
                        b.sent - a.sent, b.overflowed - a.overflowed, b.marked - a.marked};
    }
    return r;
  }

  const ScaleConfig config_;
  EventQueue events_;
  std::mt19937_64 random_;
  Fabric fabric_;
  Buffer buffer_;
  std::vector<uint32_t> keys_;
  std::vector<std::unique_ptr<Sender>> senders_;
};

}  // namespace

ScaleResult run(const ScaleConfig& config, const std::function<void(Duration)>& on_progress) {
  return ScaleRun(config).go(on_progress);
}

}  // namespace uroce::simulator
