// SPDX-License-Identifier: BSD-2-Clause
// XRC domains: what XRC targets and the shared receive queues they deliver to have in common. A file gives a domain a
// name that others find it by; here within the process.

#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <sys/stat.h>
#include <vector>

#include "abi/verbs/dispatch.h"
#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/values.h"

namespace uroce::verbs {
namespace {

// The domains that have a file. Those nobody has open any more are dropped.
struct NamedDomains {
  std::mutex mutex;
  std::vector<std::weak_ptr<XrcDomain>> all;
};

NamedDomains& named_domains() {
  return per_process<NamedDomains>();
}

std::shared_ptr<XrcDomain> find(std::vector<std::weak_ptr<XrcDomain>>& all, const struct stat& file) {
  std::erase_if(all, [](const std::weak_ptr<XrcDomain>& domain) { return domain.expired(); });
  for (const std::weak_ptr<XrcDomain>& weak : all) {
    std::shared_ptr<XrcDomain> domain = weak.lock();
    if (domain && domain->device == file.st_dev && domain->inode == file.st_ino) return domain;
  }
  return nullptr;
}

std::shared_ptr<XrcDomain> make_domain() {
  auto domain = std::make_shared<XrcDomain>();
  domain->number = next_handle();
  return domain;
}

// As the kernel: O_CREAT makes one that is not there (else EAGAIN), O_EXCL refuses one that is (EINVAL).
int open_domain(int fd, int flags, std::shared_ptr<XrcDomain>& out) {
  if (flags & ~(O_CREAT | O_EXCL)) return EINVAL;
  if (fd == -1) {
    out = make_domain();
    return 0;
  }
  struct stat file {};
  if (::fstat(fd, &file) != 0) return errno;
  NamedDomains& named = named_domains();
  std::lock_guard guard(named.mutex);
  out = find(named.all, file);
  if (out) return (flags & O_EXCL) ? EINVAL : 0;
  if (!(flags & O_CREAT)) return EAGAIN;
  UniqueFd kept(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!kept) return errno;
  out = make_domain();
  out->file = std::move(kept);
  out->device = file.st_dev;
  out->inode = file.st_ino;
  named.all.push_back(out);
  return 0;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  if (refuses_orphan(context)) return fail(EIO);
  constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr->comp_mask & ~kNeeded) return fail(EOPNOTSUPP);
  if (attr->comp_mask != kNeeded) return fail(EINVAL);
  if (!take_quota(context, engine::ObjectKind::kXrcd)) return fail(ENOMEM);
  std::unique_ptr<Xrcd> xrcd;
  const int error = without_exceptions([&] {
    xrcd = std::make_unique<Xrcd>();
    return open_domain(attr->fd, attr->oflags, xrcd->domain);
  });
  if (error != 0) {
    give_quota(context, engine::ObjectKind::kXrcd);
    return fail(error);
  }
  xrcd->context = context;
  ++xrcd->domain->opened;
  ++from(context).users;
  return xrcd.release();
}

// Busy while it is the last handle of a domain that SRQs or QPs are in.
int close_xrcd(ibv_xrcd* verbs) {
  Xrcd& xrcd = from(verbs);
  if (orphaned(verbs->context)) return abandon(xrcd);
  {
    std::lock_guard guard(xrcd.domain->mutex);
    if (xrcd.domain->users != 0 && xrcd.domain->opened == 1) return answer(EBUSY);
    --xrcd.domain->opened;
  }
  give_quota(verbs->context, engine::ObjectKind::kXrcd);
  drop_user(from(verbs->context));
  delete &xrcd;
  return 0;
}

}  // namespace uroce::verbs
