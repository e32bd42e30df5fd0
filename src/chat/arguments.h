// SPDX-License-Identifier: Apache-2.0
//
// Reading what a filter, test or method is called with: each argument by place or by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/value.h"
#include "wideep/status.h"

namespace wideep::chat {

// Takes arguments in the order of the callee's parameters, and complains once.
class ArgumentReader {
 public:
  ArgumentReader(std::string_view callee, const Arguments& arguments)
      : callee_(callee), arguments_(arguments) {}

  const Value* take(std::string_view name);  // null: it was not given
  Value value(std::string_view name);        // must be there
  Value value_or(std::string_view name, Value fallback);
  std::string string(std::string_view name);
  int64_t integer_or(std::string_view name, int64_t fallback);
  bool truth_or(std::string_view name, bool fallback);
  // str(value): of what is no text, at the cost of the budget.
  std::string text(const Value& value) { return to_text(value, budget()); }
  Budget& budget() { return arguments_.budget; }
  // All that nobody has taken, for another callee.
  Arguments rest();

  // Of all that was taken, and that nothing is left.
  Status status();

 private:
  void complain(std::string what);

  std::string_view callee_;
  const Arguments& arguments_;
  size_t position_ = 0;
  std::vector<std::string_view> named_taken_;
  Status status_;
};

}  // namespace wideep::chat
