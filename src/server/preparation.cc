// SPDX-License-Identifier: Apache-2.0
#include "server/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "grammar/grammar.h"
#include "server/harmony_format.h"

namespace wideep::server {
namespace {

constexpr int kDefaultCompletionTokens = 16;  // OpenAI's

// Normalisation may make fewer bytes of a text before it is tokenised: composed, three letters of a
// Korean syllable (9 bytes) are one (3).
constexpr size_t kMostShrinking = 3;

// White space does not count: some tokens swallow any amount of it.
size_t count_visible(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) > ' '; }));
}

size_t longest_token(const tokenizer::Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.id_limit(); ++id) {
    longest = std::max({longest, tokenizer.bytes(id).size(), tokenizer.id_to_token(id).size()});
  }
  return longest;
}

}  // namespace

Preparation::Preparation(PreparationOptions options, const tokenizer::Tokenizer& tokenizer,
                         ChatFiles chat)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      chat_(std::move(chat)),
      harmony_(HarmonyTokens::find(tokenizer)),
      most_text_bytes_(static_cast<size_t>(options_.max_sequence) * longest_token(tokenizer) *
                       kMostShrinking) {}

Parsed<Prepared> Preparation::prepare(Api api, std::string_view body) const {
  return api == Api::kChat ? prepare_chat(body) : prepare_completion(body);
}

Parsed<Prepared> Preparation::prepare_completion(std::string_view body) const {
  auto parsed = parse_completion_request(body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return *error;
  CompletionRequest& request = std::get<CompletionRequest>(parsed);
  if (const auto error = check(request.options)) return *error;
  if (const auto error = compile_format(Api::kCompletion, request.options)) return *error;
  if (!request.options.max_tokens) request.options.max_tokens = kDefaultCompletionTokens;
  Prepared prepared{.options = std::move(request.options), .prompts = {}};
  for (const Prompt& prompt : request.prompts) {
    auto tokens = tokens_of(prompt);
    if (const auto* error = std::get_if<ApiError>(&tokens)) return *error;
    prepared.prompts.push_back(std::get<std::vector<int32_t>>(std::move(tokens)));
  }
  return with_room(std::move(prepared));
}

Parsed<Prepared> Preparation::prepare_chat(std::string_view body) const {
  auto parsed = parse_chat_request(body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return *error;
  ChatRequest& request = std::get<ChatRequest>(parsed);
  if (const auto error = check(request.options)) return *error;
  if (const auto error = compile_format(Api::kChat, request.options)) return *error;
  Prepared prepared{.options = std::move(request.options), .prompts = {}};
  const auto prompt = chat_prompt(std::move(request));
  if (const auto* error = std::get_if<ApiError>(&prompt)) return *error;
  const std::string& text = std::get<std::string>(prompt);
  if (const auto error = check_length(text, "messages")) return *error;
  // false: no special tokens are added; the template has written them already.
  prepared.prompts.push_back(tokenizer_.encode(text, false));
  return with_room(std::move(prepared));
}

// What the model's chat template makes of the messages.
Parsed<std::string> Preparation::chat_prompt(ChatRequest request) const {
  const bool has_tools = !request.tools.is_null();
  const auto chosen = chat_.templates.choose(request.chat_template, has_tools);
  if (!chosen.ok()) {
    return ApiError{.message = chosen.status().message(),
                    .param = request.chat_template.empty() ? "messages" : "chat_template"};
  }
  for (const auto& [name, token] : chat_.special_tokens.items()) {
    if (!request.variables.contains(name)) continue;
    const std::string param = "chat_template_kwargs." + name;
    return ApiError{.message = param + ": is the server's to set; leave it out", .param = param};
  }
  const Result<std::string> text = chosen->render({.messages = std::move(request.messages),
                                                   .tools = std::move(request.tools),
                                                   .variables = std::move(request.variables),
                                                   .special_tokens = chat_.special_tokens});
  if (text.ok()) return *text;
  return ApiError{.message = text.status().message(), .param = "messages"};
}

Parsed<Prepared> Preparation::with_room(Prepared prepared) const {
  for (const auto& prompt : prepared.prompts) {
    if (const auto error = fit(prompt, prepared.options)) return *error;
  }
  return prepared;
}

std::optional<ApiError> Preparation::check(const GenerationOptions& options) const {
  if (options.experts_start && !options_.returns_experts) {
    return ApiError{.message =
                        "routed_experts_prompt_start: this server returns no routed experts; "
                        "start it with --enable-return-routed-experts, or leave it out",
                    .param = "routed_experts_prompt_start"};
  }
  if (options.model == options_.model) return {};
  return ApiError{
      .status = 404,
      .message = fmt::format("model: expected '{}', found '{}'", options_.model, options.model),
      .param = "model",
      .code = "model_not_found"};
}

// A chat with a model that writes harmony: the format is that of its final message.
std::optional<ApiError> Preparation::compile_format(Api api, GenerationOptions& options) const {
  if (!options.format) return {};
  const std::string& place = options.format->place;
  const auto refused = [&](const std::string& message) {
    return ApiError{.message = message, .param = place};
  };
  if (!options_.has_end_tokens) {
    return refused(place + ": the model has no end token, without which no format ends");
  }
  grammar::Rules rules;
  auto answer = grammar::add_output(*options.format, &rules);
  if (!answer.ok()) return refused(answer.status().message());
  if (api == Api::kChat && harmony_) *answer = in_harmony(std::move(*answer));
  auto grammar = grammar::build_grammar(rules, rules.add("answer", std::move(*answer)));
  if (!grammar.ok()) return refused(grammar.status().at(place).message());
  options.grammar = std::make_shared<const std::string>(grammar->encode());
  return {};
}

// Refuses what is too long whatever its tokens are: they would take a second to find.
std::optional<ApiError> Preparation::check_length(std::string_view text, const char* param) const {
  if (text.size() <= most_text_bytes_ || count_visible(text) <= most_text_bytes_) return {};
  return ApiError{
      .message = fmt::format("{}: {} bytes of text exceed the context of {} tokens; shorten it",
                             param, text.size(), options_.max_sequence),
      .param = param,
      .code = "context_length_exceeded"};
}

Parsed<std::vector<int32_t>> Preparation::tokens_of(const Prompt& prompt) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (const auto error = check_length(*text, "prompt")) return *error;
    return tokenizer_.encode(*text);
  }
  const auto& ids = std::get<std::vector<int32_t>>(prompt);
  // Ids above the tokenizer's are rows of the embedding too, and read as no text.
  const int limit = std::max(options_.vocab_size, tokenizer_.id_limit());
  const auto unknown =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id >= limit; });
  if (unknown == ids.end()) return ids;
  return ApiError{.message = fmt::format("prompt: the model has no token {}; expected 0 to {}",
                                         *unknown, limit - 1),
                  .param = "prompt"};
}

// Checks that prompt and answer fit into the context. Without max_tokens a chat may go on to the
// end of the context.
std::optional<ApiError> Preparation::fit(const engine::SharedTokens& prompt,
                                         GenerationOptions& options) const {
  const int length = static_cast<int>(prompt.size());
  if (length == 0) return ApiError{.message = "prompt: has no tokens", .param = "prompt"};
  const int room = options_.max_sequence - length;
  if (!options.max_tokens && room > 0) options.max_tokens = room;
  if (room > 0 && *options.max_tokens <= room) return {};
  return ApiError{
      .message = fmt::format("{} tokens of the prompt and {} to generate exceed the context of {} "
                             "tokens; shorten the prompt or lower max_tokens",
                             length, options.max_tokens.value_or(1), options_.max_sequence),
      .param = "max_tokens",
      .code = "context_length_exceeded"};
}

}  // namespace wideep::server
