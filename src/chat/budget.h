// SPDX-License-Identifier: Apache-2.0
//
// How much work one rendering may still do, so that a template ends whatever it says.
//
// What can be much work takes steps before it does it. A budget that is spent stays so: functions
// then return early, with a part of their result, and the renderer refuses before anything is made
// of that. So only it has to ask for the status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "wideep/status.h"

namespace wideep::chat {

class Budget {
 public:
  explicit Budget(int64_t steps) : left_(steps) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // False: there are not as many, and the budget is spent.
  bool spend(size_t steps) {
    if (spent_) return false;
    if (steps > static_cast<size_t>(left_)) {
      refuse(invalid_input("the template does not end"));
      return false;
    }
    left_ -= static_cast<int64_t>(steps);
    return true;
  }

  // Before bytes are made, copied or searched: 64 are a step, whose own cost is about theirs.
  bool spend_bytes(size_t bytes) { return spend(bytes / 64); }

  // Spent from here on, for this reason.
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

}  // namespace wideep::chat
