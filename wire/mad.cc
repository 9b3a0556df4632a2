// SPDX-License-Identifier: BSD-2-Clause
#include "wire/mad.h"

#include <algorithm>

namespace uroce::wire {

void emit_gsi_packet(Psn psn, MadView mad, uint8_t* out) {
  Bth{.opcode = Opcode::kUdSendOnly, .dest_qp = kGsiQpn, .psn = psn}.emit(out);
  Deth{.qkey = kGsiQkey, .source_qp = kGsiQpn}.emit(out + Bth::kSize);
  std::copy(mad.begin(), mad.end(), out + Bth::kSize + Deth::kSize);
}

}  // namespace uroce::wire
