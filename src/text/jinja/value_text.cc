// SPDX-License-Identifier: Apache-2.0
//
// Values as text: Python's str() and repr(), and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <list>

#include "base/try.h"
#include "jinja/python_text.h"
#include "jinja/value.h"
#include "tokenizer/utf8.h"

namespace wideep::jinja {
namespace {

// Python's repr(float): the shortest digits that read back as the same number, with an exponent
// below 1e-4 and from 1e16 on.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  const double size = std::abs(number);
  if (size != 0 && (size < 1e-4 || size >= 1e16)) {
    std::string text = fmt::format("{:e}", number);
    // "{:e}" prints six digits: find the smallest number of digits that reads back as the same
    // number.
    for (int digits = 0; digits <= 17; ++digits) {
      text = fmt::format("{:.{}e}", number, digits);
      if (std::strtod(text.c_str(), nullptr) == number) break;
    }
    return text;
  }
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

std::string escape_of(char32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
  }
  const auto code = static_cast<uint32_t>(c);
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

// Python's repr(str): single quotes, or double ones if the text contains only single ones.
std::string quoted_text(std::string_view text) {
  const bool doubled = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (const std::string_view each : Characters(text)) {
    const char32_t c = tokenizer::first_code_point(each);
    if (each[0] == quote || each[0] == '\\') out += '\\';
    if (is_printable(c)) {
      out += each;
    } else {
      out += escape_of(c);
    }
  }
  return out + quote;
}

// Python's repr(). A value that contains itself, which needs a namespace, prints as "..." inside.
class ReprWriter {
 public:
  explicit ReprWriter(Budget& budget) : budget_(budget) {}

  void write(const Value& value) {
    if (!budget_.spend(1)) return;
    if (value.is_range()) return write_range(value.range());
    if (value.is_list()) return write_list(value);
    if (value.is_dict()) return write_inside(&value.dict(), "{", value.dict().entries(), "}");
    if (value.is_object()) return write_object(value.object());
    if (value.is_string() && !budget_.spend_bytes(value.string().size())) return;
    out_ += text_of(value);
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string text_of(const Value& value) {
    if (value.is_none()) return "None";
    if (value.is_bool()) return value.boolean() ? "True" : "False";
    if (value.is_integer()) return fmt::format("{}", value.integer());
    if (value.is_large()) return value.digits();
    if (value.is_float()) return float_text(value.number());
    if (value.is_safe()) return "Markup(" + quoted_text(value.string()) + ")";
    if (value.is_string()) return quoted_text(value.string());
    return value.is_undefined() ? "Undefined" : "<function>";
  }

  void write_list(const Value& value) {
    constexpr std::pair<const char*, const char*> kBrackets[] = {{"[", "]"},
                                                                 {"(", ")"},
                                                                 {"dict_keys([", "])"},
                                                                 {"dict_values([", "])"},
                                                                 {"dict_items([", "])"}};
    const auto& [begin, end] = kBrackets[static_cast<size_t>(value.list_kind())];
    const bool lone = value.is_tuple() && value.list().size() == 1;
    write_inside(&value.list(), begin, value.list(), lone ? ",)" : end);
  }

  void write_range(const RangeBounds& range) {
    out_ += fmt::format("range({}, {}", range.start, range.stop);
    out_ += range.step == 1 ? ")" : fmt::format(", {})", range.step);
  }

  void write_object(const Object& object) {
    if (object.kind == Object::Kind::kLoop) {
      const Dict& loop = object.attributes;
      out_ += fmt::format("<LoopContext {}/{}>", loop.find("index")->integer(),
                          loop.find("length")->integer());
      return;
    }
    out_ += "<Namespace ";
    write_inside(&object, "{", object.attributes.entries(), "}");
    out_ += ">";
  }

  template <typename Items>
  void write_inside(const void* holder, const char* begin, const Items& items, const char* end) {
    out_ += begin;
    if (std::find(open_.begin(), open_.end(), holder) != open_.end()) {
      out_ += "...";
    } else if (open_.size() == kMaxValueDepth) {
      budget_.refuse(
          invalid_input(fmt::format("a value is nested deeper than {}", kMaxValueDepth)));
    } else {
      open_.push_back(holder);
      for (size_t i = 0; i < items.size() && !budget_.spent(); ++i) {
        if (i > 0) out_ += ", ";
        write_item(items[i]);
      }
      open_.pop_back();
    }
    out_ += end;
  }

  void write_item(const Value& item) { write(item); }
  void write_item(const Dict::Entry& entry) {
    write(entry.first);
    out_ += ": ";
    write(entry.second);
  }

  Budget& budget_;
  std::string out_;
  std::vector<const void*> open_;  // the containers around the current position, outermost first
};

// The text with \uNNNN for every UTF-16 unit of a character that is not ASCII.
std::string with_ascii_escapes(const std::string& text) {
  std::string out;
  for (const std::string_view each : Characters(text)) {
    const auto c = static_cast<uint32_t>(tokenizer::first_code_point(each));
    if (c < 0x7f) {
      out += each;
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      const uint32_t rest = c - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    }
  }
  return out;
}

// Escapes only what JSON requires, as json.dumps() does; ascii: see with_ascii_escapes().
std::string json_string(const std::string& text, bool ascii) {
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
  out += '"';
  return ascii ? with_ascii_escapes(out) : out;
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  Status write(const Value& value, int depth) {
    if (!budget_.spend(1)) return budget_.status();
    if (value.is_list_or_tuple()) return write_list(value.list(), depth);
    if (value.is_dict()) return write_dict(value.dict(), depth);
    if (value.is_string()) {
      if (!budget_.spend_bytes(value.string().size())) return budget_.status();
      out_ += json_string(value.string(), style_.ascii);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_float() && !std::isfinite(value.number())) {
      const double number = value.number();
      out_ += std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
    } else if (value.is_number()) {
      out_ += to_repr(value, budget_);
    } else {
      return invalid_input(
          fmt::format("a value of type {} cannot be written as JSON", value.type_name()));
    }
    return {};
  }

  std::string take() { return std::move(out_); }

 private:
  void start_line(int depth) {
    if (!style_.indent) return;
    const size_t bytes = style_.indent->size() * static_cast<size_t>(depth);
    if (!budget_.spend_bytes(bytes)) return;
    out_ += '\n';
    for (int level = 0; level < depth; ++level) out_ += *style_.indent;
  }
  void separate() {
    if (budget_.spend_bytes(style_.item_separator.size())) out_ += style_.item_separator;
  }
  // As in Python, numbers and none as keys are texts: what they are as values, in quotes.
  Status write_key(const Value& key) {
    if (!key.is_string() && !key.is_number() && !key.is_none()) {
      return invalid_input(
          fmt::format("a key of type {} cannot be written as JSON", key.type_name()));
    }
    if (!key.is_string()) out_ += '"';
    WIDEEP_TRY(write(key, 0));
    if (!key.is_string()) out_ += '"';
    if (budget_.spend_bytes(style_.key_separator.size())) out_ += style_.key_separator;
    return {};
  }

  // The keys must have an order: texts, or numbers.
  Status sort_by_key(std::vector<Dict::Entry>& entries) {
    Status status;
    // A list, because a failed comparison makes the order inconsistent.
    std::list<Dict::Entry> sorted(entries.begin(), entries.end());
    sorted.sort([&](const auto& a, const auto& b) {
      const Result<std::partial_ordering> order = compare(a.first, b.first, budget_);
      if (!order.ok()) status = order.status();
      return order.ok() && *order < 0;
    });
    entries.assign(sorted.begin(), sorted.end());
    return status;
  }

  Status write_list(const List& list, int depth) {
    out_ += '[';
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) separate();
      start_line(depth + 1);
      WIDEEP_TRY(write(list[i], depth + 1));
    }
    if (!list.empty()) start_line(depth);
    out_ += ']';
    return {};
  }

  Status write_dict(const Dict& dict, int depth) {
    if (!budget_.spend(dict.entries().size())) return budget_.status();
    std::vector<Dict::Entry> entries = dict.entries();
    if (style_.sort_keys) WIDEEP_TRY(sort_by_key(entries));
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) separate();
      start_line(depth + 1);
      WIDEEP_TRY(write_key(entries[i].first));
      WIDEEP_TRY(write(entries[i].second, depth + 1));
    }
    if (!entries.empty()) start_line(depth);
    out_ += '}';
    return {};
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string to_text(const Value& value, Budget& budget) {
  if (value.is_undefined() || !value.prints()) return "";
  if (!value.is_string()) return to_repr(value, budget);
  return budget.spend_bytes(value.string().size()) ? value.string() : "";
}

std::string to_repr(const Value& value, Budget& budget) {
  ReprWriter writer(budget);
  writer.write(value);
  return writer.take();
}

Result<std::string> to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  WIDEEP_TRY(writer.write(value, 0));
  return writer.take();
}

}  // namespace wideep::jinja
