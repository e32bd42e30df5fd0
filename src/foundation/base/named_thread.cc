// SPDX-License-Identifier: Apache-2.0
#include "base/named_thread.h"

#include <pthread.h>
#include <sched.h>

namespace wideep::base {

void name_and_bind_thread(const char* name, const std::vector<int>& processors) {
  ::pthread_setname_np(::pthread_self(), name);
  if (processors.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

}  // namespace wideep::base
