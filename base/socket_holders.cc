// SPDX-License-Identifier: BSD-2-Clause
#include "base/socket_holders.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <dirent.h>
#include <fstream>
#include <memory>
#include <string_view>
#include <unistd.h>

#include "base/clock.h"
#include "base/concat.h"
#include "base/printable.h"

namespace uroce {
namespace {

constexpr size_t kMostDescriptorsOfOne = 65536;
constexpr std::string_view kSocket = "socket:[";  // what the link of a descriptor begins with

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// 0: no socket.
uint64_t socket_inode(int directory, const char* name) {
  std::array<char, 64> target;
  const ssize_t size = readlinkat(directory, name, target.data(), target.size());
  const std::string_view text(target.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  if (!text.starts_with(kSocket)) return 0;
  uint64_t inode = 0;
  std::from_chars(text.data() + kSocket.size(), text.data() + text.size(), inode);
  return inode;
}

class Search {
 public:
  Search(std::vector<uint64_t> inodes, Time end) : inodes_(std::move(inodes)), end_(end) {
    std::sort(inodes_.begin(), inodes_.end());
    inodes_.erase(std::unique(inodes_.begin(), inodes_.end()), inodes_.end());
    found_.resize(inodes_.size());
    left_ = inodes_.size();
  }
  size_t left() const { return left_; }
  bool is_late() const { return monotonic_now() >= end_; }
  // The first of the sockets that nobody before has, or 0. `is_whole`: false if not all of its descriptors were seen.
  uint64_t look_into(const std::string& process, bool& is_whole) {
    uint64_t first = 0;
    const Directory directory(opendir(concat("/proc/", process, "/fd").c_str()));
    for (size_t seen = 0; directory && left_ > 0; ++seen) {
      const dirent* const entry = readdir(directory.get());
      if (entry == nullptr) break;
      if (seen == kMostDescriptorsOfOne || (seen % 256 == 0 && is_late())) {
        is_whole = false;
        break;
      }
      const uint64_t inode = socket_inode(dirfd(directory.get()), entry->d_name);
      if (inode != 0 && take(inode) && first == 0) first = inode;
    }
    return first;
  }

 private:
  bool take(uint64_t inode) {
    const auto place = std::lower_bound(inodes_.begin(), inodes_.end(), inode);
    if (place == inodes_.end() || *place != inode) return false;
    auto&& found = found_[static_cast<size_t>(place - inodes_.begin())];
    if (found) return false;
    found = true;
    --left_;
    return true;
  }

  std::vector<uint64_t> inodes_;
  std::vector<bool> found_;
  size_t left_ = 0;
  const Time end_;
};

}  // namespace

SocketHolders find_socket_holders(std::vector<uint64_t> inodes, size_t most, Time end) {
  SocketHolders holders;
  Search search(std::move(inodes), end);
  const Directory processes(opendir("/proc"));
  while (processes && search.left() > 0) {
    const dirent* const entry = readdir(processes.get());
    if (entry == nullptr) break;
    const std::string pid = entry->d_name;
    if (!is_number(pid)) continue;
    if (search.is_late() || holders.processes.size() >= most) {
      holders.is_whole = false;
      break;
    }
    const uint64_t inode = search.look_into(pid, holders.is_whole);
    if (inode == 0) continue;
    std::string name;
    std::getline(std::ifstream(concat("/proc/", pid, "/comm")), name);
    holders.processes.push_back({inode, concat(pid, " (", printable(name), ")")});
  }
  holders.sockets_left = search.left();
  return holders;
}

}  // namespace uroce
