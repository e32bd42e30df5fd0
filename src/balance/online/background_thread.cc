// SPDX-License-Identifier: Apache-2.0
#include "online/background_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/named_thread.h"

namespace wideep::online {
namespace {

constexpr int kNormalNice = 0, kLowestNice = 19;

// Linux has a nice value per thread.
bool set_nice(pid_t thread, int nice) {
  return ::setpriority(PRIO_PROCESS, static_cast<id_t>(thread), nice) == 0;
}

}  // namespace

void become_background_thread(const char* name, const std::vector<int>& processors) {
  // Errors are ignored: these settings affect speed only.
  const sched_param none{};
  ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &none);
  set_nice(::gettid(), kLowestNice);
  base::name_and_bind_thread(name, processors);
}

bool lend_priority(pid_t thread) { return set_nice(thread, kNormalNice); }

void take_priority_back(pid_t thread) { set_nice(thread, kLowestNice); }

}  // namespace wideep::online
