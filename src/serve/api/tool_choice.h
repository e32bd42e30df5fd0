// SPDX-License-Identifier: Apache-2.0
//
// Which tools a chat may call, and whether it must. Each API has its own words for it, and what
// they do is the same: a reader of bodies says what it has found, and the request is set here.
//
//   found            request
//   kNone            no tools are offered
//   kRequired        some tool must be called
//   kTool            this one must be called
//   kAuto            as it is
//   kOther           as it is: the API's own, or nothing that it knows
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "api/body_reader.h"
#include "api/text_request.h"

namespace wideep::server {

struct FoundChoice {
  enum Kind { kAuto, kNone, kRequired, kTool, kOther } kind = kAuto;
  std::string function = {};         // of kTool: that the chat offers for it; "": there is none
  nlohmann::ordered_json name = {};  // of kTool: as the body has it
};

// The fields that complaints name: that of the choice, and that of a tool's name.
struct ChoicePlaces {
  const char* choice = "tool_choice";
  const char* name = "tool_choice.name";
};

// Complains of a choice without tools, and of a tool that there is not. REQUIRES: chat.tools is
// what the body offers. Returns whether there was nothing to complain of.
bool choose_tools(BodyReader& body, const FoundChoice& found, const ChoicePlaces& places,
                  ChatRequest& chat);

// The name, if `tools` has a function that is called so; else "".
std::string offered_function(const nlohmann::ordered_json& tools,
                             const nlohmann::ordered_json& name);

}  // namespace wideep::server
