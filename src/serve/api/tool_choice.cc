// SPDX-License-Identifier: Apache-2.0
#include "api/tool_choice.h"

#include <algorithm>

namespace wideep::server {

using nlohmann::ordered_json;

bool choose_tools(BodyReader& body, const FoundChoice& found, const ChoicePlaces& places,
                  ChatRequest& chat) {
  if (found.kind == FoundChoice::kAuto) return true;
  if (found.kind == FoundChoice::kNone) {
    chat.tool_choice = ToolChoice::kNone;
    chat.tools = nullptr;
    return true;
  }
  if (chat.tools.is_null()) {
    body.complain(places.choice, "expected tools beside it, or \"none\" or \"auto\"");
    return false;
  }
  if (found.kind == FoundChoice::kRequired) chat.tool_choice = ToolChoice::kRequired;
  if (found.kind != FoundChoice::kTool) return true;
  if (found.function.empty()) {
    body.complain(places.name,
                  "expected the name of one of the tools, found " + BodyReader::shown(found.name));
    return false;
  }
  chat.tool_choice = ToolChoice::kNamed;
  chat.named_tool = found.function;
  return true;
}

std::string offered_function(const ordered_json& tools, const ordered_json& name) {
  const bool is_offered = std::ranges::any_of(tools, [&](const ordered_json& tool) {
    return member_of(member_of(tool, "function"), "name") == name;
  });
  return name.is_string() && is_offered ? name.get<std::string>() : "";
}

}  // namespace wideep::server
