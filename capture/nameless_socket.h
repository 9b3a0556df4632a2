// SPDX-License-Identifier: BSD-2-Clause
// The socket of a process that `uroce capture` finds, and that nothing remembers once the process is gone, however it
// ends: it has no name in a file system. It is bound to one that is removed at once; what is left is a descriptor
// (O_PATH) of the process that stands for the socket's inode. Whoever may look into /proc/PID/fd connects through it,
// from any network or mount namespace: root, and the process's own user if she has its capabilities.
//
// The name exists for microseconds. A process that is killed just then leaves it behind; the next one removes it.
// Listening: CaptureServer. Finding and connecting: cli/capture_targets.cc, cli/capture.cc.
#pragma once

#include <string>
#include <sys/types.h>

namespace uroce::io {

struct NamelessSocket {
  int socket = -1;  // listening, SOCK_SEQPACKET, does not block
  int handle = -1;  // what others find it by; without it, it cannot be found
};

// Both descriptors are closed in children. 0 or an errno value: there is no place where a socket can be bound.
int open_nameless_socket(NamelessSocket& out);

// Connects to the socket of process `pid`. A descriptor, or a negative errno value: ENOENT, the process has none or is
// not there; EACCES, it may not be looked into; EPERM, somebody else listens; EAGAIN, it does not answer. `user`: whose
// process it was when it began to listen (effective user id). Whom /proc tells of may be the user of a setuid program
// that it has become since.
int connect_to_nameless_socket(int pid, uid_t* user = nullptr);

// The process is there, and who asks lacks a right to see its descriptors.
bool may_not_look_into(int pid);

// It has one, as far as it may be looked into and has no more than 65,536 descriptors: how many it has, its user
// decides, and each takes a microsecond.
bool has_nameless_socket(int pid);

}  // namespace uroce::io
