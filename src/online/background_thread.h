// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace wideep::online {

// The calling thread runs only where no computing thread wants the processor, and shows under this
// name (at most 15 characters) in the system's lists. processors: by number, that it may use (a
// thread made by one that is bound would be bound to the same); empty: as it is.
void become_background_thread(const char* name, const std::vector<int>& processors);

}  // namespace wideep::online
