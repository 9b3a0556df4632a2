#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Two hosts on one machine: network namespaces joined by a veth pair. Used by tools/demo and the tests in tests/e2e.
#
#   netns.sh private COMMAND...   runs COMMAND where named network namespaces are its own affair: in a mount namespace
#                                 with an empty /run/netns. They and all in them (veth pairs, XDP programs) vanish with
#                                 the last process, however it ends, kill -9 included; others never see them. So does
#                                 whatever else is put into /run/netns and /dev/shm, which are memory file systems there.
#   netns.sh pair A B MTU [QUEUES]
#                                 makes the namespaces A and B, each with one end of a veth pair, called roce0, with so
#                                 many queues each way (1). A has 192.0.2.1 and fd00:192:0:2::1, B has .2 and ::2.
#   netns.sh join A B MTU         the same with namespaces that are there
#   netns.sh tap A MTU            makes the namespace A with a tap device, called roce0, and the addresses of A above: the
#                                 wire of a virtual machine.
#   netns.sh switch A S MTU TAP...
#                                 makes the namespace A as above, and S with a bridge that joins A's roce0 and tap devices
#                                 of these names: virtual machines, one of which may move from one port to another.
#
# The functions can be sourced as well.

netns_private() {
  # The same process all along, so that signals reach COMMAND.
  # shellcheck disable=SC2016  # "$@" is the inner shell's
  exec unshare --mount --propagation private sh -c \
    'mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec "$@"' sh "$@"
}

# netns_host NAME NUMBER MTU: addresses and link of one side.
netns_host() {
  local name=$1 number=$2 mtu=$3
  ip -n "$name" link set lo up
  # No duplicate address detection: IPv6 addresses can be used at once.
  ip netns exec "$name" sysctl -qw net.ipv6.conf.roce0.accept_dad=0
  ip -n "$name" link set roce0 mtu "$mtu"
  ip -n "$name" address add "192.0.2.$number/24" dev roce0
  ip -n "$name" address add "fd00:192:0:2::$number/64" dev roce0 nodad
  ip -n "$name" link set roce0 up
}

# netns_wait_up NAME: the kernel announces the carrier a moment after both ends are up.
netns_wait_up() {
  local tries=0
  until ip -n "$1" -brief link show roce0 | grep -q ' UP '; do
    [[ $((tries += 1)) -le 500 ]] || { echo "netns: roce0 in $1 does not come up" >&2; return 1; }
    sleep 0.01
  done
}

netns_pair() {
  ip netns add "$1"
  ip netns add "$2"
  netns_join "$@"
}

netns_join() {
  local a=$1 b=$2 mtu=$3
  local queues=(numtxqueues "${4:-1}" numrxqueues "${4:-1}")
  ip -n "$a" link add roce0 "${queues[@]}" type veth peer name roce0 "${queues[@]}" netns "$b"
  netns_host "$a" 1 "$mtu"
  netns_host "$b" 2 "$mtu"
  netns_wait_up "$a"
  netns_wait_up "$b"
}

netns_tap() {
  local name=$1 mtu=$2
  ip netns add "$name"
  ip -n "$name" tuntap add roce0 mode tap
  netns_host "$name" 1 "$mtu"
}

netns_switch() {
  local name=$1 switch=$2 mtu=$3 tap
  shift 3
  ip netns add "$name"
  ip netns add "$switch"
  ip -n "$switch" link add bridge mtu "$mtu" type bridge
  ip -n "$name" link add roce0 type veth peer name host netns "$switch"
  for tap in "$@"; do ip -n "$switch" tuntap add "$tap" mode tap; done
  for tap in host "$@"; do ip -n "$switch" link set "$tap" mtu "$mtu" master bridge up; done
  ip -n "$switch" link set bridge up
  netns_host "$name" 1 "$mtu"
  netns_wait_up "$name"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -euo pipefail
  case ${1-} in
    private) shift; netns_private "$@" ;;
    pair) shift; netns_pair "$@" ;;
    join) shift; netns_join "$@" ;;
    tap) shift; netns_tap "$@" ;;
    switch) shift; netns_switch "$@" ;;
    *) sed -n '3,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
fi
