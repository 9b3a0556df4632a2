// SPDX-License-Identifier: BSD-2-Clause
// The soak's calls that make and destroy objects.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "tests/stress/soak_objects.h"

namespace uroce::stress {

bool judge(Objects& objects, const char* what, int result, std::initializer_list<int> allowed) {
  if (result == 0) {
    ++objects.successes;
    return true;
  }
  for (int error : allowed) {
    if (error == result) {
      ++objects.failures;
      return false;
    }
  }
  give_up("%s: %d (%s) is not among its answers", what, result, std::strerror(result));
}

bool judge_made(Objects& objects, const char* what, const void* made, std::initializer_list<int> allowed) {
  return judge(objects, what, made != nullptr ? 0 : errno, allowed);
}

bool judge_gone(Objects& objects, const char* what, int result, int users) {
  if (users < 0) give_up("%s: the soak has miscounted", what);
  if ((result == EBUSY) != (users > 0)) give_up("%s: %s with %d users", what, std::strerror(result), users);
  if (result == EBUSY) ++objects.busy;
  return judge(objects, what, result, {EBUSY});
}

namespace {

using Call = void (*)(Objects&);

// Now and then no bit of a mask, a wrong one, or all.
uint32_t spoil(Random& random, uint32_t mask) {
  if (!random.one_in(6)) return mask;
  return random.one_in(3) ? 0 : mask ^ 1u << random.below(32);
}

uint32_t size_or_nonsense(Random& random, uint32_t most) {
  constexpr uint32_t kOdd[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff};
  if (random.one_in(8)) return random.of(kOdd);
  return 1 + random.below(most);
}

// Those of nothing that can be left out.
template <class T>
T* object_or_null(Object<T>* object) {
  return object == nullptr ? nullptr : object->verbs;
}

void alloc_pd(Objects& o) {
  if (o.pds.full()) return;
  if (ibv_pd* pd = ibv_alloc_pd(o.context()); judge_made(o, "ibv_alloc_pd", pd, {})) o.pds.add(pd);
}

void dealloc_pd(Objects& o) {
  Pool<ibv_pd>& pool = o.random.one_in(2) ? o.pds : o.parents;
  Object<ibv_pd>* pd = pool.any(o.random);
  if (pd != nullptr && judge_gone(o, "ibv_dealloc_pd", ibv_dealloc_pd(pd->verbs), pd->users)) pool.remove(pd);
}

void alloc_td(Objects& o) {
  if (o.tds.full()) return;
  ibv_td_init_attr attr{spoil(o.random, 0)};
  if (ibv_td* td = ibv_alloc_td(o.context(), &attr); judge_made(o, "ibv_alloc_td", td, {EINVAL, EOPNOTSUPP})) {
    o.tds.add(td);
  }
}

void dealloc_td(Objects& o) {
  Object<ibv_td>* td = o.tds.any(o.random);
  if (td != nullptr && judge_gone(o, "ibv_dealloc_td", ibv_dealloc_td(td->verbs), td->users)) o.tds.remove(td);
}

void alloc_parent(Objects& o) {
  Object<ibv_pd>* pd = o.pd();
  Object<ibv_td>* td = o.random.one_in(2) ? o.tds.any(o.random) : nullptr;
  if (o.parents.full() || pd == nullptr) return;
  ibv_parent_domain_init_attr attr{};
  attr.pd = o.random.one_in(10) ? nullptr : pd->verbs;
  attr.td = object_or_null(td);
  attr.comp_mask = spoil(o.random, 0);
  ibv_pd* parent = ibv_alloc_parent_domain(pd->verbs->context, &attr);
  if (!judge_made(o, "ibv_alloc_parent_domain", parent, {EINVAL, EOPNOTSUPP})) return;
  Object<ibv_pd>& object = o.parents.add(parent);
  object.use(pd->users);
  if (td != nullptr) object.use(td->users);
}

void create_channel(Objects& o) {
  if (o.channels.full()) return;
  ibv_comp_channel* channel = ibv_create_comp_channel(o.context());
  if (!judge_made(o, "ibv_create_comp_channel", channel, {})) return;
  fcntl(channel->fd, F_SETFL, O_NONBLOCK);
  o.channels.add(channel);
}

void destroy_channel(Objects& o) {
  Object<ibv_comp_channel>* channel = o.channels.any(o.random);
  if (channel != nullptr &&
      judge_gone(o, "ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel->verbs), channel->users)) {
    o.channels.remove(channel);
  }
}

void create_cq(Objects& o) {
  if (o.cqs.full()) return;
  Object<ibv_comp_channel>* channel = o.random.one_in(2) ? o.channels.any(o.random) : nullptr;
  const auto entries = static_cast<int>(size_or_nonsense(o.random, 300));
  const int vector = o.random.one_in(10) ? static_cast<int>(o.random.below(5)) - 2 : 0;
  ibv_context* context = channel != nullptr ? channel->verbs->context : o.context();
  ibv_cq* cq = ibv_create_cq(context, entries, &o, object_or_null(channel), vector);
  if (!judge_made(o, "ibv_create_cq", cq, {EINVAL, ENOMEM})) return;
  if (cq->cqe < entries) give_up("ibv_create_cq: %d of %d entries", cq->cqe, entries);
  Object<ibv_cq>& object = o.cqs.add(cq);
  if (channel != nullptr) object.use(channel->users);
}

void create_cq_ex(Objects& o) {
  if (o.cqs.full()) return;
  Object<ibv_comp_channel>* channel = o.random.one_in(2) ? o.channels.any(o.random) : nullptr;
  Object<ibv_pd>* parent = o.random.one_in(2) ? o.pd() : nullptr;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = size_or_nonsense(o.random, 300);
  attr.channel = object_or_null(channel);
  attr.wc_flags = o.random.one_in(10) ? o.random.next() : o.random.next() & IBV_CREATE_CQ_SUP_WC_FLAGS;
  attr.comp_mask = spoil(o.random, IBV_CQ_INIT_ATTR_MASK_FLAGS | (parent != nullptr ? IBV_CQ_INIT_ATTR_MASK_PD : 0));
  attr.flags = spoil(o.random, o.random.below(4));
  attr.parent_domain = object_or_null(parent);
  ibv_cq_ex* cq = ibv_create_cq_ex(channel != nullptr ? channel->verbs->context : o.context(), &attr);
  if (!judge_made(o, "ibv_create_cq_ex", cq, {EINVAL, EOPNOTSUPP, ENOMEM})) return;
  Object<ibv_cq>& object = o.cqs.add(ibv_cq_ex_to_cq(cq));
  if (channel != nullptr) object.use(channel->users);
  if (parent != nullptr && (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)) object.use(parent->users);
}

void destroy_cq(Objects& o) {
  Object<ibv_cq>* cq = o.cqs.any(o.random);
  if (cq != nullptr && judge_gone(o, "ibv_destroy_cq", ibv_destroy_cq(cq->verbs), cq->users)) o.cqs.remove(cq);
}

void change_cq(Objects& o) {
  Object<ibv_cq>* cq = o.cqs.any(o.random);
  if (cq == nullptr) return;
  if (o.random.one_in(2)) {
    const auto entries = static_cast<int>(size_or_nonsense(o.random, 300));
    judge(o, "ibv_resize_cq", ibv_resize_cq(cq->verbs, entries), {EINVAL, ENOMEM});
  } else {
    ibv_modify_cq_attr attr{spoil(o.random, IBV_CQ_ATTR_MODERATE),
                            {static_cast<uint16_t>(o.random.next()), static_cast<uint16_t>(o.random.below(1000))}};
    judge(o, "ibv_modify_cq", ibv_modify_cq(cq->verbs, &attr), {EINVAL});
  }
}

void open_xrcd(Objects& o) {
  if (o.xrcds.full()) return;
  ibv_xrcd_init_attr attr{spoil(o.random, IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS),
                          o.random.one_in(10) ? 12345 : -1, o.random.one_in(10) ? O_APPEND : O_CREAT};
  ibv_xrcd* xrcd = ibv_open_xrcd(o.context(), &attr);
  if (judge_made(o, "ibv_open_xrcd", xrcd, {EINVAL, EOPNOTSUPP, EBADF})) o.xrcds.add(xrcd);
}

void close_xrcd(Objects& o) {
  Object<ibv_xrcd>* xrcd = o.xrcds.any(o.random);
  if (xrcd != nullptr && judge_gone(o, "ibv_close_xrcd", ibv_close_xrcd(xrcd->verbs), xrcd->users)) {
    o.xrcds.remove(xrcd);
  }
}

void create_srq(Objects& o) {
  Object<ibv_pd>* pd = o.pd();
  if (o.srqs.full() || pd == nullptr) return;
  ibv_srq_init_attr attr{&o, {size_or_nonsense(o.random, 100), size_or_nonsense(o.random, 8), 0}};
  ibv_srq* srq = ibv_create_srq(pd->verbs, &attr);
  if (judge_made(o, "ibv_create_srq", srq, {EINVAL, ENOMEM})) o.srqs.add(srq).use(pd->users);
}

void create_srq_ex(Objects& o) {
  Object<ibv_pd>* pd = o.pd();
  Object<ibv_cq>* cq = o.cqs.any(o.random);
  Object<ibv_xrcd>* xrcd = o.xrcds.any(o.random);
  if (o.xrc_srqs.full() || pd == nullptr || cq == nullptr || xrcd == nullptr) return;
  ibv_srq_init_attr_ex attr{};
  attr.attr = {size_or_nonsense(o.random, 100), size_or_nonsense(o.random, 8), 0};
  attr.comp_mask =
      spoil(o.random, IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ);
  attr.srq_type = o.random.one_in(10) ? static_cast<ibv_srq_type>(IBV_SRQT_TM) : IBV_SRQT_XRC;
  attr.pd = pd->verbs;
  attr.xrcd = o.random.one_in(10) ? nullptr : xrcd->verbs;
  attr.cq = o.random.one_in(10) ? nullptr : cq->verbs;
  ibv_srq* srq = ibv_create_srq_ex(pd->verbs->context, &attr);
  if (!judge_made(o, "ibv_create_srq_ex", srq, {EINVAL, EOPNOTSUPP, ENOMEM})) return;
  if (!(attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE)) {  // a plain one then
    o.srqs.add(srq).use(pd->users);
    return;
  }
  Object<ibv_srq>& object = o.xrc_srqs.add(srq);
  object.use(pd->users);
  object.use(cq->users);
  object.use(xrcd->users);
}

void destroy_srq(Objects& o) {
  Pool<ibv_srq>& pool = o.random.one_in(2) ? o.srqs : o.xrc_srqs;
  Object<ibv_srq>* srq = pool.any(o.random);
  if (srq != nullptr && judge_gone(o, "ibv_destroy_srq", ibv_destroy_srq(srq->verbs), srq->users)) pool.remove(srq);
}

void change_srq(Objects& o) {
  Object<ibv_srq>* srq = o.random.one_in(2) ? o.srqs.any(o.random) : o.xrc_srqs.any(o.random);
  if (srq == nullptr) return;
  ibv_srq_attr attr{size_or_nonsense(o.random, 100), 1, size_or_nonsense(o.random, 100)};
  judge(o, "ibv_modify_srq",
        ibv_modify_srq(srq->verbs, &attr, static_cast<int>(spoil(o.random, 1 + o.random.below(3)))), {EINVAL, ENOMEM});
  if (ibv_query_srq(srq->verbs, &attr) != 0 || attr.max_wr == 0) give_up("ibv_query_srq");
  uint32_t number = 0;
  judge(o, "ibv_get_srq_num", ibv_get_srq_num(srq->verbs, &number), {EOPNOTSUPP});
}

int random_access(Random& random) {
  if (random.one_in(10)) return static_cast<int>(random.next());
  return static_cast<int>(random.next() & 0x1f) | IBV_ACCESS_LOCAL_WRITE;
}

ibv_mr* register_somehow(Objects& o, ibv_pd* pd, Object<ibv_dm>* dm, const char*& what) {
  uint8_t* const at = o.arena.data() + o.random.below(1 << 19);
  const size_t length = o.random.one_in(10) ? SIZE_MAX - o.random.below(9) : o.random.below(1 << 19);
  const int access = random_access(o.random);
  switch (o.random.below(6)) {
    case 0:
      what = "ibv_reg_mr_iova";
      return ibv_reg_mr_iova(pd, at, length, o.random.next(), access);
    case 1:
      what = "ibv_alloc_null_mr";
      return ibv_alloc_null_mr(pd);
    case 2:
      what = "ibv_reg_dmabuf_mr";
      return ibv_reg_dmabuf_mr(pd, 0, length, 0, o.random.one_in(2) ? -1 : 0, access);
    case 3:
      if (dm == nullptr) break;
      what = "ibv_reg_dm_mr";
      return ibv_reg_dm_mr(pd, dm->verbs, o.random.below(4096), o.random.below(8192), static_cast<unsigned>(access));
    default:
      break;
  }
  what = "ibv_reg_mr";
  return ibv_reg_mr(pd, at, length, access);
}

void reg_mr(Objects& o) {
  Object<ibv_pd>* pd = o.pd();
  Object<ibv_dm>* dm = o.dms.any(o.random);
  if (o.mrs.full() || pd == nullptr) return;
  const char* what = nullptr;
  ibv_mr* mr = register_somehow(o, pd->verbs, dm, what);
  if (!judge_made(o, what, mr, {EINVAL, EOPNOTSUPP, ENOMEM, EBADF, EFAULT})) return;
  Object<ibv_mr>& object = o.mrs.add(mr);
  object.use(pd->users);
  if (std::strcmp(what, "ibv_reg_dm_mr") == 0) object.use(dm->users);
}

// EBUSY: a window is bound to it, which the soak does not follow.
void dereg_mr(Objects& o) {
  Object<ibv_mr>* mr = o.mrs.any(o.random);
  if (mr == nullptr) return;
  const uint32_t key = mr->verbs->rkey;
  if (!judge(o, "ibv_dereg_mr", ibv_dereg_mr(mr->verbs), {EBUSY})) return;
  o.mrs.remove(mr);
  o.stale_keys[o.random.below(static_cast<uint32_t>(o.stale_keys.size()))] = key;
}

void change_mr(Objects& o) {
  Object<ibv_mr>* mr = o.mrs.any(o.random);
  if (mr == nullptr) return;
  const int flags = static_cast<int>(spoil(o.random, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS)) &
                    ~IBV_REREG_MR_CHANGE_PD;
  const int result =
      ibv_rereg_mr(mr->verbs, flags, nullptr, o.arena.data(), o.random.below(1 << 20), random_access(o.random));
  judge(o, "ibv_rereg_mr", result == 0 ? 0 : errno, {EINVAL, EBUSY, EOPNOTSUPP, ENOMEM});
  ibv_sge sge{reinterpret_cast<uintptr_t>(o.arena.data()) + o.random.below(4096), o.random.below(8192),
              o.random.one_in(3) ? o.stale_keys[0] : mr->verbs->lkey};
  judge(o, "ibv_advise_mr",
        ibv_advise_mr(mr->verbs->pd, static_cast<ib_uverbs_advise_mr_advice>(o.random.below(4)), o.random.below(3),
                      &sge, o.random.below(2)),
        {EINVAL, EOPNOTSUPP, ENOENT, EFAULT, EPERM, ENOMEM});
}

void alloc_mw(Objects& o) {
  Object<ibv_pd>* pd = o.pd();
  if (o.mws.full() || pd == nullptr) return;
  ibv_mw* mw = ibv_alloc_mw(pd->verbs, static_cast<ibv_mw_type>(o.random.below(4)));
  if (judge_made(o, "ibv_alloc_mw", mw, {EINVAL, EOPNOTSUPP, ENOMEM})) o.mws.add(mw).use(pd->users);
}

void dealloc_mw(Objects& o) {
  Object<ibv_mw>* mw = o.mws.any(o.random);
  if (mw != nullptr && judge_gone(o, "ibv_dealloc_mw", ibv_dealloc_mw(mw->verbs), mw->users)) o.mws.remove(mw);
}

void alloc_dm(Objects& o) {
  if (o.dms.full()) return;
  ibv_alloc_dm_attr attr{size_or_nonsense(o.random, 8192), o.random.below(o.random.one_in(10) ? 64 : 7),
                         spoil(o.random, 0)};
  ibv_dm* dm = ibv_alloc_dm(o.context(), &attr);
  if (judge_made(o, "ibv_alloc_dm", dm, {EINVAL, EOPNOTSUPP, ENOMEM})) o.dms.add(dm);
}

void use_dm(Objects& o) {
  Object<ibv_dm>* dm = o.dms.any(o.random);
  if (dm == nullptr) return;
  uint8_t data[64];
  std::memset(data, 7, sizeof(data));
  const uint64_t offset = o.random.one_in(5) ? o.random.next() : o.random.below(8192) & ~3u;
  const size_t length = o.random.below(17) * 4;
  judge(o, "ibv_memcpy_to_dm", ibv_memcpy_to_dm(dm->verbs, offset, data, length), {EINVAL, EFAULT});
  judge(o, "ibv_memcpy_from_dm", ibv_memcpy_from_dm(data, dm->verbs, offset, length), {EINVAL, EFAULT});
  if (o.random.one_in(3) && judge_gone(o, "ibv_free_dm", ibv_free_dm(dm->verbs), dm->users)) o.dms.remove(dm);
}

void create_ah(Objects& o) {
  Object<ibv_pd>* pd = o.pd();
  if (o.ahs.full() || pd == nullptr) return;
  ibv_ah_attr attr{};
  if (ibv_query_gid(pd->verbs->context, 1, 0, &attr.grh.dgid) != 0) give_up("ibv_query_gid");
  if (o.random.one_in(6)) attr.grh.dgid.raw[o.random.below(16)] ^= 0x55;
  attr.is_global = !o.random.one_in(10);
  attr.port_num = static_cast<uint8_t>(o.random.one_in(10) ? o.random.below(4) : 1);
  attr.grh.sgid_index = static_cast<uint8_t>(o.random.one_in(10) ? o.random.below(256) : 0);
  attr.sl = static_cast<uint8_t>(o.random.below(o.random.one_in(10) ? 256 : 8));
  attr.static_rate = static_cast<uint8_t>(o.random.below(o.random.one_in(10) ? 256 : 10));
  ibv_ah* ah = ibv_create_ah(pd->verbs, &attr);
  if (judge_made(o, "ibv_create_ah", ah, {EINVAL, ENETUNREACH, EHOSTUNREACH, ENODATA, ETIMEDOUT})) {
    o.ahs.add(ah).use(pd->users);
  }
}

void destroy_ah(Objects& o) {
  Object<ibv_ah>* ah = o.ahs.any(o.random);
  if (ah != nullptr && judge_gone(o, "ibv_destroy_ah", ibv_destroy_ah(ah->verbs), ah->users)) o.ahs.remove(ah);
}

void create_qp(Objects& o) {
  Object<ibv_pd>* pd = o.pd();
  Object<ibv_cq>* send_cq = o.cqs.any(o.random);
  Object<ibv_cq>* recv_cq = o.cqs.any(o.random);
  Object<ibv_xrcd>* xrcd = o.xrcds.any(o.random);
  if (o.qps.full() || pd == nullptr || send_cq == nullptr || recv_cq == nullptr) return;
  constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_RC,       IBV_QPT_UC,       IBV_QPT_UD,
                                    IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET};
  ibv_qp_init_attr_ex attr{};
  const uint32_t type = o.random.one_in(20) ? o.random.below(16) : static_cast<uint32_t>(o.random.of(kTypes));
  attr.qp_type = static_cast<ibv_qp_type>(type);
  attr.send_cq = o.random.one_in(20) ? nullptr : send_cq->verbs;
  attr.recv_cq = o.random.one_in(20) ? nullptr : recv_cq->verbs;
  attr.cap = {size_or_nonsense(o.random, 40), size_or_nonsense(o.random, 40), size_or_nonsense(o.random, 4),
              size_or_nonsense(o.random, 4), o.random.below(200)};
  attr.sq_sig_all = o.random.one_in(2);
  Object<ibv_srq>* srq = o.random.one_in(4) ? o.srqs.any(o.random) : nullptr;
  attr.srq = object_or_null(srq);
  attr.pd = pd->verbs;
  attr.xrcd = object_or_null(xrcd);
  const bool target = type == IBV_QPT_XRC_RECV;
  attr.comp_mask = spoil(o.random, target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD);
  if (o.random.one_in(3)) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = o.random.one_in(4) ? o.random.next() : 1u << o.random.below(11);
  }
  ibv_qp* qp = nullptr;
  if (!target && o.random.one_in(2)) {
    qp = ibv_create_qp(pd->verbs, reinterpret_cast<ibv_qp_init_attr*>(&attr));
  } else {
    qp = ibv_create_qp_ex(pd->verbs->context, &attr);
  }
  if (!judge_made(o, "ibv_create_qp(_ex)", qp, {EINVAL, EOPNOTSUPP, ENOMEM})) return;
  Object<ibv_qp>& object = o.qps.add(qp);
  if (target) {
    object.use(xrcd->users);
    return;
  }
  object.use(pd->users);
  object.use(send_cq->users);
  if (type != IBV_QPT_XRC_SEND) {
    object.use(recv_cq->users);
    if (srq != nullptr) object.use(srq->users);
  }
}

void destroy_qp(Objects& o) {
  Object<ibv_qp>* qp = o.qps.any(o.random);
  if (qp != nullptr && judge_gone(o, "ibv_destroy_qp", ibv_destroy_qp(qp->verbs), qp->users)) o.qps.remove(qp);
}

// A second handle, for a moment.
void open_qp(Objects& o) {
  Object<ibv_xrcd>* xrcd = o.xrcds.any(o.random);
  Object<ibv_qp>* qp = o.qps.any(o.random);
  if (xrcd == nullptr || qp == nullptr) return;
  ibv_qp_open_attr attr{};
  attr.comp_mask = spoil(o.random, IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE);
  attr.qp_num = qp->verbs->qp_num;
  attr.xrcd = xrcd->verbs;
  attr.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* opened = ibv_open_qp(xrcd->verbs->context, &attr);
  if (!judge_made(o, "ibv_open_qp", opened, {EINVAL, EOPNOTSUPP})) return;
  judge(o, "ibv_destroy_qp of an opened one", ibv_destroy_qp(opened), {});
}

void import_and_back(Objects& o) {
  ibv_context* const from = o.context();
  const int fd = dup(from->cmd_fd);
  ibv_context* context = ibv_import_device(o.random.one_in(10) ? -1 : fd);
  if (!judge_made(o, "ibv_import_device", context, {EINVAL, EBADF})) {
    close(fd);
    return;
  }
  Object<ibv_pd>* pd = o.pds.any(o.random);
  ibv_pd* imported = pd == nullptr ? nullptr : ibv_import_pd(context, pd->verbs->handle);
  if (pd != nullptr && judge_made(o, "ibv_import_pd", imported, {ENOENT, EINVAL})) {
    Object<ibv_mr>* mr = o.mrs.any(o.random);
    ibv_mr* region = mr == nullptr ? nullptr : ibv_import_mr(imported, mr->verbs->handle);
    if (mr != nullptr && judge_made(o, "ibv_import_mr", region, {ENOENT, EINVAL})) ibv_unimport_mr(region);
    ibv_unimport_pd(imported);
  }
  judge(o, "ibv_close_device", ibv_close_device(context), {});
}

constexpr Call kCalls[] = {
    alloc_pd,    dealloc_pd,   alloc_td,   dealloc_td, alloc_parent,   create_channel, destroy_channel, create_cq,
    create_cq,   create_cq_ex, destroy_cq, change_cq,  open_xrcd,      close_xrcd,     create_srq,      create_srq_ex,
    destroy_srq, change_srq,   reg_mr,     reg_mr,     reg_mr,         dereg_mr,       change_mr,       alloc_mw,
    dealloc_mw,  alloc_dm,     use_dm,     create_ah,  create_ah,      destroy_ah,     create_qp,       create_qp,
    create_qp,   create_qp,    destroy_qp, open_qp,    import_and_back};

template <class T, class Destroy>
void empty(Objects& o, Pool<T>& pool, const char* what, Destroy destroy) {
  while (Object<T>* object = pool.first()) {
    o.activity.at(what);
    if (!judge_gone(o, what, destroy(object->verbs), object->users)) give_up("%s: busy at the end", what);
    pool.remove(object);
  }
}

}  // namespace

void random_call(Objects& objects) {
  objects.activity.at("make or destroy");
  objects.random.of(kCalls)(objects);
}

void destroy_everything(Objects& o) {
  empty(o, o.qps, "ibv_destroy_qp", ibv_destroy_qp);
  empty(o, o.srqs, "ibv_destroy_srq", ibv_destroy_srq);
  empty(o, o.xrc_srqs, "ibv_destroy_srq", ibv_destroy_srq);
  empty(o, o.xrcds, "ibv_close_xrcd", ibv_close_xrcd);
  empty(o, o.cqs, "ibv_destroy_cq", ibv_destroy_cq);
  empty(o, o.channels, "ibv_destroy_comp_channel", ibv_destroy_comp_channel);
  empty(o, o.ahs, "ibv_destroy_ah", ibv_destroy_ah);
  empty(o, o.mws, "ibv_dealloc_mw", ibv_dealloc_mw);
  empty(o, o.mrs, "ibv_dereg_mr", ibv_dereg_mr);
  empty(o, o.dms, "ibv_free_dm", ibv_free_dm);
  // Parents of parents.
  while (!o.parents.empty()) {
    Object<ibv_pd>* pd = o.parents.any(o.random);
    if (judge_gone(o, "ibv_dealloc_pd", ibv_dealloc_pd(pd->verbs), pd->users)) o.parents.remove(pd);
  }
  empty(o, o.tds, "ibv_dealloc_td", ibv_dealloc_td);
  empty(o, o.pds, "ibv_dealloc_pd", ibv_dealloc_pd);
}

}  // namespace uroce::stress
