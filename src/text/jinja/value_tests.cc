// SPDX-License-Identifier: Apache-2.0
//
// Jinja's tests, after "is".
#include <compare>
#include <map>

#include "base/try.h"
#include "jinja/arguments.h"
#include "jinja/arithmetic.h"
#include "jinja/builtins.h"
#include "jinja/known_names.h"

namespace wideep::jinja {
namespace {

using TestFunction = ValueResult (*)(const Value& input, ArgumentReader& arguments);

template <bool (Value::*holds)() const>
ValueResult is_type(const Value& input, ArgumentReader&) {
  return (input.*holds)();
}

ValueResult is_defined(const Value& input, ArgumentReader&) { return !input.is_undefined(); }
ValueResult is_true(const Value& input, ArgumentReader&) {
  return input.is_bool() && input.boolean();
}
ValueResult is_false(const Value& input, ArgumentReader&) {
  return input.is_bool() && !input.boolean();
}
// Whether it has a length and items: the views of a dict have none.
ValueResult is_sequence(const Value& input, ArgumentReader&) {
  return input.is_iterable() && !input.is_view();
}
ValueResult is_integer(const Value& input, ArgumentReader&) {
  return input.is_whole() && !input.is_bool();
}

template <bool (*fits)(std::partial_ordering)>
ValueResult compares(const Value& input, ArgumentReader& arguments) {
  WIDEEP_TRY_ASSIGN(const std::partial_ordering order,
                    compare(input, arguments.value("other"), arguments.budget()));
  return fits(order);
}

ValueResult is_equal(const Value& input, ArgumentReader& arguments) {
  return equal(input, arguments.value("other"), arguments.budget());
}
ValueResult is_unequal(const Value& input, ArgumentReader& arguments) {
  return !equal(input, arguments.value("other"), arguments.budget());
}
ValueResult is_same(const Value& input, ArgumentReader& arguments) {
  return input.same_object(arguments.value("other"), arguments.budget());
}
ValueResult is_within(const Value& input, ArgumentReader& arguments) {
  WIDEEP_TRY_ASSIGN(const bool within, is_in(input, arguments.value("seq"), arguments.budget()));
  return within;
}

// input % divisor
ValueResult remainder(const Value& input, const Value& divisor, ArgumentReader& arguments) {
  return arithmetic("%", input, divisor, arguments.budget());
}
ValueResult is_odd(const Value& input, ArgumentReader& arguments) {
  WIDEEP_TRY_ASSIGN(const Value rest, remainder(input, int64_t{2}, arguments));
  return equal(rest, int64_t{1}, arguments.budget());
}
ValueResult is_even(const Value& input, ArgumentReader& arguments) {
  WIDEEP_TRY_ASSIGN(const Value rest, remainder(input, int64_t{2}, arguments));
  return equal(rest, int64_t{0}, arguments.budget());
}
ValueResult is_divisible(const Value& input, ArgumentReader& arguments) {
  WIDEEP_TRY_ASSIGN(const Value rest, remainder(input, arguments.value("num"), arguments));
  return equal(rest, int64_t{0}, arguments.budget());
}

const std::map<std::string_view, TestFunction>& all_tests() {
  static const std::map<std::string_view, TestFunction> tests = {
      {"defined", is_defined},
      {"undefined", is_type<&Value::is_undefined>},
      {"none", is_type<&Value::is_none>},
      {"boolean", is_type<&Value::is_bool>},
      {"true", is_true},
      {"false", is_false},
      {"integer", is_integer},
      {"float", is_type<&Value::is_float>},
      {"number", is_type<&Value::is_number>},
      {"string", is_type<&Value::is_string>},
      {"mapping", is_type<&Value::is_dict>},
      {"sequence", is_sequence},
      {"iterable", is_type<&Value::is_iterable>},
      {"sameas", is_same},
      {"in", is_within},
      {"odd", is_odd},
      {"even", is_even},
      {"divisibleby", is_divisible},
      {"eq", is_equal},
      {"equalto", is_equal},
      {"ne", is_unequal},
      {"lt", compares<std::is_lt>},
      {"lessthan", compares<std::is_lt>},
      {"le", compares<std::is_lteq>},
      {"gt", compares<std::is_gt>},
      {"greaterthan", compares<std::is_gt>},
      {"ge", compares<std::is_gteq>},
      {"==", is_equal},
      {"!=", is_unequal},
      {"<", compares<std::is_lt>},
      {"<=", compares<std::is_lteq>},
      {">", compares<std::is_gt>},
      {">=", compares<std::is_gteq>},
  };
  return tests;
}

}  // namespace

bool is_test(std::string_view name) { return all_tests().contains(name); }

Status unknown_test(std::string_view name) {
  return invalid_input(not_used("test", name, all_tests()));
}

ValueResult apply_test(std::string_view name, const Value& input, const Arguments& arguments) {
  const auto found = all_tests().find(name);
  if (found == all_tests().end()) return unknown_test(name);
  if (!arguments.budget.spend(1)) return arguments.budget.status();
  ArgumentReader reader(name, arguments);
  const ValueResult result = found->second(input, reader);
  WIDEEP_TRY(reader.status());
  if (!result.ok()) return result.status().at(std::string(name));
  return result;
}

}  // namespace wideep::jinja
