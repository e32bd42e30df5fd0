// SPDX-License-Identifier: Apache-2.0
//
// A row is all there is to know of a field: the reader checks type and range by it, takes what is
// without effect by it, and docs/serve.md prints it (request_fields_test.cc). A field that no row
// has cannot be read (BodyReader checks), and one that a row calls honoured must be. The tables of
// the other APIs are looked up through the same function.
#include "api/request_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/messages_fields.h"
#include "api/responses_fields.h"

namespace wideep::server {
namespace {

using enum FieldUse;

constexpr Bodies kText = kCompletionBody | kChatBody;
constexpr Bodies kAnyModel = kText | kTokenizeBody | kDetokenizeBody;
constexpr Bodies kPrompts = kCompletionBody | kTokenizeBody;
constexpr Bodies kMessages = kChatBody | kTokenizeBody;

constexpr int64_t kMaxRanks = 1024, kMaxDrainSeconds = 24 * 3600;

constexpr RequestField kFields[] = {
    {"model", kAnyModel, kHonoured, "the name that `/v1/models` has", kAnyText},
    {"prompt", kPrompts, kHonoured, "text, token ids, or a list of either"},
    {"messages", kMessages, kHonoured, "through the model's chat template; parts of type `text`"},
    {"max_tokens", kText, kHonoured, "", integers(-1, kMaxTokens)},
    {"max_completion_tokens", kChatBody, kHonoured, "before `max_tokens`",
     integers(-1, kMaxTokens)},
    {"temperature", kText, kHonoured, "default: the model's, or 1; 0: the likeliest token",
     numbers(0, 100)},
    {"top_p", kText, kHonoured, "above 0", numbers_above(0, 1)},
    {"top_k", kText, kHonoured, "beyond OpenAI; −1 and 0: all tokens", integers(-1, kMaxTokens)},
    {"seed", kText, kHonoured, "the same tokens each time", integers(INT64_MIN, INT64_MAX)},
    {"n", kText, kHonoured, "up to 128", integers(1, kMaxAnswers)},
    {"stream", kText, kHonoured, "", kAnyFlag},
    {"stream_options", kText, kHonoured, "`include_usage`; `include_obfuscation` has no effect"},
    {"stop", kText, kHonoured, "up to 16 of up to 1024 bytes; of a chat in the content only"},
    {"logprobs", kText, kHonoured, "a completion: up to 5; a chat: true or false"},
    {"top_logprobs", kChatBody, kHonoured, "up to 20", integers(0, kMaxTopLogprobs)},
    {"tools", kMessages, kHonoured, "of type `function`"},
    {"tool_choice", kMessages, kHonoured, "`auto`, `none`, `required` or a name"},
    {"parallel_tool_calls", kMessages, kHonoured, "false: the first call ends the answer",
     kAnyFlag},
    {"reasoning_effort", kMessages, kHonoured, "for templates that know it"},
    {"include_reasoning", kMessages, kHonoured, "beyond OpenAI; false: it is left out", kAnyFlag},
    {"chat_template", kMessages, kHonoured, "beyond OpenAI: the name of one of the model's",
     kAnyText},
    {"chat_template_kwargs", kMessages, kHonoured, "beyond OpenAI: variables of the template"},
    {"ignore_eos", kText, kHonoured, "beyond OpenAI: go on to `max_tokens` after an end token",
     kAnyFlag},
    {"speculative", kText, kHonoured, "beyond OpenAI; `\"off\"`: without drafts"},
    {"cache_salt", kText, kHonoured,
     "vLLM's: prompts share cached pages only with those of the same salt; 1 to 256 bytes",
     kAnyText},
    {"disaggregated_params", kText, kHonoured,
     "TensorRT-LLM's ([prompts of other servers](#prompts-of-other-servers))"},
    {"kv_transfer_params", kText, kHonoured, "vLLM's, likewise"},
    {"prompt_token_ids", kChatBody, kHonoured,
     "TensorRT-LLM's, beside `disaggregated_params`: has to be the tokens of the messages"},
    {"return_progress", kText, kHonoured,
     "llama.cpp's, of a stream ([progress of the prompt](#progress-of-the-prompt))", kAnyFlag},
    {"routed_experts_prompt_start", kText, kHonoured,
     "beyond OpenAI ([determinism.md](determinism.md#experts-of-each-token))",
     integers(0, INT32_MAX)},
    {"response_format", kText, kHonoured, "`text`, `json_object`, `json_schema`"},
    {"structured_outputs", kText, kHonoured, "vLLM's"},
    {"guided_json", kText, kHonoured, "vLLM's"},
    {"guided_json_object", kText, kHonoured, "vLLM's"},
    {"guided_regex", kText, kHonoured, "vLLM's"},
    {"guided_choice", kText, kHonoured, "vLLM's"},
    {"guided_grammar", kText, kHonoured, "vLLM's"},
    {"guided_whitespace_pattern", kText, kHonoured, "vLLM's"},
    {"guided_decoding_backend", kText, kWithoutEffect, "there is one"},
    {"modalities", kChatBody, kOneValue, "but `[\"text\"]`"},
    {"min_p", kText, kHonoured, "beyond OpenAI, as vLLM's", numbers(0, 1)},
    {"min_tokens", kText, kHonoured, "vLLM's: no end token and no `stop` before",
     integers(0, kMaxTokens)},
    {"stop_token_ids", kText, kHonoured, "vLLM's: they end the answer"},
    {"allowed_token_ids", kText, kHonoured, "vLLM's: no others come; not beside a format"},
    {"bad_words", kText, kHonoured, "vLLM's: texts whose tokens do not come"},
    {"include_stop_str_in_output", kText, kHonoured, "vLLM's", kAnyFlag},
    {"skip_special_tokens", kText, kHonoured, "vLLM's; false: they have text", kAnyFlag},
    {"return_token_ids", kText, kHonoured, "vLLM's: `token_ids`, `prompt_token_ids`", kAnyFlag},
    {"prompt_logprobs", kText, kHonoured, "vLLM's, up to 20; not in streams, not beside a format",
     integers(0, kMaxTopLogprobs)},
    {"thinking_token_budget", kChatBody, kHonoured,
     "vLLM's: the tokens of reasoning, whose end then follows"},
    {"continue_final_message", kMessages, kHonoured,
     "vLLM's, with `add_generation_prompt: false`: the last message goes on", kAnyFlag},
    {"echo", kCompletionBody, kHonoured,
     "with `logprobs` the prompt has them, too; `max_tokens` may be 0", kAnyFlag},
    {"priority", kText, kOneValue, "but 0"},
    {"use_beam_search", kText, kOneValue, "but false"},
    {"presence_penalty", kText, kHonoured, "−2 to 2", numbers(-kMaxPenalty, kMaxPenalty)},
    {"frequency_penalty", kText, kHonoured, "−2 to 2", numbers(-kMaxPenalty, kMaxPenalty)},
    {"repetition_penalty", kText, kHonoured, "beyond OpenAI, as vLLM's; above 0, up to 100",
     numbers_above(0, 100)},
    {"logit_bias", kText, kHonoured, "up to 512 tokens, −100 to 100"},
    {"best_of", kCompletionBody, kOneValue, "but the value of `n`"},
    {"suffix", kCompletionBody, kOneValue, "but an empty one"},
    {"cache_prompt", kText, kWithoutEffect, "pages are shared by their tokens"},
    {"id_slot", kText, kWithoutEffect, ""},
    {"keep_alive", kText, kWithoutEffect, "the model stays"},
    {"length_penalty", kText, kWithoutEffect, "of beams"},
    {"request_id", kText, kWithoutEffect, ""},
    {"spaces_between_special_tokens", kText, kWithoutEffect, "there are none"},
    {"user", kText, kWithoutEffect, ""},
    {"metadata", kText, kWithoutEffect, ""},
    {"store", kText, kWithoutEffect, "nothing is stored"},
    {"service_tier", kText, kWithoutEffect, ""},
    {"safety_identifier", kText, kWithoutEffect, ""},
    {"prompt_cache_key", kText, kWithoutEffect, "pages are shared by their tokens"},
    {"prompt_cache_retention", kText, kWithoutEffect, ""},
    {"audio", kText, kRefused, ""},
    {"documents", kText, kRefused, ""},
    {"logits_processors", kText, kRefused, ""},
    {"mm_processor_kwargs", kText, kRefused, ""},
    {"return_tokens_as_token_ids", kText, kRefused, "see `return_token_ids`"},
    {"truncate_prompt_tokens", kText, kRefused, ""},
    {"vllm_xargs", kText, kRefused, ""},
    {"function_call", kText, kRefused, "see `tool_choice`"},
    {"functions", kText, kRefused, "see `tools`"},
    {"moderation", kText, kRefused, ""},
    {"prediction", kText, kRefused, ""},
    {"verbosity", kText, kRefused, ""},
    {"web_search_options", kText, kRefused, ""},
    {"add_special_tokens", kMessages, kHonoured,
     "a chat: false; `/tokenize`: default true for a `prompt`"},
    {"return_token_strs", kTokenizeBody, kHonoured, "", kAnyFlag},
    {"add_generation_prompt", kMessages, kHonoured, "default true", kAnyFlag},
    {"tokens", kDetokenizeBody, kHonoured, "ids; special tokens have text here"},
    {"new_data_parallel_size", kScaleBody, kHonoured, "", integers(1, kMaxRanks)},
    {"drain_timeout", kScaleBody, kHonoured, "", integers(1, kMaxDrainSeconds)},
};

std::span<const RequestField> fields_of(Bodies body) {
  if (body == kResponsesBody) return responses_fields();
  const bool is_anthropic = (body & (kMessagesBody | kCountTokensBody)) != 0;
  return is_anthropic ? messages_fields() : request_fields();
}

}  // namespace

std::span<const RequestField> request_fields() { return kFields; }

const RequestField* find_request_field(std::string_view name, Bodies body) {
  const std::span<const RequestField> fields = fields_of(body);
  const auto found = std::ranges::find_if(fields, [&](const RequestField& each) {
    return each.name == name && (each.bodies & body) != 0;
  });
  return found == fields.end() ? nullptr : &*found;
}

std::string request_fields_markdown() {
  std::string table = "| field | completions | chats | |\n|---|---|---|---|\n";
  for (const RequestField& each : kFields) {
    if ((each.bodies & kText) == 0) continue;
    const auto use_in = [&](Bodies body) {
      return (each.bodies & body) != 0 ? text_of(each.use) : std::string_view();
    };
    table += fmt::format("| `{}` | {} | {} | {} |\n", each.name, use_in(kCompletionBody),
                         use_in(kChatBody), each.note);
  }
  return table;
}

}  // namespace wideep::server
