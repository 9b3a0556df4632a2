// SPDX-License-Identifier: BSD-2-Clause
// Both sides of what librdmacm offers, over any RDMA device: connections and datagrams that are accepted, rejected and
// ended by either side, with all private data compared. Not linked with anything of uroce.
#include <cstdio>
#include <exception>
#include <string>

#include "tests/e2e/rdma_cm/sides.h"

int main(int count, char** words) {
  const std::string role = count > 1 ? words[1] : "";
  try {
    if (role == "server" && (count == 3 || count == 4)) {
      uroce::cm_exchange::serve(count == 4 ? words[3] : "", words[2]);
    } else if (role == "client" && (count == 4 || count == 5)) {
      uroce::cm_exchange::call(words[2], words[3], count == 5 ? words[4] : "all");
    } else {
      std::fputs(
          "usage: cm_exchange server PORT [ADDRESS]\n"
          "       cm_exchange client ADDRESS PORT [rc | ud | all]\n",
          stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cm_exchange: %s\n", error.what());
    return 1;
  }
  return 0;
}
