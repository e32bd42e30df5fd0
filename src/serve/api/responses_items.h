// SPDX-License-Identifier: Apache-2.0
//
// The items of OpenAI's Responses API: what a conversation is made of. A body's `input` becomes
// items of one form, in which they are stored and listed, and these become the messages of a chat.
//
//   item                           in the chat
//   message                        a message of its role
//   reasoning                      reasoning_content of the assistant's message that follows
//   function_call                  a tool call of the assistant's message before, or of a new one
//   custom_tool_call               likewise (custom_input.h)
//   function_call_output,          a message of role tool; images are a text that says so
//   custom_tool_call_output
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "api/body_reader.h"

namespace wideep::server {

// Appends the items of `input`, a text or a list, to those of `items`. Complains to `body` of what
// is no item, with its place ("input[2].content[0].type").
void read_input(BodyReader& body, const nlohmann::ordered_json& input,
                nlohmann::ordered_json* items);

// The messages. instructions: "": none; else the first system message. System and developer
// messages at the beginning become one: many templates know only one. Complains of outputs without
// a call. REQUIRES: items as read_input() has them.
nlohmann::ordered_json messages_of(BodyReader& body, const std::string& instructions,
                                   const nlohmann::ordered_json& items);

// A page of GET /v1/responses/{id}/input_items.
struct ItemPage {
  std::string after = {};  // the id of the item before the first one; "": from the start
  std::string order = {};  // "asc", or "desc" or "": from the last item
  int64_t limit = 20;      // 1 to 100
};

// conversation: items as JSON. Errors: one of these is wrong.
std::variant<nlohmann::ordered_json, HttpError> item_page(const std::string& conversation,
                                                          const ItemPage& wanted);

}  // namespace wideep::server
