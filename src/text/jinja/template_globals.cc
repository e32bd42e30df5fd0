// SPDX-License-Identifier: Apache-2.0
#include "jinja/template_globals.h"

#include <fmt/format.h>

#include <cstdint>

#include "base/try.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"

namespace wideep::jinja {
namespace {

constexpr size_t kMaxElements = 100'000;  // of range(), as in Jinja's sandbox

}  // namespace

ValueResult range_of(const Arguments& arguments) {
  ArgumentReader reader("range", arguments);
  int64_t start = reader.strict_integer_or("start", 0), stop = start;
  if (arguments.positional.empty()) return invalid_input("range: expected 1 argument at least");
  if (arguments.positional.size() > 1) {
    stop = reader.strict_integer_or("stop", 0);
  } else {
    start = 0;
  }
  const int64_t step = reader.strict_integer_or("step", 1);
  WIDEEP_TRY(reader.status());
  if (step == 0) return invalid_input("range: the step must not be 0");
  List all;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (all.size() == kMaxElements) {
      return invalid_input(fmt::format("range: more than {} elements", kMaxElements));
    }
    if (!arguments.budget.spend(1)) return arguments.budget.status();
    all.emplace_back(i);
    // The next i would overflow.
    if (step > 0 ? i > INT64_MAX - step : i < INT64_MIN - step) break;
  }
  return Value(RangeBounds{start, stop, step}, std::move(all));
}

Result<Dict> dict_of(const Arguments& arguments) {
  const List& given = arguments.positional;
  if (given.size() > 1) {
    return invalid_input(fmt::format("dict: expected at most 1 argument, found {}", given.size()));
  }
  const Value items = given.empty() ? Value(List()) : given[0];
  Dict dict;
  if (items.is_dict()) {
    if (!arguments.budget.spend(items.dict().entries().size())) return arguments.budget.status();
    dict = items.dict();
  } else {
    WIDEEP_TRY_ASSIGN(const List pairs, elements_of(items, arguments.budget));
    for (const Value& pair : pairs) {
      WIDEEP_TRY_ASSIGN(const List both, elements_of(pair, arguments.budget));
      if (both.size() != 2) return invalid_input("dict: expected pairs of a key and a value");
      WIDEEP_TRY_ASSIGN(const std::string text, key_text(both[0], arguments.budget));
      dict.set(both[0], text, both[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(name, value);
  return dict;
}

}  // namespace wideep::jinja
