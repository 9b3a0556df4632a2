// SPDX-License-Identifier: BSD-2-Clause
#pragma once

namespace uroce::test {

// Links in what watches mutexes (watched_mutex.cc), where sanitizers bring a pthread_mutex_lock() of their own.
void watch_mutexes();

}  // namespace uroce::test
