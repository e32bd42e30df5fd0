// SPDX-License-Identifier: Apache-2.0
//
// The way of a token, from the client's request to the engine and back:
//
//   TextService                  takes the request; a long one goes to the work thread
//   Preparation (preparation.cc) parses it, makes token ids of the prompt
//   Generation::submit           one engine request per answer
//   EngineBackend (serve.cc) → RequestWriter → pipe → RequestFeed → Engine (engine/engine.cc)
//   RankReporter → RankGroup::next → Front::take (serve.cc)
//   Generation::token            decodes, looks for stop strings, streams or collects
//
// Where the reply has routed experts, they follow the last token: RankReporter::ended → RankGroup
// (run/routed_experts.h) → Front::take → Generation::experts.
//
// Everything in this file runs on the serving thread, so that no state needs a lock.
#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <span>

#include "answer/make_answer_reader.h"
#include "api/shared_prompt.h"
#include "base/content_hash.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "formats/base64.h"
#include "formats/npy.h"
#include "group/fault_drill.h"
#include "server/stream_records.h"
#include "store/record.h"
#include "tokenizer/utf8.h"

namespace wideep::server {
namespace {

using engine::FinishReason;
using transport::FaultDrill;

// Code points of UTF-8: all bytes but continuation bytes (10xxxxxx).
int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; });
}

// Between lines that anybody's requests may cause.
constexpr std::chrono::minutes kBetweenDiffersLines{1};

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// What the head and the request say of an answer, so that another process can go on with it.
AnswerHead answer_head(const ReplyHead& head, const GenerationOptions& options,
                       const ReplySettings& settings) {
  return {.id = head.id,
          .created = head.created,
          .model = head.model,
          .seed = options.engine_request.sampling.seed,
          .settings = settings};
}

// For the next process of this server: what this one knows, and what has come with the request.
void keep_records(Exchange& exchange, AnswerHead head, std::string kept,
                  const AnswerRecords* of_other) {
  if (!exchange.keeps_records()) return;
  const RequestRecord& request = exchange.record();
  head.local = {.kept = std::move(kept),
                .request_id = request.id,
                .came_ns = request.came_ns,
                .trace = request.trace};
  exchange.add_record(record_of(head));
  if (of_other == nullptr) return;
  for (const auto& [index, token] : of_other->tokens) exchange.add_record(record_of(index, token));
  for (const AnswerProgress& each : of_other->told) exchange.add_record(record_of(each));
}

void log_failure(const std::string& request_id, const std::string& message) {
  const log::Field id{.name = "request_id", .value = request_id};
  log::write({.level = log::Level::kWarning,
              .text = fmt::format("http: a request has failed: {}", message),
              .fields = std::span(&id, 1)});
}

// The name of a context-only request that its client has not named: another one for every request of
// this server, and the same whichever process makes it. 53 bits: JavaScript's numbers hold no more.
void name_context(const std::string& id, GenerationOptions& options) {
  const auto& shared = options.shared_prompt;
  if (shared == nullptr || !shared->is_context_only || !shared->name.empty()) return;
  const uint64_t hash = base::content_hash(std::as_bytes(std::span(id)).data(), id.size());
  options.shared_prompt = shared->named(fmt::format("{}", hash >> 11));
}

}  // namespace

Generation::Answer::Answer(const tokenizer::Tokenizer& tokenizer, StopStrings stops,
                           const GenerationOptions& options)
    : decoder(tokenizer, options.skips_special_tokens),
      stop(std::move(stops)),
      parts(options.answer != nullptr && options.answer->settings.format.holds_space()) {
  if (options.answer != nullptr && !options.answer->settings.format.is_plain()) {
    reader = answer::make_answer_reader(options.answer->settings);
  }
}

std::shared_ptr<const AnswerRecords> Generation::past_of(const Exchange& exchange) {
  const std::vector<std::string> records = exchange.records();
  if (records.empty()) return nullptr;
  return std::make_shared<const AnswerRecords>(AnswerRecords::read(records).value());
}

void Generation::start(GenerationSetup& setup, std::shared_ptr<Exchange> exchange, ReplyHead head,
                       Prepared prepared, const AnswerPast& past) {
  GenerationOptions& options = prepared.options;
  ReplySettings settings{.stream_interval = setup.stream_interval,
                         .draft_metrics = setup.draft_metrics,
                         .max_drafts = setup.max_drafts,
                         .reuses_pages = setup.reuses_pages};
  if (const AnswerRecords* records = past.newest()) {
    head.id = records->head.id;
    head.created = records->head.created;
    head.model = records->head.model;
    options.engine_request.sampling.seed = records->head.seed;
    settings = records->head.settings;
    settings.max_drafts = std::max(settings.max_drafts, setup.max_drafts);
  }
  name_context(head.id, options);
  const AnswerHead own = answer_head(head, options, settings);
  // What an answer that goes on from a stored response depends on is in the memory of one server.
  const bool streams_records =
      options.stream && options.kept.empty() && exchange->header(kJournalHeader) == "1";
  if (past.of_server == nullptr) {
    keep_records(*exchange, own, std::move(options.kept), past.of_other.get());
  }
  options.kept = {};  // a whole conversation, perhaps
  const std::shared_ptr<Generation> self(new Generation(setup, std::move(exchange), std::move(head),
                                                        std::move(options),
                                                        std::move(prepared.prompts)));
  self->settings_ = settings;
  self->streams_records_ = streams_records;
  if (past.of_other != nullptr) self->end_ = past.of_other->end;
  self->exchange_->on_gone([self] { self->cancel_all(); });
  if (self->options_.stream) self->exchange_->start_stream("text/event-stream");
  if (streams_records && past.of_other == nullptr) self->event_ = record_comment(record_of(own));
  self->begin(past);
}

Generation::Generation(GenerationSetup& setup, std::shared_ptr<Exchange> exchange, ReplyHead head,
                       GenerationOptions options, std::vector<engine::SharedTokens> prompts)
    : setup_(setup),
      exchange_(std::move(exchange)),
      head_(std::move(head)),
      options_(std::move(options)),
      prompts_(std::move(prompts)),
      writer_(spec_of(head_.api).make_writer(head_, options_)),
      start_ns_(base::wall_ns()) {
  setup_.running.insert(this);
  share_rules();
}

// A prompt that is scored is forced upon its answers.
void Generation::share_rules() {
  if (!options_.scores_prompts()) {
    return rules_.assign(prompts_.size(), engine::SharedRules(options_.rules));
  }
  for (const engine::SharedTokens& prompt : prompts_) {
    engine::TokenRules rules = options_.rules;
    rules.forced.assign(prompt.ids().begin() + 1, prompt.ids().end());
    rules_.emplace_back(std::move(rules));
  }
}

// What another process has got comes first: it shows what each answer lacks. That process has
// counted it already, and measured its times. One of another server has counted it there: the
// prompt is computed here, too, but not these tokens.
void Generation::begin(const AnswerPast& past) {
  const std::shared_ptr<Generation> kept = shared_from_this();
  const bool has_past = past.newest() != nullptr;
  const size_t n = static_cast<size_t>(options_.n);
  for (const auto& prompt : prompts_) usage_.prompt_tokens += static_cast<int64_t>(prompt.size());
  if (past.of_server == nullptr) {
    setup_.metrics.prompt_tokens += static_cast<uint64_t>(usage_.prompt_tokens) * n;
  }
  if (TextWork* text = work()) {
    text->prompt_tokens = usage_.prompt_tokens;
    text->submitted_ns = start_ns_;
  }
  if (has_past) start_ns_ = exchange_->record().came_ns;  // its client has waited since then
  usage_.clipped_max_tokens = options_.clipped_to;
  running_ = prompts_.size() * n;
  if (is_context_only() && setup_.context_requests != nullptr) {
    context_.emplace(*setup_.context_requests, options_.shared_prompt->name);
  }
  setup_.metrics.running += static_cast<int64_t>(running_);
  const StopStrings stops(std::move(options_.stop), options_.includes_stop);
  for (size_t i = 0; i < prompts_.size() * n; ++i) {
    Answer& answer = answers_.emplace_back(setup_.tokenizer, stops, options_);
    answer.awaits_experts = returns_experts();
    begin_prompt(i);
  }
  writer_->begin(answers_.size(), usage_, events());
  send_event();
  if (has_past) repeat(past);
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (!answers_[i].has_ended()) submit_or_end(i);
  }
  if (finished() && !is_over_) end();
}

// The records of another server are not sent again.
void Generation::repeat(const AnswerPast& past) {
  repeats_ = true;
  for (const AnswerProgress& each : past.newest()->told) {
    answers_[each.index].processed = each.processed;
    answers_[each.index].begun_ns = each.begun_ns;
  }
  const size_t num_sent = past.of_other == nullptr ? 0 : past.of_other->tokens.size();
  const std::vector<AnswerToken>& tokens = past.newest()->tokens;
  for (size_t i = 0; i < tokens.size(); ++i) {
    is_told_ = i < num_sent;
    token(tokens[i].index, tokens[i].token);
  }
  is_told_ = repeats_ = false;
}

int Generation::num_scored(size_t index) const {
  return options_.scores_prompts() ? static_cast<int>(prompt_of(index).size()) - 1 : 0;
}

// What a reply shows of a prompt comes before the answer.
void Generation::begin_prompt(size_t index) {
  Answer& answer = answers_[index];
  if (options_.echo) answer.text = options_.echo_texts[index / static_cast<size_t>(options_.n)];
  if (!options_.scores_prompts()) return;
  run::Token first{.sampled = {}, .digest = {}, .likely = {}};
  first.sampled.token = prompt_of(index).ids().front();
  note_prompt_token(index, first);
  answer.prompt_logprobs.back().is_first = true;
  if (options_.echo && options_.logprobs) answer.logprobs.back().is_first = true;
}

// An answer of no tokens, to a prompt that is not scored, needs no rank.
void Generation::submit_or_end(size_t index) {
  Answer& answer = answers_[index];
  if (max_own(index) > 0 || answer.num_tokens() < num_scored(index)) return submit(index);
  answer.finish_reason = FinishReason::kLength;
  answer.awaits_experts = false;
  note_end();
  if (options_.stream || writer_->takes_parts()) send_part(index);
}

// One engine request for the rest of an answer.
void Generation::submit(size_t index) {
  Answer& answer = answers_[index];
  engine::Request request = options_.engine_request;
  request.prompt = prompt_of(index);
  request.answered = answer.tokens;
  request.cached_on = answer.rank;
  request.max_tokens = max_own(index);
  request.rules = rules_[index / static_cast<size_t>(options_.n)];
  if (const int scored = num_scored(index); scored > 0) {
    request.prompt = std::vector<int32_t>{prompt_of(index).ids().front()};
    request.turn_begin = 0;
    request.max_tokens += scored;
  }
  request.sampling.top_log_probabilities =
      std::max(request.sampling.top_log_probabilities, options_.prompt_logprobs.value_or(0));
  // The n answers share the seed but must differ.
  request.draw = static_cast<int>(index % static_cast<size_t>(options_.n));
  request.returns_experts = answer.awaits_experts;
  const auto& trace = exchange_->record().trace;
  request.reports_progress = options_.returns_progress || setup_.metrics.vllm.has_value() ||
                             (trace && trace->own.is_sampled);
  if (answer.has_all_tokens()) {  // only the experts are lacking: they come with the last token
    request.max_tokens = answer.num_tokens();
    request.answered.pop_back();
  }
  answer.is_cut = false;
  answer.id = setup_.backend.submit(
      std::move(request),
      [self = shared_from_this(), index](const run::Token& each) {
        if (self->exchange_->keeps_records()) {
          FaultDrill::pass(FaultDrill::Step::kRecording);
          self->exchange_->add_record(record_of(index, each));
          FaultDrill::pass(FaultDrill::Step::kRecorded);
        }
        self->token(index, each);
      },
      [self = shared_from_this(), index](const run::RoutedExperts& routed) {
        self->experts(index, routed);
      },
      [self = shared_from_this(), index](const run::PromptProgress& progress) {
        self->prompt(index, progress);
      });
}

// What a rank has computed may be computed again, by it or by another one, and for another process
// that goes on with the answer: a client sees only what goes on. No part of the answer: what was not
// sent before that process died is not made again.
void Generation::prompt(size_t index, const run::PromptProgress& progress) {
  Answer& answer = answers_[index];
  if (answer.has_ended() || answer.num_tokens() > 0) return;
  const int64_t now = base::wall_ns();
  if (answer.begun_ns == 0) answer.begun_ns = now;
  if (TextWork* text = work(); text != nullptr && text->admitted_ns == 0) text->admitted_ns = now;
  if (!options_.returns_progress || progress.processed <= answer.processed) return;
  answer.processed = progress.processed;
  const std::string record = record_of(
      AnswerProgress{.index = index, .processed = answer.processed, .begun_ns = answer.begun_ns});
  exchange_->add_record(record);
  if (streams_records_) exchange_->send_aside(record_comment(record));
  send_aside(
      writer_->progress(static_cast<int>(index), {.total = progress.total,
                                                  .cached = progress.cached,
                                                  .processed = progress.processed,
                                                  .ms = (now - answer.begun_ns) / 1'000'000}));
  is_silent_ = false;
}

void Generation::token(size_t index, const run::Token& each) {
  Answer& answer = answers_[index];
  if (answer.has_ended()) return;  // sent before the cancellation
  if (each.finish_reason == FinishReason::kFailed) {
    return fail(
        {.status = 500,
         .message = "several ranks have died of themselves while they computed this request",
         .code = "ranks_died"});
  }
  if (engine::has_no_token(each.finish_reason)) {
    const bool is_lost = each.finish_reason == FinishReason::kExpertLost;
    return fail({.status = 500,
                 .message = fmt::format("token {} of answer {}: {}", answer.num_tokens(), index,
                                        run::message_of(each.finish_reason)),
                 .code = is_lost ? "expert_not_read" : "logits_not_numbers"});
  }
  if (answer.has_all_tokens()) return;  // generated again, for the experts
  if (streams_records_ && !is_told_) event_ += record_comment(record_of(index, each));
  answer.tokens.push_back(each.sampled.token);
  answer.rank = each.rank;
  if (answer.num_tokens() == 1) note_cached(index, each.cached_tokens);
  const int own = num_own(index);
  if (own <= 0) note_prompt_token(index, each);
  if (own <= 0 && each.finish_reason == FinishReason::kNotFinished) return;
  if (own > 0) ++usage_.completion_tokens;
  if (settings_.draft_metrics != DraftMetrics::kNone) answer.drafts.add(each.step_drafts);
  if (!repeats_) ++setup_.metrics.generated_tokens;
  compare_first(index, each.sampled.token);
  if (own > 0) {
    note_due(answer, own);
    take_text(index, each);
  }
  // Only the server knows stop strings and calls; the engine would go on to max_tokens.
  const bool ends_here =
      answer.stop.found() || (answer.parts.num_ended_calls() > 0 && options_.answer->one_call);
  answer.finish_reason = ends_here ? FinishReason::kStop : each.finish_reason;
  if (ends_here && each.finish_reason == FinishReason::kNotFinished && answer.id) {
    answer.is_cut = answer.awaits_experts;
    answer.is_cut ? setup_.backend.cut(*answer.id) : setup_.backend.cancel(*answer.id);
  }
  const bool last = answer.has_all_tokens();
  if (last) note_context(answer);
  note_times(index, each.step_drafts < 0, last);
  if (answer.has_ended()) note_end();
  // Tokens without text (a part of a character, a possible stop string) wait for the next ones.
  const bool sends = options_.stream || writer_->takes_parts();
  if (sends && (last || (answer.is_due && answer.has_news()))) {
    answer.is_due = false;
    send_part(index);
  }
  if (finished()) end();
}

// Pages of another server, and its first tokens, are those of this one: else the two compute other
// bits. What this server has sampled counts. Without a seed each of them samples what it likes.
void Generation::compare_first(size_t index, int32_t token) {
  if (index > 0 || repeats_ || differs_ || options_.shared_prompt == nullptr) return;
  const std::vector<int32_t>& expected = options_.shared_prompt->first_tokens;
  const int place = num_own(index) - 1;
  if (place < 0 || place >= static_cast<int>(expected.size()) || !options_.has_one_answer()) return;
  const int32_t other = expected[static_cast<size_t>(place)];
  if (other == token) return;
  differs_ = true;
  ++setup_.metrics.differing_first_tokens;
  const auto now = std::chrono::steady_clock::now();
  if (now < setup_.next_differs_line) return;
  setup_.next_differs_line = now + kBetweenDiffersLines;
  const log::Field id{.name = "request_id", .value = exchange_->request_id()};
  log::write({.level = log::Level::kWarning,
              .text = fmt::format("http: token {} of an answer whose prompt another server has "
                                  "computed is {} here, and was {} there: the two do not compute "
                                  "the same bits",
                                  place, token, other),
              .fields = std::span(&id, 1)});
}

void Generation::note_context(const Answer& answer) {
  if (!is_context_only()) return;
  context_reply_.emplace(ContextReply{
      .request = *options_.shared_prompt,
      .opaque_state = setup_.opaque_state == nullptr ? "" : setup_.opaque_state(*exchange_),
      .first_tokens = answer.tokens,
      .prompt_ids = prompt_of(0).ids()});
}

// The last token was sampled, but never routed.
void Generation::experts(size_t index, const run::RoutedExperts& routed) {
  Answer& answer = answers_[index];
  const int end = static_cast<int>(prompt_of(index).size()) + num_own(index) - 1;
  if (routed.num_positions < end) {
    // It was cut where another rank had not yet computed all of it again.
    if (answer.is_cut) return submit(index);
    return fail({.status = 500,
                 .message = fmt::format("the ranks have sent the experts of {} tokens, expected {}",
                                        routed.num_positions, end),
                 .code = "routed_experts_lost"});
  }
  const int begin = std::min(options_.experts_start.value_or(0), end);
  const auto row_size = static_cast<size_t>(routed.num_layers) * static_cast<size_t>(routed.top_k);
  const std::vector<int64_t> shape = {end - begin, routed.num_layers, routed.top_k};
  answer.experts =
      formats::base64(formats::npy_of(std::span(routed.experts)
                                          .subspan(static_cast<size_t>(begin) * row_size,
                                                   static_cast<size_t>(end - begin) * row_size),
                                      shape));
  answer.awaits_experts = false;
  note_end();
  if (finished()) this->end();
}

void Generation::note_end() {
  --running_;
  --setup_.metrics.running;
}

// Tokens are counted, not iterations, of which drafts make one yield several: where parts end would
// depend on how many drafts were right, and another process that goes on with the answer would send
// other bytes.
void Generation::note_due(Answer& answer, int own) const {
  if (own == 1 || own % settings_.stream_interval == 0) answer.is_due = true;
}

// The usage that the client gets counts a prompt once, however many answers it has. The metrics
// count it once per answer, as they do with prompt tokens.
void Generation::note_cached(size_t index, int tokens) {
  answers_[index].cached_tokens = tokens;
  if (index % static_cast<size_t>(options_.n) == 0) {
    usage_.cached_tokens += tokens;
    usage_.written_tokens += written_tokens(index);
  }
  if (repeats_) return;
  setup_.metrics.cached_prompt_tokens += static_cast<uint64_t>(tokens);
  const int64_t computed = static_cast<int64_t>(prompt_of(index).size()) - tokens;
  setup_.metrics.computed_prompt_tokens += static_cast<uint64_t>(std::max<int64_t>(computed, 0));
  setup_.metrics.cached_prompts += tokens > 0 ? 1 : 0;
}

int64_t Generation::written_tokens(size_t index) const {
  if (!settings_.reuses_pages || answers_[index].num_tokens() == 0) return 0;
  const size_t full = prompt_of(index).size() / store::kPageTokens * store::kPageTokens;
  return std::max<int64_t>(static_cast<int64_t>(full) - answers_[index].cached_tokens, 0);
}

// Appends what the token adds to answer.text, as far as it is decoded and certain not to be a stop
// string; to answer.reasoning and answer.calls, in which no stop strings are looked for.
void Generation::take_text(size_t index, const run::Token& each) {
  Answer& answer = answers_[index];
  const bool last = each.finish_reason != FinishReason::kNotFinished;
  const bool may_stop = num_own(index) > options_.rules.min_tokens;
  if (options_.returns_token_ids) answer.new_ids.push_back(each.sampled.token);
  if (answer.reader != nullptr) {
    read_token(answer, each);
    std::string reasoning = answer.parts.take_reasoning();
    const std::string content = answer.parts.take_content();
    std::vector<answer::CallPart> calls = answer.parts.take_calls();
    note_reasoning(answer, !reasoning.empty(), !content.empty() || !calls.empty());
    if (!options_.answer->returns_reasoning) reasoning.clear();
    if (writer_->takes_parts()) {
      send_other_kinds(index, !reasoning.empty(), !content.empty(), !calls.empty());
    }
    answer.reasoning += reasoning;
    add_calls(index, std::move(calls));
    answer.text += may_stop ? answer.stop.push(content) : content;
  } else {
    std::string text;
    if (has_text(each)) text = answer.decoder.push(each.sampled.token);
    if (last) text += answer.decoder.flush();
    answer.text += may_stop ? answer.stop.push(text) : text;
  }
  if (last && !answer.stop.found()) answer.text += answer.stop.flush();
  if (options_.logprobs) note_logprob(answer, each);
}

// A part that waits to be sent keeps the order of the answer by being of one kind. What one token
// brings may be of several; answers do not show the order inside of a token.
void Generation::send_other_kinds(size_t index, bool has_reasoning, bool has_content,
                                  bool has_calls) {
  const Answer& answer = answers_[index];
  const bool is_new = has_reasoning || has_content || has_calls;
  const bool is_same = !answer.reasoning.empty() == has_reasoning &&
                       !answer.text.empty() == has_content && !answer.calls.empty() == has_calls;
  if (is_new && !is_same && answer.has_news()) send_part(index);
}

// The marks of a format count with the reasoning that they begin, not with what follows it.
void Generation::note_reasoning(Answer& answer, bool has_reasoning, bool has_more) {
  if (has_reasoning) {
    usage_.reasoning_tokens += std::exchange(answer.unclear_tokens, 0) + 1;
    answer.in_reasoning = true;
  } else if (answer.in_reasoning) {
    ++answer.unclear_tokens;
  }
  if (!has_more) return;
  answer.in_reasoning = false;
  answer.unclear_tokens = 0;
}

// Lets the answer's reader read the token: its text, or, of a special token that marks a part of
// the answer, its name, which plain answers leave out.
void Generation::read_token(Answer& answer, const run::Token& each) {
  const int32_t token = each.sampled.token;
  answer::AnswerReader& reader = *answer.reader;
  if (has_text(each)) {
    if (options_.answer->style->marks(token)) {
      reader.add_text(answer.decoder.flush(), answer.parts);
      reader.add_special(setup_.tokenizer.id_to_token(token), answer.parts);
    } else {
      reader.add_text(answer.decoder.push(token), answer.parts);
    }
  }
  if (each.finish_reason != FinishReason::kNotFinished) {
    reader.add_text(answer.decoder.flush(), answer.parts);
    reader.finish(each.finish_reason != FinishReason::kStop, answer.parts);
  }
}

// Appends what has come of the calls to answer.calls: parts of one call become one.
void Generation::add_calls(size_t index, std::vector<answer::CallPart> parts) {
  Answer& answer = answers_[index];
  for (answer::CallPart& part : parts) {
    if (options_.answer->one_call && part.index > 0) return;
    if (part.begins) {
      part.id = call_id(index, part);
      answer.call_ids.insert(part.id);
    }
    if (!answer.calls.empty() && answer.calls.back().index == part.index) {
      answer.calls.back().arguments += part.arguments;
    } else {
      answer.calls.push_back(std::move(part));
    }
  }
}

// The model's own, if the conversation does not have it already: results of calls could not be told
// apart. Kimi's end with a number, which goes on then.
std::string Generation::call_id(size_t index, const answer::CallPart& part) const {
  const std::set<std::string>& earlier = options_.answer->call_ids;
  const std::set<std::string>& own = answers_[index].call_ids;
  const auto is_free = [&](const std::string& id) {
    return !earlier.contains(id) && !own.contains(id);
  };
  if (part.id.empty() || part.id.size() > kMaxCallId) return new_call_id(index, part.index);
  if (is_free(part.id)) return part.id;
  const size_t colon = part.id.rfind(':');
  if (colon == part.id.npos) return new_call_id(index, part.index);
  std::string id;
  for (size_t number = earlier.size() + own.size(); id.empty() || !is_free(id); ++number) {
    id = fmt::format("{}:{}", part.id.substr(0, colon), number);
  }
  return id;
}

// The same whichever process makes it, and another one for every call.
std::string Generation::new_call_id(size_t index, int call) const {
  const std::string unique =
      fmt::format("{}-{}-{}", head_.id.substr(head_.id.find_first_of("-_") + 1), index, call);
  const answer::CallFormat* format = options_.answer->settings.format.calls;
  if (format == nullptr || !format->has_short_ids) {
    return spec_of(head_.api).call_id_start + unique;
  }
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string id;
  for (uint64_t hash = base::content_hash(std::as_bytes(std::span(unique)).data(), unique.size());
       id.size() < 9; hash /= kDigits.size()) {
    id += kDigits[hash % kDigits.size()];
  }
  return id;
}

// An end token has no text, unless what ends an answer is wanted.
bool Generation::has_text(const run::Token& token) const {
  return token.finish_reason != FinishReason::kStop || options_.includes_stop;
}

TokenLogprob Generation::logprob_of(const engine::Sampled& sampled, int64_t text_offset) const {
  const std::string bytes(setup_.tokenizer.bytes(sampled.token));
  return {.id = sampled.token,
          .token = tokenizer::replace_invalid_utf8(bytes),
          .bytes = bytes,
          .logprob = sampled.log_probability,
          .text_offset = text_offset,
          .top = {}};
}

TokenLogprob Generation::logprob_of(const run::Token& token, int most_likely,
                                    int64_t text_offset) const {
  TokenLogprob logprob = logprob_of(token.sampled, text_offset);
  for (const engine::Sampled& likely : token.likely) {
    if (static_cast<int>(logprob.top.size()) == most_likely) break;
    logprob.top.push_back(logprob_of(likely, text_offset));
  }
  return logprob;
}

void Generation::note_logprob(Answer& answer, const run::Token& each) {
  TokenLogprob logprob =
      logprob_of(each, options_.engine_request.sampling.top_log_probabilities, answer.characters);
  answer.characters += count_characters(logprob.token);
  answer.logprobs.push_back(std::move(logprob));
}

// Special tokens of a prompt, as those at its begin, are no text of it.
void Generation::note_prompt_token(size_t index, const run::Token& each) {
  Answer& answer = answers_[index];
  answer.prompt_logprobs.push_back(logprob_of(each, options_.prompt_logprobs.value_or(0), 0));
  if (!options_.echo || !options_.logprobs) return;
  const int64_t before = answer.characters;
  note_logprob(answer, each);
  if (setup_.tokenizer.is_special(each.sampled.token)) answer.characters = before;
}

// with_last: one step has yielded the token and the one before it.
void Generation::note_times(size_t index, bool with_last, bool last) {
  Answer& answer = answers_[index];
  const int64_t now = base::wall_ns();
  Metrics& metrics = setup_.metrics;
  if (repeats_) {
    // Nobody knows when it came.
  } else if (num_own(index) <= 1) {
    metrics.time_to_first_token.add(seconds(now - start_ns_));
    metrics.recent_first.add(unix_seconds(), seconds(now - start_ns_));
    if (metrics.vllm) metrics.vllm->first_token(seconds(now - start_ns_));
    answer.first_ns = now;
  } else if (!with_last && answer.last_ns > 0) {
    metrics.inter_token.add(seconds(now - answer.last_ns));
    metrics.recent_between.add(unix_seconds(), seconds(now - answer.last_ns));
    if (metrics.vllm) metrics.vllm->next_token(seconds(now - answer.last_ns));
  }
  if (!repeats_) answer.last_ns = now;
  if (TextWork* text = work()) {
    if (text->first_token_ns == 0) text->first_token_ns = now;
    text->last_token_ns = now;
    text->cached_tokens = usage_.cached_tokens;
    text->written_tokens = usage_.written_tokens;
    text->generated_tokens = usage_.completion_tokens;
    if (last)
      text->finish_reasons.emplace_back(answer.parts.num_calls() > 0 ? "tool_calls"
                                        : answer.finish_reason == FinishReason::kLength ? "length"
                                                                                        : "stop");
  }
  if (!last || repeats_) return;
  metrics.end_to_end.add(seconds(now - start_ns_));
  if (metrics.vllm) note_ended(index);
}

// Of what another process had begun, times that only that one knew are left out.
void Generation::note_ended(size_t index) {
  const Answer& answer = answers_[index];
  const auto since_start = [this](int64_t ns) {
    return ns > 0 ? std::optional<double>(seconds(ns - start_ns_)) : std::nullopt;
  };
  setup_.metrics.vllm->ended({.reason = answer.finish_reason,
                              .prompt_tokens = static_cast<int64_t>(prompt_of(index).size()),
                              .generated_tokens = std::max(0, num_own(index)),
                              .cached_tokens = answer.cached_tokens,
                              .max_tokens = max_own(index),
                              .begun = since_start(answer.begun_ns),
                              .first = since_start(answer.first_ns),
                              .last = seconds(answer.last_ns - start_ns_)});
}

// What has come of the answer since the last part.
ReplyPart Generation::part_of(size_t index) const {
  const Answer& answer = answers_[index];
  const bool scores = options_.prompt_logprobs.has_value();
  return {.index = static_cast<int>(index),
          .text = answer.text,
          .reasoning = answer.reasoning,
          .calls = &answer.calls,
          .has_called = answer.parts.num_calls() > 0,
          .logprobs = options_.logprobs ? &answer.logprobs : nullptr,
          .finish_reason = answer.finish_reason,
          .stop_string = answer.stop.match(),
          .fills_context = options_.is_clipped,
          .routed_experts = returns_experts() ? &answer.experts : nullptr,
          .token_ids = options_.returns_token_ids ? &answer.new_ids : nullptr,
          .prompt_ids = options_.returns_token_ids && answer.sent_tokens == 0
                            ? &prompt_of(index).ids()
                            : nullptr,
          .prompt_logprobs = scores ? &answer.prompt_logprobs : nullptr,
          .context = context_reply_ ? &*context_reply_ : nullptr};
}

void Generation::send_part(size_t index) {
  Answer& answer = answers_[index];
  ReplyPart part = part_of(index);
  Usage so_far;
  if (options_.continuous_usage) {
    so_far.prompt_tokens = static_cast<int64_t>(prompt_of(index).size());
    so_far.cached_tokens = answer.cached_tokens;
    so_far.written_tokens = written_tokens(index);
    so_far.completion_tokens = std::max(0, num_own(index));
    part.usage = &so_far;
  }
  writer_->add(part, events());
  send_event();
  answer.text.clear();
  answer.reasoning.clear();
  answer.calls.clear();
  answer.logprobs.clear();
  answer.new_ids.clear();
  answer.sent_tokens = answer.num_tokens();
}

void Generation::send_event() {
  if (event_.empty()) return;
  exchange_->send(event_);
  event_.clear();
  is_silent_ = false;
}

void Generation::ping() {
  if (options_.stream && std::exchange(is_silent_, true)) send_aside(writer_->ping());
}

void Generation::send_aside(std::string_view bytes) {
  if (!streams_records_) return exchange_->send_aside(bytes);
  exchange_->send_aside(marked_aside(bytes));
}

TextWork* Generation::work() const {
  auto& text = exchange_->record().text;
  return text ? &*text : nullptr;
}

void Generation::count_reply(int status) {
  ++setup_.metrics.replies[{spec_of(head_.api).path, status}];
}

void Generation::fail(const HttpError& error) {
  is_over_ = true;
  const std::shared_ptr<Generation> kept = shared_from_this();  // the callbacks may be the last
  count_reply(error.status);
  if (error.status == 500) log_failure(exchange_->request_id(), error.message);
  exchange_->record().error = error.code;
  exchange_->on_gone(nullptr);
  cancel_all();
  // This server is lost: whoever has the records asks another one.
  if (streams_records_ && error.status == 503) return exchange_->cut();
  if (!options_.stream) {
    return exchange_->reply(error.status, "application/json", writer_->error(error));
  }
  writer_->fail(error, &event_);
  send_event();
  exchange_->end();
}

// All answers have ended. Removing the callback also drops its reference to this object.
void Generation::end() {
  is_over_ = true;
  context_.reset();
  setup_.running.erase(this);
  count_reply(200);
  if (setup_.metrics.vllm && !repeats_) {
    const size_t n = static_cast<size_t>(options_.n);
    for (size_t first = 0; first < answers_.size(); first += n) {
      int longest = 0;
      for (size_t i = first; i < first + n; ++i) longest = std::max(longest, num_own(i));
      setup_.metrics.vllm->request_ended(options_.n, longest);
    }
  }
  exchange_->on_gone(nullptr);
  if (settings_.draft_metrics != DraftMetrics::kNone) {
    AnswerDrafts all;
    for (const Answer& answer : answers_) all += answer.drafts;
    usage_.speculation = all.json(settings_.draft_metrics, settings_.max_drafts);
  }
  usage_.ended_at = end_ ? end_->ended_at : std::time(nullptr);
  if (options_.stream) {
    if (streams_records_ && !end_) {
      event_ += record_comment(record_of(AnswerEnd{.ended_at = usage_.ended_at}));
    }
    writer_->end(usage_, &event_);
    send_event();
    exchange_->end();
    return;
  }
  std::vector<ReplyPart> parts;
  for (size_t i = 0; i < answers_.size() && !writer_->takes_parts(); ++i) {
    parts.push_back(part_of(i));
  }
  exchange_->reply(200, "application/json", writer_->whole(parts, usage_));
}

// The client has left, or the ranks have failed. Tokens that arrive later find their answers ended.
void Generation::cancel_all() {
  context_.reset();
  setup_.running.erase(this);
  for (Answer& answer : answers_) {
    if (answer.has_ended()) continue;
    answer.finish_reason = FinishReason::kStop;
    answer.awaits_experts = false;
    if (answer.id) setup_.backend.cancel(*answer.id);
    ++setup_.metrics.cancelled;
    --setup_.metrics.running;
  }
}

}  // namespace wideep::server
