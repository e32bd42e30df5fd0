// SPDX-License-Identifier: Apache-2.0
//
// What a body may ask for, whichever API it is of: text that goes on after prompts, or an answer in
// a chat.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/generation_options.h"

namespace wideep::server {

// Text, or the ids of tokens.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

enum class ToolChoice { kNone, kAuto, kRequired, kNamed };

struct CompletionRequest {
  GenerationOptions options;
  std::vector<Prompt> prompts;
};

struct ChatRequest {
  GenerationOptions options;
  nlohmann::ordered_json messages;         // an array of objects with a role
  const char* messages_name = "messages";  // for messages of errors
  // Of messages, other members than OpenAI's: for templates that read them.
  struct Member {
    std::string path, name;
  };
  std::vector<Member> template_members = {};
  nlohmann::ordered_json tools;  // null: none, or none may be called
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string named_tool;  // of kNamed; one of the tools
  bool parallel_tool_calls = true;
  std::string reasoning_effort;  // "": not given
  bool include_reasoning = true;
  nlohmann::ordered_json variables;   // chat_template_kwargs, or null
  std::string chat_template;          // the name of one of the model's; "": the usual one
  std::string prefill;                // how the answer begins, as the client has it; "": anyhow
  bool add_generation_prompt = true;  // always, but to be tokenised
  // The tokens of its prompt, as another server has made them; nullopt: not said.
  std::optional<std::vector<int32_t>> prompt_ids = {};
  // Where the template fails with messages of role system after others, they become the user's.
  bool folds_systems = false;
  // For templates that have the date in the prompt.
  std::time_t now = std::time(nullptr);

  bool must_call() const {
    return tool_choice == ToolChoice::kRequired || tool_choice == ToolChoice::kNamed;
  }
};

using TextRequest = std::variant<CompletionRequest, ChatRequest>;

}  // namespace wideep::server
