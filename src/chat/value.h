// SPDX-License-Identifier: Apache-2.0
//
// A value inside a chat template, with Python's semantics where they show: truth, equality, order,
// str() and JSON.
//
// Lists and dicts are shared, not copied: templates cannot change them (but for namespace()).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "wideep/status.h"

namespace wideep::chat {

class Value;
using List = std::vector<Value>;

// In the order of insertion.
class Dict {
 public:
  using Entry = std::pair<std::string, Value>;

  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};
class ValueResult;
using Function = std::function<ValueResult(const Arguments&)>;

// What a name without a value stands for: prints nothing, is false, has no elements; reading an
// attribute of it is an error that names it.
struct Undefined {
  std::string what;  // "'tools' is undefined"
};
struct None {};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(bool truth) : data_(truth) {}
  Value(int64_t number) : data_(number) {}
  Value(double number) : data_(number) {}
  Value(std::string text) : data_(std::move(text)) {}
  Value(const char* text) : data_(std::string(text)) {}
  Value(List list) : data_(std::make_shared<List>(std::move(list))) {}
  Value(Dict dict) : data_(std::make_shared<Dict>(std::move(dict))) {}
  Value(std::shared_ptr<Dict> dict) : data_(std::move(dict)) {}
  Value(Function function) : data_(std::make_shared<Function>(std::move(function))) {}

  static Value from_json(const nlohmann::ordered_json& json);
  // Text that the filter "safe" has marked (Python's Markup): "+" escapes what it is added to.
  static Value safe(std::string text);

  bool is_undefined() const { return holds<Undefined>(); }
  bool is_none() const { return holds<None>(); }
  bool is_bool() const { return holds<bool>(); }
  bool is_integer() const { return holds<int64_t>(); }
  bool is_float() const { return holds<double>(); }
  bool is_number() const { return is_bool() || is_integer() || is_float(); }  // as in Python
  bool is_string() const { return holds<std::string>(); }
  bool is_safe() const { return is_safe_; }
  bool is_list() const { return holds<std::shared_ptr<List>>(); }
  bool is_dict() const { return holds<std::shared_ptr<Dict>>(); }
  bool is_function() const { return holds<std::shared_ptr<Function>>(); }
  bool is_iterable() const { return is_string() || is_list() || is_dict() || is_undefined(); }

  // REQUIRES: it is one.
  bool boolean() const { return std::get<bool>(data_); }
  const std::string& string() const { return std::get<std::string>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<List>>(data_); }
  Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
  const Function& function() const { return *std::get<std::shared_ptr<Function>>(data_); }
  const Undefined& undefined() const { return std::get<Undefined>(data_); }
  int64_t integer() const;  // of booleans too
  double number() const;    // of any number

  bool truth() const;
  // "str", "int", "list" …: Python's name of the type.
  const char* type_name() const;
  // Text, marked where this is. REQUIRES: this is a string.
  Value with_text(std::string text) const;
  // The same list or dict, or equal in everything else (Python's `is`, near enough).
  bool same_object(const Value& other) const;

 private:
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }

  std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<List>,
               std::shared_ptr<Dict>, std::shared_ptr<Function>>
      data_;
  bool is_safe_ = false;
};

// A Value, given as anything that makes one, or the Status that explains why there is none.
class ValueResult : public Result<Value> {
 public:
  ValueResult(Status status) : Result(std::move(status)) {}
  ValueResult(Result<Value> result) : Result(std::move(result)) {}
  template <typename T>
    requires std::is_constructible_v<Value, T> && (!std::is_base_of_v<Status, std::decay_t<T>>)
  ValueResult(T&& value) : Result(Value(std::forward<T>(value))) {}
};

// str(value) and repr(value).
std::string to_text(const Value& value);
std::string to_repr(const Value& value);

bool equal(const Value& a, const Value& b);
// −1, 0, 1. Errors: types that have no order.
Result<int> compare(const Value& a, const Value& b);

// json.dumps(value, ensure_ascii=False), the defaults being Python's: ", " and ": ", one line.
struct JsonStyle {
  int indent = -1;  // −1: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// Errors: a value that JSON has no word for.
Result<std::string> to_json(const Value& value, const JsonStyle& style);

// Code points, for Python counts those. The text is valid UTF-8.
std::vector<std::string_view> characters(std::string_view text);

}  // namespace wideep::chat
