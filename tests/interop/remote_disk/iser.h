// SPDX-License-Identifier: BSD-2-Clause
// A session of libiscsi over iSER.
#pragma once

#include <chrono>

#include "tests/interop/remote_disk/disk.h"

struct iscsi_context;

namespace uroce::remote_disk {

class IserDisk : public Disk {
 public:
  explicit IserDisk(const std::string& url);
  ~IserDisk();
  IserDisk(const IserDisk&) = delete;
  IserDisk& operator=(const IserDisk&) = delete;

  uint64_t blocks() const override { return blocks_; }
  size_t outstanding() const override { return outstanding_; }
  void write(uint64_t block, std::span<uint8_t> data) override;
  void read(uint64_t block, std::span<uint8_t> data) override;
  // When nothing comes for a while the target is asked whether it is there, as block layers do: libiscsi itself does
  // not look at a connection on which it has nothing to send.
  void wait() override;
  void logout() override;

 private:
  static void on_login(iscsi_context*, int status, void*, void* self);
  static void on_logout(iscsi_context*, int status, void*, void* self);
  static void on_capacity(iscsi_context*, int status, void* task, void* self);
  static void on_read(iscsi_context*, int status, void* task, void* reading);
  static void on_end(iscsi_context*, int status, void* task, void* self);

  void configure(const std::string& target);
  void login(const std::string& portal, int lun);
  void read_capacity();
  void started(const void* task);
  void ended(int status);
  // Lets libiscsi handle what comes within that time.
  void serve(std::chrono::milliseconds patience);
  // As often as it takes until done() or the end of `patience`.
  template <typename Done>
  void serve_until(Done done, const char* what);
  [[noreturn]] void lose(const std::string& what) const;

  iscsi_context* iscsi_;
  int lun_ = 0;
  bool logged_in_ = false, logged_out_ = false;
  int failed_ = 0;  // status of the last command that has failed
  uint64_t blocks_ = 0;
  size_t outstanding_ = 0;
  uint64_t ended_ = 0;
};

}  // namespace uroce::remote_disk
