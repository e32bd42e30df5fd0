// SPDX-License-Identifier: Apache-2.0
//
// A chat template knows functions only: so every tool becomes one, and by_function leads back from
// a call to the tool that the client knows. What a namespace says of itself begins the description
// of its first tool, since there is no other place. Tools that OpenAI runs are left out and not
// refused, because agents send them with every request; other types are refused. The log gets names
// of the table, never a client's text.
#include "api/responses_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/custom_input.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// OpenAI runs these, or its models have learned them; agents send them with every request.
constexpr std::string_view kLeftOut[] = {"apply_patch",
                                         "code_interpreter",
                                         "computer",
                                         "computer_use",
                                         "computer_use_preview",
                                         "file_search",
                                         "image_generation",
                                         "local_shell",
                                         "mcp",
                                         "programmatic_tool_calling",
                                         "shell",
                                         "tool_search",
                                         "web_search",
                                         "web_search_preview"};

// Without the date of web_search_preview_2025_03_11.
std::string_view without_date(std::string_view type) {
  constexpr std::string_view kDate = "_dddd_dd_dd";
  const std::string_view end = type.substr(type.size() - std::min(type.size(), kDate.size()));
  const bool is_date = std::ranges::equal(end, kDate, [](char c, char expected) {
    return expected == 'd' ? c >= '0' && c <= '9' : c == expected;
  });
  return type.substr(0, type.size() - (is_date ? end.size() : 0));
}

// The name that this table has for a type, which goes to the log, as no word of a client does; "":
// it has none.
std::string_view left_out(const ordered_json& type) {
  if (!type.is_string()) return {};
  const std::string_view name = without_date(type.get_ref<const std::string&>());
  const auto* found = std::ranges::find(kLeftOut, name);
  return found == std::end(kLeftOut) ? std::string_view() : *found;
}

// OpenAI's types say that a tool has these, be it null.
ordered_json repeated_function(const ordered_json& tool) {
  return {{"type", "function"},
          {"name", tool["name"]},
          {"description", member_of(tool, "description")},
          {"parameters", member_of(tool, "parameters")},
          {"strict", member_of(tool, "strict")}};
}

class ToolReader {
 public:
  explicit ToolReader(BodyReader& body) : body_(body) {}

  void read(const std::string& place, const ordered_json& tool) {
    const ordered_json& type = member_of(tool, "type");
    if (!tool.is_object()) {
      complain(place, "", "expected an object, found " + BodyReader::shown(tool));
    } else if (type == "function") {
      if (read_function(place, tool, "")) tools_.repeated.push_back(repeated_function(tool));
    } else if (type == "custom") {
      if (read_custom(place, tool, "")) tools_.repeated.push_back(tool);
    } else if (type == "namespace") {
      read_namespace(place, tool);
    } else if (const std::string_view name = left_out(type); !name.empty()) {
      body_.ignore(fmt::format("tools[] of type {}", name));
    } else {
      complain(place, ".type",
               "expected \"function\", \"custom\" or \"namespace\", found " +
                   BodyReader::shown(type) + "; this server runs no tools of its own");
    }
  }
  ResponseTools take() { return std::move(tools_); }

 private:
  bool complain(const std::string& place, const char* member, const std::string& what) {
    body_.complain(place + member, what);
    return false;
  }

  bool has_name(const std::string& place, const ordered_json& tool) {
    const ordered_json& name = member_of(tool, "name");
    if (name.is_string() && !name.get_ref<const std::string&>().empty()) return true;
    return complain(place, ".name", "expected a name, found " + BodyReader::shown(name));
  }

  // The text, or "" for null.
  bool read_description(const std::string& place, const ordered_json& tool, std::string* text) {
    const ordered_json& description = member_of(tool, "description");
    if (description.is_null()) return true;
    if (!description.is_string()) {
      return complain(place, ".description",
                      "expected a string, found " + BodyReader::shown(description));
    }
    *text += description.get<std::string>();
    return true;
  }

  bool read_function(const std::string& place, const ordered_json& tool, const std::string& space) {
    if (!body_.check_members(place, tool, kItemTool) || !has_name(place, tool)) return false;
    const ordered_json& parameters = member_of(tool, "parameters");
    if (!parameters.is_null() && !parameters.is_object()) {
      return complain(place, ".parameters",
                      "expected a JSON schema, an object, found " + BodyReader::shown(parameters));
    }
    const ordered_json& strict = member_of(tool, "strict");
    if (!strict.is_null() && !strict.is_boolean()) {
      return complain(place, ".strict",
                      "expected true or false, found " + BodyReader::shown(strict));
    }
    std::string description = std::exchange(space_description_, "");
    if (!read_description(place, tool, &description)) return false;
    ordered_json function = {{"name", nullptr}};
    if (!description.empty() || member_of(tool, "description").is_string()) {
      function["description"] = description;
    }
    if (!parameters.is_null()) function["parameters"] = parameters;
    if (!strict.is_null()) function["strict"] = strict;
    return offer(place, std::move(function), {.name = tool["name"], .space = space});
  }

  bool read_custom(const std::string& place, const ordered_json& tool, const std::string& space) {
    if (!body_.check_members(place, tool, kItemCustomTool) || !has_name(place, tool)) return false;
    std::string description = std::exchange(space_description_, "");
    if (!read_description(place, tool, &description)) return false;
    const ordered_json& format = member_of(tool, "format");
    if (!read_format(place + ".format", format, &description)) return false;
    ordered_json function = {{"name", nullptr}};
    if (!description.empty()) function["description"] = description;
    function["parameters"] = CustomInput::parameters();
    return offer(place, std::move(function),
                 {.name = tool["name"], .space = space, .is_custom = true});
  }

  // The model is told a grammar.
  bool read_format(const std::string& place, const ordered_json& format, std::string* description) {
    if (format.is_null()) return true;
    const ordered_json& type = member_of(format, "type");
    if (!format.is_object() || (type != "text" && type != "grammar")) {
      return complain(place, ".type",
                      "expected \"text\" or \"grammar\", found " + BodyReader::shown(type));
    }
    if (!body_.check_members(place, format, kItemCustomFormat)) return false;
    if (type == "text") return true;
    const ordered_json& syntax = member_of(format, "syntax");
    const ordered_json& definition = member_of(format, "definition");
    if (syntax != "lark" && syntax != "regex") {
      return complain(place, ".syntax",
                      "expected \"lark\" or \"regex\", found " + BodyReader::shown(syntax));
    }
    if (!definition.is_string()) {
      return complain(place, ".definition",
                      "expected a string, found " + BodyReader::shown(definition));
    }
    *description +=
        fmt::format("{}The input must match this {}:\n{}", description->empty() ? "" : "\n\n",
                    syntax == "lark" ? "Lark grammar" : "regular expression",
                    definition.get_ref<const std::string&>());
    return true;
  }

  void read_namespace(const std::string& place, const ordered_json& tool) {
    if (!body_.check_members(place, tool, kItemNamespace) || !has_name(place, tool)) return;
    const ordered_json& tools = member_of(tool, "tools");
    if (!tools.is_array()) {
      complain(place, ".tools", "expected a list, found " + BodyReader::shown(tools));
      return;
    }
    space_description_.clear();
    if (!read_description(place, tool, &space_description_)) return;
    if (!space_description_.empty()) space_description_ += "\n\n";
    const std::string space = tool["name"];
    for (size_t i = 0; i < tools.size() && body_.is_valid(); ++i) {
      const std::string inner = fmt::format("{}.tools[{}]", place, i);
      const ordered_json& type = member_of(tools[i], "type");
      if (type == "function") {
        read_function(inner, tools[i], space);
      } else if (type == "custom") {
        read_custom(inner, tools[i], space);
      } else {
        complain(inner, ".type",
                 "expected \"function\" or \"custom\", found " + BodyReader::shown(type));
      }
    }
    space_description_.clear();
    tools_.repeated.push_back(tool);
  }

  bool offer(const std::string& place, ordered_json function, ResponseTool tool) {
    const std::string name = function_in(tool.space, tool.name);
    const auto known = tools_.by_function.find(name);
    if (known != tools_.by_function.end() &&
        (known->second.is_custom || tool.is_custom || known->second.space != tool.space)) {
      return complain(place, ".name", fmt::format("another tool is called '{}', too", name));
    }
    function["name"] = name;
    if (!tool.space.empty()) {
      std::string& first = tools_.by_tool[{tool.name, tool.is_custom}];
      if (first.empty() || name < first) first = name;
    }
    tools_.by_function[name] = std::move(tool);
    tools_.functions.push_back({{"type", "function"}, {"function", std::move(function)}});
    return true;
  }

  BodyReader& body_;
  ResponseTools tools_;
  std::string space_description_;  // of the namespace, until one of its tools has it
};

}  // namespace

std::string ResponseTools::function_of(const std::string& name, bool is_custom) const {
  if (const auto found = by_function.find(name);
      found != by_function.end() && found->second.is_custom == is_custom) {
    return found->first;
  }
  const auto in_namespace = by_tool.find({name, is_custom});
  return in_namespace == by_tool.end() ? "" : in_namespace->second;
}

std::string function_in(std::string_view space, std::string_view name) {
  return space.empty() ? std::string(name) : fmt::format("{}__{}", space, name);
}

ResponseTools read_response_tools(BodyReader& body, const ordered_json& tools) {
  ToolReader reader(body);
  if (!tools.is_null() && !tools.is_array()) body.complain("tools", "expected a list");
  for (size_t i = 0; tools.is_array() && i < tools.size() && body.is_valid(); ++i) {
    reader.read(fmt::format("tools[{}]", i), tools[i]);
  }
  return reader.take();
}

}  // namespace wideep::server
