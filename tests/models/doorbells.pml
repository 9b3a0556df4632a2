// SPDX-License-Identifier: BSD-2-Clause
// Who serves what is posted (engine/datapath/shard.{h,cc}, progress.{h,cc}, doorbells.h, Engine::doorbell() and
// receive_doorbell()): an application thread that posts, one that polls and then sleeps on its channel, a set-up call,
// one that is about to wait for a descriptor (attendance.h), and the background thread. All of them run rounds, under a
// lock that they only try (the set-up call waits for it). And a thread that drives another shard sends to this one.
//
// All orders of their steps: nothing that is posted stays where it is while all threads are elsewhere or asleep; a
// doorbell that was handed over, and a thread that said that it is about to sleep, are not left to the timer of the
// background thread's doze either. That timer may take for ever here. What was sent from another shard may wait for it:
// a thread defers where application threads poll.
//
// Steps that are one atomic access of the code are one step here, in sequential consistency, as the code asks for it
// wherever a store is followed by a load of something else. Of the mutations some are what a store that waits in a
// buffer would do: then the load is the first.

#define ROUNDS 1  // kRoundsInARow
#define POSTS (company == NOBODY -> 2 : 1)
#define POLLS 1

mtype = { RUNNING, DEFERRING, ASLEEP };
mtype = { NOBODY, SETUP, OTHER_SHARD, FAILURE, PROGRAM };
mtype background = RUNNING;      // Shard::background_
bool kicked = false;             // the eventfd of Progress
bool locked = false;             // Shard::lock_
byte waiting = 0;                // Progress::waiting_
bool made_way = false;           // Shard::made_way_
bool handed_over = false;        // Shard::handed_over_
bool sleep_expected = false;     // Shard::sleep_expected_
bool posted = false;             // send requests of the QP, which the transport has not seen
bool rung = false;               // Qp::rung
bool stack = false;              // Doorbells::stack_: the QP is in it
bool receives = false;           // receive requests of the QP, which it has not seen since it failed
bool failed = false;             // TransportQp::state() is ERR
bool seen_failed = false;        // Qp::visible_state is
bool looped = false;             // packets from the other shard
mtype company;                   // what else there is: one of these, as all would be too many orders

// Transport: it takes what has been posted.
inline on_posted() {
  posted = false;
  if
  :: failed -> receives = false
  :: else
  fi
}

// Doorbells::answer()
inline answer() {
  if
  :: stack ->
     stack = false;
#ifdef ANSWERS_BEFORE_IT_CLEARS
     on_posted();
     rung = false
#else
     rung = false;
     on_posted()
#endif
  :: else
  fi
}

// Shard::wake(), with the lock held
inline wake() { background = RUNNING; kicked = true }

// Datapath::iterate(). `takes`: arrivals, too; not after a post.
inline iterate(takes) {
  answer();
  looped = (takes -> false : looped);
  if
  :: atomic { company == FAILURE && !failed -> failed = true };  // for some reason: Schedule::publish_state()
     receives = false;
#ifdef FLUSHES_ONLY_BEFORE
     seen_failed = true
#else
     seen_failed = true;
     receives = false
#endif
  :: true
  fi
}

// Shard::wake_if_needed(), after a round of anybody but the background thread (`ours`)
inline wake_if_needed(ours) {
  if
  :: background == ASLEEP && !ours ->
     if
     :: looped -> wake()  // Datapath::unfinished()
     :: else
     fi
  :: else
  fi
}

// Shard::round(), and a look at Datapath::rung() after it
inline round(takes, ours) {
  if
  :: waiting > 0 -> made_way = true; again = false
  :: else ->
     if
     :: atomic { !locked -> locked = true };
        iterate(takes);
        wake_if_needed(ours);
#ifdef LOOKS_BEFORE_IT_UNLOCKS
        again = stack;
        locked = false
#else
        locked = false;
        again = stack
#endif
     :: locked -> again = false
     fi
  fi
}

// Shard::hand_over()
inline hand_over() {
#ifdef LOOKS_BEFORE_IT_HANDS_OVER
  again = (background != RUNNING);
#endif
  atomic { was = handed_over; handed_over = true };
  if
  :: was
  :: else ->
     if
#ifdef LOOKS_BEFORE_IT_HANDS_OVER
     :: again -> kicked = true
#else
     :: background != RUNNING -> kicked = true
#endif
     :: else
     fi
  fi
}

// Shard::rounds()
inline rounds(takes) {
  do
  :: n == ROUNDS -> hand_over(); break
  :: else ->
     round(takes, false);
#ifdef LEAVES_AT_ONCE
     break
#else
     atomic {
       n++;
       if
       :: !again -> break
       :: else
       fi
     }
#endif
  od;
  atomic { n = 0; again = false; was = false }
}

// Shard::expect_sleep()
inline expect_sleep() {
#ifdef LOOKS_BEFORE_IT_SAYS
  again = (background == DEFERRING);
#endif
  atomic { was = sleep_expected; sleep_expected = true };
  if
  :: was
  :: else ->
     if
#ifdef LOOKS_BEFORE_IT_SAYS
     :: again -> kicked = true
#else
     :: background == DEFERRING -> kicked = true
#endif
     :: else
     fi
  fi
}

// Engine::doorbell()
inline doorbell() {
  atomic { was = rung; rung = true };
  if
  :: was
  :: else -> stack = true
  fi;
  rounds(false)
}

init {
  if
  :: company = NOBODY
  :: company = SETUP
  :: company = OTHER_SHARD
  :: company = FAILURE
  :: company = PROGRAM
  fi
}

active proctype poster() {
  byte n, posts = 0;
  bool again, was;
  company != 0;
  do
  :: posts < POSTS -> posts++;
     if
     :: posted = true;  // SendQueue::publish()
        doorbell()
     :: company == FAILURE ->
#ifdef LOOKS_BEFORE_IT_POSTS
        was = seen_failed;
        receives = true;
#else
        receives = true;  // ReceiveQueue::publish()
        was = seen_failed;
#endif
        if
        :: was -> doorbell()  // Engine::receive_doorbell()
        :: else
        fi
     fi;
     was = false
  :: else -> break
  od
}

active proctype poller() {
  byte n, polls = 0;
  bool again, was;
  do
  :: polls < POLLS -> polls++; rounds(true)
  :: break
  od;
  expect_sleep()  // ibv_get_cq_event(), in which it stays
}

// Shard::leave() of a program that is about to wait for a descriptor, and Progress::leave_nothing()
active proctype program() {
  byte n;
  bool again, was;
  company == PROGRAM;
  if
  :: atomic { !locked -> locked = true };
#ifdef LEAVES_BEFORE_IT_UNLOCKS
     again = stack;
     locked = false;
#else
     locked = false;
     again = stack;
#endif
     if
     :: again -> rounds(true)
     :: else
     fi
  :: locked -> hand_over()
  fi
}

// Progress::Guard
active proctype setup() {
  byte n;
  bool again, was;
  company == SETUP -> waiting++;
  atomic { !locked -> locked = true };
#ifndef LETS_OTHERS_IN_LATE
  waiting--;
#endif
  // Shard::end_setup()
  atomic { was = made_way; made_way = false };
  if
  :: was -> iterate(true)
  :: else
  fi;
  wake_if_needed(false);
  locked = false;
  again = stack;
#ifdef LETS_OTHERS_IN_LATE
  waiting--;
#endif
  if
  :: again -> rounds(false)
  :: else
  fi
}

// Shard::wake_if_needed() of another shard, Progress::wake_others(), Shard::wake_if_asleep()
active proctype other_shard() {
  bool was;
  company == OTHER_SHARD;
#ifndef LOOKS_BEFORE_IT_SENDS
  looped = true;  // FrameQueue::publish()
#endif
  atomic { was = (background == ASLEEP); background = (was -> RUNNING : background) };
#ifdef LOOKS_BEFORE_IT_SENDS
  looped = true;
#endif
  if
  :: was -> kicked = true
  :: else
  fi
}

active proctype background_thread() {
  byte n;
  bool again, waits, dozes;
  do
  :: // Shard::turn(), iterate_in_background()
#ifndef FORGETS_AFTER_ITS_ROUNDS
     if
     :: handed_over -> handed_over = false
     :: else
     fi;
#endif
     do
     :: n == ROUNDS -> handed_over = true; break
     :: else ->
        round(true, true);
        atomic {
          n++;
          if
          :: !again -> break
          :: else
          fi
        }
     od;
#ifdef FORGETS_AFTER_ITS_ROUNDS
     if
     :: handed_over -> handed_over = false
     :: else
     fi;
#endif
     // WaitPolicy::after() is free to say what it likes. Where it says that the thread spins, that is a doze here which
     // ends at once.
     atomic {
       n = 0;
       sleep_expected = false;
       if
       :: dozes = true
       :: dozes = false
       fi
     };
     // Progress::turn(): the thread does not wait after all if it finds something.
     if
     :: !dozes ->  // Shard::sleep()
        if
        :: atomic { !locked -> locked = true };
           waits = !looped;  // Datapath::unfinished()
           if
           :: waits ->
              background = ASLEEP;
#ifndef LOOKS_FOR_OTHERS_ONLY_BEFORE
              waits = !looped;
#endif
              locked = false;
              if
              :: stack -> waits = false
              :: else
              fi;
#ifndef SLEEPS_ON_WHAT_WAS_HANDED_OVER
              if
              :: handed_over -> waits = false
              :: else
              fi
#endif
           :: else -> locked = false
           fi
        :: locked -> dozes = true
        fi
     :: else
     fi;
     if
     :: dozes ->  // Shard::doze()
#ifdef LOOKS_BEFORE_IT_DOZES
        waits = !sleep_expected;
        if
        :: handed_over -> waits = false
        :: else
        fi;
        background = DEFERRING
#else
        background = DEFERRING;
        waits = !sleep_expected;
        if
        :: handed_over -> waits = false
        :: else
        fi
#endif
     :: else
     fi;
     // Progress::wait(): ppoll()
     if
     :: !waits
     :: waits ->
        kicked
     :: waits && dozes  // until its timer is up
     fi;
     again = kicked;
     background = RUNNING;  // Shard::awake()
     if
     :: again -> kicked = false
     :: else
     fi;
     atomic { again = false; waits = false; dozes = false }
  od
}

// When nobody can take a step any more, nothing is left that nobody will come for.
active proctype monitor() {
  timeout -> d_step {
    assert(!posted && !stack && !handed_over);
    assert(!failed || !receives);
    assert(!sleep_expected || background == ASLEEP);
    assert(!looped || background == DEFERRING)
  }
}
