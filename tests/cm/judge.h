// SPDX-License-Identifier: BSD-2-Clause
// The oracle's opinion of what one host of the Lab sends, and the capture that it is of. Held by Host; a host that
// begins anew after a crash has another one, as it knows nothing of what it had said.
#pragma once

#include <string>
#include <vector>

#include "base/time.h"
#include "cm/types.h"
#include "oracle/oracle.h"
#include "pcapng/record.h"

namespace uroce::cm::test {

class Judge {
 public:
  explicit Judge(const wire::IpAddress& address);

  void on_datagram(const Datagram& datagram, bool out, Time now);
  // The first violation, with its packet, or nothing. Only once.
  std::string finish(Time now);
  const oracle::Oracle& oracle() const { return oracle_; }
  // False: it cannot be written.
  bool write_capture(const std::string& path) const;

 private:
  oracle::Oracle oracle_;
  uint64_t number_ = 0;
  std::vector<pcapng::Record> records_;  // of all that passed, at most kMostRecords
};

}  // namespace uroce::cm::test
