// SPDX-License-Identifier: Apache-2.0
#include "answer/tool_list.h"

#include <gtest/gtest.h>

#include <string>

namespace wideep::answer {
namespace {

using nlohmann::ordered_json;

Tool tool_of(const ordered_json& parameters) {
  const ordered_json one = {{"type", "function"},
                            {"function", {{"name", "f"}, {"parameters", parameters}}}};
  const ToolList list(ordered_json::array({one}));
  return *list.find("f");
}

TEST(ToolList, TypesOfArguments) {
  const Tool tool = tool_of(ordered_json::parse(R"({"properties": {
      "a": {"type": ["integer", "null"]}, "b": {"enum": ["x", 1]}, "c": {"const": true},
      "d": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "string"}]}, "e": {"$ref": "#/$defs/none"},
      "f": {"$ref": "#/$defs/itself"}, "g": {"oneOf": [{"$ref": "#/definitions/old"}, {}]},
      "h": {"$ref": "#/definitions/old"}, "i": {"title": "anything"}},
      "$defs": {"list": {"type": "array"}, "itself": {"$ref": "#/$defs/itself"}},
      "definitions": {"old": {"$ref": "#/$defs/list"}}})"));
  EXPECT_EQ(tool.types_of("a"), kNumber | kNull);
  EXPECT_EQ(tool.types_of("b"), kText | kNumber);
  EXPECT_EQ(tool.types_of("c"), kBoolean);
  EXPECT_EQ(tool.types_of("d"), kList | kText);
  EXPECT_EQ(tool.types_of("e"), kAnyType);
  EXPECT_EQ(tool.types_of("f"), kAnyType);
  EXPECT_EQ(tool.types_of("g"), kAnyType);
  EXPECT_EQ(tool.types_of("h"), kList);
  EXPECT_EQ(tool.types_of("i"), kAnyType);
  EXPECT_EQ(tool.types_of("unknown"), kAnyType);
}

// Each definition refers to the next one many times: the ways are a power of their number.
TEST(ToolList, DefinitionsAreLookedThroughOnce) {
  constexpr int kDepth = 6, kNumber = 2000;
  ordered_json definitions, references;
  for (int level = 0; level < kDepth; ++level) {
    ordered_json list = ordered_json::array();
    for (int i = 0; i < kNumber; ++i)
      list.push_back({{"$ref", "#/$defs/d" + std::to_string(level)}});
    if (level == 0) definitions["d0"] = {{"type", "string"}};
    definitions["d" + std::to_string(level + 1)] = {{"anyOf", list}};
  }
  const Tool tool =
      tool_of({{"properties", {{"a", {{"$ref", "#/$defs/d3"}}}, {"b", {{"$ref", "#/$defs/d6"}}}}},
               {"$defs", definitions}});
  EXPECT_EQ(tool.types_of("a"), kText);
  EXPECT_EQ(tool.types_of("b"), kAnyType);  // more than eight references in each other
}

TEST(ToolList, TypesOfMembers) {
  const Tool tool = tool_of(ordered_json::parse(R"({"properties": {
      "a": {"type": "object", "properties": {"b": {"type": "string"}, "c": {"$ref": "#/$defs/l"}}}},
      "$defs": {"l": {"type": "array", "items": {"type": "integer"}}}})"));
  EXPECT_EQ(tool.types_of(member_path("a", "b")), kText);
  EXPECT_EQ(tool.types_of(member_path("a", "c")), kList);
  EXPECT_EQ(tool.types_of(member_path(member_path("a", "c"), "item")), kNumber);
}

// Long names before many members, and objects that contain themselves many times, in every tool.
TEST(ToolList, MembersOfAllToolsAreBounded) {
  const std::string name(100'000, 'x');
  ordered_json itself = {{"type", "object"}, {"properties", ordered_json::object()}};
  for (int i = 0; i < 64; ++i) itself["properties"][std::to_string(i)] = {{"$ref", "#/$defs/a"}};
  const ordered_json parameters = {{"properties", {{name, {{"$ref", "#/$defs/a"}}}}},
                                   {"$defs", {{"a", itself}}}};
  ordered_json tools = ordered_json::array();
  for (int i = 0; i < 50; ++i) {
    tools.push_back({{"type", "function"},
                     {"function", {{"name", std::to_string(i)}, {"parameters", parameters}}}});
  }
  const ToolList list(tools);
  size_t bytes = 0;
  for (int i = 0; i < 50; ++i) {
    const Tool& tool = *list.find(std::to_string(i));
    EXPECT_EQ(tool.types_of(name), kObject);
    for (const auto& [path, types] : tool.arguments) bytes += path.size();
  }
  EXPECT_LE(bytes, (size_t{4} << 20) + 50 * name.size());
}

}  // namespace
}  // namespace wideep::answer
