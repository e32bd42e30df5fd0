// SPDX-License-Identifier: Apache-2.0
#include "online/background_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace wideep::online {

void become_background_thread(const char* name, const std::vector<int>& processors) {
  ::pthread_setname_np(::pthread_self(), name);
  // Linux has a nice value per thread. Errors are ignored: these settings affect speed only.
  const sched_param none{};
  ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &none);
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
  if (processors.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

}  // namespace wideep::online
