// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <vector>

namespace wideep::online {

// Lowers the calling thread's priority, so that it runs only on processors that no computing thread
// uses, and names and binds it (base/named_thread.h).
void become_background_thread(const char* name, const std::vector<int>& processors);

// Gives a background thread of this process the priority of a computing one. False: the system
// forbids it; that takes CAP_SYS_NICE, or RLIMIT_NICE of 20 or more.
bool lend_priority(pid_t thread);
void take_priority_back(pid_t thread);

}  // namespace wideep::online
