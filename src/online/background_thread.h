// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace wideep::online {

// The calling thread runs only where no computing thread wants the processor, and shows under this
// name (at most 15 characters) in the system's lists.
void become_background_thread(const char* name);

}  // namespace wideep::online
