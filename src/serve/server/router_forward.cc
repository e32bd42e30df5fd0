// SPDX-License-Identifier: Apache-2.0
#include "server/router_forward.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http_struct.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "api/error_form.h"
#include "api/messages_reply.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/random_hex.h"
#include "http/http_error.h"
#include "http/http_server.h"
#include "http/request_id.h"
#include "server/router_ask.h"
#include "server/router_divided_body.h"
#include "server/router_prompt_text.h"
#include "server/stream_records.h"

namespace wideep::server {
namespace {

using Clock = std::chrono::steady_clock;

// The timeout for connecting to a replica.
constexpr std::chrono::milliseconds kConnectTimeout{1500};
// TCP keep-alive, which detects a machine that has gone: the first probe after kKeepAliveSeconds of
// silence, then kKeepAliveProbes probes, kKeepAliveInterval seconds apart.
constexpr int kKeepAliveSeconds = 10, kKeepAliveProbes = 3, kKeepAliveInterval = 5;
// The timeout for a reply. A replica may be silent while it computes a long prompt behind a long
// queue.
constexpr int kReplySeconds = 600;
// The timeout for a reply without computation: models, metrics.
constexpr std::chrono::seconds kShortReply{5};
// Headers that are forwarded: of the request, and of the reply beside its type. Those of origins
// are not where the router decides about them itself.
constexpr const char* kForwardedHeaders[] = {"Content-Type",  "Content-Encoding",
                                             "Authorization", "Accept",
                                             "x-api-key",     "anthropic-version"};
// The chat page comes with what a browser may do for it.
constexpr const char* kReturnedHeaders[] = {"Allow",
                                            "WWW-Authenticate",
                                            "request-id",
                                            "Content-Security-Policy",
                                            "X-Content-Type-Options",
                                            "Referrer-Policy",
                                            "Cross-Origin-Opener-Policy",
                                            "Cross-Origin-Resource-Policy"};
constexpr const char* kForwardedOfOrigins[] = {"Origin", "Access-Control-Request-Method",
                                               "Access-Control-Request-Headers"};
constexpr const char* kReturnedOfOrigins[] = {
    "Vary", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers", "Access-Control-Max-Age"};

std::string text_of(evbuffer* buffer) {
  std::string text(evbuffer_get_length(buffer), '\0');
  evbuffer_copyout(buffer, text.data(), text.size());
  return text;
}

std::string header_of(evhttp_request* reply, const char* name) {
  const char* value = evhttp_find_header(evhttp_request_get_input_headers(reply), name);
  return value == nullptr ? "" : value;
}

// The code of an error, for programs.
constexpr const char* kReplicaLost = "replica_lost";
// About as long as a replica waits for a peer that is silent: what it then computes by itself, and
// the pages that have come, are worth more than another peer.
constexpr std::chrono::seconds kComputesAlone{2};
// A request that ends every server that answers it must not end them all.
constexpr int kMaxLosses = 3;

void enable_keep_alive(int socket) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveInterval);
}

}  // namespace

RouterForward::RouterForward(const Context& context, std::shared_ptr<Exchange> exchange,
                             evhttp_cmd_type method)
    : context_(context),
      replicas_(context.replicas),
      exchange_(std::move(exchange)),
      method_(method),
      sent_(std::make_shared<const std::string>(exchange_->take_body())) {}

void RouterForward::start() {
  exchange_->on_gone([this] { end(); });
  is_for_text_ = exchange_->method() == "POST" && is_for_text(exchange_->path());
  if (is_for_text_ && replicas_.disaggregation() != nullptr && refuse_params()) return;
  if (replicas_.has_prefixes() && is_for_text_) return place();
  try_next();
}

// Who says where a prompt is computed says where servers take pages from. Here that is the router
// alone: it may stand before clients that nobody knows.
bool RouterForward::refuse_params() {
  const std::string name(shared_params_in(*sent_));
  if (name.empty()) return false;
  const HttpError error{
      .message = fmt::format("{}: this endpoint divides requests itself: leave {} out", name, name),
      .param = name};
  exchange_->reply(error.status, "application/json", error_form(exchange_->head(), error));
  end();
  return true;
}

void RouterForward::check_connection(Clock::time_point now) {
  if (prefill_ != nullptr && !ended_) prefill_->check(now);
  if (connection_ == nullptr || attempt_ended_ || ended_) return;
  if (connected_) {
    // A short reply comes from another one as soon as this one misses a health check.
    const bool other = !computes() && !replica_->up && replicas_.has_other(tried_);
    if (other || replicas_.hangs(*replica_, now) || now >= reply_by_) finish_attempt(false);
    return;
  }
  connected_ = is_connected(connection_);
  if (connected_) {
    enable_keep_alive(bufferevent_getfd(evhttp_connection_get_bufferevent(connection_)));
  } else if (now >= connect_by_) {
    finish_attempt(false);
  }
}

void RouterForward::release() {
  ended_ = true;
  if (placement_ != nullptr) placement_->cancel();
  prefill_.reset();
  journal_.reset();  // posted calls may hold this for longer than the router lives
  disconnect();
  exchange_->on_gone({});
  exchange_.reset();
}

// Finds out what replicas have of the prompt, then goes on. A compressed body is not read.
void RouterForward::place() {
  if (!exchange_->header("Content-Encoding").empty()) return placed(nullptr);
  RouterPlacement::Prompt prompt{.path = exchange_->path(), .body = sent_, .headers = {}};
  for (const char* name : kForwardedHeaders) {
    if (std::string value = exchange_->header(name); !value.empty()) {
      prompt.headers.emplace_back(name, std::move(value));
    }
  }
  placement_ =
      std::make_shared<RouterPlacement>(context_.http, *replicas_.prefixes(), replicas_.names());
  placement_->start(std::move(prompt), [this](auto match) { placed(std::move(match)); });
}

void RouterForward::placed(std::shared_ptr<const PromptMatch> match) {
  if (ended_) return;  // the client has left
  match_ = std::move(match);
  if (match_ == nullptr) {
    ++replicas_.totals.num_unread;
  } else {
    replicas_.totals.prompt_bytes += match_->bytes;
    replicas_.totals.num_exact += match_->is_exact ? 1 : 0;
    may_divide_ = match_->can_divide;
  }
  try_next();
}

RouterReplicas::Prompt RouterForward::prompt() const {
  return {.bytes = match_ == nullptr ? sent_->size() : match_->bytes, .match = match_.get()};
}

// Counts the work of this request at the replica that it is sent to.
void RouterForward::charge() {
  const size_t index = replicas_.index_of(*replica_);
  const uint64_t known = prompt().known(index);
  num_parts_ = 0;
  prompt_work_ = params_.empty() ? prompt().bytes - known : 0;
  replica_->begin_prompt(prompt_work_);
  if (match_ == nullptr) return;
  replica_->known_bytes += known;
  ++(known > 0 ? replica_->hits : replica_->misses);
  replicas_.prefixes()->sent(match_, index);
}

void RouterForward::discharge() { replica_->end_prompt(std::exchange(prompt_work_, 0)); }

void RouterForward::try_next() {
  if (replicas_.disaggregation() != nullptr && is_for_text_) return try_divided();
  send_to(replicas_.choose(tried_, prompt()));
}

RouterReplicas::Division RouterForward::divide(const RouterReplica* decode) const {
  const auto max_retries = static_cast<size_t>(replicas_.disaggregation()->max_retries);
  return replicas_.divide({.tried = tried_,
                           .tried_prefills = tried_prefills_,
                           .prompt = prompt(),
                           .may_divide = may_divide_ && prefill_server_ == nullptr &&
                                         tried_prefills_.size() <= max_retries,
                           .decode = decode});
}

// Once the prompt is computed somewhere, or is being, only the replica that answers may change.
void RouterForward::try_divided() {
  const RouterReplicas::Division division = divide(nullptr);
  RouterReplica* decode = division.decode;
  if (decode == nullptr) return give_up();
  if (prefill_server_ == nullptr) predicted_seconds_ = division.seconds;
  if (division.prefill != nullptr) {
    begin_prefill(division);
    if (is_context_first()) return;  // prefill_ended goes on
  } else if (decode == prefill_server_) {
    prefill_.reset();  // its pages are there
    params_.clear();
    exchange_->record().prefill.reset();
  }
  if (may_divide_) {
    ++(params_.empty() ? decode->alone : decode->divided);
    decode->predicted_seconds += predicted_seconds_;
  }
  send_to(decode);
}

// REQUIRES: division.prefill != null.
void RouterForward::begin_prefill(const RouterReplicas::Division& division) {
  RouterReplica& server = *division.prefill;
  const ScheduleStyle style = replicas_.disaggregation()->style;
  const uint64_t id = new_request_id();
  tried_prefills_.insert(&server);
  prefill_server_ = &server;
  params_ = generation_params(id, server.state->opaque_state, style);
  exchange_->record().prefill = PrefillPart{.replica = server.address().url(),
                                            .span_id = base::random_hex(8),
                                            .begin_ns = base::wall_ns()};
  const size_t index = replicas_.index_of(server);
  ContextParams context = {.request_id = id, .style = style};
  uint64_t known = prompt().known(index);
  if (division.earlier != nullptr) {
    context.earlier = division.earlier->state->opaque_state;
    known = prompt().known(replicas_.index_of(*division.earlier));
  }
  prefill_ = std::make_unique<RouterPrefill>(context_.http, replicas_, server);
  prefill_->start({.target = exchange_->target(),
                   .body = context_body(*sent_, context),
                   .headers = prefill_headers(),
                   .prompt_bytes = prompt().bytes - known},
                  [this](auto how, const auto& reply) { prefill_ended(how, reply); });
  replicas_.prefixes()->sent(match_, index);
}

// What is wrong with the request the replica that answers says to the client. What only the other
// one does not take is the answering one's alone.
void RouterForward::prefill_ended(RouterPrefill::End how, const std::string& reply) {
  using End = RouterPrefill::End;
  prefill_.reset();
  if (ended_) return;
  if (how == End::kRefused || how == End::kLost) return prefill_failed(how);
  exchange_->record().prefill->end_ns = base::wall_ns();
  if (how == End::kWrong) return answer_alone();
  if (!is_context_first()) return;
  if (auto params = generation_params_of(reply)) params_ = std::move(*params);
  try_next();
}

// The answering replica may have been told of a prompt that nobody computes, and wait for it. Where
// it has begun it does not.
void RouterForward::answer_alone() {
  params_.clear();
  if (is_context_first()) return try_next();
  if (replica_ == nullptr || has_begun()) return;
  RouterReplica* const decode = replica_;
  ask_again();
  send_to(decode);
}

// Another replica is asked for the prompt. The one that answers has been told of the first: before
// it has begun its request is sent again. If there is no other one to tell of, or time has passed,
// one that has lost its peer in the middle goes on by itself, with the pages that came; one whose
// peer has not even begun would wait for it in vain.
void RouterForward::prefill_failed(RouterPrefill::End how) {
  exchange_->record().prefill.reset();
  prefill_server_ = nullptr;
  params_.clear();
  if (is_context_first() || replica_ == nullptr) {
    ++replicas_.totals.num_prefill_retries;
    return try_next();
  }
  if (has_begun()) return;
  if (how == RouterPrefill::End::kLost && Clock::now() - sent_at_ >= kComputesAlone) return;
  RouterReplica* const decode = replica_;
  const RouterReplicas::Division division = divide(decode);
  if (division.prefill == nullptr && how == RouterPrefill::End::kLost) return;
  ++replicas_.totals.num_prefill_retries;
  ask_again();
  if (division.prefill != nullptr) begin_prefill(division);
  send_to(decode);
}

// The request is to be sent once more to the replica that answers.
void RouterForward::ask_again() {
  if (is_sending_) journal_->begin_again();
  forget_attempt();
}

// Whether more has come from the replica that answers than the head of a stream, which it sends
// before it has the prompt, and from which it goes on when it is asked again.
bool RouterForward::has_begun() const {
  if (attempt_ended_ || (status_ != 0 && !is_sending_)) return true;
  if (!streams_) return false;
  return !journal_ || journal_->has_begun() || !journal_->can_resume(sent_->size());
}

bool RouterForward::is_context_first() const {
  return replicas_.disaggregation()->style == ScheduleStyle::kContextFirst;
}

void RouterForward::send_to(RouterReplica* replica) {
  replica_ = replica;
  if (replica_ == nullptr) return give_up();
  tried_.insert(replica_);
  ++replica_->running;
  ++replica_->requests;
  charge();
  connected_ = attempt_ended_ = false;
  sent_at_ = Clock::now();
  connect_by_ = sent_at_ + kConnectTimeout;
  reply_by_ = computes() ? Clock::time_point::max() : Clock::now() + kShortReply;
  connection_ = evhttp_connection_base_bufferevent_new(
      context_.http.loop(), nullptr, nullptr, replica_->numbers.c_str(),
      static_cast<ev_uint16_t>(replica_->address().port));
  evhttp_connection_set_timeout(connection_, kReplySeconds);
  evhttp_request* request = evhttp_request_new(done, this);
  evhttp_request_set_header_cb(request, headers);
  evhttp_request_set_chunked_cb(request, bytes);
  evkeyvalq* sent = evhttp_request_get_output_headers(request);
  evhttp_add_header(sent, "Host", replica_->address().host.c_str());
  evhttp_add_header(sent, "Connection", "close");
  exchange_->record().replica = replica_->address().url();
  evhttp_add_header(sent, kRequestId, exchange_->request_id().c_str());
  forward_trace(sent);
  for (const char* name : kForwardedHeaders) forward_header(sent, name);
  if (!context_.decides_origins) {
    for (const char* name : kForwardedOfOrigins) forward_header(sent, name);
  }
  // libevent tells the length of some methods' bodies only. Without it, the bytes of others would
  // be a request of their own.
  std::string made = params_.empty() ? "" : generation_body(*sent_, params_);
  if (is_for_text_) evhttp_add_header(sent, kJournalHeader, "1");
  if (journal_ && journal_->has_records()) {
    const std::string& request = params_.empty() ? *sent_ : made;
    evhttp_add_header(sent, kResumeHeader, std::to_string(request.size()).c_str());
    made = journal_->resumed(request);
  }
  if (const std::string& body = made.empty() ? *sent_ : made; !body.empty()) {
    evhttp_add_header(sent, "Content-Length", std::to_string(body.size()).c_str());
    evbuffer_add(evhttp_request_get_output_buffer(request), body.data(), body.size());
  }
  if (evhttp_make_request(connection_, request, method_, exchange_->target().c_str()) != 0) {
    finish_attempt_later(false);
  }
}

bool RouterForward::computes() const { return exchange_->method() == "POST"; }

// The replica's spans are below the router's, or below the client's where the router has none.
void RouterForward::forward_trace(evkeyvalq* sent) const {
  const auto& trace = exchange_->record().trace;
  if (!trace) {
    for (const char* name : {"traceparent", "tracestate"}) forward_header(sent, name);
    return;
  }
  evhttp_add_header(sent, "traceparent", traceparent_of(trace->own).c_str());
  if (!trace->state.empty()) evhttp_add_header(sent, "tracestate", trace->state.c_str());
}

void RouterForward::forward_header(evkeyvalq* sent, const char* name) const {
  const std::string value = exchange_->header(name);
  if (!value.empty()) evhttp_add_header(sent, name, value.c_str());
}

// The same to whoever computes the prompt, whose spans are below one of its own.
std::vector<std::pair<std::string, std::string>> RouterForward::prefill_headers() const {
  std::vector<std::pair<std::string, std::string>> all = {{kRequestId, exchange_->request_id()}};
  const auto add = [&](const char* name, std::string value) {
    if (!value.empty()) all.emplace_back(name, std::move(value));
  };
  if (const auto& trace = exchange_->record().trace) {
    traces::TraceContext context = trace->own;
    context.span_id = exchange_->record().prefill->span_id;
    add("traceparent", traceparent_of(context));
    add("tracestate", trace->state);
  } else {
    for (const char* name : {"traceparent", "tracestate"}) add(name, exchange_->header(name));
  }
  for (const char* name : kForwardedHeaders) add(name, exchange_->header(name));
  return all;
}

void RouterForward::keep_header(evhttp_request* reply, const char* name) {
  if (auto value = header_of(reply, name); !value.empty()) returned_[name] = value;
}

int RouterForward::headers(evhttp_request* reply, void* self) {
  auto* forward = static_cast<RouterForward*>(self);
  forward->status_ = evhttp_request_get_response_code(reply);
  forward->type_ = header_of(reply, "Content-Type");
  forward->retry_after_ = header_of(reply, "Retry-After");
  const bool is_stream = forward->type_.starts_with("text/event-stream");
  forward->is_sending_ = is_stream;
  if (forward->streams_) return 0;  // the client has its headers from another replica
  forward->returned_.clear();
  for (const char* name : kReturnedHeaders) forward->keep_header(reply, name);
  if (!forward->context_.decides_origins) {
    for (const char* name : kReturnedOfOrigins) forward->keep_header(reply, name);
  }
  // Where the router has a span, the client gets that.
  if (!forward->context_.has_spans) forward->keep_header(reply, "traceparent");
  if (!is_stream) {
    forward->keep_header(reply, "Cache-Control");
  } else {
    forward->streams_ = true;
    if (forward->is_for_text_) forward->journal_.emplace(forward->context_.journals);
    forward->return_headers();
    forward->exchange_->start_stream(forward->type_);
  }
  return 0;
}

void RouterForward::bytes(evhttp_request* reply, void* self) {
  auto* forward = static_cast<RouterForward*>(self);
  if (forward->ended_) return;
  const std::string text = text_of(evhttp_request_get_input_buffer(reply));
  // The first part of a stream may come before anything is computed: who is speaking.
  if (++forward->num_parts_ == 2) forward->discharge();
  if (!forward->is_sending_) {
    forward->body_ += text;
  } else if (!forward->journal_) {
    forward->exchange_->send(text);
  } else if (const std::string taken = forward->journal_->take(text); !taken.empty()) {
    forward->exchange_->send(taken);
  } else if (forward->journal_->differs() && !forward->attempt_ended_) {
    forward->finish_attempt_later(false);
  }
}

// reply: null or without a status if the replica sent no reply.
void RouterForward::done(evhttp_request* reply, void* self) {
  auto* forward = static_cast<RouterForward*>(self);
  if (forward->ended_) return;
  forward->finish_attempt_later(reply != nullptr && evhttp_request_get_response_code(reply) != 0);
}

// Posted, because the connection may be freed only when its callback has returned.
void RouterForward::finish_attempt_later(bool whole) {
  attempt_ended_ = true;
  context_.http.post([kept = shared_from_this(), whole] {
    if (!kept->ended_) kept->finish_attempt(whole);
  });
}

// whole: the replica has sent a complete reply. Tries another replica, or replies to the client.
void RouterForward::finish_attempt(bool whole) {
  if (streams_) return finish_stream(whole);
  const bool refused = !whole || status_ == 503 || status_ == 429 || status_ == 529;
  note_failure(whole);
  if (refused && replicas_.has_other(tried_)) {
    forget_attempt();
    return try_next();
  }
  if (!whole) return give_up();
  return_headers();
  exchange_->reply(status_, type_, body_, retry_after_);
  end();
}

// The client has the begin of a stream.
void RouterForward::finish_stream(bool whole) {
  const bool is_behind = journal_ && (journal_->is_behind() || journal_->differs());
  if (whole && is_sending_ && !is_behind) {
    exchange_->end();
    return end();
  }
  note_failure(whole);
  if (whole && status_ == 400) {
    log::warn("{} does not go on with a stream: {}", replica_->address().url(),
              base::printable(body_, 300));
  }
  if (is_sending_) {
    // The others may have been tried before there was a stream, or when it was lost earlier.
    lost_ = replica_->address().url();
    tried_ = {replica_};
    ++num_losses_;
  }
  if (!may_resume()) return lose_stream();
  if (is_sending_) {
    ++replicas_.totals.num_resumed;
    journal_->begin_again();
  }
  forget_attempt();
  try_next();
}

bool RouterForward::may_resume() const {
  return journal_ && journal_->can_resume(sent_->size() + params_.size()) &&
         num_losses_ <= kMaxLosses && replicas_.has_other(tried_);
}

void RouterForward::note_failure(bool whole) {
  if (whole && status_ != 503) return;
  // One that drains has not failed: somebody takes it out for a while.
  if (!whole || !says_draining(body_)) ++replica_->failures;
  if (!whole && (attempt_ended_ || !connected_)) replicas_.lost(*replica_);
  replica_->up = false;
}

void RouterForward::forget_attempt() {
  disconnect();
  body_.clear();
  status_ = 0;
  is_sending_ = false;
}

// The replica has gone in the middle of a stream, and no other one can go on with it.
void RouterForward::lose_stream() {
  exchange_->record().error = kReplicaLost;
  exchange_->send(lost_in_stream());
  exchange_->end();
  end();
}

// What follows the part of a stream that has come: clients raise it as an error. It begins with the
// end of an event that may have been cut.
std::string RouterForward::lost_in_stream() const {
  const HttpError error{.status = 503,
                        .message = fmt::format("the replica {} was lost before the answer was "
                                               "complete",
                                               lost_),
                        .code = kReplicaLost};
  if (is_anthropic(exchange_->head())) {
    return "\n\nevent: error\ndata: " + messages_error(error, "") + "\n";
  }
  return "\n\ndata: " + error.json() + "\ndata: [DONE]\n\n";
}

void RouterForward::return_headers() {
  for (const auto& [name, value] : returned_) exchange_->add_header(name, value);
  // A browser's question before a request.
  const auto allow = returned_.find("Allow");
  if (method_ == EVHTTP_REQ_OPTIONS && context_.decides_origins && allow != returned_.end()) {
    exchange_->allow_methods(allow->second);
  }
}

void RouterForward::give_up() {
  if (streams_) return lose_stream();
  const HttpError error{.status = 503,
                        .message = "none of the replicas answers: " + replicas_.urls()};
  exchange_->reply(error.status, "application/json", error_form(exchange_->head(), error), "1");
  end();
}

// The client has its reply, or has left.
void RouterForward::end() {
  if (std::exchange(ended_, true)) return;
  context_.http.post([kept = shared_from_this()] {
    if (kept->exchange_ == nullptr) return;
    kept->release();
    kept->context_.over(kept);
  });
}

void RouterForward::disconnect() {
  if (connection_ != nullptr) evhttp_connection_free(std::exchange(connection_, nullptr));
  if (replica_ == nullptr) return;
  discharge();
  --std::exchange(replica_, nullptr)->running;
}

}  // namespace wideep::server
