// SPDX-License-Identifier: BSD-2-Clause
// What the broker grants and to whom, and how much it does in a turn; those of the connection manager are in cm/types.h
// (Limits). SECURITY.md has them as a table. Each is met by a test.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "base/time.h"
#include "cm/types.h"
#include "engine/io/same_host/peer_exchange.h"

namespace uroce::broker {

// --- what there is, and what is kept for root and the owner ---------------------------------------------------------
// Of all that there is a user may have half of what others leave, and kReserved of it nobody gets but root and the
// broker's owner.
inline constexpr size_t kReserved = cm::Limits::kReserved;  // one part in so many

// Connections: two for each program (cli/start_broker.h), and those that looks take. One counts until its client has
// read what it was sent, or closed it: descriptors that are on their way count for the broker's user. So there are no
// more than the broker may have files / kFilesOfClient.
inline constexpr size_t kMostClients = 2048;
inline constexpr size_t kFilesOfClient = 16;
constexpr size_t most_clients(size_t files) {
  return std::clamp(files / kFilesOfClient, kReserved, kMostClients);
}
// Besides, connections wait to be closed (slow_closer.h): so many, and then a process takes all those of one user. When
// there are twice as many, nobody is accepted until it has done so.
constexpr size_t enough_to_close(size_t files) {
  return std::max(files / 4, kReserved);
}

// Pairs of processes that are about to meet (pending_meetings.h). One counts for each user whose side of it has not
// sealed its memory yet, which takes a program no longer than an answer.
inline constexpr size_t kMostPendingMeetings = 128;

// --- of one client -------------------------------------------------------------------------------------------------
inline constexpr size_t kMostLeases = 16;                         // one for each netdev that it uses
inline constexpr size_t kMostPorts = 16;                          // of DPDK
inline constexpr size_t kMostWishes = 256;                        // to meet others, of a range
inline constexpr size_t kMostMet = io::PeerExchange::kMostPeers;  // of a range
inline constexpr size_t kMostMetOfUser = 32;  // of a client, those of one other user who is not root

// Who could not be told that he meets somebody of another user does not meet him for so long.
inline constexpr Duration kPutOff = std::chrono::seconds(10);
// For so long the broker keeps the kernel from moving what two of different users have been given; then they do.
inline constexpr Duration kHoldTime = std::chrono::seconds(10);

// Who has met somebody is told when that range has gone; who has not read it for so long is not waited for.
inline constexpr Duration kPartingTime = std::chrono::seconds(10);

// --- in a turn ------------------------------------------------------------------------------------------------------
inline constexpr size_t kServedOfUser = 64;  // messages of all clients of a user who is not the owner; one of a client
inline constexpr size_t kMostAccepted = 64;  // of a listener
inline constexpr size_t kMostClosed = 16;    // connections: to close one may take a process (slow_closer.h)

// --- of what it gives away ------------------------------------------------------------------------------------------
// Its own copies of what all users but root have been sent (of a broker that serves nobody but its owner: none) are
// left to a process (slow_closer.h) when there are so many, or after so long.
inline constexpr size_t kEnoughGiven = 64;
inline constexpr Duration kGivenTime = std::chrono::milliseconds(20);
// When so many of a user wait to be closed, of these and of what he has passed on, he is not served. One message adds
// three at most.
inline constexpr size_t kMostKeptOfUser = 512;

// --- of the broker's time -------------------------------------------------------------------------------------------
// A user who is not the owner has kMostTime at once, for hundreds of programs that begin, and one part in kShare of the
// time beyond.
inline constexpr Duration kMostTime = std::chrono::milliseconds(500);
inline constexpr int kShare = 10;
inline constexpr Duration kLeastShare = std::chrono::milliseconds(5);  // whoever has to wait waits at least as long

// --- of what others pass on ------------------------------------------------------------------------------------------
// Sockets of an earlier broker's clients are looked at by processes (claims.h), as many at a time as there are
// Staging::kStages. Only when there was an earlier one, and not for longer than this; the owner's at any time.
inline constexpr Duration kClaimTime = std::chrono::minutes(1);

// --- of its end ------------------------------------------------------------------------------------------------------
// How long it waits until the processes that it has begun have nothing of it open any more: they need only begin.
inline constexpr std::chrono::seconds kLetGo{10};

}  // namespace uroce::broker
