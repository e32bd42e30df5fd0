// SPDX-License-Identifier: Apache-2.0
//
// The HTTP endpoints: which function answers which path, and which requests are refused.
//
//   POST /v1/completions, /v1/chat/completions      GET /v1/models[/…], /health, /version
//   POST /v1/responses        GET, DELETE /v1/responses/ID        GET /v1/responses/ID/input_items
//   POST /v1/messages, /v1/messages/count_tokens                      (Anthropic's)
//   POST /tokenize, /detokenize                                       (as vLLM has them)
//   GET  /metrics, /perf_metrics, /dashboard        (server/metrics.h, monitor.h, load_history.h)
//   POST /start_, /stop_, /dump_expert_distribution_record            (server/expert_recorder.h)
//   POST /scale_elastic_ep, /is_scaling_elastic_ep                    (as vLLM has them)
//
// HEAD is answered wherever GET is, OPTIONS everywhere.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "api/response_store.h"
#include "server/balancer_state.h"
#include "server/chat_files.h"
#include "server/exchange_work.h"
#include "server/expert_recorder.h"
#include "server/generation.h"
#include "server/iteration_watch.h"
#include "server/load_history.h"
#include "server/monitor.h"
#include "server/preparation.h"
#include "server/rank_states.h"

namespace wideep::server {

struct ServiceOptions {
  std::string model;      // the name that clients use
  std::string api_key;    // "": no key is required
  std::string admin_key;  // for what changes the service; "": the same as the others
  int vocab_size = 0;     // of the model, which may have more tokens than the tokenizer
  bool has_end_tokens = true;
  run::SamplingDefaults sampling = {};  // what requests do not say
  int max_sequence = 0;                 // tokens of a prompt and its answer together
  int max_queue = 1024;                 // answers running and waiting; more are refused with 429
  int stream_interval = 1;              // tokens per chunk of a stream
  ResponseStoreLimits stored_responses;
  DraftMetrics draft_metrics = DraftMetrics::kNone;  // in each reply
  int most_drafts = 0;                               // of a request in a step; 0: there are none
  bool returns_experts = false;                      // whole replies have the experts of each token
  run::ExpertRanks ranks;
  int start_ranks = 0;  // of these; 0: all
  // As BalancerState has it; null: experts stay where they are.
  std::function<run::OnlineTotals()> online_totals;
  double timeout_seconds = 30;  // of a rank that waits for another one
  RecorderOptions recorder;
};

class Service {
 public:
  Service(ServiceOptions options, const tokenizer::Tokenizer& tokenizer, ChatFiles chat,
          Backend& backend);

  // This process goes on where `number` others have died; so many ranks are wanted now.
  void restarted(int number, int wanted);
  // Lets clients change the number of ranks. want: RankGroup::want. call_in: runs a function on the
  // serving thread after so many seconds.
  void connect_scaling(std::function<Status(int num_ranks)> want,
                       std::function<void(int seconds, std::function<void()>)> call_in);
  // Lets long requests be prepared on a thread of their own (server/exchange_work.h).
  void connect(std::function<void(std::function<void()>)> post) { work_.connect(std::move(post)); }
  // Called every few seconds, so that clients of silent streams see that nothing is lost.
  void ping();
  // Waits for what other threads do for the service, and drops what waits for them. Called when the
  // serving thread has ended, while `post` still works.
  void join();

  void handle(const std::shared_ptr<Exchange>& exchange);
  // Whether a request is refused whatever its body is (no such endpoint, no key), and how long its
  // body may be.
  HeadVerdict check_head(const RequestHead& head);

  // From now on new requests for text are refused with 503; running ones go on.
  void drain() { draining_ = true; }
  // The ranks have ended: running requests end with an error, and further ones get it too. Returns
  // whether any ran.
  bool fail(const std::string& why);
  // To be called with every iteration.
  void iteration_ended(double seconds);
  bool idle() const { return metrics_.running == 0 && work_.size() == 0; }
  // Whether nobody waits for a reply: after drain() the ranks may end.
  bool has_answered() const { return idle() && !recorder_.is_busy() && !scaling_; }
  Metrics& metrics() { return metrics_; }
  Monitor& monitor() { return monitor_; }
  LoadHistory& load() { return load_; }
  RankStates& ranks() { return ranks_; }
  BalancerState& balancer() { return balancer_; }
  ExpertRecorder& recorder() { return recorder_; }
  const ExpertRecorder& recorder() const { return recorder_; }

 private:
  using Handler = void (Service::*)(const std::shared_ptr<Exchange>&);
  enum Access { kPublic, kClients, kAdmins };  // nobody needs a key; API key; admin key, if set
  enum Body { kShortBody, kAnyBody };          // short: none, or a few fields
  struct Endpoint {
    const char* method;
    const char* path;
    Access access;
    Body body;
    Handler handler;
  };
  static const Endpoint kEndpoints[];
  static const Endpoint* endpoint_of(std::string_view method, std::string_view path);

  void completions(const std::shared_ptr<Exchange>& exchange);
  void chat_completions(const std::shared_ptr<Exchange>& exchange);
  void responses(const std::shared_ptr<Exchange>& exchange);
  void stored_response(const std::shared_ptr<Exchange>& exchange);
  void delete_response(const std::shared_ptr<Exchange>& exchange);
  void messages(const std::shared_ptr<Exchange>& exchange);
  void count_tokens(const std::shared_ptr<Exchange>& exchange);
  void tokenize(const std::shared_ptr<Exchange>& exchange);
  void detokenize(const std::shared_ptr<Exchange>& exchange);
  void models(const std::shared_ptr<Exchange>& exchange);
  void model(const std::shared_ptr<Exchange>& exchange);
  void health(const std::shared_ptr<Exchange>& exchange);
  void version(const std::shared_ptr<Exchange>& exchange);
  void metrics_page(const std::shared_ptr<Exchange>& exchange);
  std::optional<int64_t> read_number(const std::shared_ptr<Exchange>& exchange,
                                     const std::string& name, const char* what, int64_t by_default);
  void perf_metrics(const std::shared_ptr<Exchange>& exchange);
  void dashboard(const std::shared_ptr<Exchange>& exchange);
  void dashboard_data(const std::shared_ptr<Exchange>& exchange);
  void dashboard_load(const std::shared_ptr<Exchange>& exchange);
  void start_record(const std::shared_ptr<Exchange>& exchange);
  void stop_record(const std::shared_ptr<Exchange>& exchange);
  void dump_record(const std::shared_ptr<Exchange>& exchange);
  void scale(const std::shared_ptr<Exchange>& exchange);
  int wanted_before(Exchange& exchange) const;
  void is_scaling(const std::shared_ptr<Exchange>& exchange);
  ExpertRecorder::Done reply_with_outcome(const std::shared_ptr<Exchange>& exchange,
                                          const char* what);

  static std::string allowed_methods(std::string_view path);
  static std::optional<ApiError> without_endpoint(std::string_view method, std::string_view path);
  HeadVerdict judge(const RequestHead& head, std::string_view path) const;
  void answer_options(const std::shared_ptr<Exchange>& exchange);
  std::optional<ApiError> check_key(const RequestHead& head, Access access) const;
  nlohmann::ordered_json model_json() const;
  void count_reply(std::string_view path, int status);
  std::optional<ApiError> check(const Exchange& exchange, const GenerationOptions& options,
                                size_t num_answers) const;
  ApiError queue_full(size_t num_answers) const;
  ReplyHead head_for(const ApiSpec& api, std::time_t came);
  std::string id_with(std::string_view start);
  using Rest = ExchangeWork::Rest;
  void work_on_body(const std::shared_ptr<Exchange>& exchange,
                    std::function<Rest(std::string_view body)> work);
  void work_apart(const std::shared_ptr<Exchange>& exchange, ExchangeWork::Work work);
  void answer(const std::shared_ptr<Exchange>& exchange, const ApiSpec& api);
  Rest rest_of(const Parsed<nlohmann::ordered_json>& made);
  void reply_with(const std::shared_ptr<Exchange>& exchange,
                  Parsed<nlohmann::ordered_json> (Preparation::*make)(std::string_view) const);
  void generate(const std::shared_ptr<Exchange>& exchange, const ApiSpec& api, std::time_t came,
                Parsed<Prepared> parsed);
  void log_without_effect(const GenerationOptions& options);
  void refuse(const std::shared_ptr<Exchange>& exchange, const ApiError& error);
  void reply(const std::shared_ptr<Exchange>& exchange, std::string_view type,
             std::string_view body);

  ServiceOptions options_;
  ResponseStore responses_;
  const Preparation preparation_;
  Metrics metrics_;
  Monitor monitor_;
  LoadHistory load_;
  RankStates ranks_;
  BalancerState balancer_;
  ExpertRecorder recorder_;
  GenerationSetup generation_;
  int64_t started_;  // seconds since 1970
  uint64_t replies_begun_ = 0;
  std::set<std::string> without_effect_;  // fields of requests that a line has named
  bool draining_ = false;
  std::optional<ApiError> failure_;  // why the ranks have ended
  IterationWatch watch_;
  std::function<Status(int)> want_;
  std::function<void(int, std::function<void()>)> call_in_;
  uint64_t scalings_ = 0;
  bool scaling_ = false;  // a client waits for it
  int restarts_ = 0;
  ExchangeWork work_;  // last: it uses the members above
};

}  // namespace wideep::server
