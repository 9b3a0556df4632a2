// SPDX-License-Identifier: GPL-2.0-or-later
// Wireshark's headers in the order they need.
//
// Wireshark leaves a dissector by longjmp() when it reads behind the end of a packet: no function here that calls it
// holds an object with a destructor, and bytes are taken by pointer after their number has been asked for.
#pragma once

// clang-format off
#include <wireshark.h>
#include <ws_version.h>
#include <epan/packet.h>
#include <epan/conversation_table.h>
#include <epan/expert.h>
#include <epan/prefs.h>
#include <epan/proto_data.h>
#include <epan/srt_table.h>
#include <epan/stats_tree.h>
#include <epan/tap.h>
#include <epan/to_str.h>
// clang-format on
