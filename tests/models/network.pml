// SPDX-License-Identifier: BSD-2-Clause
// How the background thread hears of the network (engine/datapath/progress.cc: start(), wait(); progress.h: wake();
// engine/device/network.cc: note(), look_at_network(); engine/net/net_view.cc: process_changes()): the kernel, which
// sends messages; an application thread that opens the device, by which the background thread starts, and asks for the
// port's state; another thread that asks at any time, the background thread of another device, say; and ours. Whoever
// asks reads the messages, and tells all devices of their news. What he cannot read is to be read later, when it is
// due.
//
// All orders of their steps: once there is a background thread, no message, no news and nothing that is due is left
// while it sleeps for ever. Two of the mutations are the code as it was before this model: WHAT_IS_DUE_IS_NOT_TOLD,
// where the background thread slept on if another thread had taken the messages and could not read, and
// NO_KICK_AT_THE_START, where it did not know of news from before Progress::started_.
//
// Steps that are one atomic access of the code, or under one mutex, are one step here, in sequential consistency.

#define MESSAGES 2
#define FAILURES 1

byte sent = 0, messages = 0;  // messages: those in the netlink socket, which is readable while there are some
bool due = false;             // NetView::due(): something is to be read again
byte failures = 0;            // to read
bool news = false;            // Device::news_
bool running = false;         // the background thread
bool started = false;         // Progress::started_
bool kicked = false;          // the eventfd of Progress

// Progress::wake()
inline wake() {
  if
  :: started -> kicked = true
  :: else
  fi
}

// Device::note()
inline note() {
#ifdef TELLS_LAST
  wake();
  news = true
#else
  news = true;
  wake()
#endif
}

// NetView::process_changes()
inline process_changes() {
  atomic {
    tell = false;
    if
    :: messages > 0 || due ->
       messages = 0;
       if
       :: due = false; tell = true  // tell_listeners()
       :: failures < FAILURES -> failures++; due = true;  // plan_next_attempt()
#ifndef WHAT_IS_DUE_IS_NOT_TOLD
          tell = true
#endif
       fi
    :: else
    fi
  };
  if
  :: tell -> note()
  :: else
  fi
}

active proctype kernel() {
  do
  :: sent < MESSAGES -> sent++; messages++
  :: break
  od
}

active proctype application() {
  bool tell;
  // Progress::start()
  running = true;
  started = true;
#ifndef NO_KICK_AT_THE_START
  kicked = true;
#endif
  process_changes()
}

active proctype other() {
  bool tell;
  process_changes()
}

active proctype background() {
  bool tell, kick, readable, look_again = false;
  running;
  do
  :: kicked || messages > 0 || look_again ->  // Progress::wait(): ppoll()
     atomic { kick = kicked; readable = (messages > 0) };
#ifndef TAKES_KICKS_LAST
     if
     :: kick -> kicked = false
     :: else
     fi;
#endif
     // Device::look_at_network()
     if
     :: readable || due -> process_changes()
     :: !readable  // it is not time yet
     fi;
     news = false;
     look_again = due;
#ifdef TAKES_KICKS_LAST
     if
     :: kick -> kicked = false
     :: else
     fi;
#endif
     atomic { kick = false; readable = false; tell = false }
  od
}

// When nobody can take a step any more, nothing is left.
active proctype monitor() {
  timeout -> assert(messages == 0 && !news && !due)
}
