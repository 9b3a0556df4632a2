#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs a command as root of a machine that is not there: this machine's file system in a layer of its own, where whatever is
# changed is forgotten afterwards; no network; processes, /run, /tmp and /dev/shm of its own; this repository, and what was
# built in it, not there. Of packages that are installed in it nothing stays.
# Usage: fresh_root.sh DIRECTORY COMMAND...
# DIRECTORY becomes /tmp/stage, where the command begins. What it leaves there stays.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/../..")
stage=$(realpath "$1")
shift
root=$(mktemp --directory)
trap 'rmdir "$root"' EXIT

# The file systems below $root live in the mount namespace, and end with the last process of the other ones.
# shellcheck disable=SC2016  # the inner shell expands it
status=0
unshare --mount --net --pid --ipc --uts --fork --kill-child=KILL --propagation private bash -euc '
  root=$1 stage=$2 repository=$3
  shift 3
  mount -t tmpfs tmpfs "$root"
  mkdir "$root"/{upper,work,root}
  mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" overlay "$root/root"
  cd "$root/root"
  mount -t proc proc proc
  mount -t sysfs sysfs sys
  mount --rbind /dev dev
  mount -t tmpfs -o mode=1777 tmpfs dev/shm
  mount -t tmpfs -o mode=755 tmpfs run
  mkdir run/lock
  mount -t tmpfs -o mode=1777 tmpfs tmp
  mkdir tmp/stage
  mount --bind "$stage" tmp/stage
  [[ ! -d ${repository#/} ]] || mount -t tmpfs -o mode=755 tmpfs "${repository#/}"
  ip link set lo up
  exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TMPDIR=/tmp \
    DEBIAN_FRONTEND=noninteractive chroot . sh -c "cd /tmp/stage && exec \"\$@\"" sh "$@"
' sh "$root" "$stage" "$repository" "$@" || status=$?
exit "$status"
