// SPDX-License-Identifier: Apache-2.0
//
// From the body of a request to what the engine needs: parses it, fills the chat template, makes
// token ids of the text, and a grammar of the format that the answer has to have. Takes about a
// second for the largest bodies; what can be refused without tokens (another model, a text that is
// too long for the context) is refused before.
//
// Thread safety: immutable; prepare() may run on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/api.h"
#include "grammar/expression.h"
#include "run/sampling_defaults.h"
#include "schedule/request.h"
#include "server/chat_files.h"
#include "store/page_trust.h"
#include "tokenizer/tokenizer.h"

namespace wideep::server {

struct PreparationOptions {
  std::string model;       // the name that clients use
  std::string other_name;  // another one that requests may use; "": none
  int max_sequence = 0;    // tokens of a prompt and its answer together
  int vocab_size = 0;      // of the model, which may have more tokens than the tokenizer
  bool returns_experts = false;
  ResponseStore* responses = nullptr;   // outlives the preparation; null: none are asked for
  bool has_end_tokens = true;           // the model; else no format of an answer could end it
  run::SamplingDefaults sampling = {};  // what requests do not say
  // Of chats: where their last message begins (engine::Request::turn_begin), which only models with
  // states want to know. It takes as long as making the prompt.
  bool finds_turns = false;
  std::string record_class = {};  // of the names of pages (store/record.h); "": they have none
  store::PageTrust page_trust = store::PageTrust();  // whose pages are taken
};

// max_tokens_of of the options is set.
struct Prepared {
  GenerationOptions options;
  std::vector<engine::SharedTokens> prompts;
};

class Preparation {
 public:
  Preparation(PreparationOptions options, const tokenizer::Tokenizer& tokenizer, ChatFiles chat);

  // came: when the request came, which a template may write into the prompt. Who goes on with a
  // reply that another process has begun makes the same prompt with the same time. keeps_records:
  // another process may go on with the request (Exchange::keeps_records).
  Parsed<Prepared> prepare(const ApiSpec& api, std::string_view body, std::time_t came,
                           bool keeps_records = false) const;
  // The replies of /tokenize, /detokenize and /v1/messages/count_tokens to these bodies.
  Parsed<nlohmann::ordered_json> tokenize(std::string_view body) const;
  Parsed<nlohmann::ordered_json> detokenize(std::string_view body) const;
  Parsed<nlohmann::ordered_json> count_tokens(std::string_view body) const;
  // The reply of /prompt_tokens to the body of a request for text: the tokens whose pages its
  // prompts have, whom they are kept apart for, and if pages have names, these as KV events tell
  // them. api: whose request it is; null: its fields show it.
  Parsed<nlohmann::ordered_json> prompt_tokens(const ApiSpec* api, std::string_view body,
                                               std::time_t came) const;
  // The reply of /tokenizer_info: what a client needs to make prompts itself.
  nlohmann::ordered_json tokenizer_info() const;

 private:
  // The request with the tokens of its prompts, and what its answers have to be.
  Parsed<Prepared> with_prompts(CompletionRequest request) const;
  Parsed<Prepared> with_chat(ChatRequest request, std::time_t came) const;
  std::optional<HttpError> add_prefill(const std::string& prefill, const AnswerStyle& style,
                                       std::string* prompt) const;
  Parsed<std::string> chat_prompt(const ChosenTemplate& chosen, ChatRequest request) const;
  int turn_begin(const ChosenTemplate& chosen, ChatRequest request,
                 const std::vector<int32_t>& prompt) const;
  Parsed<std::string> rendered(const chat::ChatTemplate& chat, ChatRequest request) const;
  Parsed<Prepared> with_room(Prepared prepared) const;
  std::optional<HttpError> check(const GenerationOptions& options) const;
  void add_bad_words(GenerationOptions& options) const;
  std::optional<HttpError> limit_thoughts(const AnswerPlan& plan, GenerationOptions& options) const;
  std::optional<HttpError> check_model(const std::string& model) const;
  std::string refusal_of(const store::PagePeer& peer) const;
  // Sets what the engine has to know of a prompt that another server computes, or that is computed
  // for another one. Errors: this server cannot do it, or does not trust the other one.
  std::optional<HttpError> share_prompt(size_t num_prompts, GenerationOptions& options) const;
  // Errors: messages have members that neither the server nor the template reads, too.
  Parsed<ChosenTemplate> choose_template(ChatRequest& request) const;
  // What the answer has to be, before its reasoning is known; null: anything.
  Parsed<grammar::Expression> wanted_answer(const GenerationOptions& options,
                                            grammar::Rules* rules) const;
  Parsed<grammar::Expression> wanted_chat_answer(const ChatRequest& request,
                                                 const AnswerStyle& style,
                                                 grammar::Rules* rules) const;
  std::optional<HttpError> set_grammar(grammar::Expression answer, grammar::Rules& rules,
                                       GenerationOptions& options) const;
  std::string context_words() const;
  static std::optional<HttpError> check_reply_size(size_t bytes, const char* param);
  std::optional<HttpError> check_length(std::string_view text, const char* param) const;
  static void clip_to_logprobs(Prepared& prepared);
  std::optional<HttpError> check_logprobs(const Prepared& prepared) const;
  std::optional<HttpError> fit(const engine::SharedTokens& prompt,
                               GenerationOptions& options) const;
  std::optional<HttpError> check_tokens(const std::vector<int32_t>& ids, const char* param) const;
  Parsed<std::vector<int32_t>> encoded(std::string_view text, bool add_special_tokens,
                                       const char* param) const;
  Parsed<std::vector<int32_t>> tokens_of(const Prompt& prompt) const;

  PreparationOptions options_;
  const tokenizer::Tokenizer& tokenizer_;
  ChatFiles chat_;
  size_t max_text_bytes_;  // a longer text has more tokens than max_sequence
};

}  // namespace wideep::server
