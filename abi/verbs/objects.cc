// SPDX-License-Identifier: BSD-2-Clause
#include "abi/verbs/objects.h"

namespace uroce::verbs {

void wait_for_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& condition, const uint32_t& acknowledged,
                               uint32_t taken) {
  pthread_mutex_lock(&mutex);
  while (acknowledged != taken) pthread_cond_wait(&condition, &mutex);
  pthread_mutex_unlock(&mutex);
}

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& condition, uint32_t& acknowledged, uint32_t count) {
  pthread_mutex_lock(&mutex);
  acknowledged += count;
  pthread_cond_signal(&condition);
  pthread_mutex_unlock(&mutex);
}

}  // namespace uroce::verbs
