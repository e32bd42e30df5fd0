// SPDX-License-Identifier: Apache-2.0
//
// Jinja's filters, after "|". "escape" is not supported: prompts are text, not HTML.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <list>
#include <map>
#include <set>
#include <utility>

#include "base/try.h"
#include "chat/arguments.h"
#include "chat/arithmetic.h"
#include "chat/builtins.h"
#include "chat/python_format.h"
#include "chat/python_numbers.h"
#include "chat/python_text.h"
#include "tokenizer/utf8.h"

namespace wideep::chat {
namespace {

using FilterFunction = ValueResult (*)(const Value& input, ArgumentReader& arguments);

Status unfit(std::string_view argument, std::string_view expected, const Value& found) {
  return invalid_input(
      fmt::format("{}: expected {}, found {}", argument, expected, found.type_name()));
}

// ---- strings ----

// The result of a method of Python's str: marked as safe if the input is.
Value kept_safe(const Value& input, std::string text) {
  return input.is_string() ? input.with_text(std::move(text)) : Value(std::move(text));
}

template <std::string (*change)(std::string_view)>
ValueResult case_filter(const Value& input, ArgumentReader& arguments) {
  return kept_safe(input, change(arguments.text(input)));
}

// Jinja's rule, which differs from Python's str.title(): words begin after white space, hyphens and
// opening brackets.
std::string title_words(std::string_view text) {
  std::string out, word;
  const auto end_word = [&] {
    const Characters all(word);
    const size_t first = word.empty() ? 0 : (*all.begin()).size();
    out += upper(std::string_view(word).substr(0, first)) +
           lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (const std::string_view c : Characters(text)) {
    const bool separates =
        is_space(tokenizer::first_code_point(c)) || std::string_view("-({[<").find(c[0]) < 5;
    if (!separates) {
      word += c;
      continue;
    }
    end_word();
    out += c;
  }
  end_word();
  return out;
}

ValueResult title_filter(const Value& input, ArgumentReader& arguments) {
  return Value(title_words(arguments.text(input)));
}

ValueResult trim_filter(const Value& input, ArgumentReader& arguments) {
  const Value removed = arguments.value_or("chars", Value());
  const std::string text = arguments.text(input);
  if (removed.is_none()) return kept_safe(input, std::string(strip(text, Ends::kBoth)));
  if (!removed.is_string()) return unfit("chars", "a string", removed);
  return kept_safe(input, std::string(strip(text, Ends::kBoth, removed.string())));
}

ValueResult replace_filter(const Value& input, ArgumentReader& arguments) {
  const std::string from = arguments.text(arguments.value("old"));
  const std::string to = arguments.text(arguments.value("new"));
  const int64_t limit = arguments.integer_or("count", -1);
  return replace(arguments.text(input), from, to, limit, arguments.budget());
}

ValueResult string_filter(const Value& input, ArgumentReader& arguments) {
  return kept_safe(input, arguments.text(input));
}

ValueResult safe_filter(const Value& input, ArgumentReader& arguments) {
  return Value::safe(arguments.text(input));
}

ValueResult indent_filter(const Value& input, ArgumentReader& arguments) {
  const Value width = arguments.value_or("width", int64_t{4});
  const bool first = arguments.truth_or("first", false), blank = arguments.truth_or("blank", false);
  if (!width.is_string() && (!width.is_whole() || width.is_large())) {
    return unfit("width", "an integer", width);
  }
  if (!input.is_string()) return unfit("input", "a string", input);
  constexpr int64_t kMaxWidth = 1000;  // a larger width is reduced to this
  const std::string margin =
      width.is_string()
          ? width.string()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(width.integer(), 0, kMaxWidth)),
                        ' ');
  const std::string text =
      arguments.text(input) + "\n";  // then split_lines() keeps an empty last line
  std::string out;
  bool is_first = true;
  for (const std::string& line : split_lines(text, arguments.budget())) {
    if (!arguments.budget().spend_bytes(margin.size())) break;
    if (!is_first) out += '\n';
    if (is_first ? first : (blank || !line.empty())) out += margin;
    is_first = false;
    out += line;
  }
  return input.with_text(std::move(out));
}

// Python's rule: a text indents with itself, a number with as many spaces; none: one line.
Result<std::optional<std::string>> json_indent(const Value& indent) {
  if (indent.is_none()) return std::optional<std::string>();
  if (indent.is_string()) return std::optional(indent.string());
  if (!indent.is_whole()) return unfit("indent", "an integer, a text or none", indent);
  constexpr int64_t kMostSpaces = 10'000;
  if (indent.is_large() || indent.integer() > kMostSpaces)
    return invalid_input("indent: too large");
  return std::optional(
      std::string(static_cast<size_t>(std::max<int64_t>(indent.integer(), 0)), ' '));
}

ValueResult json_value(Result<std::string> text) {
  if (!text.ok()) return text.status();
  return Value(std::move(text).value());
}

ValueResult to_json_filter(const Value& input, ArgumentReader& arguments) {
  JsonStyle style;
  style.ascii = arguments.truth_or("ensure_ascii", false);
  const Value indent = arguments.value_or("indent", Value());
  const Value separators = arguments.value_or("separators", Value());
  style.sort_keys = arguments.truth_or("sort_keys", false);
  List two = {style.item_separator, style.key_separator};
  if (!separators.is_none()) {
    WIDEEP_TRY_ASSIGN(two, elements_of(separators, arguments.budget()));
    if (two.size() != 2) return unfit("separators", "two strings", separators);
  }
  // As in Python, a text alone does not look at the rest.
  if (input.is_string()) return json_value(to_json(input, style, arguments.budget()));
  WIDEEP_TRY_ASSIGN(style.indent, json_indent(indent));
  if (!two[0].is_string() || !two[1].is_string()) return unfit("separators", "strings", separators);
  style.item_separator = style.indent && separators.is_none() ? "," : two[0].string();
  style.key_separator = two[1].string();
  return json_value(to_json(input, style, arguments.budget()));
}

// "format" | format(values): as the operator "%".
ValueResult format_filter(const Value& input, ArgumentReader& arguments) {
  const Arguments given = arguments.rest();
  if (given.named.empty()) {
    const Value values(given.positional, ListKind::kTuple);
    return percent_format(kept_safe(input, arguments.text(input)), values, arguments.budget());
  }
  if (!given.positional.empty()) {
    return invalid_input("positional and named arguments at the same time");
  }
  Dict values;
  for (const auto& [name, value] : given.named) values.set(name, value);
  return percent_format(kept_safe(input, arguments.text(input)), Value(std::move(values)),
                        arguments.budget());
}

ValueResult center_filter(const Value& input, ArgumentReader& arguments) {
  const Value width = arguments.value_or("width", int64_t{80});
  if (!width.is_whole()) return unfit("width", "an integer", width);
  return kept_safe(
      input, padded(arguments.text(input), width.integer(), " ", Side::kBoth, arguments.budget()));
}

// Runs of letters, digits and "_".
ValueResult word_count_filter(const Value& input, ArgumentReader& arguments) {
  int64_t words = 0;
  bool in_word = false;
  const std::string text = arguments.text(input);
  for (const std::string_view each : Characters(text)) {
    const char32_t c = tokenizer::first_code_point(each);
    const bool is_part = c == '_' || is_alphanumeric(c);
    if (is_part && !in_word) ++words;
    in_word = is_part;
  }
  return words;
}

// ---- numbers ----

Status not_finite() { return invalid_input("infinity and nan are no integers"); }

ValueResult int_filter(const Value& input, ArgumentReader& arguments) {
  const Value fallback = arguments.value_or("default", int64_t{0});
  const Value base = arguments.value_or("base", int64_t{10});
  if (input.is_undefined()) return invalid_input(input.undefined().what);
  if (input.is_large()) return input;
  if (input.is_integer() || input.is_bool()) return input.integer();
  if (input.is_float()) {
    const auto whole = integer_of(input.number());
    return whole ? ValueResult(*whole) : not_finite();
  }
  if (!input.is_string()) return fallback;
  // As in Jinja, a base that is none, like 1 or a text, leaves the other way: by float.
  if (base.is_whole() && base.integer() >= 2 && base.integer() <= 36) {
    if (const auto whole = integer_in(input.string(), base.integer())) return *whole;
  }
  const auto number = float_in(input.string());
  const auto whole = number ? integer_of(*number) : std::nullopt;
  return whole ? *whole : fallback;
}

ValueResult float_filter(const Value& input, ArgumentReader& arguments) {
  const Value fallback = arguments.value_or("default", 0.0);
  if (input.is_undefined()) return invalid_input(input.undefined().what);
  if (input.is_large() && !std::isfinite(input.number())) return invalid_input("too large");
  if (input.is_number()) return input.number();
  const auto number = input.is_string() ? float_in(input.string()) : std::nullopt;
  return number ? Value(*number) : fallback;
}

ValueResult abs_filter(const Value& input, ArgumentReader& arguments) {
  if (input.is_float()) return std::abs(input.number());
  if (!input.is_whole()) return invalid_input("expected a number");
  const Value zero(int64_t{0});
  return arithmetic(input.integer() < 0 ? "-" : "+", zero, input, arguments.budget());
}

// Rounds an integer to a power of ten, halves to even, as Python's round().
ValueResult rounded_whole(const Value& number, int64_t precision, Budget& budget) {
  if (precision >= 0) return arithmetic("+", int64_t{0}, number, budget);
  if (precision < -static_cast<int64_t>(Value::kMaxDigits)) return int64_t{0};
  WIDEEP_TRY_ASSIGN(const Value unit, arithmetic("**", int64_t{10}, -precision, budget));
  WIDEEP_TRY_ASSIGN(const Value rest, arithmetic("%", number, unit, budget));
  WIDEEP_TRY_ASSIGN(const Value below, arithmetic("-", number, rest, budget));
  WIDEEP_TRY_ASSIGN(const Value twice, arithmetic("*", rest, int64_t{2}, budget));
  WIDEEP_TRY_ASSIGN(const Value units, arithmetic("//", below, unit, budget));
  WIDEEP_TRY_ASSIGN(const Value odd, arithmetic("%", units, int64_t{2}, budget));
  WIDEEP_TRY_ASSIGN(const int order, compare(twice, unit, budget));
  return order > 0 || (order == 0 && odd.truth()) ? arithmetic("+", below, unit, budget)
                                                  : ValueResult(below);
}

// Rounds the decimal value, as Python does; a multiplication by a power of ten would round twice.
double rounded_float(double number, int64_t precision) {
  constexpr int64_t kAllDigits = 330;
  if (!std::isfinite(number) || precision > kAllDigits) return number;
  if (precision >= 0)
    return std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::isfinite(unit) ? std::nearbyint(number / unit) * unit : 0.0;
}

ValueResult common_rounded(const Value& input, const Value& precision, Budget& budget) {
  if (!precision.is_none() && !precision.is_whole()) {
    return unfit("precision", "an integer or none", precision);
  }
  if (input.is_whole())
    return rounded_whole(input, precision.is_none() ? 0 : precision.integer(), budget);
  if (!precision.is_none()) return rounded_float(input.number(), precision.integer());
  const auto whole = integer_of(std::nearbyint(input.number()));
  return whole ? ValueResult(*whole) : not_finite();
}

ValueResult round_filter(const Value& input, ArgumentReader& arguments) {
  const Value precision = arguments.value_or("precision", int64_t{0});
  const Value method = arguments.value_or("method", "common");
  const std::string name = method.is_string() ? method.string() : "";
  if (name != "common" && name != "ceil" && name != "floor") {
    return invalid_input("method: expected common, ceil or floor");
  }
  if (!input.is_number()) return unfit("input", "a number", input);
  if (name == "common") return common_rounded(input, precision, arguments.budget());
  WIDEEP_TRY_ASSIGN(const Value unit, arithmetic("**", int64_t{10}, precision, arguments.budget()));
  WIDEEP_TRY_ASSIGN(const Value scaled, arithmetic("*", input, unit, arguments.budget()));
  if (!scaled.is_float()) return arithmetic("/", scaled, unit, arguments.budget());
  const double whole = name == "ceil" ? std::ceil(scaled.number()) : std::floor(scaled.number());
  return std::isfinite(whole) ? arithmetic("/", whole, unit, arguments.budget()) : not_finite();
}

// ---- lists ----

ValueResult length_filter(const Value& input, ArgumentReader& arguments) {
  if (input.is_list()) return static_cast<int64_t>(input.list().size());
  if (input.is_dict()) return static_cast<int64_t>(input.dict().entries().size());
  if (input.is_string()) return Characters(input.string()).count();
  WIDEEP_TRY_ASSIGN(const List all, elements_of(input, arguments.budget()));
  return static_cast<int64_t>(all.size());
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
    const Result<int> order =
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

// A list of tuples (key, elements), in the order of the keys.
ValueResult group_filter(const Value& input, ArgumentReader& arguments) {
  const Value path = arguments.value("attribute");
  const Value fallback = arguments.value_or("default", Value());
  const bool case_sensitive = arguments.truth_or("case_sensitive", false);
  WIDEEP_TRY(arguments.status());
  Budget& budget = arguments.budget();
  WIDEEP_TRY_ASSIGN(const List all, elements_of(input, budget));
  std::vector<Keyed> keyed;  // the value: (key as it is, element)
  for (const Value& each : all) {
    WIDEEP_TRY_ASSIGN(Value key, follow(each, path, budget, fallback));
    keyed.push_back({sort_key(key, case_sensitive, budget), List{key, each}});
  }
  WIDEEP_TRY(sort_by_key(keyed, false, budget));
  List groups, members;
  for (size_t i = 0; i < keyed.size(); ++i) {
    members.push_back(keyed[i].value.list()[1]);
    const bool ends = i + 1 == keyed.size() || !equal(keyed[i].key, keyed[i + 1].key, budget);
    if (!ends) continue;
    const Value& key = keyed[i + 1 - members.size()].value.list()[0];
    groups.emplace_back(List{key, std::exchange(members, {})}, ListKind::kTuple);
  }
  return groups;
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

ValueResult sum_filter(const Value& input, ArgumentReader& arguments) {
  const Value path = arguments.value_or("attribute", Value());
  Value sum = arguments.value_or("start", int64_t{0});
  if (sum.is_string()) return invalid_input("texts cannot be summed: use join");
  WIDEEP_TRY_ASSIGN(const List all, elements_of(input, arguments.budget()));
  for (Value each : all) {
    if (!path.is_none()) {
      WIDEEP_TRY_ASSIGN(each, follow(each, path, arguments.budget()));
    }
    WIDEEP_TRY_ASSIGN(sum, arithmetic("+", sum, each, arguments.budget()));
  }
  return sum;
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

const std::map<std::string_view, FilterFunction>& all_filters() {
  static const std::map<std::string_view, FilterFunction> filters = {
      {"abs", abs_filter},
      {"capitalize", case_filter<capitalize>},
      {"center", center_filter},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", sorted_items_filter},
      {"first", end_filter<true>},
      {"float", float_filter},
      {"format", format_filter},
      {"groupby", group_filter},
      {"indent", indent_filter},
      {"int", int_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", end_filter<false>},
      {"length", length_filter},
      {"list", list_filter},
      {"lower", case_filter<lower>},
      {"map", map_filter},
      {"max", extreme_filter<true>},
      {"min", extreme_filter<false>},
      {"reject", select_filter<false, false>},
      {"rejectattr", select_filter<true, false>},
      {"replace", replace_filter},
      {"reverse", reverse_filter},
      {"round", round_filter},
      {"safe", safe_filter},
      {"select", select_filter<false, true>},
      {"selectattr", select_filter<true, true>},
      {"sort", sort_filter},
      {"string", string_filter},
      {"sum", sum_filter},
      {"title", title_filter},
      {"tojson", to_json_filter},
      {"trim", trim_filter},
      {"unique", unique_filter},
      {"upper", case_filter<upper>},
      {"wordcount", word_count_filter},
  };
  return filters;
}

}  // namespace

bool is_filter(std::string_view name) { return all_filters().contains(name); }

bool is_jinja_filter(std::string_view name) {
  constexpr std::string_view kOthers[] = {"attr",           "batch",       "e",         "escape",
                                          "filesizeformat", "forceescape", "pprint",    "random",
                                          "safe",           "slice",       "striptags", "truncate",
                                          "urlencode",      "urlize",      "wordwrap",  "xmlattr"};
  return is_filter(name) || std::ranges::find(kOthers, name) != std::end(kOthers);
}

ValueResult apply_filter(std::string_view name, const Value& input, const Arguments& arguments) {
  const auto found = all_filters().find(name);
  if (found == all_filters().end()) {
    return invalid_input(fmt::format("the filter '{}' is not supported", name));
  }
  // Charged in advance: every filter of a string may read all of it.
  const size_t bytes = input.is_string() ? input.string().size() : 0;
  if (!arguments.budget.spend_bytes(64 + bytes)) return arguments.budget.status();
  ArgumentReader reader(name, arguments);
  ValueResult result = found->second(input, reader);
  WIDEEP_TRY(reader.status());
  if (!result.ok()) return result.status().at(std::string(name));
  return result;
}

}  // namespace wideep::chat
