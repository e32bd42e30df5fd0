// SPDX-License-Identifier: Apache-2.0
//
// Notices a process of which no thread runs any more, while it is still there: a debugger holds it,
// or it waits for a disk that does not answer. Healthy ranks wake several times a second, also
// while they wait for each other, so that silence is certain after some seconds.
//
// Thread safety: one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

namespace wideep::transport {

class RunWatch {
 public:
  // How often look() is to be called. Looks are counted, not time: should the whole machine stand
  // still, its clock may go on.
  static constexpr std::chrono::milliseconds kInterval{1'000};

  // Returns for how many calls in a row no thread of the process has run; 0 if the kernel does not
  // tell, and at the first call, which has nothing to compare with.
  int look(pid_t process);
  // The same of these times, in ns: of the main thread, and of all threads, which is asked only
  // where the first has not changed. nullopt: the kernel does not tell.
  int note(uint64_t main_ns, const std::function<std::optional<uint64_t>()>& all_ns);

 private:
  uint64_t main_ns_ = 0, all_ns_ = 0;  // processor time of the main thread, of all threads
  int silent_ = -1;                    // before the first call
};

}  // namespace wideep::transport
