// SPDX-License-Identifier: GPL-2.0-or-later
// Items of the tree that no bytes of the packet stand for. Used by trees.cc and cm_tree.cc.
#pragma once

#include "dissector/plugin/epan.h"

namespace uroce::dissector {

inline void set_time(nstime_t& out, int64_t ns) {
  out.secs = ns / 1'000'000'000;
  out.nsecs = static_cast<int>(ns % 1'000'000'000);
}

inline void generated(proto_item* item) {
  proto_item_set_generated(item);
}

// Negative: not known.
inline void add_time(proto_tree* tree, int field, tvbuff_t* tvb, int64_t ns) {
  if (ns < 0) return;
  nstime_t time;
  set_time(time, ns);
  generated(proto_tree_add_time(tree, field, tvb, 0, 0, &time));
}

inline void add_uint(proto_tree* tree, int field, tvbuff_t* tvb, uint32_t value) {
  generated(proto_tree_add_uint(tree, field, tvb, 0, 0, value));
}

// 0: none.
inline void add_frame(proto_tree* tree, int field, tvbuff_t* tvb, uint32_t frame) {
  if (frame != 0) add_uint(tree, field, tvb, frame);
}

}  // namespace uroce::dissector
