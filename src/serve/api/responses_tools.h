// SPDX-License-Identifier: Apache-2.0
//
// The tools of a body of OpenAI's Responses API, as functions that a chat template knows:
//
//   function      itself
//   custom        a function of one text (custom_input.h); a grammar is told in its description
//   namespace     its functions and custom tools, each under NAMESPACE__NAME; what it says of
//                 itself begins the description of the first
//   web_search, image_generation and others that OpenAI runs, or its models have learned: left out
//
// Thread safety: pure functions.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "api/body_reader.h"

namespace wideep::server {

// What a call of an offered function is for the client.
struct ResponseTool {
  std::string name;
  std::string space;  // "": in no namespace
  bool is_custom = false;
};

struct ResponseTools {
  nlohmann::ordered_json functions;  // as a chat has them; null: none
  nlohmann::ordered_json repeated =
      nlohmann::ordered_json::array();                           // those, as the reply has them
  std::map<std::string, ResponseTool, std::less<>> by_function;  // by the function's name

  // Those in namespaces, by the tool's name and whether it is a custom one: the first by its name.
  std::map<std::pair<std::string, bool>, std::string> by_tool;

  // The function of a tool; "": there is none.
  std::string function_of(const std::string& name, bool is_custom) const;
};

// Complains to `body`.
ResponseTools read_response_tools(BodyReader& body, const nlohmann::ordered_json& tools);

// The name of the function of a tool in a namespace.
std::string function_in(std::string_view space, std::string_view name);

}  // namespace wideep::server
