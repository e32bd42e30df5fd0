// SPDX-License-Identifier: Apache-2.0
//
// The endpoints for text: each API's, what is stored of OpenAI's responses, and tokens without an
// answer. Which requests are taken, and which wait, is decided here.
//
// Thread safety: the serving thread.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "api/api.h"
#include "api/response_store.h"
#include "server/chat_files.h"
#include "server/exchange_work.h"
#include "server/generation.h"
#include "server/iteration_watch.h"
#include "server/preparation.h"
#include "server/replies.h"
#include "server/request_tracer.h"
#include "server/service_options.h"
#include "server/transfer_log.h"

namespace wideep::server {

// What the text comes from. All outlive the service but the templates.
struct TextParts {
  const tokenizer::Tokenizer& tokenizer;
  ChatFiles chat;
  Backend& backend;
  Metrics& metrics;
};

class TextService {
 public:
  // options, replies: outlive it.
  TextService(const ServiceOptions& options, TextParts parts, Replies& replies);

  // Lets long requests be prepared on a thread of their own (server/exchange_work.h).
  void connect(std::function<void(std::function<void()>)> post) { work_.connect(std::move(post)); }
  // Traces requests. tracer: outlives it; null: nobody does.
  void trace_with(const RequestTracer* tracer) { tracer_ = tracer; }
  std::string trace_metrics() const { return tracer_ == nullptr ? "" : tracer_->metrics(); }
  // Waits for what that thread does, and drops what waits for it.
  void join() { work_.join(); }
  void ping();
  // The server ends: new requests are refused.
  void drain() { ending_ = true; }
  bool is_ending() const { return ending_; }
  // Whether new requests are refused for now, though the server stays.
  void set_draining(bool now) { draining_ = now; }
  bool is_draining() const { return draining_ || ending_; }
  // Answers that run or wait.
  int64_t running() const { return metrics_.running + static_cast<int64_t>(work_.size()); }
  bool fail(const std::string& why);
  void iteration_ended(double seconds);
  bool idle() const { return metrics_.running == 0 && work_.size() == 0; }
  // Why no text can be had: the ranks have ended, requests are refused, or no iteration ends.
  std::optional<HttpError> trouble() const;
  const ResponseStore& responses() const { return responses_; }
  // Immutable: for any thread.
  const Preparation& preparation() const { return preparation_; }

  // The handler of an API's requests.
  void answer(const std::shared_ptr<Exchange>& exchange, const ApiSpec& api);
  void stored_response(const std::shared_ptr<Exchange>& exchange);
  void delete_response(const std::shared_ptr<Exchange>& exchange);
  void count_tokens(const std::shared_ptr<Exchange>& exchange);
  void tokenize(const std::shared_ptr<Exchange>& exchange);
  void detokenize(const std::shared_ptr<Exchange>& exchange);
  void prompt_tokens(const std::shared_ptr<Exchange>& exchange);
  void tokenizer_info(const std::shared_ptr<Exchange>& exchange);

 private:
  std::optional<HttpError> check(const Exchange& exchange, const GenerationOptions& options,
                                 size_t num_answers) const;
  HttpError queue_full(size_t num_answers) const;
  HttpError refusal() const;
  ReplyHead head_for(const ApiSpec& api, std::time_t came);
  using Rest = ExchangeWork::Rest;
  void work_on_body(const std::shared_ptr<Exchange>& exchange,
                    std::function<Rest(std::string_view body)> work);
  void work_apart(const std::shared_ptr<Exchange>& exchange, ExchangeWork::Work work);
  Rest rest_of(const Parsed<nlohmann::ordered_json>& made);
  void reply_with(const std::shared_ptr<Exchange>& exchange,
                  Parsed<nlohmann::ordered_json> (Preparation::*make)(std::string_view) const);
  void generate(const std::shared_ptr<Exchange>& exchange, const ApiSpec& api, std::time_t came,
                Parsed<Prepared> parsed, AnswerPast past);
  void begin_record(Exchange& exchange, const ApiSpec& api, const AnswerRecords* past);
  std::optional<HttpError> check(const AnswerRecords& past, const ApiSpec& api,
                                 const Prepared& prepared) const;
  void log_without_effect(const std::string& request_id, const GenerationOptions& options);
  void log_refused_peer(const GenerationOptions& options);

  const ServiceOptions& options_;
  Replies& replies_;
  Metrics& metrics_;
  ResponseStore responses_;
  const Preparation preparation_;
  GenerationSetup generation_;
  std::set<std::string> without_effect_;  // fields of requests that a line has named
  TransferLog refused_peers_;
  bool draining_ = false, ending_ = false;
  std::optional<HttpError> failure_;  // why the ranks have ended
  IterationWatch watch_;
  const RequestTracer* tracer_ = nullptr;
  ExchangeWork work_{replies_};  // last: it uses the members above
};

}  // namespace wideep::server
