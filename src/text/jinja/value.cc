// SPDX-License-Identifier: Apache-2.0
//
// Lists and dicts never change, so that the depth of a value is computed once, when it is made;
// without a bound, code that recurses over values would overflow the stack. An integer beyond 64
// bits keeps its digits, to be compared and printed. Dicts of a chat have few keys, and are
// searched one by one; an index is made for the others.
#include "jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/try.h"
#include "formats/json_parse.h"
#include "tokenizer/utf8.h"

namespace wideep::jinja {
namespace {

Status too_deep() {
  return invalid_input(fmt::format("a value is nested deeper than {}", kMaxValueDepth));
}

// The depth of one item of a list or dict, and of the list or dict that holds the items.
int depth_of(const Value& value) { return value.depth(); }
int depth_of(const Dict::Entry& entry) {
  return std::max(entry.first.depth(), entry.second.depth());
}
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

size_t Dict::index_of(std::string_view hash_text) const {
  if (entries_.size() > kFewEntries || hash_text.starts_with(kNoText)) {
    const auto found = indices_.find(hash_text);
    return found == indices_.end() ? entries_.size() : found->second;
  }
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.first.is_string() && entry.first.string() == hash_text;
  });
  return static_cast<size_t>(found - entries_.begin());
}

const Value* Dict::find(std::string_view hash_text) const {
  const size_t index = index_of(hash_text);
  return index == entries_.size() ? nullptr : &entries_[index].second;
}

void Dict::set(std::string_view key, Value value) {
  const size_t index = index_of(key);
  if (index < entries_.size()) {
    entries_[index].second =
        std::move(value);  // without a new key: loops set their variables often
    return;
  }
  set(Value(std::string(key)), key, std::move(value));
}

void Dict::set(const Value& key, std::string_view hash_text, Value value) {
  const size_t index = index_of(hash_text);
  if (index < entries_.size()) {
    entries_[index].second = std::move(value);
    return;
  }
  entries_.emplace_back(key, std::move(value));
  if (entries_.size() > kFewEntries || !key.is_string()) indices_.emplace(hash_text, index);
  // The dict outgrows the linear search: from now on the map has all entries.
  if (entries_.size() != kFewEntries + 1) return;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].first.is_string()) indices_.emplace(entries_[i].first.string(), i);
  }
}

struct Range {
  RangeBounds bounds;
  List elements;
};

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

Value::Value(RangeBounds bounds, List elements) : depth_(1), list_kind_(ListKind::kRange) {
  data_ = std::make_shared<const Range>(Range{bounds, std::move(elements)});
}

RangeBounds Value::range() const { return std::get<std::shared_ptr<const Range>>(data_)->bounds; }
const List& Value::range_elements() const {
  return std::get<std::shared_ptr<const Range>>(data_)->elements;
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

const char* Value::type_name() const {
  constexpr const char* kObjectNames[] = {"Namespace", "LoopContext"};
  if (is_object()) return kObjectNames[static_cast<size_t>(object().kind)];
  constexpr const char* kListNames[] = {"list",        "tuple",      "dict_keys",
                                        "dict_values", "dict_items", "range"};
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

Characters::Iterator::Iterator(std::string_view rest)
    : rest_(rest), bytes_(rest.empty() ? 0 : tokenizer::first_unit(rest).bytes) {}

int64_t Characters::count() const { return std::distance(begin(), end()); }

}  // namespace wideep::jinja
