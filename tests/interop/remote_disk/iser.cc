// SPDX-License-Identifier: BSD-2-Clause
#include "tests/interop/remote_disk/iser.h"

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <memory>
#include <poll.h>

namespace uroce::remote_disk {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr auto kSilence = seconds(2);     // then the target is asked
constexpr auto kPatience = seconds(120);  // for an answer or an error: retries take up to 70 s

struct FreeUrl {
  void operator()(iscsi_url* url) const { iscsi_destroy_url(url); }
};

struct Reading {
  IserDisk* disk;
  scsi_iovec place;  // libiscsi does not copy it
};

std::string describe(int status) {
  switch (status) {
    case SCSI_STATUS_CHECK_CONDITION:
      return "check condition";
    case SCSI_STATUS_CANCELLED:
      return "cancelled";
    case SCSI_STATUS_ERROR:
      return "error";
    default:
      return "status " + std::to_string(status);
  }
}

}  // namespace

// --- login and logout
// ----------------------------------------------------------------------------------------------------

IserDisk::IserDisk(const std::string& url) : iscsi_(iscsi_create_context("iqn.2026-11.example.uroce:initiator")) {
  if (iscsi_ == nullptr) throw Wrong("iscsi_create_context");
  const std::unique_ptr<iscsi_url, FreeUrl> parsed(iscsi_parse_full_url(iscsi_, url.c_str()));
  if (parsed == nullptr) throw Wrong(url + ": " + iscsi_get_error(iscsi_));
  configure(parsed->target);
  // The context of a login that fails is left to the end of the process. libiscsi's thread for events, for which nobody
  // waits, goes on with it after it has woken the login: where it was freed, rdma_ack_cm_event() got what lay there.
  login(parsed->portal, parsed->lun);
  read_capacity();
}

// After a logout the connection is left to the end of the process, as libiscsi's own programs do: its thread for
// events, which iscsi_disconnect() ends without waiting for it, may just be at the target's disconnect.
IserDisk::~IserDisk() {
  if (!logged_out_) iscsi_disconnect(iscsi_);
  iscsi_destroy_context(iscsi_);
}

void IserDisk::configure(const std::string& target) {
  iscsi_set_targetname(iscsi_, target.c_str());
  iscsi_set_session_type(iscsi_, ISCSI_SESSION_NORMAL);
  iscsi_set_header_digest(iscsi_, ISCSI_HEADER_DIGEST_NONE);
  // libiscsi 1.19 would announce immediate data of iSER commands and not send any.
  iscsi_set_immediate_data(iscsi_, ISCSI_IMMEDIATE_DATA_NO);
  iscsi_set_initial_r2t(iscsi_, ISCSI_INITIAL_R2T_YES);
  iscsi_set_noautoreconnect(iscsi_, 1);  // commands end with an error instead
}

void IserDisk::login(const std::string& portal, int lun) {
  lun_ = lun;
  if (iscsi_full_connect_async(iscsi_, portal.c_str(), lun, on_login, this) != 0) lose("no connection");
  serve_until([&] { return logged_in_ || failed_ != 0; }, "login");
  if (failed_ != 0) lose("login: " + describe(failed_));
}

void IserDisk::on_login(iscsi_context* /*iscsi*/, int status, void* /*data*/, void* self) {
  static_cast<IserDisk*>(self)->logged_in_ = status == SCSI_STATUS_GOOD;
  if (status != SCSI_STATUS_GOOD) static_cast<IserDisk*>(self)->failed_ = status;
}

void IserDisk::logout() {
  if (iscsi_logout_async(iscsi_, on_logout, this) != 0) lose("logout");
  serve_until([&] { return logged_out_ || failed_ != 0; }, "logout");
  if (failed_ != 0) lose("logout: " + describe(failed_));
}

void IserDisk::on_logout(iscsi_context* /*iscsi*/, int status, void* /*data*/, void* self) {
  static_cast<IserDisk*>(self)->logged_out_ = status == SCSI_STATUS_GOOD;
  if (status != SCSI_STATUS_GOOD) static_cast<IserDisk*>(self)->failed_ = status;
}

void IserDisk::read_capacity() {
  started(iscsi_readcapacity16_task(iscsi_, lun_, on_capacity, this));
  serve_until([&] { return blocks_ != 0 || failed_ != 0; }, "READ CAPACITY");
  if (failed_ != 0) lose("READ CAPACITY: " + describe(failed_));
}

void IserDisk::on_capacity(iscsi_context* /*iscsi*/, int status, void* task, void* self) {
  auto* const ended = static_cast<scsi_task*>(task);
  if (status == SCSI_STATUS_GOOD) {
    const auto* const capacity = static_cast<scsi_readcapacity16*>(scsi_datain_unmarshall(ended));
    const bool known = capacity != nullptr && capacity->block_length == kBlock;
    static_cast<IserDisk*>(self)->blocks_ = known ? capacity->returned_lba + 1 : 0;
    if (!known) status = SCSI_STATUS_ERROR;
  }
  scsi_free_scsi_task(ended);
  static_cast<IserDisk*>(self)->ended(status);
}

// --- commands
// ------------------------------------------------------------------------------------------------------------

void IserDisk::write(uint64_t block, std::span<uint8_t> data) {
  started(iscsi_write16_task(iscsi_, lun_, block, data.data(), static_cast<uint32_t>(data.size()), kBlock, 0, 0, 0, 0,
                             0, on_end, this));
}

void IserDisk::read(uint64_t block, std::span<uint8_t> data) {
  auto reading = std::make_unique<Reading>(Reading{this, {data.data(), data.size()}});
  started(iscsi_read16_iov_task(iscsi_, lun_, block, static_cast<uint32_t>(data.size()), kBlock, 0, 0, 0, 0, 0, on_read,
                                reading.get(), &reading->place, 1));
  reading.release();  // to on_read()
}

void IserDisk::started(const void* task) {
  if (task == nullptr) lose("a command is not taken");
  ++outstanding_;
}

// Called by libiscsi, through which nothing may be thrown.
void IserDisk::on_end(iscsi_context* /*iscsi*/, int status, void* task, void* self) {
  scsi_free_scsi_task(static_cast<scsi_task*>(task));
  static_cast<IserDisk*>(self)->ended(status);
}

void IserDisk::on_read(iscsi_context* /*iscsi*/, int status, void* task, void* reading) {
  const std::unique_ptr<Reading> done(static_cast<Reading*>(reading));
  on_end(nullptr, status, task, done->disk);
}

void IserDisk::ended(int status) {
  --outstanding_;
  ++ended_;
  if (status != SCSI_STATUS_GOOD) failed_ = status;
}

void IserDisk::wait() {
  const uint64_t before = ended_;
  serve_until([&] { return ended_ != before || failed_ != 0; }, "command");
  if (failed_ == SCSI_STATUS_CHECK_CONDITION) throw Wrong("a command ends with CHECK CONDITION");
  if (failed_ != 0) lose("a command: " + describe(failed_));
}

// --- libiscsi's turns
// ----------------------------------------------------------------------------------------------------

template <typename Done>
void IserDisk::serve_until(Done done, const char* what) {
  const auto start = steady_clock::now();
  auto asked = start;
  while (!done()) {
    serve(milliseconds(100));
    const auto now = steady_clock::now();
    if (now - start > kPatience) throw Wrong(std::string(what) + ": neither an answer nor an error");
    if (!logged_in_ || now - asked < kSilence) continue;
    asked = now;
    started(iscsi_testunitready_task(iscsi_, lun_, on_end, this));
  }
}

void IserDisk::serve(milliseconds patience) {
  pollfd wait{iscsi_get_fd(iscsi_), static_cast<short>(iscsi_which_events(iscsi_)), 0};
  const int ready = poll(&wait, 1, static_cast<int>(patience.count()));
  if (ready < 0) throw Wrong("poll");
  // 1.19 takes a call without an event for an error.
  if (ready > 0 && iscsi_service(iscsi_, wait.revents) != 0) lose("iscsi_service");
}

void IserDisk::lose(const std::string& what) const {
  std::string error = iscsi_get_error(iscsi_);
  std::erase(error, '\n');
  throw Lost(what + " (" + error + ")");
}

}  // namespace uroce::remote_disk
