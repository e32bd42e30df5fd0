// SPDX-License-Identifier: Apache-2.0
//
// Jinja's filters of lists and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <set>
#include <utility>

#include "base/try.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"
#include "jinja/filters.h"
#include "jinja/python_text.h"

namespace wideep::jinja {
namespace {

ValueResult length_filter(const Value& input, ArgumentReader& arguments) {
  WIDEEP_TRY_ASSIGN(const int64_t length, length_of(input, arguments.budget()));
  return length;
}

// Does not copy the elements of a list, because loops use the first and last of one again and
// again.
template <bool first>
ValueResult end_filter(const Value& input, ArgumentReader& arguments) {
  if (input.is_list() && !input.list().empty()) {
    return first ? input.list().front() : input.list().back();
  }
  WIDEEP_TRY_ASSIGN(const List all, elements_of(input, arguments.budget()));
  if (!all.empty()) return first ? all.front() : all.back();
  return Value(Undefined{first ? "No first item, sequence was empty."
                               : "No last item, sequence was empty."});
}

ValueResult list_filter(const Value& input, ArgumentReader& arguments) {
  WIDEEP_TRY_ASSIGN(List all, elements_of(input, arguments.budget()));
  return all;
}

ValueResult reverse_filter(const Value& input, ArgumentReader& arguments) {
  WIDEEP_TRY_ASSIGN(List all, elements_of(input, arguments.budget()));
  std::reverse(all.begin(), all.end());
  if (!input.is_string()) return all;
  std::string text;
  for (const Value& each : all) text += each.string();
  return input.with_text(std::move(text));
}

// The value at the end of a path such as "a.b.0"; fallback, unless none: for every part that is
// undefined.
ValueResult follow(Value value, const Value& path, Budget& budget, const Value& fallback = {}) {
  if (path.is_none()) return value;
  List parts = {path};
  if (path.is_string()) {
    const std::vector<std::string> names = split(path.string(), ".", -1, budget);
    parts.assign(names.begin(), names.end());
  }
  for (Value& part : parts) {
    const bool index = part.is_string() && !part.string().empty() && part.string().size() < 19 &&
                       part.string().find_first_not_of("0123456789") == std::string::npos;
    if (index) part = Value(int64_t{std::atoll(part.string().c_str())});
    WIDEEP_TRY_ASSIGN(value, item_of(value, part, budget));
    if (value.is_undefined() && !fallback.is_none()) value = fallback;
  }
  return value;
}

ValueResult join_filter(const Value& input, ArgumentReader& arguments) {
  const std::string separator = arguments.text(arguments.value_or("d", ""));
  const Value path = arguments.value_or("attribute", Value());
  WIDEEP_TRY_ASSIGN(const List all, elements_of(input, arguments.budget()));
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    Value item = all[i];
    if (!path.is_none()) {
      WIDEEP_TRY_ASSIGN(item, follow(item, path, arguments.budget()));
    }
    if (!arguments.budget().spend_bytes(separator.size())) break;
    text += (i > 0 ? separator : "") + arguments.text(item);
  }
  return text;
}

// As in Jinja, strings are compared without case unless case_sensitive is set.
Value sort_key(const Value& value, bool case_sensitive, Budget& budget) {
  if (!value.is_string() || case_sensitive) return value;
  return Value(lower(to_text(value, budget)));
}

struct Keyed {
  Value key;
  Value value;
};

Result<std::vector<Keyed>> with_keys(const Value& input, const Value& path, bool case_sensitive,
                                     Budget& budget) {
  WIDEEP_TRY_ASSIGN(const List all, elements_of(input, budget));
  std::vector<Keyed> keyed;
  for (const Value& each : all) {
    Value key = each;
    if (!path.is_none()) {
      WIDEEP_TRY_ASSIGN(key, follow(key, path, budget));
    }
    keyed.push_back({sort_key(key, case_sensitive, budget), each});
  }
  return keyed;
}

// A stable sort. Uses std::list, because a failed comparison makes the order inconsistent, and
// std::sort on a vector would then access memory out of bounds.
Status sort_by_key(std::vector<Keyed>& all, bool reverse, Budget& budget) {
  Status status;
  std::list<Keyed> sorted(all.begin(), all.end());
  sorted.sort([&](const Keyed& a, const Keyed& b) {
    const Result<std::partial_ordering> order =
        reverse ? compare(b.key, a.key, budget) : compare(a.key, b.key, budget);
    if (!order.ok()) status = order.status();
    return order.ok() && *order < 0;
  });
  all.assign(sorted.begin(), sorted.end());
  return status;
}

List values_of(const std::vector<Keyed>& keyed) {
  List all;
  for (const Keyed& each : keyed) all.push_back(each.value);
  return all;
}

// The list of what sort compares: path may name several attributes, "a,b.c".
ValueResult sort_keys(const Value& value, const Value& path, bool case_sensitive, Budget& budget) {
  List paths = {path};
  if (path.is_string()) {
    const std::vector<std::string> names = split(path.string(), ",", -1, budget);
    paths.assign(names.begin(), names.end());
  }
  for (Value& key : paths) {
    WIDEEP_TRY_ASSIGN(key, follow(value, key, budget));
    key = sort_key(key, case_sensitive, budget);
  }
  return paths;
}

ValueResult sort_filter(const Value& input, ArgumentReader& arguments) {
  const bool reverse = arguments.strict_integer_or("reverse", 0) != 0;
  const bool case_sensitive = arguments.truth_or("case_sensitive", false);
  const Value path = arguments.value_or("attribute", Value());
  WIDEEP_TRY_ASSIGN(const List elements, elements_of(input, arguments.budget()));
  std::vector<Keyed> all;
  for (const Value& each : elements) {
    WIDEEP_TRY_ASSIGN(Value key, sort_keys(each, path, case_sensitive, arguments.budget()));
    all.push_back({std::move(key), each});
  }
  WIDEEP_TRY(sort_by_key(all, reverse, arguments.budget()));
  return values_of(all);
}

ValueResult unique_filter(const Value& input, ArgumentReader& arguments) {
  const bool case_sensitive = arguments.truth_or("case_sensitive", false);
  const Value path = arguments.value_or("attribute", Value());
  WIDEEP_TRY_ASSIGN(const std::vector<Keyed> all,
                    with_keys(input, path, case_sensitive, arguments.budget()));
  std::set<std::string> seen;
  std::vector<Keyed> kept;
  for (const Keyed& each : all) {
    WIDEEP_TRY_ASSIGN(std::string key, key_text(each.key, arguments.budget()));
    if (seen.insert(std::move(key)).second) kept.push_back(each);
  }
  return values_of(kept);
}

template <bool largest>
ValueResult extreme_filter(const Value& input, ArgumentReader& arguments) {
  const bool case_sensitive = arguments.truth_or("case_sensitive", false);
  const Value path = arguments.value_or("attribute", Value());
  WIDEEP_TRY_ASSIGN(std::vector<Keyed> all,
                    with_keys(input, path, case_sensitive, arguments.budget()));
  // The sort is stable, so that the first of equal elements is returned, as in Python.
  WIDEEP_TRY(sort_by_key(all, largest, arguments.budget()));
  return all.empty() ? Value(Undefined{"No aggregated item, sequence was empty."})
                     : all.front().value;
}

ValueResult map_filter(const Value& input, ArgumentReader& arguments) {
  // As in Jinja, every false value has no elements, and nothing looks at the arguments then.
  if (!input.truth()) return arguments.rest(), List();
  const Value* name = arguments.take("filter");
  WIDEEP_TRY_ASSIGN(List all, elements_of(input, arguments.budget()));
  if (name != nullptr) {
    const Arguments of_filter = arguments.rest();
    const std::string filter = arguments.text(*name);
    for (Value& each : all) {
      WIDEEP_TRY_ASSIGN(each, apply_filter(filter, each, of_filter));
    }
    return all;
  }
  const Value path = arguments.value("attribute");
  const Value fallback = arguments.value_or("default", Value());
  for (Value& each : all) {
    WIDEEP_TRY_ASSIGN(each, follow(each, path, arguments.budget(), fallback));
  }
  return all;
}

// Arguments: with by_attribute, the attribute of the elements that is tested; the name of a test
// (by default truth); the arguments of the test.
template <bool by_attribute, bool keep>
ValueResult select_filter(const Value& input, ArgumentReader& arguments) {
  if (!input.truth()) return arguments.rest(), List();  // see map_filter()
  const Value path = by_attribute ? arguments.value("attribute") : Value();
  const Value* test = arguments.take("test");
  const Arguments of_test = arguments.rest();
  const std::string test_name = test != nullptr ? arguments.text(*test) : "";
  WIDEEP_TRY_ASSIGN(const List all, elements_of(input, arguments.budget()));
  List kept;
  for (const Value& each : all) {
    Value judged = each;
    if (by_attribute) {
      WIDEEP_TRY_ASSIGN(judged, follow(judged, path, arguments.budget()));
    }
    if (test != nullptr) {
      WIDEEP_TRY_ASSIGN(judged, apply_test(test_name, judged, of_test));
    }
    if (judged.truth() == keep) kept.push_back(each);
  }
  return kept;
}

// ---- dicts and undefined values ----

ValueResult items_filter(const Value& input, ArgumentReader& arguments) {
  if (input.is_undefined()) return List();
  if (!input.is_dict()) return invalid_input("Can only get item pairs from a mapping.");
  List pairs;
  for (const auto& [key, value] : input.dict().entries()) {
    if (!arguments.budget().spend(1)) break;
    pairs.emplace_back(List{key, value}, ListKind::kTuple);
  }
  return pairs;
}

ValueResult sorted_items_filter(const Value& input, ArgumentReader& arguments) {
  const bool case_sensitive = arguments.truth_or("case_sensitive", false);
  const std::string by = arguments.text(arguments.value_or("by", "key"));
  const bool reverse = arguments.strict_integer_or("reverse", 0) != 0;
  if (!input.is_dict()) return invalid_input("expected a dict");
  if (by != "key" && by != "value") return invalid_input("by: expected key or value");
  std::vector<Keyed> all;
  for (const auto& [key, value] : input.dict().entries()) {
    if (!arguments.budget().spend(1)) break;
    const Value& judged = by == "key" ? key : value;
    all.push_back({sort_key(judged, case_sensitive, arguments.budget()),
                   Value(List{key, value}, ListKind::kTuple)});
  }
  WIDEEP_TRY(sort_by_key(all, reverse, arguments.budget()));
  return values_of(all);
}

ValueResult default_filter(const Value& input, ArgumentReader& arguments) {
  const Value fallback = arguments.value_or("default_value", "");
  const bool falsy_too = arguments.truth_or("boolean", false);
  return input.is_undefined() || (falsy_too && !input.truth()) ? fallback : input;
}

}  // namespace

const Filters& list_filters() {
  static const Filters filters = {
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", sorted_items_filter},
      {"first", end_filter<true>},
      {"items", items_filter},
      {"join", join_filter},
      {"last", end_filter<false>},
      {"length", length_filter},
      {"list", list_filter},
      {"map", map_filter},
      {"max", extreme_filter<true>},
      {"min", extreme_filter<false>},
      {"reject", select_filter<false, false>},
      {"rejectattr", select_filter<true, false>},
      {"reverse", reverse_filter},
      {"select", select_filter<false, true>},
      {"selectattr", select_filter<true, true>},
      {"sort", sort_filter},
      {"unique", unique_filter},
  };
  return filters;
}

}  // namespace wideep::jinja
