// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace wideep::online {

// Lowers the calling thread's priority, so that it runs only on processors that no computing thread
// uses, and sets its name (at most 15 characters) for the system's thread lists. processors: the
// numbers of those it may use; empty: no change. (A new thread inherits the binding of the thread
// that creates it, so a bound creator must name them.)
void become_background_thread(const char* name, const std::vector<int>& processors);

}  // namespace wideep::online
