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

// Members of a definition that contains itself are met some ten thousand times: its long lists are
// looked through once for each depth.
TEST(ToolList, ListsOfMembersAreLookedThroughOnce) {
  constexpr size_t kValues = 800'000;
  const ordered_json many(kValues, 0);
  const std::string far(100'000, 'x');  // a name as long as this is looked up once
  ordered_json itself = {
      {"properties", {{"e", {{"enum", many}}}, {"t", {{"type", many}}}, {"o", {{"anyOf", many}}}}}};
  for (int i = 0; i < 3; ++i)
    itself["properties"][std::to_string(i)] = {{"$ref", "#/$defs/" + far}};
  const ordered_json tools =
      ordered_json::array({{{"type", "function"},
                            {"function",
                             {{"name", "f"},
                              {"parameters",
                               {{"properties", {{"a", {{"$ref", "#/$defs/" + far}}}}},
                                {"$defs", {{far, itself}}}}}}}}});
  const ToolList list(tools);
  EXPECT_GT(list.find("f")->arguments.size(), 10'000u);
  EXPECT_EQ(list.find("f")->types_of(member_path("a", "e")), kNumber);
  EXPECT_LT(list.steps(), 2 * kValues + 400'000);
  EXPECT_FALSE(list.took_too_much());
}

// Each time that one member is looked for, all of them are.
TEST(ToolList, SchemasOfManyMembersAreCounted) {
  ordered_json itself = {{"properties", ordered_json::object()}};
  for (int i = 0; i < 3; ++i) itself["properties"][std::to_string(i)] = {{"$ref", "#/$defs/a"}};
  for (int i = 0; i < 2'000; ++i) itself["x" + std::to_string(i)] = 0;
  const ordered_json tools = ordered_json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "f"},
          {"parameters",
           {{"properties", {{"a", {{"$ref", "#/$defs/a"}}}}}, {"$defs", {{"a", itself}}}}}}}}});
  const ToolList list(tools);
  EXPECT_TRUE(list.took_too_much());
  EXPECT_LT(list.steps(), ToolList::kMaxSteps + 10'000);
}

TEST(ToolList, WorkIsBounded) {
  ordered_json tools = ordered_json::array();
  for (int i = 0; i < 50; ++i) {
    tools.push_back(
        {{"type", "function"},
         {"function",
          {{"name", std::to_string(i)},
           {"parameters",
            {{"properties",
              {{"a", {{"enum", ordered_json(100'000, 0)}}}, {"b", {{"type", "null"}}}}}}}}}});
  }
  const ToolList list(tools);
  EXPECT_TRUE(list.took_too_much());
  EXPECT_LT(list.steps(), ToolList::kMaxSteps + 200'000);
  EXPECT_EQ(list.find("0")->types_of("b"), kNull);
  EXPECT_EQ(list.find("49")->types_of("b"), kAnyType);
}

// As a grammar needs them: without members, of which there may be many times more.
TEST(ToolList, ArgumentsAlone) {
  ordered_json itself = {{"type", "object"}, {"properties", ordered_json::object()}};
  for (int i = 0; i < 8; ++i) itself["properties"][std::to_string(i)] = {{"$ref", "#/$defs/a"}};
  ordered_json properties;
  for (int i = 0; i < 200; ++i) properties[std::to_string(i)] = {{"$ref", "#/$defs/a"}};
  ordered_json tools = ordered_json::array();
  for (int i = 0; i < 10; ++i) {
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", std::to_string(i)},
                       {"parameters", {{"properties", properties}, {"$defs", {{"a", itself}}}}}}}});
  }
  const ToolList list(tools, ToolList::Kept::kArguments);
  EXPECT_EQ(list.steps(), 10u * 200 * 5);  // two schemas, with three members
  EXPECT_EQ(list.find("9")->arguments.size(), 200u);
  EXPECT_EQ(list.find("9")->types_of("199"), kObject);
}

}  // namespace
}  // namespace wideep::answer
