// SPDX-License-Identifier: BSD-2-Clause
#include "abi/verbs/command_file.h"

#include <cerrno>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fork.h"
#include "base/unique_fd.h"

namespace uroce::verbs {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<CommandFile>> files;
};

Registry& registry() {
  return per_process<Registry>();
}

}  // namespace

// An anonymous file: a descriptor that can be duplicated and handed on, and that fstat() tells apart from all others.
int CommandFile::open(Device& device, engine::Engine& engine, int& fd, std::shared_ptr<CommandFile>& out) {
  auto file = std::make_shared<CommandFile>(device, engine);
  UniqueFd opened(memfd_create("uroce", MFD_CLOEXEC));
  struct stat status {};
  if (!opened || fstat(opened.get(), &status) != 0) return errno;
  file->identity_ = {status.st_dev, status.st_ino};
  std::lock_guard guard(registry().mutex);
  registry().files[file->identity_] = file;
  out = std::move(file);
  fd = opened.release();
  return 0;
}

std::shared_ptr<CommandFile> CommandFile::find(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return nullptr;
  std::lock_guard guard(registry().mutex);
  const auto found = registry().files.find({status.st_dev, status.st_ino});
  return found == registry().files.end() ? nullptr : found->second.lock();
}

CommandFile::~CommandFile() {
  std::lock_guard guard(registry().mutex);
  // The inode number may belong to a younger file by now.
  const auto found = registry().files.find(identity_);
  if (found != registry().files.end() && found->second.expired()) registry().files.erase(found);
}

bool CommandFile::open_context() {
  std::lock_guard guard(mutex_);
  if (closed_) return false;
  if (++open_contexts_ > 1) ++memory_->open_contexts;  // which begins with the first one
  return true;
}

void CommandFile::close_context() {
  std::lock_guard guard(mutex_);
  if (--open_contexts_ > 0) return;
  closed_ = true;
  quota_->close();
}

void CommandFile::add(const Pd& pd) {
  std::lock_guard guard(mutex_);
  pds_[pd.handle] = pd.users.shared();
}

int CommandFile::remove(const Pd& pd) {
  std::lock_guard guard(mutex_);
  if (pd.users.all() != 0) return EBUSY;
  return pds_.erase(pd.handle) != 0 ? 0 : ENOENT;
}

std::unique_ptr<Pd> CommandFile::import_pd(uint32_t handle) {
  std::lock_guard guard(mutex_);
  const auto found = pds_.find(handle);
  if (found == pds_.end()) return nullptr;
  auto pd = std::make_unique<Pd>(found->second);
  pd->handle = handle;
  return pd;
}

}  // namespace uroce::verbs
