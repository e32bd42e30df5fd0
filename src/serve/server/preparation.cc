// SPDX-License-Identifier: Apache-2.0
//
// What is cheap to refuse comes first: fields, the model's name, the length of the text; tokens of
// the largest bodies take a second. What an answer has to be is complete only with the prompt,
// since a template may have begun or ended the reasoning before it. The grammar is compiled here,
// where an error of a schema is still a refusal with its field, and goes to the ranks as bytes
// (docs/decisions/0042-structured-output.md).
#include "server/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "api/generation_fields.h"
#include "api/messages_request.h"
#include "api/openai_request.h"
#include "api/shared_prompt.h"
#include "api/shared_prompt_fields.h"
#include "api/turn_messages.h"
#include "formats/json_parse.h"
#include "formats/json_size.h"
#include "grammar/grammar.h"
#include "http/http_options.h"
#include "kv_events/event.h"
#include "server/call_grammar.h"
#include "server/harmony_format.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// Normalisation may make fewer bytes of a text before it is tokenised: composed, three letters of a
// Korean syllable (9 bytes) are one (3).
constexpr size_t kMaxShrinking = 3;

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

std::set<std::string> call_ids_in(const ordered_json& messages) {
  std::set<std::string> ids;
  for (const ordered_json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (const ordered_json& call : *calls) {
      const auto id = call.find("id");
      if (id != call.end() && id->is_string()) ids.insert(id->get<std::string>());
    }
  }
  return ids;
}

AnswerPlan plan_of(const ChatRequest& request, const ChosenTemplate& chosen) {
  const bool calls = chosen.style->calls_tools && !request.tools.is_null();
  return {.style = chosen.style,
          .settings = {.format = chosen.style->format,
                       .tools = calls ? std::make_shared<const answer::ToolList>(request.tools)
                                      : std::make_shared<const answer::ToolList>(),
                       .must_call = request.must_call()},
          .one_call = !request.parallel_tool_calls,
          .call_ids = call_ids_in(request.messages),
          .returns_reasoning = request.include_reasoning};
}

// Whether the model shall reason, if the request says so, by whatever name.
std::optional<bool> thinks_as_asked(const ChatRequest& request) {
  if (!request.reasoning_effort.empty()) return request.reasoning_effort != "none";
  for (const char* name : {"enable_thinking", "thinking"}) {
    const auto found = request.variables.find(name);
    if (found != request.variables.end() && found->is_boolean()) return found->get<bool>();
  }
  return {};
}

// Roles as the template knows them, and the names under which templates know how much to reason,
// and earlier reasoning. A name that a template does not know has no effect.
void suit_template(ChatRequest& request, const AnswerStyle& style) {
  const auto set = [&](const char* name, const ordered_json& value) {
    if (!request.variables.contains(name)) request.variables[name] = value;
  };
  if (const std::optional<bool> thinks = thinks_as_asked(request)) {
    for (const char* name : {"enable_thinking", "thinking"}) set(name, *thinks);
    set("thinking_mode", *thinks ? "enabled" : "disabled");
    const std::string& asked = request.reasoning_effort;
    // Of a template that has a name for not thinking, that may be the default.
    const bool is_silent = asked.empty() && *thinks && style.effort_for("none").empty();
    const std::string effort = style.effort_for(!asked.empty() ? asked : *thinks ? "high" : "none");
    if (!is_silent && !effort.empty()) set("reasoning_effort", effort);
  }
  for (ordered_json& message : request.messages) {
    // A template that does not know the role would refuse the message, or leave it out.
    if (message["role"] == "developer" && !style.knows_developer) message["role"] = "system";
    for (const auto& [from, to] : {std::pair("reasoning", "reasoning_content"),
                                   std::pair("reasoning_content", "reasoning")}) {
      if (message.contains(from) && !message.contains(to)) message[to] = message[from];
    }
    // GPT-OSS's template takes either content or reasoning beside calls.
    const bool has_both = message.contains("tool_calls") && message.contains("content") &&
                          !message["content"].is_null() && message["content"] != "";
    if (style.reads_thinking && message.contains("reasoning_content") &&
        !message.contains("thinking") && !has_both) {
      message["thinking"] = message["reasoning_content"];
    }
  }
}

// The field that most log-probabilities of a reply come from.
const char* logprobs_field(const GenerationOptions& options, bool is_of_prompts) {
  if (is_of_prompts) return options.prompt_logprobs ? "prompt_logprobs" : "echo";
  const bool is_chat = options.answer != nullptr;
  return is_chat && options.engine_request.sampling.top_log_probabilities > 0 ? "top_logprobs"
                                                                              : "logprobs";
}

// Those of the prompts of one answer each.
int64_t logprobs_of_prompts(const Prepared& prepared) {
  const GenerationOptions& options = prepared.options;
  const int64_t of_token =
      (options.logprobs && options.echo ? options.engine_request.sampling.top_log_probabilities + 1
                                        : 0) +
      (options.prompt_logprobs ? *options.prompt_logprobs + 1 : 0);
  int64_t all = 0;
  for (const auto& prompt : prepared.prompts) all += static_cast<int64_t>(prompt.size()) * of_token;
  return all;
}

// Whose field the body has. Bodies of Anthropic's look like chats.
Api api_of_body(std::string_view body) {
  const auto json = formats::parse_json(body, "body");
  if (!json.ok() || !json->is_object()) return Api::kChat;  // whose parser says what is wrong
  return json->contains("messages") ? Api::kChat
         : json->contains("input")  ? Api::kResponses
                                    : Api::kCompletion;
}

// Whether the client, or its API, has said that the model should not reason.
bool forbids_thinking(const ordered_json& variables) {
  const auto is_off = [&](const char* name) {
    const auto found = variables.find(name);
    return found != variables.end() && *found == false;
  };
  return is_off("enable_thinking") || is_off("thinking");
}

// The answer behind the reasoning that the model may write before it. text: the prompt.
grammar::Expression after_thoughts(grammar::Expression answer, std::string_view text,
                                   bool thinks_not, AnswerPlan* plan) {
  const answer::ReasoningFormat* format = plan->style->format.reasoning;
  if (format == nullptr) return answer;
  const bool begins = answer::opens_reasoning(*format, text);
  plan->settings.begins_in_reasoning = begins;
  if (answer == nullptr) return answer;
  const bool is_off = thinks_not || answer::closes_reasoning(*format, text);
  return after_reasoning(std::move(answer), *plan->style,
                         begins   ? Reasoning::kBegun
                         : is_off ? Reasoning::kOff
                                  : Reasoning::kPossible);
}

// A proxy says what the other server has made of the same messages.
std::optional<HttpError> check_prompt_ids(const std::optional<std::vector<int32_t>>& expected,
                                          const std::vector<int32_t>& tokens) {
  if (!expected || *expected == tokens) return {};
  constexpr const char* kParam = "prompt_token_ids";
  const auto first = std::ranges::mismatch(*expected, tokens).in2 - tokens.begin();
  return HttpError{
      .message = fmt::format("{}: expected the {} tokens that this server makes of the messages, "
                             "found {}, of which token {} is the first other one; leave it out, or "
                             "use servers with the same tokenizer and chat template",
                             kParam, tokens.size(), expected->size(), first),
      .param = kParam};
}

}  // namespace

Preparation::Preparation(PreparationOptions options, const tokenizer::Tokenizer& tokenizer,
                         ChatFiles chat)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      chat_(std::move(chat)),
      max_text_bytes_(static_cast<size_t>(options_.max_sequence) * longest_token(tokenizer) *
                      kMaxShrinking) {}

Parsed<Prepared> Preparation::prepare(const ApiSpec& api, std::string_view body, std::time_t came,
                                      bool keeps_records) const {
  WIDEEP_PARSED(TextRequest request, api.parse(body, {.sampling = options_.sampling,
                                                      .responses = options_.responses,
                                                      .keeps_records = keeps_records}));
  WIDEEP_PARSED(Prepared prepared,
                std::holds_alternative<ChatRequest>(request)
                    ? with_chat(std::get<ChatRequest>(std::move(request)), came)
                    : with_prompts(std::get<CompletionRequest>(std::move(request))));
  add_bad_words(prepared.options);
  return with_room(std::move(prepared));
}

Parsed<Prepared> Preparation::with_prompts(CompletionRequest request) const {
  GenerationOptions& options = request.options;
  WIDEEP_REFUSE_IF(check(options));
  WIDEEP_REFUSE_IF(share_prompt(request.prompts.size(), options));
  grammar::Rules rules;
  WIDEEP_PARSED(grammar::Expression wanted, wanted_answer(options, &rules));
  WIDEEP_REFUSE_IF(set_grammar(std::move(wanted), rules, options));
  Prepared prepared{.options = std::move(options), .prompts = {}};
  for (const Prompt& prompt : request.prompts) {
    WIDEEP_PARSED(std::vector<int32_t> tokens, tokens_of(prompt));
    if (prepared.options.echo) {
      const auto* text = std::get_if<std::string>(&prompt);
      prepared.options.echo_texts.push_back(text != nullptr ? *text : tokenizer_.decode(tokens));
    }
    prepared.prompts.emplace_back(std::move(tokens));
  }
  return prepared;
}

// What the answer has to be depends on the prompt, too: a template may have begun, or ended, the
// reasoning that comes before it.
Parsed<Prepared> Preparation::with_chat(ChatRequest request, std::time_t came) const {
  request.now = came;
  WIDEEP_REFUSE_IF(check(request.options));
  WIDEEP_REFUSE_IF(share_prompt(1, request.options));
  WIDEEP_PARSED(const ChosenTemplate chosen, choose_template(request));
  grammar::Rules rules;
  WIDEEP_PARSED(grammar::Expression wanted, wanted_chat_answer(request, *chosen.style, &rules));
  AnswerPlan plan = plan_of(request, chosen);
  if (plan.settings.tools->took_too_much()) {
    return HttpError{.message = kTooMuchInTools, .param = "tools"};
  }
  GenerationOptions options = std::move(request.options);
  options.held_bytes += formats::json_bytes(request.tools);  // as the plan has them
  const char* const messages_name = request.messages_name;
  const bool is_begun = !request.prefill.empty();
  const bool thinks_not = forbids_thinking(request.variables);
  const auto expected_ids = std::exchange(request.prompt_ids, std::nullopt);
  const auto again = options_.finds_turns ? std::optional(request) : std::nullopt;
  WIDEEP_PARSED(const std::string text, chat_prompt(chosen, std::move(request)));
  WIDEEP_REFUSE_IF(check_length(text, messages_name));
  if (!is_begun) wanted = after_thoughts(std::move(wanted), text, thinks_not, &plan);
  WIDEEP_REFUSE_IF(set_grammar(std::move(wanted), rules, options));
  WIDEEP_REFUSE_IF(limit_thoughts(plan, options));
  options.answer = std::make_shared<const AnswerPlan>(std::move(plan));
  // false: no special tokens are added; the template has written them already.
  WIDEEP_PARSED(std::vector<int32_t> tokens, encoded(text, false, messages_name));
  WIDEEP_REFUSE_IF(check_prompt_ids(expected_ids, tokens));
  if (again) options.engine_request.turn_begin = turn_begin(chosen, *again, tokens);
  return Prepared{.options = std::move(options), .prompts = {std::move(tokens)}};
}

// The request is suited to the template.
Parsed<ChosenTemplate> Preparation::choose_template(ChatRequest& request) const {
  auto chosen = chat_.templates.choose(request.chat_template, !request.tools.is_null());
  if (!chosen.ok()) {
    return HttpError{
        .message = chosen.status().message(),
        .param = request.chat_template.empty() ? request.messages_name : "chat_template"};
  }
  for (const ChatRequest::Member& each : request.template_members) {
    if (chosen->style->names.contains(each.name)) continue;
    return HttpError{.message = each.path +
                                ": this field is not known, nor does the model's chat "
                                "template read it",
                     .param = each.path};
  }
  suit_template(request, *chosen->style);
  return std::move(chosen).value();
}

// What the model's chat template makes of the messages, and what the client has begun of the
// answer.
Parsed<std::string> Preparation::chat_prompt(const ChosenTemplate& chosen,
                                             ChatRequest request) const {
  const std::string prefill = request.prefill;
  const bool begins_answer = request.add_generation_prompt;
  WIDEEP_PARSED(std::string text, rendered(chosen.chat, std::move(request)));
  const answer::CallFormat* calls = chosen.style->format.calls;
  if (begins_answer && calls != nullptr && !calls->turn_end.empty() &&
      text.ends_with(calls->turn_end)) {
    text += calls->turn_begin;
  }
  WIDEEP_REFUSE_IF(add_prefill(prefill, *chosen.style, &text));
  return text;
}

// Tokens that the prompt has in common with that of the same messages, of which only the last one
// says something else. Without that message the prompt might differ earlier: many templates leave
// reasoning out that comes before the user's last message.
int Preparation::turn_begin(const ChosenTemplate& chosen, ChatRequest request,
                            const std::vector<int32_t>& prompt) const {
  if (request.messages.empty()) return 0;
  ordered_json& last = request.messages.back();
  const ordered_json content = last.value("content", ordered_json());
  if (!content.is_string()) return 0;  // an assistant's calls, which the answer goes on from
  const auto& said = content.get_ref<const std::string&>();
  const size_t first = said.find_first_not_of(" \t\r\n");
  last["content"] = first != said.npos && said[first] == '-' ? "+" : "-";
  const auto text = rendered(chosen.chat, std::move(request));
  if (!std::holds_alternative<std::string>(text)) return 0;
  const auto other = tokenizer_.encode_within_limits(std::get<std::string>(text), false);
  if (!other.ok()) return 0;
  const auto end = std::ranges::mismatch(prompt, *other).in1;
  return end == prompt.end() ? 0 : static_cast<int>(end - prompt.begin());
}

Parsed<std::string> Preparation::rendered(const chat::ChatTemplate& chat,
                                          ChatRequest request) const {
  for (const auto& [name, token] : chat_.special_tokens.items()) {
    if (!request.variables.contains(name)) continue;
    const std::string param = "chat_template_kwargs." + name;
    return HttpError{.message = param + ": is the server's to set; leave it out", .param = param};
  }
  const char* const messages_name = request.messages_name;
  ordered_json folded;
  if (request.folds_systems) folded = with_systems_folded(request.messages);
  chat::ChatInput input{.messages = std::move(request.messages),
                        .tools = std::move(request.tools),
                        .variables = std::move(request.variables),
                        .add_generation_prompt = request.add_generation_prompt,
                        .special_tokens = chat_.special_tokens,
                        .now = request.now};
  Result<std::string> text = chat.render(input);
  if (!text.ok() && !folded.is_null()) {
    input.messages = std::move(folded);
    text = chat.render(input);
  }
  if (text.ok()) return *text;
  return HttpError{.message = text.status().message(), .param = messages_name};
}

// What a client has begun of the answer is content: reasoning that the template has begun is ended.
std::optional<HttpError> Preparation::add_prefill(const std::string& prefill,
                                                  const AnswerStyle& style,
                                                  std::string* prompt) const {
  if (prefill.empty()) return {};
  if (style.format.is_harmony) {
    return HttpError{.message =
                         "messages: the last one, of role assistant, would be continued, "
                         "which is not supported for a model that writes harmony: expected "
                         "one of role user",
                     .param = "messages"};
  }
  const auto* reasoning = style.format.reasoning;
  const bool has_own_tokens = reasoning != nullptr && reasoning->has_own_tokens;
  if (reasoning != nullptr && answer::opens_reasoning(*reasoning, *prompt)) {
    prompt->resize(prompt->find_last_not_of('\n') + 1);
    if (!prompt->ends_with(reasoning->begin)) *prompt += reasoning->begin;
    const char* const space = has_own_tokens ? "" : "\n\n";
    *prompt += fmt::format("{0}{1}{2}{0}", space, reasoning->end, reasoning->next_message);
  }
  if (has_own_tokens) *prompt += reasoning->content_begin;
  *prompt += prefill;
  return {};
}

Parsed<Prepared> Preparation::with_room(Prepared prepared) const {
  for (const auto& prompt : prepared.prompts) {
    WIDEEP_REFUSE_IF(fit(prompt, prepared.options));
    prepared.options.held_bytes += prompt.size() * sizeof(prompt.ids()[0]);
  }
  if (!prepared.options.max_tokens) clip_to_logprobs(prepared);
  WIDEEP_REFUSE_IF(check_logprobs(prepared));
  return prepared;
}

// Who says no length has asked for none: an answer ends where its reply would hold too many.
void Preparation::clip_to_logprobs(Prepared& prepared) {
  GenerationOptions& options = prepared.options;
  if (!options.logprobs || options.stream) return;
  const auto each = options.n * static_cast<int64_t>(prepared.prompts.size()) *
                    (options.engine_request.sampling.top_log_probabilities + 1);
  const int64_t left = kMaxLogprobsOfReply - options.n * logprobs_of_prompts(prepared);
  const int max = static_cast<int>(std::max<int64_t>(left / each, 1));
  for (int& tokens : options.max_tokens_of) {
    if (tokens <= max) continue;
    tokens = max;
    options.clipped_to = max;
  }
}

// Those that one reply holds: of whole answers, which a stream sends as they come, and of prompts.
std::optional<HttpError> Preparation::check_logprobs(const Prepared& prepared) const {
  const GenerationOptions& options = prepared.options;
  const int64_t likely = options.engine_request.sampling.top_log_probabilities;
  int64_t of_answers = 0;
  for (const int tokens : options.max_tokens_of) {
    if (options.logprobs && !options.stream) of_answers += tokens * (likely + 1);
  }
  const int64_t of_prompts = logprobs_of_prompts(prepared);
  const int64_t all = options.n * (of_answers + of_prompts);
  if (all <= kMaxLogprobsOfReply) return {};
  const char* const param = logprobs_field(options, of_prompts > of_answers);
  return HttpError{
      .message = fmt::format(
          "{}: {} answers could have {} log-probabilities with those of likely tokens, "
          "at most {} may be asked for; lower it, n or {}{}",
          param, static_cast<size_t>(options.n) * prepared.prompts.size(), all, kMaxLogprobsOfReply,
          options.max_tokens_name, options.stream ? "" : ", or use a stream where it has them"),
      .param = param};
}

std::optional<HttpError> Preparation::check(const GenerationOptions& options) const {
  if (options.experts_start && !options_.returns_experts) {
    return HttpError{.message =
                         "routed_experts_prompt_start: this server returns no routed experts; "
                         "start it with --enable-return-routed-experts, or leave it out",
                     .param = "routed_experts_prompt_start"};
  }
  std::vector<int32_t> biased;
  for (const engine::TokenBias& each : options.engine_request.bias) biased.push_back(each.token);
  WIDEEP_REFUSE_IF(check_tokens(biased, "logit_bias"));
  WIDEEP_REFUSE_IF(check_tokens(options.rules.stop_tokens, "stop_token_ids"));
  WIDEEP_REFUSE_IF(check_tokens(options.rules.allowed, "allowed_token_ids"));
  return check_model(options.model);
}

// As vLLM: a word's tokens at the begin of a text, and after a space if they are as many then and
// begin with another one.
void Preparation::add_bad_words(GenerationOptions& options) const {
  std::set<std::vector<int32_t>> seen;
  const auto ban = [&](const std::vector<int32_t>& tokens) {
    if (seen.insert(tokens).second) options.rules.banned.push_back(tokens);
  };
  for (const std::string& word : options.bad_words) {
    const size_t begin = std::min(word.find_first_not_of(" \t\r\n"), word.size());
    const std::vector<int32_t> alone = tokenizer_.encode(word, false);
    const std::vector<int32_t> after_space = tokenizer_.encode(" " + word.substr(begin), false);
    if (alone.empty()) continue;
    ban(alone);
    const bool is_other = !after_space.empty() && after_space[0] != alone[0];
    if (is_other && after_space.size() == alone.size()) ban(after_space);
  }
}

// The tokens around the model's reasoning.
std::optional<HttpError> Preparation::limit_thoughts(const AnswerPlan& plan,
                                                     GenerationOptions& options) const {
  engine::ThoughtLimit& limit = options.rules.thought;
  if (limit.max_tokens < 0) return {};
  const answer::ReasoningFormat* format = plan.style->format.reasoning;
  if (format == nullptr) {
    // Anthropic's clients send it whatever the model is.
    const bool is_wanted = options.thought_name == "thinking_token_budget";
    limit = {};
    if (!is_wanted) return {};
    return HttpError{.message = options.thought_name +
                                ": this model's chat template shows no known format of reasoning "
                                "between tags; leave it out",
                     .param = options.thought_name};
  }
  limit.begin = tokenizer_.encode(std::string(format->begin), false);
  limit.end = tokenizer_.encode(std::string(format->end), false);
  limit.is_open = plan.settings.begins_in_reasoning;
  return {};
}

std::optional<HttpError> Preparation::check_model(const std::string& model) const {
  if (model == options_.model) return {};
  if (!options_.other_name.empty() && model == options_.other_name) return {};
  return HttpError{
      .status = 404,
      .message = fmt::format("model: expected '{}', found '{}'", options_.model, model),
      .param = "model",
      .code = "model_not_found"};
}

// Why no pages are taken from this server; "": they are. The engine's cost of a page that cannot be
// used is small, a page of another model's would be refused by the other server: the class is
// compared here so that somebody hears of it.
std::string Preparation::refusal_of(const store::PagePeer& peer) const {
  if (const Status trusted = options_.page_trust.check(peer); !trusted.ok()) {
    return trusted.message();
  }
  if (peer.record_class == options_.record_class) return "";
  return fmt::format(
      "this server and the other one differ in model, checkpoint, KV format, class of bits or "
      "version: expected class {}, found {}",
      options_.record_class, peer.record_class.empty() ? "none" : peer.record_class);
}

// A server that computes a prompt for others takes pages of an earlier one only to be faster: it
// does not refuse the prompt for their sake.
std::optional<HttpError> Preparation::share_prompt(size_t num_prompts,
                                                   GenerationOptions& options) const {
  if (options.shared_prompt == nullptr) return {};
  WIDEEP_REFUSE_IF(check_context_only(options, num_prompts));
  const SharedPrompt& shared = *options.shared_prompt;
  WIDEEP_REFUSE_IF(check_tokens(shared.first_tokens, "disaggregated_params.first_gen_tokens"));
  if (shared.is_context_only) {
    options.max_tokens = 1;
    options.fills_context = false;
  }
  if (!shared.peer || options_.record_class.empty()) return {};
  const std::string refusal = refusal_of(*shared.peer);
  if (refusal.empty()) {
    options.engine_request.peer = store::text_of(*shared.peer);
    return {};
  }
  if (!shared.is_context_only) {
    return HttpError{.message = fmt::format("{}: {}", shared.peer_param, refusal),
                     .param = shared.peer_param};
  }
  options.peer_refusal = fmt::format("{}: {}", shared.peer_param, refusal);
  return {};
}

// ---- what the answer has to be ----

Parsed<grammar::Expression> Preparation::wanted_answer(const GenerationOptions& options,
                                                       grammar::Rules* rules) const {
  if (!options.format) return grammar::Expression();
  auto answer = grammar::add_output(*options.format, rules);
  if (answer.ok()) return std::move(answer).value();
  return HttpError{.message = answer.status().message(), .param = options.format->place};
}

// A chat with a model that writes harmony: the format is that of its final message. An answer with
// a format may call tools instead.
Parsed<grammar::Expression> Preparation::wanted_chat_answer(const ChatRequest& request,
                                                            const AnswerStyle& style,
                                                            grammar::Rules* rules) const {
  const bool must_call = request.must_call();
  constexpr const char* kParam = "tool_choice";
  if (must_call && request.options.format) {
    return HttpError{.message = std::string("tool_choice: a call that must come, and ") +
                                request.options.format->place + ": expected one of them",
                     .param = kParam};
  }
  if (must_call && !style.calls_tools) {
    return HttpError{.message =
                         "tool_choice: this model's chat template shows no known format of "
                         "calls; expected \"auto\" or \"none\", or start the server with "
                         "--tool-call-parser",
                     .param = kParam};
  }
  WIDEEP_PARSED(grammar::Expression answer, wanted_answer(request.options, rules));
  if (answer != nullptr && style.format.is_harmony) answer = in_harmony(std::move(answer));
  if (answer != nullptr) answer = in_content(std::move(answer), style);
  const bool may_call = style.calls_tools && !request.tools.is_null();
  if (!must_call && (answer == nullptr || !may_call)) return answer;
  const RequiredCalls of_tools{.style = style,
                               .tools = request.tools,
                               .name = request.named_tool,
                               .one_call = !request.parallel_tool_calls};
  auto calls = must_call ? required_calls(of_tools, rules) : possible_calls(of_tools, rules);
  if (!calls.ok()) return HttpError{.message = calls.status().message(), .param = "tools"};
  if (answer == nullptr) return std::move(calls).value();
  return grammar::choice({std::move(answer), std::move(calls).value()});
}

std::optional<HttpError> Preparation::set_grammar(grammar::Expression answer, grammar::Rules& rules,
                                                  GenerationOptions& options) const {
  if (answer == nullptr) return {};
  const std::string place = options.format ? options.format->place : "tool_choice";
  const auto refused = [&](const std::string& message) {
    return HttpError{.message = message, .param = place};
  };
  if (!options_.has_end_tokens) {
    return refused(place + ": the model has no end token, without which no format ends");
  }
  auto grammar = grammar::build_grammar(rules, rules.add("answer", std::move(answer)));
  if (!grammar.ok()) return refused(grammar.status().at(place).message());
  options.engine_request.grammar = std::make_shared<const std::string>(grammar->encode());
  return {};
}

// OpenAI's words, by which clients know that a conversation has become too long.
std::string Preparation::context_words() const {
  return fmt::format("This model's maximum context length is {} tokens", options_.max_sequence);
}

// Refuses what is too long whatever its tokens are: they would take a second to find.
std::optional<HttpError> Preparation::check_length(std::string_view text, const char* param) const {
  if (text.size() <= max_text_bytes_ || count_visible(text) <= max_text_bytes_) return {};
  return HttpError{.message = fmt::format("{}: {}, and {} bytes of text are longer; shorten it",
                                          param, context_words(), text.size()),
                   .param = param,
                   .code = "context_length_exceeded"};
}

Parsed<std::vector<int32_t>> Preparation::encoded(std::string_view text, bool add_special_tokens,
                                                  const char* param) const {
  auto tokens = tokenizer_.encode_within_limits(text, add_special_tokens);
  if (tokens.ok()) return *std::move(tokens);
  return HttpError{.message = fmt::format("{}: {}", param, tokens.status().message()),
                   .param = param};
}

Parsed<std::vector<int32_t>> Preparation::tokens_of(const Prompt& prompt) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    WIDEEP_REFUSE_IF(check_length(*text, "prompt"));
    return encoded(*text, true, "prompt");
  }
  const auto& ids = std::get<std::vector<int32_t>>(prompt);
  WIDEEP_REFUSE_IF(check_tokens(ids, "prompt"));
  return ids;
}

std::optional<HttpError> Preparation::check_tokens(const std::vector<int32_t>& ids,
                                                   const char* param) const {
  // Ids above the tokenizer's are rows of the embedding too, and read as no text.
  const int limit = std::max(options_.vocab_size, tokenizer_.id_limit());
  const auto unknown =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id >= limit; });
  if (unknown == ids.end()) return {};
  return HttpError{.message = fmt::format("{}: the model has no token {}; expected 0 to {}", param,
                                          *unknown, limit - 1),
                   .param = param};
}

// Checks that the context has room for an answer, which ends with it. Without max_tokens a chat may
// go on to its end, or to max_new_tokens of the model's files.
std::optional<HttpError> Preparation::fit(const engine::SharedTokens& prompt,
                                          GenerationOptions& options) const {
  const int length = static_cast<int>(prompt.size());
  if (length == 0) return HttpError{.message = "prompt: has no tokens", .param = "prompt"};
  const int room = options_.max_sequence - length;
  const bool is_whole = options.max_tokens == 0 && room == 0;  // the prompt is all of it
  if (room <= 0 && !is_whole) {
    return HttpError{
        .message = fmt::format("{}, and {} tokens of the prompt and {} to generate are more; "
                               "shorten the prompt or lower {}",
                               context_words(), length, options.max_tokens.value_or(1),
                               options.max_tokens_name),
        .param = options.max_tokens_name,
        .code = "context_length_exceeded"};
  }
  const int max = std::min(room, options_.sampling.max_tokens.value_or(room));
  if (options.max_tokens > max) {
    options.clipped_to = std::min(options.clipped_to.value_or(max), max);
    options.is_clipped = options.is_clipped || max == room;
  }
  options.max_tokens_of.push_back(std::min(options.max_tokens.value_or(max), max));
  return {};
}

// ---- tokens without an answer ----

// Short bodies may have long replies.
std::optional<HttpError> Preparation::check_reply_size(size_t bytes, const char* param) {
  const size_t max = HttpOptions().max_body_bytes;
  if (bytes <= max) return {};
  return HttpError{
      .message = fmt::format("{}: the reply has {} bytes, at most {} may be asked for; "
                             "ask for less at once",
                             param, bytes, max),
      .param = param};
}

Parsed<ordered_json> Preparation::tokenize(std::string_view body) const {
  WIDEEP_PARSED(TokenizeRequest request, parse_tokenize_request(body));
  if (!request.model.empty()) WIDEEP_REFUSE_IF(check_model(request.model));
  const char* const param = request.is_chat ? request.chat.messages_name : "prompt";
  if (request.is_chat) {
    WIDEEP_PARSED(const ChosenTemplate chosen, choose_template(request.chat));
    WIDEEP_PARSED(request.prompt, chat_prompt(chosen, std::move(request.chat)));
  }
  WIDEEP_REFUSE_IF(check_length(request.prompt, param));
  WIDEEP_PARSED(const std::vector<int32_t> tokens,
                encoded(request.prompt, request.add_special_tokens, param));
  // A byte of text may be a token, and a token's id and name many bytes.
  size_t bytes = 0;
  for (const int32_t token : tokens) {
    bytes += fmt::formatted_size("{},", token);
    if (request.returns_strings) bytes += tokenizer_.id_to_token(token).size() + 3;
  }
  WIDEEP_REFUSE_IF(check_reply_size(bytes, param));
  ordered_json reply = {{"count", tokens.size()},
                        {"max_model_len", options_.max_sequence},
                        {"tokens", tokens},
                        {"token_strs", nullptr}};
  if (request.returns_strings) {
    reply["token_strs"] = ordered_json::array();
    for (const int32_t token : tokens) {
      reply["token_strs"].push_back(std::string(tokenizer_.id_to_token(token)));
    }
  }
  return reply;
}

Parsed<ordered_json> Preparation::detokenize(std::string_view body) const {
  WIDEEP_PARSED(const DetokenizeRequest request, parse_detokenize_request(body));
  if (!request.model.empty()) WIDEEP_REFUSE_IF(check_model(request.model));
  WIDEEP_REFUSE_IF(check_tokens(request.tokens, "tokens"));
  std::string text = tokenizer_.decode(request.tokens, false);
  // A token of some bytes of JSON may stand for hundreds of text.
  WIDEEP_REFUSE_IF(check_reply_size(text.size(), "tokens"));
  return ordered_json{{"prompt", std::move(text)}};
}

namespace {

// Of the pages that a cache may have, as KV events tell them.
std::vector<uint64_t> page_hashes(std::span<const int32_t> prompt, const std::string& record_class,
                                  const std::string& salt) {
  std::vector<uint64_t> hashes;
  store::PageWalk pages(record_class, salt, store::reusable(prompt));
  while (const auto page = pages.next()) hashes.push_back(kv_events::hash_of(page->name));
  return hashes;
}

}  // namespace

Parsed<ordered_json> Preparation::prompt_tokens(const ApiSpec* api, std::string_view body,
                                                std::time_t came) const {
  const ApiSpec& spec = api != nullptr ? *api : spec_of(api_of_body(body));
  WIDEEP_PARSED(const Prepared prepared, prepare(spec, body, came));
  const std::string& salt = prepared.options.engine_request.salt;
  auto prompts = ordered_json::array(), hashes = ordered_json::array();
  size_t bytes = 0;
  for (const engine::SharedTokens& prompt : prepared.prompts) {
    for (const int32_t token : prompt.ids()) bytes += fmt::formatted_size("{},", token);
    prompts.push_back(prompt.ids());
    hashes.push_back(page_hashes(prompt.ids(), options_.record_class, salt));
  }
  WIDEEP_REFUSE_IF(check_reply_size(bytes, nullptr));
  ordered_json reply = {{"prompts", std::move(prompts)},
                        {"cache_salt", salt.empty() ? ordered_json() : ordered_json(salt)}};
  if (!options_.record_class.empty()) reply["page_hashes"] = std::move(hashes);
  return reply;
}

ordered_json Preparation::tokenizer_info() const {
  ordered_json info = {{"max_model_len", options_.max_sequence}};
  // Clients ask for these; a model that lacks one has none.
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"})
    info[name] = nullptr;
  info.update(chat_.special_tokens);
  const std::string* text = chat_.templates.default_text();
  info["chat_template"] = text != nullptr ? ordered_json(*text) : ordered_json();
  return info;
}

Parsed<ordered_json> Preparation::count_tokens(std::string_view body) const {
  WIDEEP_PARSED(ChatRequest request, parse_count_tokens_request(body));
  WIDEEP_REFUSE_IF(check_model(request.options.model));
  WIDEEP_PARSED(const ChosenTemplate chosen, choose_template(request));
  WIDEEP_PARSED(const std::string text, chat_prompt(chosen, std::move(request)));
  WIDEEP_PARSED(const std::vector<int32_t> tokens, encoded(text, false, "messages"));
  return ordered_json{{"input_tokens", tokens.size()}};
}

}  // namespace wideep::server
