// SPDX-License-Identifier: Apache-2.0
//
// One request for text while it runs: its answers, their tokens as they come, and the reply, whole
// or streamed.
//
// Thread safety: the serving thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/backend.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/openai_reply.h"
#include "server/openai_request.h"
#include "server/stop_strings.h"
#include "tokenizer/stream_decoder.h"

namespace wideep::server {

// What all requests share; outlives them.
struct GenerationSetup {
  const tokenizer::Tokenizer& tokenizer;
  Backend& backend;
  Metrics& metrics;
  int stream_interval = 1;  // tokens of a chunk
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // prompts: the tokens of each; options.max_tokens is set. Submits options.n answers to each
  // prompt, and replies when they have come. Ends them when the client leaves.
  static void start(const GenerationSetup& setup, std::shared_ptr<Exchange> exchange,
                    ReplyHead head, GenerationOptions options,
                    const std::vector<std::vector<int32_t>>& prompts);

 private:
  struct Answer {
    Answer(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops)
        : decoder(tokenizer), stop(std::move(stops)) {}

    int64_t id = 0;  // of the backend
    tokenizer::StreamDecoder decoder;
    StopStrings stop;
    std::string text;                    // that is to be sent; whole replies: all of it
    std::vector<TokenLogprob> logprobs;  // of that
    int64_t characters = 0;              // of all tokens before
    int tokens = 0;
    int sent_tokens = 0;
    int64_t last_ns = 0;  // when its last token came
    engine::FinishReason finish_reason = engine::FinishReason::kNotFinished;
  };

  Generation(const GenerationSetup& setup, std::shared_ptr<Exchange> exchange, ReplyHead head,
             GenerationOptions options);
  void submit(const std::vector<std::vector<int32_t>>& prompts);
  void token(size_t index, const run::Token& token);
  void note_cached(size_t index, int tokens);
  void take_text(Answer& answer, const run::Token& token);
  void note_logprob(Answer& answer, const run::Token& token);
  TokenLogprob logprob_of(const engine::Sampled& sampled, int64_t text_offset) const;
  void note_times(Answer& answer, bool last);
  void send_part(size_t index);
  void send_event();
  void end();
  void leave();
  bool finished() const { return running_ == 0; }

  const GenerationSetup& setup_;
  std::shared_ptr<Exchange> exchange_;
  ReplyHead head_;
  GenerationOptions options_;
  EventWriter events_;
  std::string event_;  // to be sent
  std::vector<Answer> answers_;
  Usage usage_;
  size_t running_ = 0;
  int64_t start_ns_;
};

}  // namespace wideep::server
