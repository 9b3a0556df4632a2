// SPDX-License-Identifier: BSD-2-Clause
// How the background thread goes to sleep and is woken (engine/datapath/shard.cc: sleep(), wake_if_needed(), wake();
// progress.cc: wait(), kick()): a NIC whose packets make a descriptor readable, an application thread whose rounds take
// packets, leave work and move the next deadline, and the background thread. A set-up call is as the application
// thread: it ends with wake_if_needed(), too. Descriptors are readable as long as there are packets (sockets, AF_XDP),
// or tell of the first packet after they have been asked to (DPDK's interrupts: engine/io/dpdk/module/port.cc, arm());
// for the bells of processes of this host there is wake_up.pml.
//
// All orders of their steps: no packet, no work and no deadline is left while all sleep. Times: a deadline is there or
// not; who has one wakes up by himself.
//
// Steps that are one atomic access of the code are one step here, in sequential consistency. All but the eventfd is
// under the shard's lock, whose release is such an access.

#define ARRIVE 2
#define ROUNDS 2

mtype = { RUNNING, DEFERRING, ASLEEP };
mtype background = RUNNING;         // Shard::background_
bool kicked = false;                // the eventfd of Progress
bool locked = false;                // Shard::lock_
bool one_shot = false;              // of the descriptor
byte packets = 0, arrived = 0;      // packets: those which nobody has taken
bool armed = false, event = false;  // of a descriptor that is one_shot
bool unfinished = false;            // Datapath::unfinished()
bool deadline = false;              // Datapath::next_deadline()
bool wakes_at = false;              // Shard::wakes_at_

// Datapath::iterate(): it takes as many packets as it likes, and leaves what it likes.
inline iterate() {
  do
  :: packets > 0 -> packets--
  :: break
  od;
#ifdef ANYBODY_TAKES_EVENTS
  if
  :: event = false
  :: true
  fi;
#endif
  if
  :: unfinished = true
  :: unfinished = false
  fi;
  if
  :: deadline = true
  :: deadline = false
  fi
}

proctype nic() {
  do
  :: arrived < ARRIVE ->
     atomic {
       arrived++;
       packets++;
       if
       :: armed -> armed = false; event = true
       :: else
       fi
     }
  :: else -> break
  od
}

proctype application() {
  byte rounds = 0;
  do
  :: rounds < ROUNDS -> rounds++;
     if
     :: atomic { !locked -> locked = true };
        iterate();
        if  // Shard::wake_if_needed()
        :: background == ASLEEP ->
           if
#ifdef NOT_WOKEN_FOR_WORK
           :: deadline && !wakes_at ->
#else
#ifdef NOT_WOKEN_FOR_TIMERS
           :: unfinished ->
#else
           :: unfinished || (deadline && !wakes_at) ->
#endif
#endif
              background = RUNNING;  // Shard::wake()
              kicked = true
           :: else
           fi
        :: else
        fi;
        locked = false
     :: locked
     fi
  :: break
  od
}

proctype background_thread() {
  bool waits, kick, time;  // time: there is an end to the wait
  do
  :: if  // Shard::round()
     :: atomic { !locked -> locked = true };
        iterate();
        locked = false
     :: locked
     fi;
     time = false;
#ifdef READS_THE_DEADLINE_FIRST
     time = deadline;
#endif
     if  // Shard::sleep()
     :: atomic { !locked -> locked = true };
        // prepare_to_wait(). A UDP socket is asked nothing.
        waits = !unfinished;
        if
        :: waits && one_shot ->
#ifdef LOOKS_BEFORE_IT_ARMS
           event = false;
           waits = (packets == 0);
           armed = true
#else
#ifdef TAKES_EVENTS_LAST
           armed = true;
           waits = (packets == 0);
           event = false
#else
           event = false;
           armed = true;
           waits = (packets == 0)
#endif
#endif
        :: waits && !one_shot -> waits = (packets == 0)
        :: waits && !one_shot
        :: !waits
        :: !waits -> waits = true; time = true  // what is unfinished waits for room (`pressed`): for a short while
        fi;
        if
        :: waits && unfinished -> background = DEFERRING; locked = false
        :: waits && !unfinished ->
#ifndef READS_THE_DEADLINE_FIRST
           time = deadline;
#endif
           wakes_at = time;
#ifdef FALLS_ASLEEP_UNLOCKED
           locked = false;
           background = ASLEEP
#else
           background = ASLEEP;
           locked = false
#endif
        :: !waits -> locked = false
        fi
     :: background = DEFERRING; waits = true; time = true  // Shard::doze(); WaitPolicy may say so, whoever has the lock
     fi;
     // Progress::wait(): ppoll()
     if
     :: !waits
     :: waits ->
        kicked || time || (one_shot -> event : packets > 0)
     fi;
     kick = kicked && waits;
     background = RUNNING;  // Shard::awake()
     if
     :: kick -> kicked = false
     :: else
     fi;
     atomic { waits = false; kick = false; time = false }
  od
}

init {
  atomic {
    if
    :: one_shot = true
    :: true
    fi;
    run nic();
    run application();
    run background_thread()
  }
}

// When nobody can take a step any more, nothing is left.
active proctype monitor() {
  timeout -> assert(packets == 0 && !unfinished && !deadline)
}
