// SPDX-License-Identifier: BSD-2-Clause
// Where a capture goes: files that it opens itself, one or a ring of several, or descriptors that somebody else hands
// it. And a stream onto such a descriptor. Used by the writer thread of a CaptureSession.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <streambuf>
#include <string>
#include <vector>

namespace uroce::io {

// What the writer thread watches while it cannot write.
class CaptureControl {
 public:
  virtual ~CaptureControl() = default;
  // A descriptor that becomes readable when the capture is to stop; -1: there is none.
  virtual int descriptor() const { return -1; }
  // The descriptor is readable: true if the capture is to stop.
  virtual bool stop_requested() { return false; }
  // The capture is over. error: 0, or the errno value that ended it.
  virtual void on_end(uint64_t /*captured*/, uint64_t /*dropped*/, int /*error*/) {}
};

class CaptureOutput {
 public:
  virtual ~CaptureOutput() = default;
  // The descriptor to write to from now on, which the caller closes; the one before is complete. A negative errno value
  // when there is none.
  virtual int open_next() = 0;
  // What a descriptor's share of the capture may take, in bytes; 0: there is no limit.
  virtual uint64_t size_limit() const { return 0; }
};

// Files by name, for their owner only to read. What another user could have put there is not written: a symbolic link
// is ELOOP, a file or pipe of another user or with a second name is EEXIST. `files` > 1: a ring; FILE.pcapng becomes
// FILE_00001.pcapng and so on, and the oldest go.
class CaptureFiles final : public CaptureOutput {
 public:
  CaptureFiles(std::string path, uint32_t files, uint64_t size_limit)
      : path_(std::move(path)), files_(files), size_limit_(size_limit) {}
  int open_next() override;
  uint64_t size_limit() const override { return size_limit_; }

 private:
  std::string name(uint32_t number) const;

  const std::string path_;
  const uint32_t files_;
  const uint64_t size_limit_;
  uint32_t number_ = 0;  // of the one being written
};

// Why a capture cannot be written: `error` is a positive errno value of CaptureFiles or of a DescriptorStream.
std::string capture_error_text(int error);

// Writes to a descriptor in large pieces. Waits for a slow reader, but not once the capture is to stop.
class DescriptorStream final : public std::streambuf {
 public:
  static constexpr size_t kBuffer = size_t{1} << 18;
  // How long a reader that takes nothing holds up the end of the capture.
  static constexpr std::chrono::milliseconds kPatience{500};

  // `stop`: a descriptor that becomes readable when it is time to stop; -1: never. Owns `descriptor`.
  DescriptorStream(int descriptor, int stop);
  ~DescriptorStream() override;
  DescriptorStream(const DescriptorStream&) = delete;
  DescriptorStream& operator=(const DescriptorStream&) = delete;

  int error() const { return error_; }  // errno value of the first failure, 0: none

 protected:
  std::streamsize xsputn(const char* data, std::streamsize size) override;
  int_type overflow(int_type c) override;
  int sync() override;

 private:
  bool write_all(const char* data, size_t size);
  bool wait_writable();

  const int descriptor_;
  const int stop_;
  bool may_block_ = false;  // not a regular file: wait before writing
  int error_ = 0;
  std::vector<char> buffer_;
};

}  // namespace uroce::io
