// SPDX-License-Identifier: BSD-2-Clause
// A program that polls the descriptor of a channel and takes the packets itself, beside the background thread, which
// sleeps on the same descriptors (engine/datapath: Progress::serve_stream, Progress::leave, Shard::leave,
// Shard::hand_over_to_sleep). Packets come through a ring, as from another process of the host: the hardest case, as who
// is about to sleep has to say so (wake_up.pml). The program may stop coming whenever it likes.
//
// All orders of their steps: nothing is left in the ring while all sleep. -DLEAVES_WITHOUT_A_WORD: what the program gives up is
// not handed over. -DTAKES_WAKE_UPS_ONLY: it takes the bell, and does not say that this side is to be woken again.

#define PUBLISHED 3  // records

byte tail = 0, head = 0;
bool to_wake = true;  // PeerWords::sleeps is not what the writer has woken the reader for
byte wake_ups = 0;    // rings of the bell that nobody has taken: the descriptors of the packet I/O are readable
bool locked = false;
bool told = false;        // there is an event in the set
bool handed_over = false, kicked = false;

inline receive() {
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
  od
}

active proctype background() {
  byte seen;
  bool idle;
end:
  do
  ::
     handed_over = false;
     if
     :: atomic { !locked -> locked = true };
        receive();
        locked = false
     :: locked -> skip
     fi;
     // Shard::sleep()
     if
     :: atomic { !locked -> locked = true };
        wake_ups = 0;
        to_wake = true;
        idle = (tail == head);
        locked = false;
        if
        :: idle && !handed_over -> (wake_ups > 0 || kicked); kicked = false
        :: else
        fi
     :: locked -> skip
     fi
  od
}

active proctype program() {
  byte seen, looks;
  bool idle;
end:
  do
  :: told || wake_ups > 0 ->  // epoll_wait()
     told = false;
     // ibv_get_cq_event()
     if
     :: atomic { !locked -> locked = true };
        receive();
        locked = false
     :: locked -> skip
     fi;
     looks = 0;
     idle = false;
     do
     :: !idle && looks < 2 ->
        looks++;
        if
        :: atomic { !locked -> locked = true };
           wake_ups = 0;
#ifndef TAKES_WAKE_UPS_ONLY
           to_wake = true;
#endif
           idle = (tail == head);
           if
           :: !idle -> receive()
           :: else
           fi;
           locked = false
        :: locked -> skip
        fi
     :: idle -> break
     :: !idle && looks == 2 ->
#ifndef LEAVES_WITHOUT_A_WORD
        handed_over = true;
        kicked = true;
#endif
        break
     od
  :: break  // it does not look any more
  od
}

active proctype monitor() {
  timeout -> assert(head == tail)
}
