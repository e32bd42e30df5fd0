// SPDX-License-Identifier: Apache-2.0
//
// The HTTP endpoints: a table of them (endpoints.h) over eight services, which share what is known
// of the ranks (service_state.h) and the way to reply (replies.h).
//
//   POST /v1/completions, /v1/chat/completions      GET /v1/models[/…], /health, /version
//   POST /v1/responses        GET, DELETE /v1/responses/ID        GET /v1/responses/ID/input_items
//   POST /v1/messages, /v1/messages/count_tokens                      (Anthropic's)
//   POST /tokenize, /detokenize                                       (as vLLM has them)
//   POST /prompt_tokens                             (text_service.h)
//   GET  /v1/kv_events, /v1/kv_events/snapshot      (kv_events_service.h)
//   GET  /metrics, /perf_metrics, /dashboard        (dashboard_service.h, status_service.h)
//   GET  /                                          (chat_page_service.h)
//   POST /start_, /stop_, /dump_expert_distribution_record            (admin_service.h)
//   POST /scale_elastic_ep, /is_scaling_elastic_ep                    (as vLLM has them)
//   POST, DELETE /drain                             (admin_service.h)
//   POST /v1/cache/export, /v1/cache/import         (cache_service.h)
//   GET  /v1/pd_role        POST /pd_role_switch    (pd_service.h)
//
// Thread safety: the serving thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/admin_service.h"
#include "server/cache_service.h"
#include "server/chat_files.h"
#include "server/chat_page_service.h"
#include "server/dashboard_service.h"
#include "server/endpoints.h"
#include "server/kv_events_service.h"
#include "server/pd_service.h"
#include "server/replies.h"
#include "server/service_options.h"
#include "server/service_state.h"
#include "server/status_service.h"
#include "server/text_service.h"

namespace wideep::server {

class Service {
 public:
  Service(ServiceOptions options, const tokenizer::Tokenizer& tokenizer, ChatFiles chat,
          Backend& backend);

  // This process goes on where `number` others have died; so many ranks are wanted now.
  void restarted(int number, int wanted);
  // Lets clients change the number of ranks. want: RankGroup::want. call_in: runs a function on the
  // serving thread after so many seconds.
  void connect_scaling(std::function<Status(int num_ranks)> want,
                       std::function<void(int seconds, std::function<void()>)> call_in) {
    admin_.connect_scaling(std::move(want), std::move(call_in));
  }
  // Lets what takes long be done on threads of its own (server/exchange_work.h).
  void connect(const std::function<void(std::function<void()>)>& post) {
    text_.connect(post);
    cache_.connect(post);
    kv_events_.connect(post);
  }
  // Traces requests for text. tracer: outlives the service.
  void trace_with(const RequestTracer* tracer) { text_.trace_with(tracer); }
  // Called every few seconds, so that clients of silent streams see that nothing is lost.
  void ping() { text_.ping(); }
  // Waits for what other threads do for the service, and drops what waits for them. Called when the
  // serving thread has ended, while `post` still works.
  void join();

  void handle(const std::shared_ptr<Exchange>& exchange) { endpoints_.handle(exchange); }
  // Whether a request is refused whatever its body is (no such endpoint, no key), and how long its
  // body may be.
  HeadVerdict check_head(const RequestHead& head) { return endpoints_.check_head(head); }

  // Whether new requests for text are refused with 503 for now; running ones go on.
  void set_draining(bool now) { admin_.set_draining(now); }
  // told: called on each change that a client or set_draining() makes.
  void connect_draining(std::function<void(bool now)> told) {
    admin_.connect_draining(std::move(told));
  }
  // From now on new requests for text are refused with 503; running ones go on.
  void drain() {
    text_.drain();
    kv_events_.end();
  }
  // The ranks have ended: running requests end with an error, and further ones get it too. Returns
  // whether any ran.
  bool fail(const std::string& why) { return text_.fail(why); }
  // To be called with every iteration.
  void iteration_ended(double seconds) { text_.iteration_ended(seconds); }
  bool idle() const { return text_.idle(); }
  // Whether nobody waits for a reply: after drain() the ranks may end.
  bool has_answered() const {
    return idle() && !admin_.is_busy() && !cache_.is_busy() && !pd_.is_busy();
  }
  CacheService& cache() { return cache_; }
  PdService& pd() { return pd_; }
  Metrics& metrics() { return state_.metrics; }
  Monitor& monitor() { return state_.monitor; }
  LoadHistory& load() { return state_.load; }
  RankStates& ranks() { return state_.ranks; }
  BalancerState& balancer() { return state_.balancer; }
  PlaceStates& places() { return state_.places; }
  ExpertPlaces& experts() { return state_.experts; }
  // Before the front starts, or on the serving thread.
  void take(run::ExpertPlaces places);
  ExpertRecorder& recorder() { return state_.recorder; }
  const ExpertRecorder& recorder() const { return state_.recorder; }
  KvEventsService& kv_events() { return kv_events_; }

 private:
  std::vector<Endpoint> table();

  const ServiceOptions options_;
  ServiceState state_;
  Replies replies_;
  TextService text_;
  StatusService status_;
  DashboardService dashboard_;
  ChatPageService chat_page_;
  AdminService admin_;
  KvEventsService kv_events_;
  CacheService cache_;
  PdService pd_;
  Endpoints endpoints_;
};

}  // namespace wideep::server
