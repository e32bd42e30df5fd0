// SPDX-License-Identifier: Apache-2.0
#include "chat/value.h"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/try.h"
#include "formats/json_parse.h"
#include "tokenizer/utf8.h"

namespace wideep::chat {
namespace {

Status too_deep() {
  return invalid_input(fmt::format("a value is nested deeper than {}", kMaxValueDepth));
}

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

// As str.isprintable(): no control or format character, no unassigned one, and no white space but
// the space.
bool is_printable(char32_t c) {
  if (c == ' ') return true;
  constexpr uint32_t kUnprintable =
      U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CS_MASK | U_GC_CO_MASK | U_GC_CN_MASK | U_GC_Z_MASK;
  return (U_MASK(u_charType(static_cast<UChar32>(c))) & kUnprintable) == 0;
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
      budget_.refuse(too_deep());
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
    if (!budget_.spend_bytes(entry.first.size())) return;
    out_ += quoted_text(entry.first) + ": ";
    write(entry.second);
  }

  Budget& budget_;
  std::string out_;
  std::vector<const void*> open_;  // the containers around the current position, outermost first
};

bool equal_lists(const List& a, const List& b, Budget& budget) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Value& x, const Value& y) { return equal(x, y, budget); });
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  return a.entries().size() == b.entries().size() &&
         std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
           const Value* other = b.find(entry.first);
           return other != nullptr && equal(entry.second, *other, budget);
         });
}

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
    if (value.is_list() && !value.is_view()) return write_list(value.list(), depth);
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
  void write_key(const std::string& key) {
    if (!budget_.spend_bytes(key.size() + style_.key_separator.size())) return;
    out_ += json_string(key, style_.ascii) + style_.key_separator;
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
    if (style_.sort_keys) {
      std::sort(entries.begin(), entries.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) separate();
      start_line(depth + 1);
      write_key(entries[i].first);
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

template <typename T>
int sign_of(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

// A large integer lies beyond every other of its sign.
int compare_whole(const Value& a, const Value& b) {
  if (!a.is_large() || !b.is_large() || a.integer() != b.integer()) {
    if (a.integer() != b.integer()) return sign_of(a.integer(), b.integer());
    const int beyond = a.integer() > 0 ? 1 : -1;
    return a.is_large() == b.is_large() ? 0 : a.is_large() ? beyond : -beyond;
  }
  const std::string &left = a.digits(), &right = b.digits();
  const int size = sign_of(left.size(), right.size());
  const int order = size != 0 ? size : sign_of(left, right);
  return left.starts_with('-') ? -order : order;
}

// The depth of one item of a list or dict, and of the list or dict that holds the items.
int depth_of(const Value& value) { return value.depth(); }
int depth_of(const Dict::Entry& entry) { return entry.second.depth(); }
template <typename Items>
int depth_of_holder(const Items& items) {
  int deepest = 0;
  for (const auto& item : items) deepest = std::max(deepest, depth_of(item));
  return 1 + deepest;
}

Result<Value> value_of(const nlohmann::ordered_json& json, int depth) {
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_number_unsigned()) return Value::whole(fmt::format("{}", json.get<uint64_t>()));
  if (const auto* digits = formats::large_integer(json)) {
    return Value::whole(std::string(digits->begin(), digits->end()));
  }
  if (json.is_number()) return Value(json.get<int64_t>());
  if (json.is_string()) return Value(json.get<std::string>());
  if (!json.is_structured()) return Value();
  if (depth == kMaxValueDepth) return too_deep();
  if (json.is_array()) {
    List list;
    for (const auto& item : json) {
      WIDEEP_TRY_ASSIGN(Value value, value_of(item, depth + 1));
      list.push_back(std::move(value));
    }
    return Value(std::move(list));
  }
  Dict dict;
  for (const auto& [key, item] : json.items()) {
    WIDEEP_TRY_ASSIGN(Value value, value_of(item, depth + 1));
    dict.set(key, std::move(value));
  }
  return Value(std::move(dict));
}

}  // namespace

// Up to this size a linear search is used, which is faster than a map for the small dicts of a
// chat.
constexpr size_t kFewEntries = 16;

size_t Dict::index_of(std::string_view key) const {
  if (entries_.size() > kFewEntries) {
    const auto found = indices_.find(key);
    return found == indices_.end() ? entries_.size() : found->second;
  }
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.first == key; });
  return static_cast<size_t>(found - entries_.begin());
}

const Value* Dict::find(std::string_view key) const {
  const size_t index = index_of(key);
  return index == entries_.size() ? nullptr : &entries_[index].second;
}

void Dict::set(std::string_view key, Value value) {
  const size_t index = index_of(key);
  if (index < entries_.size()) {
    entries_[index].second = std::move(value);
    return;
  }
  entries_.emplace_back(key, std::move(value));
  // The map is created when the dict outgrows the linear search, and then has all entries.
  if (entries_.size() <= kFewEntries) return;
  for (size_t i = indices_.size(); i < entries_.size(); ++i) indices_.emplace(entries_[i].first, i);
}

// Defined here, so that not every file that includes the header compiles them.
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

// The depth is computed once, which is possible because lists and dicts never change.
Value::Value(List list, ListKind kind) : depth_(depth_of_holder(list)), list_kind_(kind) {
  data_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) : depth_(depth_of_holder(dict.entries())) {
  data_ = std::make_shared<const Dict>(std::move(dict));
}

Result<Value> Value::from_json(const nlohmann::ordered_json& json) { return value_of(json, 0); }

bool Value::prints() const { return !is_none() || std::get<None>(data_).prints; }

Result<Value> Value::whole(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  digits.remove_prefix(std::min(digits.find_first_not_of("-0"), digits.size() - 1));
  if (digits.size() > kMaxDigits) {
    return invalid_input(fmt::format("an integer of more than {} digits", kMaxDigits));
  }
  const std::string text = (negative ? "-" : "") + std::string(digits);
  int64_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc()) {
    return Value(number);
  }
  Value value;
  value.data_ = std::make_shared<const LargeInteger>(LargeInteger{text});
  return value;
}

int64_t Value::integer() const {
  if (is_large()) return digits().starts_with('-') ? INT64_MIN : INT64_MAX;
  return is_bool() ? boolean() : std::get<int64_t>(data_);
}

double Value::number() const {
  if (is_large()) return std::strtod(digits().c_str(), nullptr);
  return is_float() ? std::get<double>(data_) : static_cast<double>(integer());
}

bool Value::truth() const {
  if (is_bool() || is_integer()) return integer() != 0;
  if (is_float()) return number() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().empty();
  if (is_dict()) return !dict().entries().empty();
  return is_function() || is_object() || is_large();
}

bool Value::is_hashable() const {
  if (is_tuple()) {
    return std::all_of(list().begin(), list().end(),
                       [](const Value& each) { return each.is_hashable(); });
  }
  return !is_dict() && (!is_list() || list_kind_ == ListKind::kValues);
}

const char* Value::type_name() const {
  if (is_object()) return object().kind == Object::Kind::kLoop ? "LoopContext" : "Namespace";
  constexpr const char* kListNames[] = {"list", "tuple", "dict_keys", "dict_values", "dict_items"};
  if (is_list()) return kListNames[static_cast<size_t>(list_kind_)];
  if (is_large()) return "int";
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

bool Value::same_object(const Value& other, Budget& budget) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_list()) return &list() == &other.list();
  if (is_dict()) return &dict() == &other.dict();
  return equal(*this, other, budget);
}

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

// Charged per element: nested lists can share their parts, so that a small value may take
// exponential time to compare. A result after the budget is spent is wrong; the renderer never uses
// it.
bool equal(const Value& a, const Value& b, Budget& budget) {
  if (!budget.spend(1)) return false;
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.number() == b.number();
    return compare_whole(a, b) == 0;
  }
  if (a.is_string() && b.is_string()) {
    return a.string().size() == b.string().size() && budget.spend_bytes(a.string().size()) &&
           a.string() == b.string();
  }
  if (a.is_list() && b.is_list() && a.list_kind() != b.list_kind()) return false;
  if (a.is_list() && b.is_list()) return equal_lists(a.list(), b.list(), budget);
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.dict(), b.dict(), budget);
  if (a.is_function() && b.is_function()) return &a.function() == &b.function();
  if (a.is_object() && b.is_object()) return &a.object() == &b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Result<int> compare(const Value& a, const Value& b, Budget& budget) {
  if (!budget.spend(1)) return budget.status();
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return sign_of(a.number(), b.number());
    return compare_whole(a, b);
  }
  if (a.is_string() && b.is_string()) {
    const std::string &left = a.string(), &right = b.string();
    if (!budget.spend_bytes(std::min(left.size(), right.size()))) return budget.status();
    return sign_of(left, right);  // UTF-8 has the order of code points
  }
  if (a.is_list() && b.is_list() && a.list_kind() == b.list_kind() && !a.is_view()) {
    const List &left = a.list(), &right = b.list();
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i], budget)) return compare(left[i], right[i], budget);
    }
    return sign_of(left.size(), right.size());
  }
  return invalid_input(
      fmt::format("values of types {} and {} have no order", a.type_name(), b.type_name()));
}

Result<std::string> to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  WIDEEP_TRY(writer.write(value, 0));
  return writer.take();
}

Characters::Iterator::Iterator(std::string_view rest)
    : rest_(rest), bytes_(rest.empty() ? 0 : tokenizer::first_unit(rest).bytes) {}

int64_t Characters::count() const { return std::distance(begin(), end()); }

}  // namespace wideep::chat
