// SPDX-License-Identifier: BSD-2-Clause
// A QP of the type that its configuration names. For the tests of the transport and the fuzzers; the engine does the
// same (engine/objects/qp.h).
#pragma once

#include <variant>

#include "engine/transport/reliable/rc_qp.h"
#include "engine/transport/unreliable/uc_qp.h"
#include "engine/transport/unreliable/ud_qp.h"

namespace uroce::transport::test {

class AnyQp {
 public:
  explicit AnyQp(const QpConfig& config) : qp_(make(config)) {}
  AnyQp(const AnyQp&) = delete;
  AnyQp& operator=(const AnyQp&) = delete;

  TransportQp& operator*() const { return *qp_; }
  TransportQp* operator->() const { return qp_; }

 private:
  TransportQp* make(const QpConfig& config) {
    switch (config.type) {
      case QpType::kUc:
        return &held_.emplace<UcQp>(config);
      case QpType::kUd:
        return &held_.emplace<UdQp>(config);
      default:
        return &held_.emplace<RcQp>(config);
    }
  }

  std::variant<std::monostate, RcQp, UcQp, UdQp> held_;
  TransportQp* const qp_;  // points into it
};

}  // namespace uroce::transport::test
