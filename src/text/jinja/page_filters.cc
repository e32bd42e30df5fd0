// SPDX-License-Identifier: Apache-2.0
//
// Jinja's filters of texts for pages: HTML, addresses, lines of a width.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/try.h"
#include "jinja/arithmetic.h"
#include "jinja/builtins.h"
#include "jinja/escape.h"
#include "jinja/filters.h"
#include "jinja/python_numbers.h"
#include "jinja/python_text.h"
#include "jinja/slices.h"
#include "jinja/text_wrap.h"
#include "tokenizer/utf8.h"

namespace wideep::jinja {
namespace {

// ---- HTML ----

ValueResult escape_filter(const Value& input, ArgumentReader& arguments) {
  return Value::safe(escaped_value(input, arguments.budget()));
}

ValueResult force_escape_filter(const Value& input, ArgumentReader& arguments) {
  return Value::safe(escaped(arguments.text(input), arguments.budget()));
}

bool fits_attribute(std::string_view name) {
  const Characters all(name);
  return std::none_of(all.begin(), all.end(), [](std::string_view c) {
    return c == "/" || c == ">" || c == "=" || is_space(tokenizer::first_code_point(c));
  });
}

// name="value" of each entry that is not none or undefined.
ValueResult attributes_filter(const Value& input, ArgumentReader& arguments) {
  const bool space = arguments.truth_or("autospace", true);
  if (!input.is_dict()) return unfit("input", "a dict", input);
  std::string text;
  for (const auto& [key, value] : input.dict().entries()) {
    if (!arguments.budget().spend(1)) break;
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) return unfit("input", "texts as keys", key);
    if (!fits_attribute(key.string())) return invalid_input("invalid character in a name");
    if (space || !text.empty()) text += " ";
    text += escaped_value(key, arguments.budget()) + "=\"" +
            escaped_value(value, arguments.budget()) + "\"";
  }
  return text;
}

// Without tags and comments; one that does not end stays.
std::string without_tags(std::string_view text) {
  std::string out;
  for (;;) {
    const size_t begin = text.find('<');
    if (begin == text.npos) break;
    const bool comment = text.substr(begin).starts_with("<!--");
    const size_t end = comment ? text.find("-->", begin + 4) : text.find('>', begin);
    if (end == text.npos) break;
    out += text.substr(0, begin);
    text.remove_prefix(end + (comment ? 3 : 1));
  }
  return out.append(text);
}

ValueResult strip_tags_filter(const Value& input, ArgumentReader& arguments) {
  const std::string text = without_tags(arguments.text(input));
  std::string out;
  for (const std::string& word : split(text, {}, -1, arguments.budget())) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  WIDEEP_TRY_ASSIGN(std::string plain, unescaped(out));
  return plain;
}

// ---- addresses ----

// Bytes that are no letters, digits or one of _.-~ as %XX; of a query also "/", and " " as "+".
std::string quoted(const Value& value, bool in_query, Budget& budget) {
  const std::string text = to_text(value, budget);
  if (!budget.spend_bytes(3 * text.size())) return "";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !in_query);
    if (plain) {
      out += c;
    } else {
      out += c == ' ' && in_query ? "+" : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

ValueResult url_filter(const Value& input, ArgumentReader& arguments) {
  Budget& budget = arguments.budget();
  if (input.is_string() || !input.is_iterable()) return quoted(input, false, budget);
  List pairs;
  if (input.is_dict()) {
    for (const auto& [key, value] : input.dict().entries()) {
      if (!budget.spend(1)) break;
      pairs.emplace_back(List{key, value});
    }
  } else {
    WIDEEP_TRY_ASSIGN(pairs, elements_of(input, budget));
  }
  std::string text;
  for (size_t i = 0; i < pairs.size(); ++i) {
    WIDEEP_TRY_ASSIGN(const List both, elements_of(pairs[i], budget));
    if (both.size() != 2 || pairs[i].is_undefined()) return invalid_input("expected pairs");
    if (i > 0) text += '&';
    text += quoted(both[0], true, budget) + "=" + quoted(both[1], true, budget);
  }
  return text;
}

// ---- numbers ----

Result<double> number_of(const Value& value) {
  if (value.is_undefined()) return invalid_input(value.undefined().what);
  const auto number = value.is_string() ? float_in(value.string()) : std::nullopt;
  if (!value.is_number() && !number) return unfit("input", "a number", value);
  const double found = number ? *number : value.number();
  if (value.is_large() && !std::isfinite(found)) return invalid_input("too large");
  return found;
}

ValueResult file_size_filter(const Value& input, ArgumentReader& arguments) {
  const bool binary = arguments.truth_or("binary", false);
  WIDEEP_TRY_ASSIGN(const double bytes, number_of(input));
  const int base = binary ? 1024 : 1000;
  if (bytes == 1) return "1 Byte";
  if (bytes < base) {
    const auto whole = integer_of(bytes);
    if (!whole) return invalid_input("infinity is no size");
    return to_text(*whole, arguments.budget()) + " Bytes";
  }
  // A long double holds all powers exactly, for the comparison.
  long double unit = base;
  std::string prefix;
  for (const char letter : std::string_view("kMGTPEZY")) {
    unit *= base;
    prefix = binary && letter == 'k' ? 'K' : letter;
    if (bytes < unit) break;
  }
  return fmt::format("{:.1f} {}{}B", base * bytes / static_cast<double>(unit), prefix,
                     binary ? "i" : "");
}

// ---- lines ----

ValueResult truncate_filter(const Value& input, ArgumentReader& arguments) {
  const Value length = arguments.value_or("length", int64_t{255});
  const bool cuts_words = arguments.truth_or("killwords", false);
  const Value end = arguments.value_or("end", "...");
  Value leeway = arguments.value_or("leeway", Value());
  WIDEEP_TRY(arguments.status());
  Budget& budget = arguments.budget();
  if (leeway.is_none()) leeway = int64_t{5};
  WIDEEP_TRY_ASSIGN(const int64_t end_size, length_of(end, budget));
  WIDEEP_TRY_ASSIGN(const int fits, compare(length, end_size, budget));
  WIDEEP_TRY_ASSIGN(const int sign, compare(leeway, int64_t{0}, budget));
  if (fits < 0) return invalid_input("length: shorter than the end");
  if (sign < 0) return invalid_input("leeway: expected no negative number");
  WIDEEP_TRY_ASSIGN(const int64_t size, length_of(input, budget));
  WIDEEP_TRY_ASSIGN(const Value most, arithmetic("+", length, leeway, budget));
  WIDEEP_TRY_ASSIGN(const int excess, compare(size, most, budget));
  if (excess <= 0) return input;
  WIDEEP_TRY_ASSIGN(const Value rest, arithmetic("-", length, end_size, budget));
  WIDEEP_TRY_ASSIGN(Value kept, slice_of(input, {}, rest, {}, budget));
  if (!cuts_words) {
    if (!kept.is_string()) return unfit("input", "a text", input);
    const size_t space = kept.string().rfind(' ');
    kept = kept.with_text(kept.string().substr(0, space));
  }
  return arithmetic("+", kept, end, budget);
}

ValueResult wrap_filter(const Value& input, ArgumentReader& arguments) {
  const Value width = arguments.value_or("width", int64_t{79});
  WrapStyle style;
  style.breaks_long_words = arguments.truth_or("break_long_words", true);
  Value between = arguments.value_or("wrapstring", Value());
  const Value hyphens = arguments.value_or("break_on_hyphens", true);
  WIDEEP_TRY(arguments.status());
  Budget& budget = arguments.budget();
  if (between.is_none()) between = "\n";
  if (!input.is_string()) return unfit("input", "a text", input);
  if (!between.is_string()) return unfit("wrapstring", "a text", between);
  // Python looks for true in one place, and for what is like it in another.
  style.splits_at_hyphens = hyphens.is_bool() && hyphens.boolean();
  style.breaks_long_at_hyphens = hyphens.truth();
  List lines;
  for (const std::string& paragraph : split_lines(input.string(), budget)) {
    if (!width.is_number()) return unfit("width", "a number", width);
    style.width = width.number();
    style.is_whole = width.is_whole();
    if (!(style.width > 0) && !std::isnan(style.width)) {
      return invalid_input("width: expected a positive number");
    }
    WIDEEP_TRY_ASSIGN(const std::vector<std::string> all, wrapped(paragraph, style, budget));
    std::string text;
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string line = between.is_safe() ? escaped(all[i], budget) : all[i];
      if (!budget.spend_bytes(between.string().size() + line.size())) return budget.status();
      text += (i > 0 ? between.string() : "") + line;
    }
    lines.emplace_back(std::move(text));
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!budget.spend_bytes(between.string().size() + lines[i].string().size())) break;
    out += (i > 0 ? between.string() : "") + lines[i].string();
  }
  return between.with_text(std::move(out));
}

}  // namespace

const Filters& page_filters() {
  static const Filters filters = {
      {"e", escape_filter},
      {"escape", escape_filter},
      {"filesizeformat", file_size_filter},
      {"forceescape", force_escape_filter},
      {"striptags", strip_tags_filter},
      {"truncate", truncate_filter},
      {"urlencode", url_filter},
      {"wordwrap", wrap_filter},
      {"xmlattr", attributes_filter},
  };
  return filters;
}

}  // namespace wideep::jinja
