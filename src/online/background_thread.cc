// SPDX-License-Identifier: Apache-2.0
#include "online/background_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace wideep::online {

void become_background_thread(const char* name) {
  ::pthread_setname_np(::pthread_self(), name);
  // Of a thread's own priority, as Linux has it. Whatever is refused: it is a matter of speed only.
  const sched_param none{};
  ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &none);
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
}

}  // namespace wideep::online
