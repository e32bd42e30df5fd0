// SPDX-License-Identifier: Apache-2.0
//
// A request in progress on its way through the router, and its client. It takes these steps, all on
// the thread of the event loop:
//
//   place (with prefixes: read the prompt, ask for its pages' names) → try_next
//
//   try_next → connect, send → headers, bytes (streams go to the client at once) → finish_attempt
//      ▲                                                                               │
//      └──────── failed, 503, 429 or 529, no stream begun, another replica left ───────┘
//
// With disaggregation a request for text may be divided: one replica computes the prompt (prefill),
// another one answers and takes its pages from there. The client has to do with the latter alone;
// all that the former does is speed. Where a replica knows more of the prompt, as one that has
// answered the turn before, the former is told to take that from there first.
//
//   kGenerationFirst   prefill ─────────────────┐     both are sent at once
//                      send_to ── pages ──▶ bytes ──▶ finish_attempt
//   kContextFirst      prefill ──▶ its reply ──▶ send_to ──▶ bytes ──▶ finish_attempt
//
// A prefill that fails before the first token is tried at max_retries other replicas. If none is
// left, or the replica does not take such a request, the answering one computes the prompt itself.
//
// Where the answering replica is lost in the middle of a stream, another one goes on with it, from
// the last byte that the client has got (stream_journal.h); its client sees a pause:
//
//   bytes ──▶ lost ──▶ try_next, with the records of the answer ──▶ bytes, but for those it has
//
// A libevent connection must not be freed inside its own callbacks. So every step that frees one is
// posted, and a Forward lives until the posted step has run.
//
// Thread safety: the serving thread.
#pragma once

#include <event2/http.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http/exchange.h"
#include "server/router_placement.h"
#include "server/router_prefill.h"
#include "server/router_replicas.h"
#include "server/stream_journal.h"

namespace wideep::server {

class RouterForward : public std::enable_shared_from_this<RouterForward> {
 public:
  // The router's, for all its requests.
  struct Context {
    HttpServer& http;
    RouterReplicas& replicas;
    StreamJournalMemory& journals;
    bool decides_origins = false;  // which pages may read replies; if not, the replicas do
    bool has_spans = false;        // clients get the router's span, not a replica's
    std::function<void(const std::shared_ptr<RouterForward>&)> over;  // it has released all
  };
  RouterForward(const Context& context, std::shared_ptr<Exchange> exchange, evhttp_cmd_type method);
  void start();
  // Gives up the attempt if the replica has not been reached in time, or hangs. libevent has one
  // timeout for connecting and for the reply, which must be long; so these are checked here.
  void check_connection(std::chrono::steady_clock::time_point now);
  // Releases the connections on all sides. A reply that has not ended is cut.
  void release();

 private:
  bool refuse_params();
  void place();
  void placed(std::shared_ptr<const PromptMatch> match);
  RouterReplicas::Prompt prompt() const;
  void charge();
  void discharge();
  void try_next();
  void try_divided();
  RouterReplicas::Division divide(const RouterReplica* decode) const;
  void begin_prefill(const RouterReplicas::Division& division);
  void prefill_ended(RouterPrefill::End how, const std::string& reply);
  void prefill_failed(RouterPrefill::End how);
  bool has_begun() const;
  void answer_alone();
  void ask_again();
  bool is_context_first() const;
  void send_to(RouterReplica* replica);
  bool computes() const;
  void forward_trace(evkeyvalq* sent) const;
  void forward_header(evkeyvalq* sent, const char* name) const;
  std::vector<std::pair<std::string, std::string>> prefill_headers() const;
  void keep_header(evhttp_request* reply, const char* name);
  static int headers(evhttp_request* reply, void* self);
  static void bytes(evhttp_request* reply, void* self);
  static void done(evhttp_request* reply, void* self);
  void finish_attempt_later(bool whole);
  void finish_attempt(bool whole);
  void finish_stream(bool whole);
  bool may_resume() const;
  void note_failure(bool whole);
  void forget_attempt();
  void lose_stream();
  std::string lost_in_stream() const;
  void return_headers();
  void give_up();
  void end();
  void disconnect();

  const Context& context_;
  RouterReplicas& replicas_;
  std::shared_ptr<Exchange> exchange_;
  evhttp_cmd_type method_;
  std::shared_ptr<const std::string> sent_;  // the request's body
  // With prefixes.
  std::shared_ptr<RouterPlacement> placement_;  // null: there was none
  std::shared_ptr<const PromptMatch> match_;    // null: nothing is known
  uint64_t prompt_work_ = 0;                    // begun at replica_, until the answer comes
  int num_parts_ = 0;                           // of the reply

  // With disaggregation, of a request for text.
  bool is_for_text_ = false;
  bool may_divide_ = false;
  RouterReplicas::Tried tried_prefills_;
  std::unique_ptr<RouterPrefill> prefill_;         // under way
  const RouterReplica* prefill_server_ = nullptr;  // has computed the prompt, or does; null: none
  double predicted_seconds_ = 0;                   // to the first token
  std::string params_;  // what the answering replica is told of it; "": nothing

  RouterReplicas::Tried tried_;
  RouterReplica* replica_ = nullptr;
  evhttp_connection* connection_ = nullptr;
  bool connected_ = false;
  bool attempt_ended_ = false;  // the replica has replied or failed; finish_attempt is posted
  std::chrono::steady_clock::time_point sent_at_, connect_by_, reply_by_;
  int status_ = 0;
  std::string type_, retry_after_, body_;
  std::map<std::string, std::string> returned_;  // headers of the reply, from kReturnedHeaders
  bool streams_ = false;                         // the client gets a stream
  bool is_sending_ = false;                      // the replica sends it
  // Of an answer, in a stream; nullopt: it is none.
  std::optional<StreamJournal> journal_;
  int num_losses_ = 0;  // of replicas that sent it
  std::string lost_;    // the last of them
  bool ended_ = false;
};

}  // namespace wideep::server
