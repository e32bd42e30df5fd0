// SPDX-License-Identifier: Apache-2.0
//
// A name is here for one of two reasons: a reader takes it, or clients send it and it changes
// nothing; to add one to the second list is to say that ignoring it does no harm. Lists are short
// texts, so a look-up goes through them, and the guide is made of the same ones.
#include "api/nested_fields.h"

#include <fmt/format.h>

#include <utility>

namespace wideep::server {
namespace {

// Calls each(word) for the words of a list.
template <typename Each>
void for_words(std::string_view list, Each each) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    each(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

bool has_word(std::string_view list, std::string_view word) {
  bool found = false;
  for_words(list, [&](std::string_view each) { found = found || each == word; });
  return found;
}

std::string words_markdown(std::string_view list) {
  std::string text;
  for_words(list, [&](std::string_view each) {
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", each);
  });
  return text;
}

}  // namespace

bool NestedFields::knows(std::string_view name) const { return has_word(known, name); }
bool NestedFields::ignores(std::string_view name) const { return has_word(without_effect, name); }

// ---- OpenAI's chats and completions ----

// What follows `refusal` is what clients make of a reply before they send it back.
const NestedFields kChatMessage = {
    "messages[]",
    "role content name tool_calls tool_call_id reasoning_content reasoning thinking refusal",
    "annotations cache_control id parsed provider_specific_fields reasoning_details "
    "thinking_blocks"};
const NestedFields kChatText = {"messages[].content[]", "type text", "annotations cache_control"};
const NestedFields kChatRefusal = {"messages[].content[] of type refusal", "type refusal", ""};
const NestedFields kChatCall = {"messages[].tool_calls[]", "id type function",
                                "index cache_control extra_content provider_specific_fields"};
const NestedFields kChatCallFunction = {"messages[].tool_calls[].function", "name arguments",
                                        "parsed_arguments provider_specific_fields"};
const NestedFields kChatTool = {"tools[]", "type function", "cache_control"};
// return: transformers' description of what a function returns, which templates may show.
const NestedFields kChatFunction = {"tools[].function", "name description parameters strict return",
                                    ""};
const NestedFields kChatChoice = {"tool_choice", "type function", ""};
// Some clients send the whole tool again.
const NestedFields kChatChoiceFunction = {"tool_choice.function", "name",
                                          "description parameters strict"};
const NestedFields kStreamOptions = {"stream_options", "include_usage continuous_usage_stats",
                                     "include_obfuscation"};
const NestedFields kTextFormat = {"response_format of type text", "type", ""};
const NestedFields kJsonFormat = {"response_format of type json_object", "type schema", ""};
const NestedFields kSchemaFormat = {"response_format of type json_schema", "type json_schema", ""};
// Strict or not, the answer satisfies the schema.
const NestedFields kSchemaOfFormat = {"response_format.json_schema",
                                      "schema name description strict", ""};

// ---- prompts that one server computes for another one ----

// What has no effect: probabilities, logits and drafts come from this server, which computes the
// last tokens of the prompt itself; its pages are the same whichever rank has them; the usage is
// counted here.
const NestedFields kTrtSharedPrompt = {
    "disaggregated_params",
    "request_type ctx_request_id disagg_request_id encoded_opaque_state first_gen_tokens "
    "schedule_style conversation_id",
    "first_gen_log_probs first_gen_logits draft_tokens ctx_dp_rank ctx_info_endpoint ctx_usage "
    "return_prompt_token_ids_b64"};
// Pages are found by their names, and any layout has the same ones.
const NestedFields kVllmSharedPrompt = {"kv_transfer_params",
                                        "do_remote_decode do_remote_prefill remote_engine_id "
                                        "remote_request_id remote_host remote_port",
                                        "remote_block_ids tp_size"};

// ---- OpenAI's responses ----

const NestedFields kItemMessage = {"input[]", "id type role content", "status phase"};
const NestedFields kItemText = {"input[].content[], input[].output[]", "type text",
                                "annotations logprobs parsed cache_control"};
const NestedFields kItemCall = {"input[] of type function_call",
                                "id type call_id name arguments namespace",
                                "status parsed_arguments created_by caller"};
const NestedFields kItemCustomCall = {"input[] of type custom_tool_call",
                                      "id type call_id name input namespace",
                                      "status created_by caller"};
const NestedFields kItemOutput = {"input[] of type function_call_output, custom_tool_call_output",
                                  "id type call_id output", "status created_by caller"};
// encrypted_content: of another server; only that one can read it.
const NestedFields kItemReasoning = {"input[] of type reasoning", "id type summary content",
                                     "status encrypted_content"};
const NestedFields kItemReasoningText = {"input[].summary[], input[].content[] of type reasoning",
                                         "type text", ""};
const NestedFields kItemTool = {"tools[] of a response", "type name description parameters strict",
                                "defer_loading allowed_callers output_schema"};
const NestedFields kItemCustomTool = {"tools[] of type custom", "type name description format",
                                      "defer_loading allowed_callers"};
const NestedFields kItemCustomFormat = {"tools[].format", "type syntax definition", ""};
const NestedFields kItemNamespace = {"tools[] of type namespace", "type name description tools",
                                     ""};
const NestedFields kItemChoice = {"tool_choice of a response", "type name", ""};
const NestedFields kItemAllowed = {"tool_choice of type allowed_tools", "type mode tools", ""};
const NestedFields kItemAllowedTool = {"tool_choice.tools[]", "type name", ""};
const NestedFields kItemFormatOptions = {"text", "format verbosity", ""};
const NestedFields kItemPlainFormat = {"text.format", "type", ""};
const NestedFields kItemSchemaFormat = {"text.format of type json_schema",
                                        "type name schema strict description", ""};
const NestedFields kItemStreamOptions = {"stream_options of a response", "include_obfuscation", ""};

// ---- Anthropic's messages ----

const NestedFields kTurn = {"messages[] of messages", "role content", ""};
const NestedFields kTurnText = {"blocks of type text", "type text",
                                "cache_control citations parsed_output"};
const NestedFields kTurnThinking = {"blocks of type thinking", "type thinking",
                                    "signature cache_control"};
const NestedFields kTurnRedacted = {"blocks of type redacted_thinking", "type",
                                    "data cache_control"};
const NestedFields kTurnCall = {"blocks of type tool_use", "type id name input",
                                "cache_control caller"};
const NestedFields kTurnResult = {"blocks of type tool_result", "type tool_use_id content is_error",
                                  "cache_control"};
const NestedFields kTurnTool = {"tools[] of messages", "type name description input_schema",
                                "cache_control strict defer_loading allowed_callers "
                                "eager_input_streaming input_examples"};
const NestedFields kTurnChoice = {"tool_choice of messages", "type name disable_parallel_tool_use",
                                  ""};
const NestedFields kTurnThinkingOptions = {"thinking", "type display budget_tokens", ""};
// task_budget: for models that are told how many tokens are left.
const NestedFields kTurnOutput = {"output_config", "effort format", "task_budget"};
const NestedFields kTurnFormat = {"output_config.format", "type schema", "name"};

std::string nested_fields_markdown() {
  std::string table = "| object | fields | without effect |\n|---|---|---|\n";
  for (const NestedFields* each : {&kChatMessage,
                                   &kChatText,
                                   &kChatRefusal,
                                   &kChatCall,
                                   &kChatCallFunction,
                                   &kChatTool,
                                   &kChatFunction,
                                   &kChatChoice,
                                   &kChatChoiceFunction,
                                   &kStreamOptions,
                                   &kTextFormat,
                                   &kJsonFormat,
                                   &kSchemaFormat,
                                   &kSchemaOfFormat,
                                   &kTrtSharedPrompt,
                                   &kVllmSharedPrompt,
                                   &kItemMessage,
                                   &kItemText,
                                   &kItemCall,
                                   &kItemCustomCall,
                                   &kItemOutput,
                                   &kItemReasoning,
                                   &kItemReasoningText,
                                   &kItemTool,
                                   &kItemCustomTool,
                                   &kItemCustomFormat,
                                   &kItemNamespace,
                                   &kItemChoice,
                                   &kItemAllowed,
                                   &kItemAllowedTool,
                                   &kItemFormatOptions,
                                   &kItemPlainFormat,
                                   &kItemSchemaFormat,
                                   &kItemStreamOptions,
                                   &kTurn,
                                   &kTurnText,
                                   &kTurnThinking,
                                   &kTurnRedacted,
                                   &kTurnCall,
                                   &kTurnResult,
                                   &kTurnTool,
                                   &kTurnChoice,
                                   &kTurnThinkingOptions,
                                   &kTurnOutput,
                                   &kTurnFormat}) {
    table += fmt::format("| {} | {} | {} |\n", each->place, words_markdown(each->known),
                         words_markdown(each->without_effect));
  }
  return table;
}

}  // namespace wideep::server
