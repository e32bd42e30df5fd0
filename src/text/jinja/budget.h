// SPDX-License-Identifier: Apache-2.0
//
// The work that one rendering may still do, in steps, so that every template ends in bounded time.
//
// Code whose work depends on the template or its input spends steps before it does the work. A
// spent budget stays spent: functions then return early with an incomplete result, and the renderer
// checks the budget before it uses any result. So only the renderer needs to look at status(). Not
// thread safe; one per rendering.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "wideep/status.h"

namespace wideep::jinja {

class Budget {
 public:
  explicit Budget(int64_t steps) : left_(steps) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // False: fewer steps are left, and the budget is spent from now on.
  bool spend(size_t steps) {
    if (spent_) return false;
    if (steps > static_cast<size_t>(left_)) {
      refuse(invalid_input("the template does too much work"));
      return false;
    }
    left_ -= static_cast<int64_t>(steps);
    return true;
  }

  // Call it before bytes are produced, copied or searched. 64 bytes count as one step, because that
  // is about as much work as a step of the renderer.
  bool spend_bytes(size_t bytes) { return spend(bytes / 64); }

  // Makes the budget spent, with this error as its status.
  void refuse(Status why) {
    if (!spent_) why_ = std::move(why);
    spent_ = true;
  }

  bool spent() const { return spent_; }
  const Status& status() const { return why_; }

 private:
  int64_t left_;
  bool spent_ = false;
  Status why_;
};

}  // namespace wideep::jinja
