// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace wideep::base {

// Sets the calling thread's name (at most 15 characters) for the system's thread lists. processors:
// the numbers of those it may use; empty: no change. (A new thread inherits the binding of the
// thread that creates it, so a bound creator must name them.) Ignores errors: on another processor
// a thread is slower, not wrong.
void name_and_bind_thread(const char* name, const std::vector<int>& processors);

}  // namespace wideep::base
