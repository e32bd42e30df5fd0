// SPDX-License-Identifier: Apache-2.0
#include "chat/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "tokenizer/utf8.h"

namespace wideep::chat {
namespace {

// repr(float): the shortest digits that read back equal, with an exponent where Python has one.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  const double size = std::abs(number);
  if (size != 0 && (size < 1e-4 || size >= 1e16)) {
    std::string text = fmt::format("{:e}", number);
    // fmt prints six digits; find the fewest that read back equal.
    for (int digits = 0; digits <= 17; ++digits) {
      text = fmt::format("{:.{}e}", number, digits);
      if (std::strtod(text.c_str(), nullptr) == number) break;
    }
    return text;
  }
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

std::string quoted_text(std::string_view text) {
  const bool doubled = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string list_text(const List& list) {
  std::string text = "[";
  for (const Value& item : list) text += (text.size() > 1 ? ", " : "") + to_repr(item);
  return text + "]";
}

std::string dict_text(const Dict& dict) {
  std::string text = "{";
  for (const auto& [key, value] : dict.entries()) {
    text += fmt::format("{}{}: {}", text.size() > 1 ? ", " : "", quoted_text(key), to_repr(value));
  }
  return text + "}";
}

bool equal_lists(const List& a, const List& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  return a.entries().size() == b.entries().size() &&
         std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
           const Value* other = b.find(entry.first);
           return other != nullptr && equal(entry.second, *other);
         });
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  Status write(const Value& value, int depth) {
    if (value.is_list()) return write_list(value.list(), depth);
    if (value.is_dict()) return write_dict(value.dict(), depth);
    if (value.is_string()) {
      out_ += json_string(value.string());
    } else if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_number()) {
      out_ += to_text(value);
    } else {
      return invalid_input(
          fmt::format("tojson: a value of type {} has no JSON", value.type_name()));
    }
    return {};
  }

  std::string take() { return std::move(out_); }

 private:
  void start_line(int depth) {
    if (style_.indent >= 0) out_ += '\n' + std::string(size_t(style_.indent) * size_t(depth), ' ');
  }
  // Python leaves no space at the end of a line.
  std::string separator() const {
    std::string text = style_.item_separator;
    if (style_.indent >= 0 && text == ", ") text = ",";
    return text;
  }

  Status write_list(const List& list, int depth) {
    out_ += '[';
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out_ += separator();
      start_line(depth + 1);
      WIDEEP_TRY(write(list[i], depth + 1));
    }
    if (!list.empty()) start_line(depth);
    out_ += ']';
    return {};
  }

  Status write_dict(const Dict& dict, int depth) {
    std::vector<Dict::Entry> entries = dict.entries();
    if (style_.sort_keys) {
      std::sort(entries.begin(), entries.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += separator();
      start_line(depth + 1);
      out_ += json_string(entries[i].first) + style_.key_separator;
      WIDEEP_TRY(write(entries[i].second, depth + 1));
    }
    if (!entries.empty()) start_line(depth);
    out_ += '}';
    return {};
  }

  const JsonStyle& style_;
  std::string out_;
};

template <typename T>
int sign_of(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.first == key; });
  return found == entries_.end() ? nullptr : &found->second;
}

void Dict::set(std::string_view key, Value value) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.first == key; });
  if (found == entries_.end()) {
    entries_.emplace_back(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_float() || (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)) {
    return json.get<double>();
  }
  if (json.is_number()) return json.get<int64_t>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    for (const auto& item : json) list.push_back(from_json(item));
    return list;
  }
  if (json.is_object()) {
    Dict dict;
    for (const auto& [key, item] : json.items()) dict.set(key, from_json(item));
    return dict;
  }
  return {};
}

int64_t Value::integer() const { return is_bool() ? boolean() : std::get<int64_t>(data_); }

double Value::number() const {
  return is_float() ? std::get<double>(data_) : static_cast<double>(integer());
}

bool Value::truth() const {
  if (is_bool() || is_integer()) return integer() != 0;
  if (is_float()) return number() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().empty();
  if (is_dict()) return !dict().entries().empty();
  return is_function();
}

const char* Value::type_name() const {
  constexpr const char* kNames[] = {"undefined", "NoneType", "bool", "int",     "float",
                                    "str",       "list",     "dict", "function"};
  return kNames[data_.index()];
}

Value Value::safe(std::string text) {
  Value value(std::move(text));
  value.is_safe_ = true;
  return value;
}

Value Value::with_text(std::string text) const {
  return is_safe_ ? safe(std::move(text)) : Value(std::move(text));
}

bool Value::same_object(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_list()) return &list() == &other.list();
  if (is_dict()) return &dict() == &other.dict();
  return equal(*this, other);
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return "";
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.boolean() ? "True" : "False";
  if (value.is_integer()) return fmt::format("{}", value.integer());
  if (value.is_float()) return float_text(value.number());
  if (value.is_safe()) return "Markup(" + quoted_text(value.string()) + ")";
  if (value.is_string()) return quoted_text(value.string());
  if (value.is_list()) return list_text(value.list());
  if (value.is_dict()) return dict_text(value.dict());
  return value.is_undefined() ? "Undefined" : "<function>";
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.number() == b.number() : a.integer() == b.integer();
  }
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_list() && b.is_list()) return equal_lists(a.list(), b.list());
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.dict(), b.dict());
  if (a.is_function() && b.is_function()) return &a.function() == &b.function();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Result<int> compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return sign_of(a.number(), b.number());
    return sign_of(a.integer(), b.integer());
  }
  if (a.is_string() && b.is_string()) return sign_of(a.string(), b.string());  // UTF-8 keeps order
  if (a.is_list() && b.is_list()) {
    const List &left = a.list(), &right = b.list();
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i])) return compare(left[i], right[i]);
    }
    return sign_of(left.size(), right.size());
  }
  return invalid_input(
      fmt::format("values of types {} and {} have no order", a.type_name(), b.type_name()));
}

Result<std::string> to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  WIDEEP_TRY(writer.write(value, 0));
  return writer.take();
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const size_t bytes = tokenizer::first_unit(text).bytes;
    all.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return all;
}

}  // namespace wideep::chat
