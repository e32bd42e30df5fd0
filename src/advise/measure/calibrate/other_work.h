// SPDX-License-Identifier: Apache-2.0
//
// What other programs take of the processors while something is measured: time in which they ran
// without being nice, and time that the machine's host gave to others.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

namespace wideep::measure {

// Of the processors, what others may use without being a disturbance.
inline constexpr double kMaxOthers = 0.1;

class OtherWork {
 public:
  OtherWork() : before_(now()) {}

  // Of all processors, since it was made; 0 where the kernel does not tell. What processes have
  // used that this one started counts as its own once they have ended.
  double share() const;

 private:
  struct Times {
    double all = 0.0, busy = 0.0, own = 0.0;  // seconds of processors
  };
  static Times now();

  Times before_;
};

}  // namespace wideep::measure
