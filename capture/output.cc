// SPDX-License-Identifier: BSD-2-Clause
#include "capture/output.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fork.h"

namespace uroce::io {
namespace {

constexpr mode_t kOnlyOwner = S_IRUSR | S_IWUSR;

// Where the extension begins; the end if there is none.
size_t extension_at(const std::string& path) {
  const size_t slash = path.rfind('/');
  const size_t dot = path.rfind('.');
  return dot == std::string::npos || (slash != std::string::npos && dot < slash + 2) || dot == 0 ? path.size() : dot;
}

// `path` with a number in front of its extension.
std::string with_suffix(const std::string& path, const char* format, unsigned number) {
  char suffix[16];
  std::snprintf(suffix, sizeof(suffix), format, number);
  std::string name = path;
  return name.insert(extension_at(path), suffix);
}

// A descriptor that whoever started the program gave it, as the shell does with --capture >(COMMAND). The name is a
// link that nobody else can have put there.
bool is_own_descriptor(std::string_view path) {
  for (const std::string_view directory : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(directory)) continue;
    const std::string_view number = path.substr(directory.size());
    return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  }
  return false;
}

// Whether what a capture's name led to may be written, 0 or an errno value. A capture holds the data and the keys of
// its connections: a pipe of somebody else would hand them out, and a file of somebody else, or one with a second name
// elsewhere, is not ours to empty. Devices (/dev/null, a terminal) are root's to make.
int may_write(int fd, bool& regular) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return errno;
  regular = S_ISREG(status.st_mode);
  if (S_ISCHR(status.st_mode)) return 0;
  return status.st_uid == geteuid() && (!regular || status.st_nlink == 1) ? 0 : EEXIST;
}

// 0 or an errno value. Not another process's file: EWOULDBLOCK. What was there goes only when all has been found right.
int make_ready(int fd, bool given) {
  bool regular = false;
  if (const int error = may_write(fd, regular); error != 0 && !given) return error;
  if (!regular) return 0;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) return errno;
  // One that was there already may be readable for others.
  if (!given && fchmod(fd, kOnlyOwner) != 0) return errno;
  return ftruncate(fd, 0) != 0 ? errno : 0;
}

// A descriptor or a negative errno value. A pipe that nobody reads is ENXIO, and not waited for.
int open_own(const std::string& path) {
  const bool given = is_own_descriptor(path);
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (given ? 0 : O_NOFOLLOW);
  ForkGuard guard;
  const int fd = open(path.c_str(), flags, kOnlyOwner);
  if (fd < 0) return -errno;
  if (const int error = make_ready(fd, given)) {
    close(fd);
    return -error;
  }
  guard.close_in_children(fd);
  return fd;
}

}  // namespace

std::string capture_error_text(int error) {
  switch (error) {
    case ELOOP:
      return "it is a symbolic link, and captures are not written through links; name the file itself";
    case EEXIST:
      return "what is there belongs to another user, or has a second name (a hard link); remove it, or choose another "
             "name";
    default:
      return std::strerror(error);
  }
}

std::string CaptureFiles::name(uint32_t number) const {
  return with_suffix(path_, "_%05u", number);
}

int CaptureFiles::open_next() {
  ++number_;
  if (files_ > 1 && number_ > files_) unlink(name(number_ - files_).c_str());
  const std::string path = files_ > 1 ? name(number_) : path_;
  const int fd = open_own(path);
  return fd == -EWOULDBLOCK ? open_own(with_suffix(path, "_%u", static_cast<unsigned>(getpid()))) : fd;
}

DescriptorStream::DescriptorStream(int descriptor, int stop) : descriptor_(descriptor), stop_(stop) {
  struct stat status {};
  may_block_ = fstat(descriptor, &status) == 0 && !S_ISREG(status.st_mode);
  buffer_.reserve(kBuffer);
}

DescriptorStream::~DescriptorStream() {
  DescriptorStream::sync();
  ForkGuard().close(descriptor_);
}

std::streamsize DescriptorStream::xsputn(const char* data, std::streamsize size) {
  if (error_ != 0) return 0;
  const auto count = static_cast<size_t>(size);
  if (buffer_.size() + count > kBuffer && DescriptorStream::sync() != 0) return 0;
  buffer_.insert(buffer_.end(), data, data + count);
  return size;
}

DescriptorStream::int_type DescriptorStream::overflow(int_type c) {
  const char byte = traits_type::to_char_type(c);
  return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
}

int DescriptorStream::sync() {
  if (error_ == 0 && !write_all(buffer_.data(), buffer_.size())) error_ = errno == 0 ? EIO : errno;
  buffer_.clear();
  return error_ == 0 ? 0 : -1;
}

bool DescriptorStream::write_all(const char* data, size_t size) {
  while (size > 0) {
    if (may_block_ && !wait_writable()) return false;
    // What a pipe that is not full takes without waiting.
    const ssize_t written = write(descriptor_, data, may_block_ ? std::min<size_t>(size, PIPE_BUF) : size);
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written <= 0) continue;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool DescriptorStream::wait_writable() {
  pollfd descriptors[2] = {{descriptor_, POLLOUT, 0}, {stop_, POLLIN, 0}};
  const int ready = poll(descriptors, 2, -1);
  if (ready < 0) return errno == EINTR || errno == EAGAIN;
  if (descriptors[0].revents & (POLLOUT | POLLERR)) return true;
  // Only the wish to stop is there.
  if (poll(descriptors, 1, static_cast<int>(kPatience.count())) > 0) return true;
  errno = ETIMEDOUT;
  return false;
}

}  // namespace uroce::io
