// SPDX-License-Identifier: Apache-2.0
#include "api/responses_fields.h"

#include <fmt/format.h>

namespace wideep::server {
namespace {

using enum FieldUse;

constexpr RequestField field(std::string_view name, FieldUse use, std::string_view note = "",
                             FieldValue value = {}) {
  return {.name = name, .bodies = kResponsesBody, .use = use, .note = note, .value = value};
}

constexpr RequestField kFields[] = {
    field("model", kHonoured, "the name that `/v1/models` has", kAnyText),
    field("input", kHonoured,
          "text, or a list of items: `message` with `input_text` and `output_text`, "
          "`function_call`, `custom_tool_call`, their outputs, `reasoning`; an empty one with "
          "`instructions`"),
    field("instructions", kHonoured, "a system message before all others", kAnyText),
    field("previous_response_id", kHonoured, "of a stored response, whose conversation goes on",
          kAnyText),
    field("store", kHonoured, "default false: nothing is stored", kAnyFlag),
    field("stream", kHonoured, "", kAnyFlag),
    field("stream_options", kHonoured, "`include_obfuscation` has no effect"),
    field("max_output_tokens", kHonoured, "reasoning included; default: the rest of the context",
          integers(1, kMaxTokens)),
    field("temperature", kHonoured, "default: the model's, or 1; 0: the likeliest token",
          numbers(0, 100)),
    field("top_p", kHonoured, "above 0", numbers_above(0, 1)),
    field("top_logprobs", kHonoured, "up to 20; with `include`", integers(0, kMaxTopLogprobs)),
    field("include", kHonoured,
          "`message.output_text.logprobs`; OpenAI's other names have no effect: reasoning comes as "
          "text, and there are no other tools"),
    field("tools", kHonoured, "`function`, `custom`, `namespace`; OpenAI's own are left out"),
    field("tool_choice", kHonoured,
          "`auto`, `none`, `required`, a function, a custom tool or `allowed_tools`"),
    field("parallel_tool_calls", kHonoured, "false: the first call ends the answer", kAnyFlag),
    field("text", kHonoured,
          "`format`: `text`, `json_object`, `json_schema`; `verbosity`: refused but `medium`"),
    field("reasoning", kHonoured, "`effort`; `summary` has no effect: the reasoning itself comes"),
    field("metadata", kHonoured, "up to 16 texts, which the reply repeats"),
    field("user", kHonoured, "the reply repeats it", kAnyText),
    field("safety_identifier", kHonoured, "likewise", kAnyText),
    field("prompt_cache_key", kHonoured, "likewise; pages are shared by their tokens", kAnyText),
    field("top_k", kHonoured, "beyond OpenAI; −1 and 0: all tokens", integers(-1, kMaxTokens)),
    field("min_p", kHonoured, "beyond OpenAI, as vLLM's", numbers(0, 1)),
    field("seed", kHonoured, "beyond OpenAI: the same tokens each time",
          integers(INT64_MIN, INT64_MAX)),
    field("presence_penalty", kHonoured, "beyond OpenAI; −2 to 2",
          numbers(-kMaxPenalty, kMaxPenalty)),
    field("frequency_penalty", kHonoured, "beyond OpenAI; −2 to 2",
          numbers(-kMaxPenalty, kMaxPenalty)),
    field("repetition_penalty", kHonoured, "beyond OpenAI, as vLLM's; above 0",
          numbers_above(0, 100)),
    field("logit_bias", kHonoured, "beyond OpenAI; up to 512 tokens, −100 to 100"),
    field("ignore_eos", kHonoured, "beyond OpenAI: go on after an end token", kAnyFlag),
    field("speculative", kHonoured, "beyond OpenAI; `\"off\"`: without drafts"),
    field("cache_salt", kHonoured,
          "beyond OpenAI, as vLLM's: cached pages are shared only with those of the same salt",
          kAnyText),
    field("disaggregated_params", kHonoured,
          "TensorRT-LLM's ([prompts of other servers](#prompts-of-other-servers))"),
    field("kv_transfer_params", kHonoured, "vLLM's, likewise"),
    field("include_reasoning", kHonoured, "beyond OpenAI; false: it is left out", kAnyFlag),
    field("chat_template", kHonoured, "beyond OpenAI: the name of one of the model's", kAnyText),
    field("chat_template_kwargs", kHonoured, "beyond OpenAI: variables of the template"),
    field("background", kOneValue, "but false"),
    field("truncation", kOneValue, "but `\"disabled\"`"),
    field("client_metadata", kWithoutEffect),
    field("service_tier", kWithoutEffect),
    field("max_tool_calls", kWithoutEffect, "of tools that the server would run; it runs none"),
    field("prompt_cache_retention", kWithoutEffect),
    field("prompt_cache_options", kWithoutEffect),
    field("conversation", kRefused, "see `previous_response_id`"),
    field("prompt", kRefused),
    field("moderation", kRefused),
    field("context_management", kRefused),
    field("background_options", kRefused),
    field("access_programs", kRefused),
    field("image", kRefused),
    field("return_progress", kRefused, "chats and completions have it"),
};

}  // namespace

std::span<const RequestField> responses_fields() { return kFields; }

std::string responses_fields_markdown() {
  std::string table = "| field of a response | | |\n|---|---|---|\n";
  for (const RequestField& each : kFields) {
    table += fmt::format("| `{}` | {} | {} |\n", each.name, text_of(each.use), each.note);
  }
  return table;
}

}  // namespace wideep::server
