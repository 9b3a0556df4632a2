#include "engine/io/capture/output.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/fork.h"

namespace uroce::io {
namespace {

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

// Not another process's file: that one gets a name of its own. A pipe that nobody reads is ENXIO, and not waited for.
int open_own(const std::string& path) {
  ForkGuard guard;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
  if (fd < 0) return -errno;
  struct stat status {};
  const bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  if (regular && flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return -EWOULDBLOCK;
  }
  if (regular && ftruncate(fd, 0) != 0) {
    const int error = errno;
    close(fd);
    return -error;
  }
  guard.close_in_children(fd);
  return fd;
}

}  // namespace

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
