// SPDX-License-Identifier: BSD-2-Clause
// The modes of xsk_bench, one file each. Every mode prints one JSON object on stdout; those that wait for a peer print
// a line "ready" first. Set-up errors are thrown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace uroce::limits {

struct XskBenchOptions {
  std::string netdev;
  uint32_t send_bytes = 64;       // whole Ethernet frame, without FCS
  uint32_t iterations = 100'000;  // ping, kick
  uint32_t turn = 1;              // ping, pong: frames of one system call, the answer to which comes when all are there
  double seconds = 1;             // sink: length of the measured window
  uint32_t payload = 0;           // sink: bytes of each frame that count as payload
  uint32_t batch = 32;            // blast: frames per system call
  uint32_t frames = 1024;         // UMEM chunks per direction, a power of two
  std::vector<uint32_t> bursts;   // kick: numbers of descriptors to try
  bool generic = false;           // SKB mode instead of native XDP
};

// Latency: a turn's frames go forth, as many come back; both sides spin on their RX ring.
void run_ping(const XskBenchOptions& options);
void run_pong(const XskBenchOptions& options);  // until SIGTERM

// Bulk: as many frames as the sender can; figures are taken at the receiver.
void run_blast(const XskBenchOptions& options);  // until SIGTERM
void run_sink(const XskBenchOptions& options);

// Duration of one sendto() by the number of descriptors queued, and when the receiver sees each frame of the call.
void run_kick(const XskBenchOptions& options);
void run_arrivals(const XskBenchOptions& options);  // until SIGTERM

}  // namespace uroce::limits
