// SPDX-License-Identifier: BSD-2-Clause
// How a process that writes to a ring wakes the one that reads it (engine/io/same_host: RingWriter::publish,
// RingReader::sleep, Peer::wake, SameHost::answer_bells): one writer, and two threads of the reader, the background thread, which
// sleeps on the descriptor, and an application thread that polls as often as it likes and then sleeps until it has been
// told of a packet.
//
// All orders of their steps: nobody sleeps for ever while there is a record in the ring. wake_up_test.sh checks that, and
// that the model finds the stall of the rule that stood before (-DANYBODY_TAKES_WAKE_UPS: whoever receives takes them).
//
// Steps that are one atomic access of the code are one step here, in sequential consistency, as the code asks for it. The lock
// is the shard's, which is only tried.

#define PUBLISHED 3  // records

byte tail = 0, head = 0, taken = 0;  // taken: by the readers, of what the ring shows
bool to_wake = true;                 // PeerWords::sleeps is not what the writer has woken the reader for (RingWriter::woken_)
byte wake_ups = 0;                   // rings of the bell (base/bell.h) that nobody has taken
bool locked = false;
bool told = false;                   // the completion channel is readable
bool writer_ended = false;

inline lock() { atomic { !locked; locked = true } }
inline unlock() { locked = false }

// SameHost::receive(), as many records as the caller likes.
inline receive() {
#ifdef ANYBODY_TAKES_WAKE_UPS
  if
  :: wake_ups = 0
  :: skip  // not each call looks
  fi;
#endif
  seen = tail;
  do
  :: head < seen -> head++; told = true
  :: break
  od
}

active proctype writer() {
  bool wakes;
  byte count = 0;
  do
  :: count < PUBLISHED ->
     count++;
     tail++;
     atomic { wakes = to_wake; to_wake = false };
     if
     :: wakes -> wake_ups++
     :: else
     fi
  :: else -> break
  od;
  writer_ended = true
}

active proctype background() {
  byte seen;
  bool idle;
end:  // it may sleep for ever where there is nothing to do: the monitor judges that
  do
  :: // A turn: it takes all there is, unless an application thread has the lock.
     if
     :: atomic { !locked -> locked = true };
        receive();
        unlock()
     :: locked -> skip
     fi;
     // Shard::sleep(): with the lock; without it it only dozes.
     if
     :: atomic { !locked -> locked = true };
        wake_ups = 0;   // SameHost::answer_bells()
        to_wake = true; // RingReader::sleep()
        idle = (tail == head);
        unlock();
        if
        :: idle -> wake_ups > 0  // ppoll()
        :: else
        fi
     :: locked -> skip
     fi
  od
}

active proctype application() {
  byte seen;
  byte polls = 0;
  do
  :: polls < 3 ->
     polls++;
     if
     :: atomic { !locked -> locked = true };
        receive();
        unlock()
     :: locked -> skip
     fi
  :: told -> told = false  // ibv_get_cq_event(), and what it finds it has taken
  :: polls >= 3 && writer_ended && head == tail -> break
  od
}

// When nobody can take a step any more, nothing is left.
active proctype monitor() {
  timeout -> assert(head == tail)
}
