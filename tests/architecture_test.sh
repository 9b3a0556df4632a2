#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The include rules of docs/architecture.md, and that wire/ and engine/transport stay without I/O, clock and allocation.
# Usage: architecture_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
cd "$1"
build=$2
failed=0

complain() { echo "architecture: $*"; failed=1; }

# only DIRECTORY ALLOWED...: project includes below DIRECTORY must begin with one of the ALLOWED prefixes.
only() {
  local directory=$1 allowed
  shift
  allowed=$(IFS='|'; echo "$*")
  local found
  found=$(grep -rnE '^#include "' "$directory" --include='*.h' --include='*.cc' | grep -vE "#include \"($allowed)" || true)
  [[ -z $found ]] || { complain "$directory/ may include only: $*"; echo "$found"; }
}
# standard DIRECTORY: no system headers below DIRECTORY.
standard() {
  local found
  found=$(grep -rnE '^#include <([a-z_]+/|[a-z_0-9]+\.h>)' "$1" --include='*.h' --include='*.cc' \
    | grep -vE '<(immintrin|nmmintrin|wmmintrin|cpuid)\.h>' || true)
  [[ -z $found ]] || { complain "$1/ includes system headers"; echo "$found"; }
}

only wire wire/
only engine/base engine/base/
only engine/congestion engine/base/ engine/congestion/
only engine/memory engine/base/ engine/memory/
only engine/queue engine/base/ engine/queue/
only engine/transport wire/ engine/base/ engine/congestion/ engine/io/send_reason.h engine/io/tx_packet.h engine/memory/ engine/queue/ engine/transport/
only engine/io wire/ engine/base/ engine/io/ engine/memory/memory_access.h roce_steer.skel.h
only engine/net wire/ engine/base/ engine/net/
only engine/objects wire/ engine/engine.h engine/limits.h engine/base/ engine/congestion/ engine/datapath/timer_wheel.h engine/memory/ engine/net/ engine/objects/ engine/queue/ engine/transport/
only engine/datapath wire/ engine/engine.h engine/base/ engine/datapath/ engine/io/ engine/memory/ engine/net/ engine/objects/ engine/queue/ engine/transport/
only capture wire/ engine/base/ engine/io/ engine/memory/memory_access.h trace/ capture/
only trace wire/ engine/base/ trace/
only oracle wire/ engine/base/ trace/ oracle/
only dissector wire/ dissector/
only cm wire/ engine/base/time.h cm/
only rdma_cm wire/ engine/engine.h engine/device/broker_link.h engine/device/host.h engine/device/identity.h engine/base/ engine/io/io_error.h engine/memory/memory_access.h engine/memory/mr_table.h engine/net/ engine/queue/ engine/transport/common/qp_state.h broker/cm_link.h cm/ rdma_cm/
only files wire/envelope.h engine/device/identity.h engine/net/net_view.h rdma_cm/functions.h files/
only broker wire/ capture/ cm/ engine/base/ engine/io/ engine/net/ broker/ qpn_steer.skel.h socket_lock.skel.h
only verbs_shim engine/engine.h engine/device/host.h engine/device/identity.h engine/device/port_counters.h engine/base/caller_state.h engine/base/fork.h engine/base/spinlock.h engine/base/unique_fd.h engine/queue/ engine/transport/common/qp_state.h verbs_shim/
for directory in wire engine/congestion engine/memory engine/queue engine/transport trace oracle dissector/analysis cm; do standard "$directory"; done

# Nothing that asks the kernel about the network runs under the progress lock: neither the data path, which does not know
# NetView, nor a block of the engine in which a Progress::Guard lives.
ask='NetView|net_view\.h|view_->|look_up_route|find_destination|learn_netdev|follow_netdev|refresh_routes'
found=$(grep -nE "$ask" engine/datapath/* engine/objects/address_handles.h || true)
[[ -z $found ]] || { complain "the data path asks about the network"; echo "$found"; }
found=$(awk -v ask="$ask" '
  FNR == 1 { depth = 0; guard = 0 }
  { sub(/\/\/.*/, "") }
  guard && $0 ~ ask { print FILENAME ":" FNR ": " $0 }
  {
    for (i = 1; i <= length($0); i++) {
      c = substr($0, i, 1)
      if (c == "{") depth++
      if (c == "}" && --depth < guard) guard = 0
    }
  }
  /Progress::Guard [a-z]+\(/ { guard = depth }
' engine/engine.cc engine/device/{device,memory,network,objects}.cc)
[[ -z $found ]] || { complain "the engine asks about the network under the progress lock"; echo "$found"; }

# pure LIBRARY PATTERN [EXCEPT]: no undefined symbol of the archive matches, except in objects that match EXCEPT.
pure() {
  local archive=$build/archive/lib$1.a found
  [[ -f $archive ]] || { complain "$archive is missing"; return; }
  found=$(nm --undefined-only "$archive" \
    | awk -v except="${3:-^$}" -v pattern="$2" '/\.o:$/ {object = $1} $1 == "U" && object !~ except && $2 ~ pattern {print object, $2}')
  [[ -z $found ]] || { complain "$1 references what it must not"; echo "$found"; }
}
io='^(open|openat|read|write|readv|writev|socket|sendto|sendmsg|recvfrom|recvmsg|ioctl|poll|ppoll|epoll_.*|mmap|munmap|syscall|printf|fprintf|puts|fputs|fopen|getenv)(@|$)'
clock='^(clock_gettime|gettimeofday|time|nanosleep|usleep|sleep|.*chrono.*now.*|getrandom|random|rand)(@|$)'
allocation='^(malloc|calloc|realloc|free|_Znwm|_Znam|_ZdlPv.*|_ZdaPv.*)(@|$)'
lock='^(pthread_.*|sched_yield)(@|$)'
pure uroce_transport "$io|$clock|$allocation|$lock"
pure uroce_congestion "$io|$clock|$allocation|$lock"
pure uroce_cm "$io|$clock|$lock"
# Text for people, and the reference ICRC for tests, may allocate; neither is on the packet path.
pure uroce_wire "$io|$clock"
pure uroce_wire "$allocation|$lock" '^(format|envelope|icrc)\.cc\.o:$'
exit $failed
