// SPDX-License-Identifier: Apache-2.0
//
// What the command needs of the process that it was started as, whatever its parent has left it.
//
// Thread safety: main(), before anything else.
#pragma once

#include "wideep/status.h"

namespace wideep::tools {

// Opens /dev/null where stdin, stdout or stderr is closed: else the next file that is opened,
// shared memory for example, would take the lines that are meant for them. Lets a write beyond the
// limit of file sizes fail (ulimit -f) instead of ending the process. Lets SIGINT, SIGTERM and
// SIGHUP end process 1 of a container as they end any other process, with 128 + their number.
// Raises the limit of the stack, which also holds for threads. Forked ranks inherit all this.
// Errors (failed): the stack stays too small (ulimit -s).
Status prepare_process();

}  // namespace wideep::tools
