// SPDX-License-Identifier: Apache-2.0
//
// One client request for text while it runs. It submits one engine request per answer, collects
// their tokens, and sends the reply, whole or streamed.
//
// Thread safety: the serving thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "answer/answer_reader.h"
#include "api/api.h"
#include "api/context_reply.h"
#include "api/reply_writer.h"
#include "http/http_server.h"
#include "server/answer_drafts.h"
#include "server/answer_records.h"
#include "server/answer_style.h"
#include "server/backend.h"
#include "server/context_requests.h"
#include "server/metrics.h"
#include "server/preparation.h"
#include "server/stop_strings.h"
#include "tokenizer/stream_decoder.h"

namespace wideep::server {

class Generation;

// What all requests share; outlives them.
struct GenerationSetup {
  const tokenizer::Tokenizer& tokenizer;
  Backend& backend;
  Metrics& metrics;
  // A part of a stream is sent with an answer's first token, with those whose number divides by this,
  // and at the end.
  int stream_interval = 1;
  DraftMetrics draft_metrics = DraftMetrics::kNone;
  int max_drafts = 0;            // of a request in a step
  bool returns_experts = false;  // in whole replies
  bool reuses_pages = false;     // of the KV cache, for later prompts
  // As ServiceOptions has them.
  ContextRequests* context_requests = nullptr;
  std::function<std::string(const Exchange&)> opaque_state = nullptr;
  std::set<Generation*> running = {};  // those that have not ended
  std::chrono::steady_clock::time_point next_differs_line = {};
};

// What other processes have got of the answer. Null: there were none.
struct AnswerPast {
  std::shared_ptr<const AnswerRecords> of_server;  // this one, whose process has died
  // Another one, whose records have come with the request; of_server has them, too.
  std::shared_ptr<const AnswerRecords> of_other;

  const AnswerRecords* newest() const {
    return of_server != nullptr ? of_server.get() : of_other.get();
  }
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Submits options.n engine requests for each prompt (token ids), and replies when they end.
  // Cancels them if the client leaves. The Generation keeps itself alive until then. With a past it
  // goes on with that answer: head and seed are those of its records then. REQUIRES:
  // options.max_tokens_of is set; past.of_other is checked.
  static void start(GenerationSetup& setup, std::shared_ptr<Exchange> exchange, ReplyHead head,
                    Prepared prepared, const AnswerPast& past);

  // The records of a process that has died in the middle of the reply; null: there was none.
  static std::shared_ptr<const AnswerRecords> past_of(const Exchange& exchange);

  // Called every few seconds: says to the client of a stream that nothing is lost, where nothing
  // has come since the last time.
  void ping();

  // Ends it with this error instead of its further tokens: an event before [DONE] in a stream, else
  // the reply.
  void fail(const HttpError& error);

 private:
  struct Answer {
    // options.answer: null: all text is content.
    Answer(const tokenizer::Tokenizer& tokenizer, StopStrings stops,
           const GenerationOptions& options);

    // Complete, but for what the reply still needs.
    bool has_all_tokens() const { return finish_reason != engine::FinishReason::kNotFinished; }
    bool has_ended() const { return has_all_tokens() && !awaits_experts; }
    bool has_news() const { return !text.empty() || !reasoning.empty() || !calls.empty(); }
    int num_tokens() const { return static_cast<int>(tokens.size()); }

    std::optional<int64_t> id;  // Backend::submit; nullopt: not submitted
    tokenizer::StreamDecoder decoder;
    StopStrings stop;
    std::unique_ptr<answer::AnswerReader> reader;  // null: all text is content
    answer::AnswerParts parts;                     // from the reader
    std::string text;                              // not sent yet; of a whole reply, all of it
    std::string reasoning;                         // likewise
    std::vector<answer::CallPart> calls;           // likewise
    std::set<std::string> call_ids;                // of all its calls
    std::vector<TokenLogprob> logprobs;            // of the tokens of `text` and `reasoning`
    std::vector<TokenLogprob> prompt_logprobs;     // if the prompt is scored
    int64_t characters = 0;                        // code points of all earlier tokens
    std::vector<int32_t> tokens;   // received; first those of a scored prompt, but its first one
    std::vector<int32_t> new_ids;  // of the answer, not sent yet; if they are shown
    int rank = -1;                 // that has sampled the last one
    int sent_tokens = 0;
    bool is_due = false;         // what has come is to be sent
    int64_t unclear_tokens = 0;  // since the last ones that had text of any kind
    bool in_reasoning = true;    // these have been reasoning, or there were none
    bool awaits_experts = false;
    bool is_cut = false;  // Backend::cut, since it was submitted
    std::string experts;  // as the reply has them
    AnswerDrafts drafts;
    int cached_tokens = 0;  // of its prompt
    int64_t first_ns = 0;   // when its first token came; 0: not yet, or to another process
    int64_t begun_ns = 0;   // when its prompt was begun; 0: not yet, or nobody wants to know
    int processed = -1;     // tokens of its prompt, as its client has been told; −1: nothing yet
    int64_t last_ns = 0;    // when its last token came; 0: not yet, or to another process
    engine::FinishReason finish_reason = engine::FinishReason::kNotFinished;
  };

  Generation(GenerationSetup& setup, std::shared_ptr<Exchange> exchange, ReplyHead head,
             GenerationOptions options, std::vector<engine::SharedTokens> prompts);
  void begin(const AnswerPast& past);
  void repeat(const AnswerPast& past);
  void share_rules();
  void submit(size_t index);
  const engine::SharedTokens& prompt_of(size_t index) const {
    return prompts_[index / static_cast<size_t>(options_.n)];
  }
  void token(size_t index, const run::Token& token);
  void prompt(size_t index, const run::PromptProgress& progress);
  void experts(size_t index, const run::RoutedExperts& routed);
  void note_cached(size_t index, int tokens);
  // Of the answer's prompt, once it has begun (Usage::written_tokens).
  int64_t written_tokens(size_t index) const;
  void take_text(size_t index, const run::Token& token);
  void read_token(Answer& answer, const run::Token& token);
  void send_other_kinds(size_t index, bool has_reasoning, bool has_content, bool has_calls);
  void add_calls(size_t index, std::vector<answer::CallPart> parts);
  void note_reasoning(Answer& answer, bool has_reasoning, bool has_more);
  std::string call_id(size_t index, const answer::CallPart& part) const;
  std::string new_call_id(size_t index, int call) const;
  // How many tokens of the prompt come as the answer's first ones, so that each has its logprob.
  int num_scored(size_t index) const;
  int num_own(size_t index) const { return answers_[index].num_tokens() - num_scored(index); }
  int max_own(size_t index) const {
    return options_.max_tokens_of[index / static_cast<size_t>(options_.n)];
  }
  void begin_prompt(size_t index);
  void note_prompt_token(size_t index, const run::Token& token);
  void submit_or_end(size_t index);
  void note_logprob(Answer& answer, const run::Token& token);
  void compare_first(size_t index, int32_t token);
  bool is_context_only() const {
    return options_.shared_prompt != nullptr && options_.shared_prompt->is_context_only;
  }
  void note_context(const Answer& answer);
  TokenLogprob logprob_of(const run::Token& token, int most_likely, int64_t text_offset) const;
  ReplyPart part_of(size_t index) const;
  bool has_text(const run::Token& token) const;
  TokenLogprob logprob_of(const engine::Sampled& sampled, int64_t text_offset) const;
  void note_times(size_t index, bool with_last, bool last);
  void note_ended(size_t index);
  void note_end();
  // own: how many tokens of its own the answer has.
  void note_due(Answer& answer, int own) const;
  void send_part(size_t index);
  void send_event();
  void send_aside(std::string_view bytes);
  // Null: the reply is no stream.
  std::string* events() { return options_.stream ? &event_ : nullptr; }
  void end();
  void count_reply(int status);
  // What the exchange's record says of it; null: nobody wants to know.
  TextWork* work() const;
  void cancel_all();
  bool finished() const { return running_ == 0; }
  bool returns_experts() const {
    return setup_.returns_experts && !options_.stream && !writer_->takes_parts();
  }

  GenerationSetup& setup_;
  std::shared_ptr<Exchange> exchange_;
  ReplyHead head_;
  GenerationOptions options_;
  const std::vector<engine::SharedTokens> prompts_;
  std::vector<engine::SharedRules> rules_;  // [prompts] of the answers to each
  const std::unique_ptr<ReplyWriter> writer_;
  ReplySettings settings_;
  bool streams_records_ = false;  // for another server (stream_records.h)
  bool is_told_ = false;          // who asks for the records has the present token's
  std::optional<AnswerEnd> end_;  // that another one has sent
  std::string event_;             // not sent yet
  bool is_silent_ = false;        // nothing was sent since the last ping()
  std::vector<Answer> answers_;   // [prompts × n], the n answers to a prompt side by side
  Usage usage_;
  // Of a context-only request: its name runs until its prompt is computed, or nobody computes it any
  // more; what the reply says of it, once it has its token.
  std::optional<RunningContext> context_;
  std::optional<ContextReply> context_reply_;
  bool differs_ = false;  // its first tokens from those that another server has sampled
  size_t running_ = 0;    // answers that have not ended
  bool is_over_ = false;  // the reply has ended
  bool repeats_ = false;  // what another process has counted already
  int64_t start_ns_;      // when it was submitted; of a request that another process began: came
};

}  // namespace wideep::server
