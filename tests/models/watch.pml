// SPDX-License-Identifier: BSD-2-Clause
// Who watches the packet I/O (engine/datapath/progress.cc): the background thread, or a thread that waits for events
// (wait_for_event()); with -DWAITERS=2 -DWAITS=1 -DPOSTS=0 one of two, and with -DWAITERS=1 -DWAITS=2 -DPOSTS=1 again
// and again (by hand: 8 s and 3 s). A NIC brings packets; whoever runs rounds takes them, and some are the event that
// such a thread waits for. Another thread posts: it leaves work, and kicks who watches if that one sleeps.
//
// All orders of their steps: no packet, no work and no event is left while all sleep, nor while the background thread
// does nothing but look at the clock. Time passes when nobody can do anything else: a wait with a limit ends then.
//
// Steps that are one atomic access of the code, or under the shard's lock, are one step here, in sequential consistency.
// What a sleeper on the packet I/O does for other orders is in sleep.pml.

#ifndef WAITERS
#define WAITERS 1
#define WAITS 1
#define POSTS 1
#endif
#define ARRIVE 1

mtype = { NOBODY, BACKGROUND, APPLICATION, RUNNING, DEFERRING, ASLEEP };
mtype watcher = NOBODY;        // Progress::watcher_
mtype state = RUNNING;         // Shard::background_: what the one who watches does
bool kick = false;             // the eventfd kick_descriptor_
bool kick_watcher = false;     // watcher_descriptor_
bool watcher_kicked = false;   // watcher_kicked_
bool offer = false;            // offer_descriptor_
bool offered = false;          // offered_
bool off = false;              // off_
byte candidates = 0;           // candidates_
byte packets = 0, arrived = 0;
bool unfinished = false;       // Datapath::unfinished()
byte events[2];                // of each channel, whose descriptor is readable while there are some
bool waiting[2];               // the thread is in wait_for_event()
bool ticking = false;          // the background thread waits with a limit
byte spare = 1;                // ticks while others can do something
byte ticks = 0;                // in a row, with something left

#define LEFT_OVER (packets > 0 || unfinished || (waiting[0] && events[0] > 0) || (waiting[1] && events[1] > 0))

inline rounds() {
  atomic {
    do
    :: packets > 0 ->
       packets--;
       if
       :: events[0] < 1 -> events[0]++
       :: events[1] < 1 -> events[1]++
       :: true
       fi
    :: else -> break
    od;
    unfinished = false;
    ticks = 0
  }
}

// Progress::kick_application()
inline kick_application(done) {
  done = false;
  if
  :: watcher == APPLICATION ->
     watcher_kicked = true;
     kick_watcher = true;
     done = (watcher == APPLICATION)
  :: else
  fi
}

// Progress::leave_watch()
inline leave_watch() {
  state = DEFERRING;
  watcher = NOBODY;
  if
#ifdef LEAVES_WHO_IS_OFF
  :: watcher_kicked ->
#else
  :: watcher_kicked || off ->
#endif
     kick = true
  :: else
  fi
}

proctype nic() {
  do
  :: arrived < ARRIVE -> atomic { arrived++; packets++ }
  :: else -> break
  od
}

// Posts, and leaves the rest to who watches (Shard::wake_if_needed()).
proctype poster() {
  byte posts = 0;
  bool done;
  do
  :: posts < POSTS ->
     atomic { posts++; unfinished = true };
     if
     :: atomic { state == ASLEEP -> state = RUNNING };
        kick_application(done);
        if
        :: !done -> kick = true
        :: else
        fi;
        done = false
     :: else
     fi
  :: else -> break
  od
}

// ibv_get_cq_event(), again and again.
proctype waiter(byte i) {
  byte waits = 0;
  bool watches, done, seen;
  do
  :: waits == WAITS -> break
  :: waits < WAITS && events[i] > 0 -> atomic { events[i]--; waits++ }
  :: waits < WAITS && events[i] == 0 ->
     waiting[i] = true;
     do
     :: atomic { watcher == NOBODY -> watcher = APPLICATION };
        // Progress::watch()
        offered = false;
        state = RUNNING;
        watcher_kicked = false;
        watches = true;
        do
        :: watches ->
           rounds();
           if
           :: events[i] > 0 -> watches = false
           :: else ->
              seen = false;
              if  // Shard::sleep()
              :: atomic { packets == 0 && !unfinished -> state = ASLEEP; seen = true }
              :: else
              fi;
              if
              :: seen -> kick_watcher || events[i] > 0 || packets > 0  // ppoll()
              :: else
              fi;
              seen = false;
              state = RUNNING;
              if
              :: kick_watcher -> watcher_kicked = false; kick_watcher = false
              :: else
              fi;
              watches = (events[i] == 0)
           fi
        :: !watches -> break
        od;
        leave_watch();
        break
     :: else ->
        seen = (watcher == BACKGROUND);
        candidates++;
        if
        :: seen ->
           offered = false;
           kick = true;  // Progress::wake()
           kick_application(done);
           done = false; seen = false
        :: else
        fi;
        events[i] > 0 || offer;  // ppoll()
        if
        :: offer -> offer = false
        :: else
        fi;
        candidates--;
        if
        :: events[i] > 0 -> break
        :: else
        fi
     od;
     waiting[i] = false
  od
}

proctype background_thread() {
  bool kicked = false, takes, done, in_vain, sleeps;
  do
  :: // Progress::takes_watch(). Where no time has passed it has been kicked.
     if
     :: atomic { watcher == BACKGROUND -> takes = true; kicked = false }
     :: atomic { watcher == NOBODY -> watcher = BACKGROUND; takes = true }
     :: atomic { watcher == APPLICATION -> takes = false }
     fi;
     if
     :: takes && !kicked ->
        if
        :: candidates > 0 ->
           atomic { in_vain = offered; offered = false };
           if
           :: !in_vain -> leave_watch(); offered = true; offer = true; takes = false
           :: else
           fi;
           in_vain = false
        :: candidates == 0 -> offered = false
        fi
     :: else
     fi;
     if
     :: takes ->  // Progress::turn()
        kicked = false;
        rounds();
        sleeps = false;
        if
        :: atomic { packets == 0 && !unfinished -> state = ASLEEP; sleeps = true }
        :: else
        fi;
        if
        :: sleeps -> kick || packets > 0
        :: else
        fi;
        state = RUNNING;
        atomic {
          if
          :: sleeps && kick -> kick = false
          :: else
          fi;
          takes = false; sleeps = false
        }
     :: !takes ->  // Progress::stand_by()
        if
        :: off = true  // nobody has left for long
        :: true
        fi;
        sleeps = (watcher == APPLICATION && off);
        if
        :: sleeps -> kick
        :: else ->
           ticking = true;
           if
           :: kick
           :: spare > 0 -> spare--  // it looks while others are at work
           :: timeout ->
              atomic {
                if
                :: LEFT_OVER -> ticks++
                :: else -> ticks = 0
                fi;
                assert(ticks < 3)
              }
           fi;
           ticking = false
        fi;
#ifdef WAKES_WHO_WATCHES
        state = RUNNING;
#endif
        if
        :: kick -> kicked = true; kick = false
        :: else -> kicked = false
        fi;
        off = false;
        sleeps = false;
        if
        :: kicked -> kick_application(done); done = false
        :: else
        fi
     fi
  od
}

init {
  atomic {
    run nic();
    run poster();
    run waiter(0);
#if WAITERS == 2
    run waiter(1);
#endif
    run background_thread()
  }
}

// When nobody can take a step any more but by time, nothing is left that time does not bring.
active proctype monitor() {
  timeout -> assert(ticking || !LEFT_OVER)
}
