// SPDX-License-Identifier: Apache-2.0
//
// An argument's types are read off its schema as far as they are plain: type, enum, const, unions
// and references to definitions. Anything else is "any type", which only means that a value that
// can be read as JSON becomes JSON.
//
// Schemas come with requests, so the work is bounded: references are followed to a depth, what a
// schema allows is kept for each depth if it took long to find, and what is looked at is counted.
// The members of all tools together have a number of bytes. Those beyond are of any type.
#include "answer/tool_list.h"

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "answer/cursor.h"
#include "answer/json_walker.h"
#include "answer/python_literal.h"
#include "formats/json_text.h"

namespace wideep::answer {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxReferences = 8;  // of schemas that refer to others, or contain them
constexpr size_t kMemberBytes = size_t{4} << 20;  // of all members whose types are kept
constexpr size_t kBytesBesideName = 128;          // of one of them, about

// The member, or null if there is none.
const ordered_json& member_of(const ordered_json& object, std::string_view name) {
  static const ordered_json kAbsent;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? kAbsent : *found;
}

Types types_named(const ordered_json& name) {
  constexpr std::pair<const char*, Types> kNames[] = {
      {"string", kText}, {"integer", kNumber}, {"number", kNumber}, {"boolean", kBoolean},
      {"null", kNull},   {"object", kObject},  {"array", kList}};
  for (const auto& [known, types] : kNames) {
    if (name == known) return types;
  }
  return 0;
}

Types type_of(const ordered_json& value) {
  if (value.is_string()) return kText;
  if (value.is_boolean()) return kBoolean;
  if (value.is_null()) return kNull;
  if (value.is_object()) return kObject;
  return value.is_array() ? kList : kNumber;
}

// The types that schemas of one tool allow. What a schema allows is found out once for each depth
// it is met at, unless that is quick: the number of ways to a definition may be a power of the size
// of the schema, and each member of a definition is met again wherever that one is referred to.
class TypeFinder {
 public:
  // steps: of all tools.
  TypeFinder(const ordered_json& root, size_t& steps) : steps_(steps) {
    for (const char* place : {"$defs", "definitions"}) {
      const ordered_json& all = member_of(root, place);
      if (!all.is_object()) continue;
      for (const auto& [name, schema] : all.items()) {
        definitions_.try_emplace("#/" + std::string(place) + "/" + name, &schema);
      }
    }
  }

  // 0: it does not say.
  Types types_in(const ordered_json& schema, int references = 0) {
    if (references > kMaxReferences || took_too_much()) return 0;
    const std::pair key(&schema, references);
    const auto known = types_.find(key);
    if (known != types_.end()) return known->second;
    const size_t before = steps_;
    count(schema);
    const Types types = found_in(schema, references);
    if (steps_ - before > kStepsWorthKeeping) types_[key] = types;
    return types;
  }

  // What the schema refers to.
  const ordered_json& resolved(const ordered_json& schema) {
    const ordered_json* found = &schema;
    for (int i = 0; i < kMaxReferences; ++i) {
      const ordered_json* next = definition_of(member_of(*found, "$ref"));
      if (next == nullptr) break;
      found = next;
      count(*found);
    }
    return *found;
  }

  // A member is found by looking through all of them.
  void count(const ordered_json& schema) { steps_ += 1 + (schema.is_object() ? schema.size() : 0); }
  bool took_too_much() const { return steps_ > ToolList::kMaxSteps; }

 private:
  static constexpr size_t kStepsWorthKeeping = 64;  // so that few are kept

  Types found_in(const ordered_json& schema, int references) {
    const ordered_json& type = member_of(schema, "type");
    Types types = types_named(type);
    if (type.is_array()) {
      steps_ += type.size();
      for (const ordered_json& each : type) types |= types_named(each);
    }
    if (types != 0) return types;
    if (const ordered_json& values = member_of(schema, "enum"); values.is_array()) {
      steps_ += values.size();
      for (const ordered_json& each : values) types |= type_of(each);
      return types;
    }
    if (schema.is_object() && schema.contains("const")) return type_of(schema["const"]);
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      const ordered_json& choices = member_of(schema, name);
      if (choices.is_array()) return types_of_all(choices, references + 1);
    }
    const ordered_json* definition = definition_of(member_of(schema, "$ref"));
    return definition != nullptr ? types_in(*definition, references + 1) : 0;
  }

  Types types_of_all(const ordered_json& choices, int references) {
    Types types = 0;
    for (const ordered_json& each : choices) {
      const Types of_each = types_in(each, references);
      if (of_each == 0) return 0;
      types |= of_each;
    }
    return types;
  }

  // Null: there is none. A reference, which has any length, is looked up once.
  const ordered_json* definition_of(const ordered_json& reference) {
    if (!reference.is_string()) return nullptr;
    const auto [known, is_new] = referred_.try_emplace(&reference, nullptr);
    if (is_new) {
      const auto found = definitions_.find(reference.get_ref<const std::string&>());
      if (found != definitions_.end()) known->second = found->second;
    }
    return known->second;
  }

  size_t& steps_;
  std::unordered_map<std::string, const ordered_json*> definitions_;  // by reference
  std::unordered_map<const ordered_json*, const ordered_json*> referred_;
  std::map<std::pair<const ordered_json*, int>, Types> types_;
};

// Where members of a tool's arguments go. room: bytes that are left for those of all tools.
struct Members {
  TypeFinder& finder;
  Tool& tool;
  size_t& room;
};

// Adds those of an object, or the items of a list, and theirs.
void add_members(const ordered_json& schema, const std::string& path, int depth,
                 const Members& members) {
  size_t& room = members.room;
  const auto add = [&](const std::string& name, const ordered_json& member) {
    const std::string inner = member_path(path, name);
    const size_t bytes = inner.size() + kBytesBesideName;
    room = bytes < room ? room - bytes : 0;
    if (room == 0) return;
    const Types types = members.finder.types_in(member);
    members.tool.arguments[inner] = types == 0 ? kAnyType : types;
    if (depth < kMaxReferences) add_members(member, inner, depth + 1, members);
  };
  if (members.finder.took_too_much()) return;
  const ordered_json& here = members.finder.resolved(schema);
  members.finder.count(here);
  const ordered_json& properties = member_of(here, "properties");
  if (properties.is_object()) {
    for (const auto& [name, member] : properties.items()) {
      if (room == 0) return;
      add(name, member);
    }
  }
  const ordered_json& items = member_of(here, "items");
  if (items.is_object() && room > 0) add("item", items);
}

// room: as Members has it; 0: none are kept.
Tool tool_of(const ordered_json& parameters, size_t& room, size_t& steps) {
  Tool tool;
  const ordered_json& properties = member_of(parameters, "properties");
  if (!properties.is_object()) return tool;
  TypeFinder finder(parameters, steps);
  for (const auto& [name, schema] : properties.items()) {
    const Types types = finder.types_in(schema);
    tool.arguments[name] = types == 0 ? kAnyType : types;
  }
  for (const auto& [name, schema] : properties.items()) {
    if (room > 0) add_members(schema, name, 0, {finder, tool, room});
  }
  return tool;
}

Types type_of_json(std::string_view text) {
  switch (text.front()) {
    case '{':
      return kObject;
    case '[':
      return kList;
    case '"':
      return 0;  // models write texts without quotes
    case 't':
    case 'f':
      return kBoolean;
    case 'n':
      return kNull;
    default:
      return kNumber;
  }
}

}  // namespace

ToolList::ToolList(const ordered_json& tools, Kept kept) {
  if (!tools.is_array()) return;
  size_t room = kept == Kept::kAll ? kMemberBytes : 0;
  for (const ordered_json& each : tools) {
    const ordered_json& function = member_of(each, "function");
    const ordered_json& name = member_of(function, "name");
    if (!name.is_string()) continue;
    const ordered_json& parameters = member_of(function, "parameters");
    by_name_.try_emplace(name.get<std::string>(), tool_of(parameters, room, steps_));
  }
}

std::string argument_json(std::string_view text, Types types) {
  const std::string_view inner = trimmed(text);
  if (types != kText && !inner.empty()) {
    if (is_json(inner) && (type_of_json(inner) & types) != 0) return std::string(inner);
    const std::optional<std::string> json = python_literal_json(inner);
    if (json && (type_of_json(*json) & types) != 0) return *json;
  }
  std::string json = "\"";
  formats::add_json_characters(text, &json);
  return json + '"';
}

}  // namespace wideep::answer
