// SPDX-License-Identifier: BSD-2-Clause
// An open rdma_cm file: a socket, of which the application has one end and we have the other (rdma-cm-file.md "The
// file"). So poll(), epoll, fcntl(), dup() and fork() work on it without our help. Holds the events that wait to be
// read. Used by Manager, under its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "abi/rdma_cm_file/abi.h"
#include "abi/rdma_cm_file/channel_index.h"

namespace uroce::rdma_cm {

struct CmId;
struct Group;

struct QueuedEvent {
  abi::Event event{};
  std::shared_ptr<CmId> about;     // for which it counts; of a CONNECT_REQUEST the listener
  std::shared_ptr<CmId> child{};   // the new id of a CONNECT_REQUEST
  std::shared_ptr<Group> group{};  // of a multicast event, for which it counts too
};

class Channel {
 public:
  // A new one, and the application's end of it. 0, or an errno value. `flags`: O_CLOEXEC, O_NONBLOCK. Throws
  // std::bad_alloc.
  static int open(int flags, std::shared_ptr<Channel>& channel, int& fd);
  explicit Channel(int our_end) : our_end_(our_end) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  const Identity& identity() const { return identity_; }
  // Hangs up when nobody has the application's end any more.
  int our_end() const { return our_end_; }
  bool hung_up() const;
  // Bytes that arrive here are a write() past the hook, which we cannot answer. True: there were some.
  bool discard_arrivals();

  const std::deque<QueuedEvent>& events() const { return events_; }
  // Makes the other end readable, with a new edge.
  void push(QueuedEvent event);
  // `fd`: any descriptor of the application's end, by which bytes are taken back.
  QueuedEvent pop(int fd);
  // Takes those away for which `which` is true, in their order.
  template <class F>
  std::deque<QueuedEvent> extract(int fd, F&& which) {
    std::deque<QueuedEvent> taken, left;
    for (QueuedEvent& queued : events_) (which(queued) ? taken : left).push_back(std::move(queued));
    events_ = std::move(left);
    match_bytes(fd);
    return taken;
  }
  // Brings what makes it readable in line with the events that wait.
  void match_bytes(int fd);

 private:
  const int our_end_;
  Identity identity_;  // of the application's end
  std::deque<QueuedEvent> events_;
  size_t bytes_ = 0;  // that the application's end has to read, at most
};

}  // namespace uroce::rdma_cm
