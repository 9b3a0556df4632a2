// SPDX-License-Identifier: BSD-2-Clause
// Threads of a program that are about to sleep, and leave nothing behind that the descriptors do not tell of: one that finds
// the shard's lock taken leaves that to its holder (engine/datapath: Progress::try_to_leave_nothing, Shard::leave,
// Shard::leave_to_holder, Shard::look_after_leavers, Shard::unlock). The holder may be in a round, in a leave() of its own,
// in a set-up call, or be the background thread.
//
// All orders of their steps: when all sleep, each leave() has been done by somebody, after a round of its own, or the background
// thread has been woken for it. Mutations: -DLOOKS_BEFORE_IT_UNLOCKS: the holder looks for what was left to it before it gives the lock back. -DFORGETS_UNLOCKED: leave() takes the flag down when
// it has no lock any more. -DLEAVES_TO_NOBODY: who leaves it to the holder does not look whether there still is one.
// -DNOT_AFTER_ROUNDS, -DNOT_AFTER_SETUPS: they do not look. -DSLEEPS_WITHOUT_A_LOOK: the background thread does not, before it sleeps.

#define TURNS 2

bool locked = false, left_to_holder = false;
bool owed = false;  // somebody is about to sleep, and nobody has left nothing behind since
bool kicked = false;

// Shard::leave_to_holder(). `gone`: there is one, or leave() is done.
inline to_holder() {
  left_to_holder = true;
#ifdef LEAVES_TO_NOBODY
  gone = true
#else
  if
  :: atomic { !locked -> locked = true }; locked = false; gone = false
  :: locked -> gone = true
  fi
#endif
}

inline leave() {
  looks = 0;
  gone = false;
  do
  :: gone -> break
  :: !gone && looks < 2 ->
     looks++;
     if
     :: atomic { !locked -> locked = true };
        if
#ifndef FORGETS_UNLOCKED
        :: left_to_holder ->
           left_to_holder = false;
           locked = false;
           if  // a round, with what has come
           :: atomic { !locked -> locked = true }; locked = false
           :: locked -> to_holder()
           fi
#endif
        :: else ->
           owed = false;
#ifdef LOOKS_BEFORE_IT_UNLOCKS
           more = left_to_holder;
           locked = false;
#else
           locked = false;
           more = left_to_holder;
#endif
#ifdef FORGETS_UNLOCKED
           left_to_holder = false;
           more = false;
#endif
           gone = !more  // it is done
        fi
     :: locked -> to_holder()
     fi
  :: !gone && looks == 2 -> kicked = true; break
  od;
  looks = 0; gone = false; more = false  // fewer states
}

active [2] proctype program() {
  byte looks, turns;
  bool more, gone;
  do
  :: turns < TURNS ->
     turns++;
     if
     :: atomic { !locked -> locked = true };  // rounds
        locked = false;
#ifndef NOT_AFTER_ROUNDS
        if
        :: left_to_holder -> leave()
        :: else
        fi;
#endif
     :: locked -> skip
     fi;
     if
     :: owed = true; leave()
     :: skip
     fi
  :: else -> break
  od
}

active proctype setup() {
  atomic { !locked -> locked = true };
  locked = false
#ifndef NOT_AFTER_SETUPS
  ;
  if
  :: left_to_holder -> kicked = true
  :: else
  fi
#endif
}

active proctype background() {
end:
  do
  :: kicked ->
     kicked = false;
     left_to_holder = false;
     // Shard::sleep()
     do
     :: atomic { !locked -> locked = true };
        owed = false;
        locked = false;
#ifndef SLEEPS_WITHOUT_A_LOOK
        if
        :: left_to_holder -> left_to_holder = false
        :: else -> break
        fi
#else
        break
#endif
     od
  od
}

active proctype monitor() {
  timeout -> assert(!owed)
}
