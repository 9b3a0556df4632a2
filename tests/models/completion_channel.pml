// SPDX-License-Identifier: BSD-2-Clause
// How a completion wakes the application (engine/queue/completion_queue.{h,cc}, abi/verbs/cq.cc, comp_channel.cc,
// event_queue.h): a peer whose messages arrive, the background thread, and an application thread that takes an event,
// arms, polls until nothing is left, and sleeps on the channel; or that polls before it arms, and then sleeps at once,
// as UCX does (has_missed). It arms for all or for solicited ones. Its polls run rounds as well: the completion that it
// is told of may be one that it has published itself.
//
// All orders of their steps: no completion that it has armed for is left in the queue while all sleep. Who wakes the
// threads that run rounds is left to the other models: here they come as long as there is something to do.
//
// Steps that are one atomic access of the code are one step here, in sequential consistency, as the code asks for it
// wherever a store is followed by a load of something else. Of the mutations some are what a store that waits in a
// buffer would do: then the load is the first.

#define ARRIVE 3
#define NONE 0  // CompletionQueue::Arm
#define SOLICITED 1
#define ANY 2

byte arrived = 0;         // messages of the peer
bool solicited[ARRIVE];   // of a message, and of its completion
bool locked = false;      // the shard
byte filled = 0, head = 0, tail = 0, reported = 0, armed = NONE;  // of the queue
bool moderated = false;   // two completions an event, or one when the time has come
bool held_back = false;   // one
bool deadline = false;    // deadline_: a round will call expire()
byte events = 0;          // EventQueue: the count of the eventfd
byte wanted = NONE;       // what the application armed for last

inline lock() { atomic { !locked; locked = true } }
inline unlock() { locked = false }

// CompletionQueue::notify()
inline notify(end) {
  held_back = false;
#ifndef HOLDS_BACK_FOR_EVER
  deadline = false;
#endif
  reported = end;
#ifdef DISARMS_LAST
  events++;
  armed = NONE
#else
  armed = NONE;
  events++  // Channel::on_completion(), EventQueue::push()
#endif
}

// CompletionQueue::publish()
inline publish() {
  i = head;
  if
  :: i != filled ->
#ifdef LOOKS_BEFORE_IT_PUBLISHES
     seen = armed;
     head = filled;
#else
     head = filled;
     seen = armed;
#endif
#ifdef JUDGES_BY_THE_LAST
     i = filled - 1;
#endif
     do
     :: seen == NONE || i == filled -> break
     :: else ->
        if
        :: seen != ANY && !solicited[i] -> i++  // matches()
        :: else ->
           if
           :: moderated && !held_back ->  // hold_back()
              held_back = true;
#ifndef HOLDS_BACK_FOR_EVER
              deadline = true;
#endif
              i++
           :: else -> notify(i + 1); break
           fi
        fi
     od
  :: else
  fi
}

// A round, with the lock held: CompletionBurst, or push() of a queue that is armed.
inline round() {
  do
  :: filled < arrived -> filled++  // append()
  :: break
  od;
  publish()
}

// ibv_poll_cq() until it returns 0.
inline poll_until_empty() {
  do
  :: tail != head -> tail = head  // CompletionQueue::poll()
  :: else ->
     if
     :: atomic { !locked -> locked = true }; round(); unlock()  // Engine::progress()
     :: locked
     fi;
     if
     :: tail == head -> break
     :: else
     fi
  od
}

// CompletionQueue::arm(). That something weaker is there still by the time of the exchange is what it compares.
inline arm() {
  do
  :: seen = armed;
     if
     :: seen >= wanted -> break
     :: else
     fi;
     if
     :: atomic { armed == seen -> armed = wanted }; break
     :: armed != seen
     fi
  od
}

// CompletionQueue::has_missed(), and report_missed() under a Guard.
inline report_missed() {
  i = reported;
  i = (i >= tail -> i : tail);
  if
  :: i != head ->
     lock();
     i = (reported >= tail -> reported : tail);
     do
     :: i == head -> break
     :: else ->
        if
        :: armed == ANY || (armed == SOLICITED && solicited[i]) -> notify(head); break
        :: else -> i++
        fi
     od;
     unlock()
  :: else
  fi
}

active proctype peer() {
  if
  :: moderated = true
  :: skip
  fi;
  do
  :: arrived < ARRIVE ->
     if
     :: solicited[arrived] = true
     :: skip
     fi;
     arrived++
  :: else -> break
  od
}

active proctype background() {
  byte i, seen;
  do
  :: atomic { !locked && filled < arrived -> locked = true }; round(); unlock()
  :: atomic { !locked && deadline -> locked = true }; notify(head); unlock()  // CompletionQueue::expire()
  od
}

active proctype application() {
  byte i, seen;
  bool polled;
  do
  :: polled = false;
     if
     :: poll_until_empty(); polled = true
     :: skip
     fi;
     // ibv_req_notify_cq()
     if
     :: wanted = ANY
     :: wanted = SOLICITED
     fi;
#ifdef LOOKS_BEFORE_IT_ARMS
     report_missed();
     arm();
#else
     arm();
#ifndef NEVER_REPORTS_MISSED
     report_missed();
#endif
#endif
     if
     :: poll_until_empty()
     :: polled
     fi;
     events > 0 -> events--  // ibv_get_cq_event()
  od
}

// When nobody can take a step any more, nothing is left that the application wants to be told of.
active proctype monitor() {
  byte i;
  timeout -> d_step {
    i = tail;
    do
    :: i < arrived -> assert(wanted == SOLICITED && !solicited[i]); i++
    :: else -> break
    od
  }
}
