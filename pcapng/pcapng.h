// SPDX-License-Identifier: BSD-2-Clause
// Numbers of the pcapng format (draft-ietf-opsawg-pcapng) and link types (www.tcpdump.org/linktypes.html). Shared by
// writer and reader.
#pragma once

#include <cstdint>

namespace uroce::pcapng::pcapng {

inline constexpr uint32_t kSectionHeader = 0x0a0d0d0a;  // the same in both byte orders
inline constexpr uint32_t kByteOrderMagic = 0x1a2b3c4d;
inline constexpr uint32_t kInterfaceDescription = 1;
inline constexpr uint32_t kObsoletePacket = 2;
inline constexpr uint32_t kSimplePacket = 3;
inline constexpr uint32_t kInterfaceStatistics = 5;
inline constexpr uint32_t kEnhancedPacket = 6;

// Options; the first two have the same code in every block.
inline constexpr uint16_t kEndOfOptions = 0, kComment = 1;
inline constexpr uint16_t kShbHardware = 2, kShbOs = 3, kShbApplication = 4;
inline constexpr uint16_t kIfName = 2, kIfDescription = 3, kIfIpv4Address = 4, kIfIpv6Address = 5, kIfMacAddress = 6,
                          kIfTsresol = 9, kIfTsoffset = 14;
inline constexpr uint16_t kIsbEndTime = 3, kIsbReceived = 4, kIsbOsDropped = 7, kIsbDelivered = 8;
inline constexpr uint16_t kEpbFlags = 2;  // also of the obsolete packet block

inline constexpr uint32_t kFlagDirection = 3, kFlagInbound = 1, kFlagOutbound = 2;

inline constexpr uint16_t kLinkEthernet = 1, kLinkRaw = 101, kLinkSll = 113, kLinkIpv4 = 228, kLinkIpv6 = 229,
                          kLinkSll2 = 276;
inline constexpr uint16_t kLinkRawBsd = 12;  // what some systems write for kLinkRaw

}  // namespace uroce::pcapng::pcapng
