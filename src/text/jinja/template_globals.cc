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

Result<std::shared_ptr<Object>> cycler_of(const Arguments& arguments) {
  if (!arguments.named.empty()) return invalid_input("cycler: unknown named argument");
  const List& items = arguments.positional;
  if (items.empty()) return invalid_input("cycler: at least one item has to be provided");
  const auto cycler = std::make_shared<Object>(Object{Object::Kind::kCycler, {}});
  const auto move_to = [items, cycler = std::weak_ptr<Object>(cycler)](int64_t at) {
    Dict& attributes = cycler.lock()->attributes;
    const Value before = attributes.find("current") ? *attributes.find("current") : Value();
    attributes.set("pos", at);
    attributes.set("current", items[static_cast<size_t>(at)]);
    return before;
  };
  const auto next = [move_to, size = static_cast<int64_t>(items.size()),
                     cycler = std::weak_ptr<Object>(cycler)](const Arguments& given) {
    if (!given.positional.empty()) return ValueResult(invalid_input("next: no arguments"));
    return ValueResult(move_to((cycler.lock()->attributes.find("pos")->integer() + 1) % size));
  };
  const auto reset = [move_to](const Arguments&) { return move_to(0), ValueResult(Value()); };
  const Value all(items, ListKind::kTuple);
  cycler->attributes.set("items", all);
  cycler->attributes.set("next", Value(Function(next), all.depth()));
  cycler->attributes.set("reset", Value(Function(reset), all.depth()));
  move_to(0);
  return cycler;
}

Result<std::shared_ptr<Object>> joiner_of(const Arguments& arguments) {
  ArgumentReader reader("joiner", arguments);
  const Value separator = reader.value_or("sep", ", ");
  WIDEEP_TRY(reader.status());
  const auto joiner = std::make_shared<Object>(Object{Object::Kind::kJoiner, {}});
  joiner->attributes.set("sep", separator);
  joiner->attributes.set("used", false);
  joiner->call = [separator,
                  joiner = std::weak_ptr<Object>(joiner)](const Arguments&) -> ValueResult {
    Dict& attributes = joiner.lock()->attributes;
    const bool used = attributes.find("used")->truth();
    attributes.set("used", true);
    return used ? separator : Value("");
  };
  return joiner;
}

}  // namespace wideep::jinja
