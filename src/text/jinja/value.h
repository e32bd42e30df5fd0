// SPDX-License-Identifier: Apache-2.0
//
// A value of a chat template, with Python's semantics of truth, equality, order, str() and JSON.
//
// Strings, lists and dicts are immutable for templates, so copies of a Value share them. A
// namespace is mutable and may refer to itself: the code that creates one (the renderer) must empty
// it at the end.
//
// Thread safety: const access from any thread; a namespace belongs to one rendering.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/budget.h"
#include "wideep/status.h"

namespace wideep::jinja {

// The maximal nesting of lists and dicts: code that walks a value recurses so deep. Larger than
// formats::kMaxJsonDepth, so that every request that can be parsed is accepted.
inline constexpr int kMaxValueDepth = 200;

class Value;
using List = std::vector<Value>;

// Python's types whose elements are a List here. They print differently, and only values of the
// same type are equal or can be added; the views of a dict have no indices.
enum class ListKind { kList, kTuple, kKeys, kValues, kItems, kRange };

// range(start, stop, step)
struct RangeBounds {
  int64_t start;
  int64_t stop;
  int64_t step;
};
struct Range;

// Begins the hash texts of all values but strings: no UTF-8 text has this byte.
inline constexpr char kNoText = '\xff';

// A dict in the order of insertion. Its keys are found by their hash_text().
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const Value* find(std::string_view hash_text) const;
  void set(std::string_view key, Value value);  // the key is a text
  // As in Python, the first of two equal keys stays: {1: 'a', true: 'b'} is {1: 'b'}.
  void set(const Value& key, std::string_view hash_text, Value value);
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  size_t index_of(std::string_view hash_text) const;  // absent: the number of entries

  std::vector<Entry> entries_;
  // hash text → index in entries_: of all keys if they are many, else only of those that are not
  // texts.
  std::map<std::string, size_t, std::less<>> indices_;
};

// A namespace() or the variable `loop`: it has attributes but no elements.
struct Object;

struct Arguments;
class ValueResult;
using Function = std::function<ValueResult(const Arguments&)>;

// The value of an unknown name, as in Jinja: it prints as "", is false and has no elements. Reading
// one of its attributes is an error with the text `what`.
struct Undefined {
  std::string what;  // "'tools' is undefined"
};
struct None {
  bool prints = true;  // false: as "", not as "None"
};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(Undefined undefined) : data_(std::make_shared<const Undefined>(std::move(undefined))) {}
  Value(None none) : data_(none) {}
  Value(bool truth) : data_(truth) {}
  Value(int64_t number) : data_(number) {}
  Value(double number) : data_(number) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(List list, ListKind kind = ListKind::kList);  // REQUIRES: not a range
  Value(Dict dict);
  // REQUIRES: these are the range's elements.
  Value(RangeBounds bounds, List elements);
  // depth: the nesting of the values that the object or function refers to; 0 for a namespace,
  // which is emptied before it is destroyed.
  Value(std::shared_ptr<Object> object, int depth) : data_(std::move(object)), depth_(depth) {}
  Value(Function function, int depth = 0)
      : data_(std::make_shared<const Function>(std::move(function))), depth_(depth) {}
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();

  // Errors (invalid input): nested deeper than kMaxValueDepth. Integers that parse_exact_json() has
  // read keep their digits.
  static Result<Value> from_json(const nlohmann::ordered_json& json);
  // The integer with these decimal digits, of any size. Python's limit: kMaxDigits.
  static constexpr size_t kMaxDigits = 4300;
  // REQUIRES: "-" or nothing, then at least one digit.
  static Result<Value> whole(std::string_view digits);
  // Text marked by the filter "safe" (Python's Markup): "+" with it escapes the other operand.
  static Value safe(std::string text);
  bool is_undefined() const { return holds<std::shared_ptr<const Undefined>>(); }
  bool is_none() const { return holds<None>(); }
  bool prints() const;  // false: a None that prints as ""
  bool is_bool() const { return holds<bool>(); }
  bool is_integer() const { return holds<int64_t>(); }
  bool is_large() const { return holds<Large>(); }  // an integer that int64 does not hold
  // As in Python, a bool is an integer, too.
  bool is_whole() const { return is_bool() || is_integer() || is_large(); }
  bool is_float() const { return holds<double>(); }
  bool is_number() const { return is_whole() || is_float(); }
  bool is_string() const { return holds<std::shared_ptr<const std::string>>(); }
  bool is_safe() const { return is_safe_; }
  bool is_list() const { return holds<std::shared_ptr<const List>>() || is_range(); }
  bool is_tuple() const { return is_list() && list_kind_ == ListKind::kTuple; }
  bool is_range() const { return holds<std::shared_ptr<const Range>>(); }
  bool is_view() const { return is_list() && !is_range() && list_kind_ > ListKind::kTuple; }
  // A list or a tuple: it has an order, can be added and repeated.
  bool is_list_or_tuple() const { return is_list() && list_kind_ <= ListKind::kTuple; }
  bool is_dict() const { return holds<std::shared_ptr<const Dict>>(); }
  bool is_object() const { return holds<std::shared_ptr<Object>>(); }
  bool is_function() const { return holds<std::shared_ptr<const Function>>(); }
  bool is_iterable() const { return is_string() || is_list() || is_dict() || is_undefined(); }

  // REQUIRES: the value has this type.
  bool boolean() const { return std::get<bool>(data_); }
  const std::string& string() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const List& list() const {
    return is_range() ? range_elements() : *std::get<std::shared_ptr<const List>>(data_);
  }
  RangeBounds range() const;
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  ListKind list_kind() const { return list_kind_; }
  // The decimal digits of an integer that is_large().
  const std::string& digits() const { return std::get<Large>(data_)->digits; }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  const Function& function() const { return *std::get<std::shared_ptr<const Function>>(data_); }
  const Undefined& undefined() const { return *std::get<std::shared_ptr<const Undefined>>(data_); }
  int64_t integer() const;  // also for booleans; a large one is the nearest that int64 holds
  double number() const;    // for any number

  // The nesting of lists and dicts; 0 for a value that contains no others.
  int depth() const { return depth_; }

  bool truth() const;
  // What dicts find their entries by: the same text for values that are equal, and a string's own
  // text. Nothing: Python has no hash for it, as for lists, dicts and most of their views.
  std::optional<std::string> hash_text(Budget& budget) const;
  // Python's name of the type: "str", "int", "list", …
  const char* type_name() const;
  // A string with this text, marked as safe if this one is. REQUIRES: this is a string.
  Value with_text(std::string text) const;
  // An approximation of Python's `is`: identity for lists and dicts, equality for other values.
  bool same_object(const Value& other, Budget& budget) const;

 private:
  struct LargeInteger {
    std::string digits;
  };
  using Large = std::shared_ptr<const LargeInteger>;

  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }

  const List& range_elements() const;

  std::variant<std::shared_ptr<const Undefined>, None, bool, int64_t, double,
               std::shared_ptr<const std::string>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<const Function>,
               std::shared_ptr<Object>, Large, std::shared_ptr<const Range>>
      data_;
  int depth_ = 0;
  ListKind list_kind_ = ListKind::kList;
  bool is_safe_ = false;
};

struct Arguments {
  explicit Arguments(Budget& of_rendering) : budget(of_rendering) {}

  Budget& budget;
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Object {
  enum class Kind { kNamespace, kLoop };

  Kind kind;
  Dict attributes;
};

// Result<Value> that is also constructible from everything a Value is constructible from.
class ValueResult : public Result<Value> {
 public:
  ValueResult(Status status) : Result(std::move(status)) {}
  ValueResult(Result<Value> result) : Result(std::move(result)) {}
  template <typename T>
    requires std::is_constructible_v<Value, T> && (!std::is_base_of_v<Status, std::decay_t<T>>)
  ValueResult(T&& value) : Result(Value(std::forward<T>(value))) {}
};

// str(value) and repr(value).
std::string to_text(const Value& value, Budget& budget);
std::string to_repr(const Value& value, Budget& budget);

bool equal(const Value& a, const Value& b, Budget& budget);
// Unordered: one of them is NaN. Errors: types without an order.
Result<std::partial_ordering> compare(const Value& a, const Value& b, Budget& budget);

// The options of json.dumps(value, ensure_ascii=False), with Python's defaults.
struct JsonStyle {
  std::optional<std::string> indent;  // a level's; nothing: one line
  std::string item_separator = ", ";  // Python's default with an indent: ","
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;  // ensure_ascii: other characters as \\u escapes
};
// Errors: a type that JSON does not have.
Result<std::string> to_json(const Value& value, const JsonStyle& style, Budget& budget);

// Iterates over the code points of a text, Python's characters:
// for (std::string_view c : Characters(text)). REQUIRES: valid UTF-8 that outlives this object.
class Characters {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    explicit Iterator(std::string_view rest = {});
    std::string_view operator*() const { return rest_.substr(0, bytes_); }
    Iterator& operator++() { return *this = Iterator(rest_.substr(bytes_)); }
    bool operator==(const Iterator& other) const { return rest_.size() == other.rest_.size(); }

   private:
    std::string_view rest_;
    size_t bytes_ = 0;  // size of the first code point of rest_
  };

  explicit Characters(std::string_view text) : text_(text) {}
  Iterator begin() const { return Iterator(text_); }
  Iterator end() const { return Iterator(); }
  int64_t count() const;

 private:
  std::string_view text_;
};

}  // namespace wideep::jinja
