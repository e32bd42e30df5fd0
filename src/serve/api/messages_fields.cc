// SPDX-License-Identifier: Apache-2.0
#include "api/messages_fields.h"

#include <fmt/format.h>

namespace wideep::server {
namespace {

using enum FieldUse;

constexpr Bodies kBoth = kMessagesBody | kCountTokensBody;

constexpr RequestField kFields[] = {
    {"model", kBoth, kHonoured, "the name that `/v1/models` has", kAnyText},
    {"messages", kBoth, kHonoured,
     "blocks `text`, `tool_use`, `tool_result`, `thinking`; an assistant's at the end is "
     "continued"},
    {"system", kBoth, kHonoured, "text, or blocks of type `text`"},
    {"max_tokens", kMessagesBody, kHonoured, "required; the context may end before",
     integers(1, kMaxTokens)},
    {"stop_sequences", kMessagesBody, kHonoured, "up to 16 of up to 1024 bytes; in text only"},
    {"stream", kMessagesBody, kHonoured, "", kAnyFlag},
    {"temperature", kMessagesBody, kHonoured, "default: the model's, or 1; 0: the likeliest token",
     numbers(0, 100)},
    {"top_p", kMessagesBody, kHonoured, "above 0", numbers_above(0, 1)},
    {"top_k", kMessagesBody, kHonoured, "0: all tokens", integers(0, kMaxTokens)},
    {"tools", kBoth, kHonoured, "without `type`, or of type `custom`"},
    {"tool_choice", kBoth, kHonoured,
     "`auto`, `any`, `tool`, `none`; with `disable_parallel_tool_use` the first call ends the "
     "message"},
    {"thinking", kBoth, kHonoured,
     "`enabled`, `adaptive`, `between_tools`: the template's `enable_thinking`; else it is told "
     "not to; `budget_tokens`: then its end follows"},
    {"output_config", kBoth, kHonoured,
     "`effort`: the template's `reasoning_effort`; `format` of type `json_schema`"},
    {"output_format", kBoth, kHonoured, "older name of `output_config.format`"},
    {"chat_template", kBoth, kHonoured, "beyond Anthropic: the name of one of the model's",
     kAnyText},
    {"chat_template_kwargs", kBoth, kHonoured, "beyond Anthropic: variables of the template"},
    {"cache_salt", kMessagesBody, kHonoured,
     "beyond Anthropic, as vLLM's: cached pages are shared only with those of the same salt",
     kAnyText},
    {"disaggregated_params", kMessagesBody, kHonoured,
     "TensorRT-LLM's ([prompts of other servers](#prompts-of-other-servers))"},
    {"kv_transfer_params", kMessagesBody, kHonoured, "vLLM's, likewise"},
    {"mcp_servers", kBoth, kOneValue, "but an empty list"},
    {"cache_control", kBoth, kWithoutEffect,
     "here and in blocks: pages are shared by their tokens"},
    {"context_management", kBoth, kWithoutEffect, "nothing is cleared from the messages"},
    {"metadata", kMessagesBody, kWithoutEffect, ""},
    {"service_tier", kMessagesBody, kWithoutEffect, ""},
    {"speed", kBoth, kWithoutEffect, ""},
    {"inference_geo", kMessagesBody, kWithoutEffect, ""},
    {"diagnostics", kMessagesBody, kWithoutEffect, ""},
    {"fallbacks", kMessagesBody, kWithoutEffect, "there is one model"},
    {"betas", kBoth, kWithoutEffect, "nor has the header `anthropic-beta`"},
    {"anthropic_beta", kBoth, kWithoutEffect, ""},
    {"anthropic_version", kBoth, kWithoutEffect, "nor has the header `anthropic-version`"},
    {"user_profile_id", kBoth, kWithoutEffect, ""},
    {"workspace_id", kBoth, kWithoutEffect, ""},
    {"billing_policy", kBoth, kWithoutEffect, ""},
    {"compaction", kBoth, kRefused, ""},
    {"container", kMessagesBody, kRefused, ""},
    {"thread", kMessagesBody, kRefused, "nothing is stored"},
    {"fallback_credit_token", kMessagesBody, kRefused, ""},
    {"return_progress", kMessagesBody, kRefused, "chats and completions have it"},
};

}  // namespace

std::span<const RequestField> messages_fields() { return kFields; }

std::string messages_fields_markdown() {
  std::string table = "| field | messages | count_tokens | |\n|---|---|---|---|\n";
  for (const RequestField& each : kFields) {
    const auto use_in = [&](Bodies body) {
      return (each.bodies & body) != 0 ? text_of(each.use) : std::string_view();
    };
    table += fmt::format("| `{}` | {} | {} | {} |\n", each.name, use_in(kMessagesBody),
                         use_in(kCountTokensBody), each.note);
  }
  return table;
}

}  // namespace wideep::server
