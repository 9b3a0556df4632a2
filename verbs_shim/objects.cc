#include "verbs_shim/objects.h"

#include <cerrno>
#include <functional>
#include <new>
#include <system_error>

namespace uroce::verbs {

int without_exceptions(const std::function<int()>& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}

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
