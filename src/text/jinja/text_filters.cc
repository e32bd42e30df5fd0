// SPDX-License-Identifier: Apache-2.0
//
// Jinja's filters of texts, and those that read or write numbers and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/try.h"
#include "formats/json_parse.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"
#include "jinja/filters.h"
#include "jinja/python_numbers.h"
#include "jinja/python_text.h"
#include "tokenizer/utf8.h"

namespace wideep::jinja {
namespace {

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

ValueResult int_filter(const Value& input, ArgumentReader& arguments) {
  const Value fallback = arguments.value_or("default", int64_t{0});
  if (arguments.has_more()) {
    arguments.rest();
    return invalid_input("chat templates use no argument 'base'");
  }
  if (input.is_undefined()) return invalid_input(input.undefined().what);
  if (input.is_large()) return input;
  if (input.is_integer() || input.is_bool()) return input.integer();
  if (input.is_float()) {
    const auto whole = integer_of(input.number());
    return whole ? ValueResult(*whole) : invalid_input("infinity and nan are no integers");
  }
  if (!input.is_string()) return fallback;
  if (const auto whole = integer_in(input.string())) return *whole;
  // As in Jinja, the other way is by float.
  const auto number = float_in(input.string());
  const auto whole = number ? integer_of(*number) : std::nullopt;
  return whole ? *whole : fallback;
}

// Python's rule: a text indents with itself, a number with as many spaces; none: one line.
Result<std::optional<std::string>> json_indent(const Value& indent, Budget& budget) {
  if (indent.is_none()) return std::optional<std::string>();
  if (indent.is_string()) return std::optional(indent.string());
  if (!indent.is_whole()) return unfit("indent", "an integer, a text or none", indent);
  if (indent.is_large()) return invalid_input("indent: too large");
  const auto spaces = static_cast<size_t>(std::max<int64_t>(indent.integer(), 0));
  if (!budget.spend_bytes(spaces)) return budget.status();
  return std::optional(std::string(spaces, ' '));
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
  WIDEEP_TRY_ASSIGN(style.indent, json_indent(indent, arguments.budget()));
  if (!two[0].is_string() || !two[1].is_string()) return unfit("separators", "strings", separators);
  style.item_separator = style.indent && separators.is_none() ? "," : two[0].string();
  style.key_separator = two[1].string();
  return json_value(to_json(input, style, arguments.budget()));
}

// Not Jinja's own: llama.cpp's templates of DeepSeek read arguments of calls so that are JSON texts.
ValueResult from_json_filter(const Value& input, ArgumentReader& arguments) {
  const std::string text = arguments.text(input);
  // Values become a tree: more work than their text.
  if (!arguments.budget().spend(text.size() / 8)) return arguments.budget().status();
  WIDEEP_TRY_ASSIGN(const auto json, formats::parse_exact_json(text, "the text"));
  return Value::from_json(json);
}

}  // namespace

const Filters& text_filters() {
  static const Filters filters = {
      {"capitalize", case_filter<capitalize>},
      {"from_json", from_json_filter},
      {"indent", indent_filter},
      {"int", int_filter},
      {"lower", case_filter<lower>},
      {"replace", replace_filter},
      {"safe", safe_filter},
      {"string", string_filter},
      {"title", title_filter},
      {"tojson", to_json_filter},
      {"trim", trim_filter},
      {"upper", case_filter<upper>},
  };
  return filters;
}

}  // namespace wideep::jinja
