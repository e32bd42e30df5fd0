// SPDX-License-Identifier: Apache-2.0
//
// The tools that a request offers: by which names they are called, and which types their arguments
// have, for formats that write arguments without JSON's quotes.
//
// Thread safety: immutable once it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace wideep::answer {

// JSON types, as bits.
using Types = uint32_t;
inline constexpr Types kText = 1, kNumber = 2, kBoolean = 4, kNull = 8, kObject = 16, kList = 32;
inline constexpr Types kAnyType = 63;

struct Tool {
  // By name; those of members and items by member_path().
  std::map<std::string, Types, std::less<>> arguments;

  // kAnyType: the schema does not say.
  Types types_of(std::string_view argument) const {
    const auto found = arguments.find(argument);
    return found == arguments.end() ? kAnyType : found->second;
  }
};

class ToolList {
 public:
  enum class Kept { kAll, kArguments };  // kArguments: without their members and items
  // tools: as in a request: [{"type": "function", "function": {"name", "parameters"}}, …]. What is
  // of another form is no tool.
  explicit ToolList(const nlohmann::ordered_json& tools, Kept kept = Kept::kAll);
  ToolList() = default;

  // Schemas, with their members, and values that they list, that were looked at. Beyond kMaxSteps
  // those that are left are of any type: such tools are to be refused.
  static constexpr size_t kMaxSteps = size_t{1} << 22;
  size_t steps() const { return steps_; }
  bool took_too_much() const { return steps_ > kMaxSteps; }

  bool empty() const { return by_name_.empty(); }
  const Tool* find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, Tool, std::less<>> by_name_;
  size_t steps_ = 0;
};

// The name of a member of what has a name; "item" is those of a list.
inline std::string member_path(std::string_view path, std::string_view name) {
  return std::string(path) + '\x1f' + std::string(name);
}

// The JSON text of an argument that was written without quotes: as one of the types if it can be
// read as one, else as a string. Python's True, False, None, lists and dicts are read, too.
std::string argument_json(std::string_view text, Types types);

}  // namespace wideep::answer
