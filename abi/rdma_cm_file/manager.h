// SPDX-License-Identifier: BSD-2-Clause
// All rdma_cm files of a process and their ids: answers commands, turns what the connection manager says into events
// (rdma-cm-file.md). One per process (entry.cc), with a thread of its own from the first open() on.
//
// Locks: one, for all of it. It is held while the agent is asked, so that an event of an id, which the thread works off
// under the same lock, never comes before the id is known. What the agent's thread calls takes another one, which is
// held for nothing else (Mailbox). Nothing is held while a caller waits for an event.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "abi/rdma_cm_file/abi.h"
#include "abi/rdma_cm_file/channel.h"
#include "abi/rdma_cm_file/environment.h"
#include "abi/rdma_cm_file/ids.h"
#include "abi/rdma_cm_file/mailbox.h"
#include "abi/rdma_cm_file/number_table.h"

namespace uroce::rdma_cm {

class Manager {
 public:
  explicit Manager(Environment environment);
  // Ends the thread. Nobody else uses it any more.
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // 0 and a descriptor, or an errno value.
  int open(int flags, int& fd);
  // A command that was written to `fd`, which is the channel's; it may wait there, if it is GET_EVENT. The number of
  // bytes taken, or an errno value below 0.
  ssize_t write(const Identity& channel, int fd, std::span<const uint8_t> command);
  // A descriptor of the channel has been closed: if it was the last, its ids end now.
  void closed(uint64_t inode);
  // The process ends: so do its connections.
  void finish();

  size_t channels();
  size_t ids();

 private:
  using IdPtr = std::shared_ptr<CmId>;
  using ChannelPtr = std::shared_ptr<Channel>;

  // A command on its way: which channel it was written to, by which descriptor, with room for so much of an answer.
  struct Call {
    const ChannelPtr& channel;
    int fd;
    uint16_t in, out;
  };
  // The id that a command names, or an errno value.
  struct Owned {
    IdPtr id;
    int error = 0;
  };

  // --- commands: 0 or an errno value. The lock is held. --------------------------------------------------------------
  ssize_t execute(const Identity& channel, int fd, std::span<const uint8_t> command);
  int dispatch(abi::Command command, std::span<const uint8_t> in, const Call& call);
  int get_event(const Call& call, const abi::GetEvent& command);
  int deliver(const Call& call, const abi::GetEvent& command);

  // commands_ids.cc
  int create_id(const abi::CreateId& command, const Call& call);
  int destroy_id(const abi::DestroyId& command, const Call& call);
  int migrate_id(const abi::MigrateId& command, const Call& call);
  int set_option(const abi::SetOption& command, const Call& call);
  int write_cm_event(const abi::WriteCmEvent& command, const Call& call);
  int set_id_option(CmId& id, uint32_t name, std::span<const uint8_t> value);
  int set_ib_path(const IdPtr& id, std::span<const uint8_t> value);

  // commands_address.cc
  int bind_ip(const abi::BindIp& command, const Call& call);
  int bind(const abi::Bind& command, const Call& call);
  int resolve_ip(const abi::ResolveIp& command, const Call& call);
  int resolve_addr(const abi::ResolveAddr& command, const Call& call);
  int resolve_route(const abi::ResolveRoute& command, const Call& call);
  int listen(const abi::Listen& command, const Call& call);
  int bind_to(CmId& id, const Address& address);
  int bind_gid(CmId& id, const Address& address);
  int bind_port(CmId& id);
  int start_listener(CmId& id);
  int resolve(const IdPtr& id, const Address& source, const Address& destination, uint32_t timeout_ms);
  int start_resolving(const IdPtr& id, uint32_t timeout_ms);
  void end_resolving(const IdPtr& id);
  void fail_resolving(const IdPtr& id, int error);
  int make_path(CmId& id) const;

  // commands_connection.cc
  int connect(const abi::Connect& command, const Call& call);
  int accept(const abi::Accept& command, const Call& call);
  int reject(const abi::Reject& command, const Call& call);
  int disconnect(const abi::Disconnect& command, const Call& call);
  int notify(const abi::Notify& command, const Call& call);
  void end_without_answer(const IdPtr& id);
  int init_qp_attr(const abi::InitQpAttr& command, const Call& call);

  // commands_query.cc
  int query_route(const abi::QueryRoute& command, const Call& call);
  int query(const abi::Query& command, const Call& call);

  // commands_multicast.cc
  int join_ip_mcast(const abi::JoinIpMcast& command, const Call& call);
  int join_mcast(const abi::JoinMcast& command, const Call& call);
  int leave_mcast(const abi::LeaveMcast& command, const Call& call);
  struct Join {
    uint64_t uid, response;
    Address group;
  };
  int join(const IdPtr& id, const Join& join, const Call& call);

  static int answer(uint64_t to, const void* from, size_t size, const Call& call);
  Owned find(uint32_t number, const Call& call) const;
  // One that is bound to a device, else EINVAL.
  Owned find_bound(uint32_t number, const Call& call) const;

  // --- ids -----------------------------------------------------------------------------------------------------------
  void queue(const IdPtr& id, abi::EventKind kind, int32_t status = 0);
  void destroy(const IdPtr& id, int fd);
  void forget_connection(CmId& id);
  int bind_to_device(CmId& id, uint32_t netdev);
  bool has_loopback_device() const;
  bool is_wildcard(const Address& address) const;
  // Nothing: the id's address is gone, so no packets can leave from it.
  std::optional<uint8_t> sgid_index(const CmId& id) const;
  std::optional<abi::AhAttr> address_of(const CmId& id, const wire::IpAddress& to) const;
  std::optional<net::Netdev> netdev_of(const CmId& id) const;

  // --- the connection manager: agent.cc ------------------------------------------------------------------------------
  cm::Reply ask(const cm::Request& request);
  int find_agent();
  void name(const IdPtr& id, cm::Id cm);
  void on_loss();
  void on_return();
  void take_up_again(const IdPtr& id);
  void adopt(const IdPtr& id);

  // --- events: events.cc
  void on_event(const cm::Event& event);
  void on_request(const IdPtr& listener, const cm::Event& event);
  void on_end(const IdPtr& id, const cm::Event& event);
  void fill(abi::Event& out, const CmId& id, const cm::Event& event) const;

  // --- the thread: thread.cc
  void run();
  void start();
  void watch(int descriptor, uint64_t key) const;
  void on_descriptor(uint64_t key);
  void work_off(const std::vector<Mailbox::Letter>& letters);
  void follow_network();
  Time on_timers();
  Time resolve_on(Time now);
  Time establish_on(Time now);
  void release(const ChannelPtr& channel);

  const Environment environment_;
  std::mutex lock_;
  std::map<uint64_t, ChannelPtr> channels_;  // by inode; all are of one device
  NumberTable<CmId> ids_;
  NumberTable<Group> groups_;
  std::map<cm::Id, IdPtr> by_cm_;
  std::set<IdPtr> resolving_;
  std::set<IdPtr> awaiting_rtu_;  // their QPs are asked whether packets have come
  Time next_look_{};              // at those
  std::shared_ptr<cm::Agent> agent_;
  bool complained_ = false;
  bool finished_ = false;

  const std::shared_ptr<Mailbox> mailbox_;
  int epoll_ = -1;
  std::thread thread_;
};

}  // namespace uroce::rdma_cm
