// SPDX-License-Identifier: Apache-2.0
//
// The fields of the objects inside requests' bodies, as request_fields.h has those of the bodies
// themselves: what is read, and what clients send that changes nothing. Everything else is refused
// by its full path (BodyReader::check_members), unless it is null. docs/serve.md contains the table
// (request_fields_test.cc).
//
// Objects whose names are the client's are not here: JSON schemas, arguments of calls, metadata,
// variables of templates, biases.
//
// Thread safety: immutable.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace wideep::server {

struct NestedFields {
  std::string_view place;           // "messages[].content[]"
  std::string_view known;           // names with a space between them
  std::string_view without_effect;  // likewise

  bool knows(std::string_view name) const;
  bool ignores(std::string_view name) const;
};

// Of /v1/completions, /v1/chat/completions and /tokenize. A message may also have what the chat
// template reads.
extern const NestedFields kChatMessage, kChatText, kChatRefusal, kChatCall, kChatCallFunction,
    kChatTool, kChatFunction, kChatChoice, kChatChoiceFunction, kStreamOptions, kTextFormat,
    kJsonFormat, kSchemaFormat, kSchemaOfFormat;

// Of all requests for text (shared_prompt_fields.h).
extern const NestedFields kTrtSharedPrompt, kVllmSharedPrompt;

// Of /v1/responses.
extern const NestedFields kItemMessage, kItemText, kItemCall, kItemCustomCall, kItemOutput,
    kItemReasoning, kItemCustomTool, kItemCustomFormat, kItemNamespace, kItemReasoningText,
    kItemTool, kItemChoice, kItemAllowed, kItemAllowedTool, kItemFormatOptions, kItemPlainFormat,
    kItemSchemaFormat, kItemStreamOptions;

// Of /v1/messages and /v1/messages/count_tokens.
extern const NestedFields kTurn, kTurnText, kTurnThinking, kTurnRedacted, kTurnCall, kTurnResult,
    kTurnTool, kTurnChoice, kTurnThinkingOptions, kTurnOutput, kTurnFormat;

// A row for each.
std::string nested_fields_markdown();

}  // namespace wideep::server
