// SPDX-License-Identifier: Apache-2.0
//
// Reads the arguments of a call of a filter, test, method or macro, each by position or by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

// Takes arguments in the order of the callee's parameters and keeps the first error. An accessor
// that finds an error returns an empty value or the fallback; status() returns the error. Not
// thread safe.
class ArgumentReader {
 public:
  ArgumentReader(std::string_view callee, const Arguments& arguments)
      : callee_(callee), arguments_(arguments) {}

  const Value* take(std::string_view name);  // null: absent
  const Value* take_named(std::string_view name);
  Value value(std::string_view name);  // absent: an error
  Value value_or(std::string_view name, Value fallback);
  std::string string(std::string_view name);
  int64_t integer_or(std::string_view name, int64_t fallback);  // none: the fallback
  int64_t strict_integer_or(std::string_view name, int64_t fallback);
  bool truth_or(std::string_view name, bool fallback);
  // str(value), charged to the budget.
  std::string text(const Value& value) { return to_text(value, budget()); }
  Budget& budget() { return arguments_.budget; }
  bool has_more() const {
    return position_ < arguments_.positional.size() ||
           named_taken_.size() < arguments_.named.size();
  }
  // Takes all remaining arguments, to pass them to another callee.
  Arguments rest();

  // The first error; arguments that were not taken are an error too.
  Status status();

 private:
  void complain(std::string what);

  std::string_view callee_;
  const Arguments& arguments_;
  size_t position_ = 0;
  std::vector<std::string_view> named_taken_;
  Status status_;
};

}  // namespace wideep::jinja
