// SPDX-License-Identifier: Apache-2.0
//
// From the messages of a request to what a template goes through.
//
// Two things differ between the wire and the templates. The arguments of a tool call are JSON text
// on the wire, and most templates go through them as an object. And "content": null, which is what
// a message with tool calls has instead of text, is no text to print: it is none, but prints as "".
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::chat {

enum class CallArguments {
  kObjects,  // text that is a JSON object becomes that object; a blank text an empty one
  kAsSent,
};

// Errors (invalid input): nested deeper than jinja::kMaxValueDepth.
Result<jinja::Value> messages_value(const nlohmann::ordered_json& messages,
                                    CallArguments arguments);

// Whether both forms differ: some tool call has arguments that are text.
bool has_text_arguments(const nlohmann::ordered_json& messages);

}  // namespace wideep::chat
