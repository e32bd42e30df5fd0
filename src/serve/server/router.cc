// SPDX-License-Identifier: Apache-2.0
//
// A Forward takes one request through these steps, all on the thread of the event loop:
//
//   place (with kPrefix: read the prompt, ask for its pages' names) → try_next
//
//   try_next → connect, send → headers, bytes (streams go to the client at once) → finish_attempt
//      ▲                                                                               │
//      └──────── failed, 503, 429 or 529, no stream begun, another replica left ───────┘
//
// A libevent connection must not be freed inside its own callbacks. So every step that frees one is
// posted, and a Forward lives until the posted step has run.
#include "server/router.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "api/error_form.h"
#include "api/messages_reply.h"
#include "base/numeric_address.h"
#include "base/try.h"
#include "http/http_error.h"
#include "http/request_id.h"
#include "server/access_log.h"
#include "server/process_metrics.h"
#include "server/prometheus_text.h"
#include "server/router_ask.h"
#include "server/router_costs.h"
#include "server/router_prompt_text.h"

namespace wideep::server {
namespace {

using Clock = std::chrono::steady_clock;

// Health checks: how often, and the timeout of each.
constexpr int kProbeEveryMs = 1000;
constexpr int kProbeSeconds = 2;
constexpr size_t kMaxHealthBytes = 64 << 10;
// The timeout for connecting to a replica, and how often it is checked.
constexpr std::chrono::milliseconds kConnectTimeout{1500};
constexpr int kConnectCheckMs = 200;
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

// The methods that are forwarded. HEAD is asked as GET: the server that replies leaves out the
// body, but tells its length.
std::optional<evhttp_cmd_type> method_of(std::string_view name) {
  constexpr std::pair<std::string_view, evhttp_cmd_type> kMethods[] = {
      {"GET", EVHTTP_REQ_GET},         {"HEAD", EVHTTP_REQ_GET}, {"POST", EVHTTP_REQ_POST},
      {"OPTIONS", EVHTTP_REQ_OPTIONS}, {"PUT", EVHTTP_REQ_PUT},  {"DELETE", EVHTTP_REQ_DELETE},
      {"PATCH", EVHTTP_REQ_PATCH},
  };
  for (const auto& [method, type] : kMethods) {
    if (method == name) return type;
  }
  return std::nullopt;
}

void refuse(Exchange& exchange, const HttpError& error) {
  exchange.reply(error.status, "application/json", error_form(exchange.head(), error));
}

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

// Endpoints about one engine: a reply from an arbitrary replica would mislead, and what one has not
// answered would be done by the next one, too.
bool is_of_one_replica(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  return path == "/dashboard" || path.starts_with("/dashboard/") || path == "/perf_metrics" ||
         path == "/drain" || path.ends_with("_expert_distribution_record") ||
         path == "/scale_elastic_ep" || path == "/is_scaling_elastic_ep" || path == "/v1/cache" ||
         path.starts_with("/v1/cache/") || path == "/v1/kv_events" ||
         path.starts_with("/v1/kv_events/");
}

bool is_health(std::string_view path) { return path == "/health" || path == "/health/"; }

bool says_draining(std::string_view body) { return body.find("\"draining\"") != body.npos; }

bool is_connected(int socket) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

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

std::string ReplicaAddress::url() const { return fmt::format("http://{}:{}", host, port); }

Result<ReplicaAddress> parse_replica(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = text;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t colon = rest.rfind(':');
  ReplicaAddress address;
  if (colon != rest.npos && colon > 0) {
    const std::string_view digits = rest.substr(colon + 1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
    const bool whole = read.ec == std::errc() && read.ptr == digits.data() + digits.size();
    if (!whole || address.port > 65535) address.port = 0;
    address.host = rest.substr(0, colon);
  }
  if (address.port > 0 && address.host.find('/') == address.host.npos) return address;
  return invalid_input(fmt::format("--replica: expected http://host:port, found {}", text));
}

Result<std::string> resolve(const ReplicaAddress& address) {
  const Result<std::string> found = base::numeric_address(address.host);
  if (found.ok()) return found;
  return found.status().at("--replica " + address.url());
}

// Requests a replica's /health, one request at a time.
class Router::Probe {
 public:
  Probe(Router& router, Replica& replica)
      : router_(router), replica_(replica), ask_(*router.http_) {}

  void start() {
    if (ask_.waits()) return;  // the previous request has not ended
    began_ = Clock::now();
    RouterAsk::Question question = router_.question_of(router_.index_of(replica_));
    question.target = "/health";
    question.timeout_ms = kProbeSeconds * 1000;
    question.max_reply_bytes = kMaxHealthBytes;
    ask_.ask(question, [this](int status, const std::string& body) { take(status, body); });
  }

 private:
  void take(int status, const std::string& body) {
    if (status != 0) {
      replica_.silent_since.reset();
    } else if (!replica_.silent_since) {
      replica_.silent_since = began_;
    }
    replica_.up = status == 200;
    // One that drains keeps what it knows.
    if (!replica_.up && !says_draining(body)) router_.lost(replica_);
  }

  Router& router_;
  Replica& replica_;
  RouterAsk ask_;
  Clock::time_point began_;
};

// A request in progress, and its client (see the top of this file).
class Router::Forward : public std::enable_shared_from_this<Router::Forward> {
 public:
  Forward(Router& router, std::shared_ptr<Exchange> exchange, evhttp_cmd_type method)
      : router_(router),
        exchange_(std::move(exchange)),
        method_(method),
        sent_(std::make_shared<const std::string>(exchange_->take_body())) {}
  void start() {
    exchange_->on_gone([this] { end(); });
    if (router_.prefixes_ && exchange_->method() == "POST" && is_for_text(exchange_->path())) {
      return place();
    }
    try_next();
  }

  // Gives up the attempt if the replica has not been reached in time, or hangs. libevent has one
  // timeout for connecting and for the reply, which must be long; so these are checked here.
  void check_connection(Clock::time_point now) {
    if (connection_ == nullptr || attempt_ended_ || ended_) return;
    if (connected_) {
      // A short reply comes from another one as soon as this one misses a health check.
      const bool other = !computes() && !replica_->up && has_other();
      if (other || router_.hangs(*replica_, now) || now >= reply_by_) finish_attempt(false);
      return;
    }
    const int socket = bufferevent_getfd(evhttp_connection_get_bufferevent(connection_));
    connected_ = is_connected(socket);
    if (connected_) {
      enable_keep_alive(socket);
    } else if (now >= connect_by_) {
      finish_attempt(false);
    }
  }

  // Releases the connections on both sides. A reply that has not ended is cut.
  void release() {
    ended_ = true;
    if (placement_ != nullptr) placement_->cancel();
    disconnect();
    exchange_->on_gone({});
    exchange_.reset();
  }

 private:
  // Finds out what replicas have of the prompt, then goes on. A compressed body is not read.
  void place() {
    if (!exchange_->header("Content-Encoding").empty()) return placed(nullptr);
    RouterPlacement::Prompt prompt{.path = exchange_->path(), .body = sent_, .headers = {}};
    for (const char* name : kForwardedHeaders) {
      if (std::string value = exchange_->header(name); !value.empty()) {
        prompt.headers.emplace_back(name, std::move(value));
      }
    }
    PageNameSource& source = router_;
    placement_ = std::make_shared<RouterPlacement>(*router_.http_, *router_.prefixes_, source);
    placement_->start(std::move(prompt), [this](auto match) { placed(std::move(match)); });
  }
  void placed(std::shared_ptr<const PromptMatch> match) {
    if (ended_) return;  // the client has left
    match_ = std::move(match);
    if (match_ == nullptr) {
      ++router_.num_unread_;
    } else {
      router_.prompt_bytes_ += match_->bytes;
      router_.num_exact_ += match_->is_exact ? 1 : 0;
    }
    try_next();
  }

  // Counts the work of this request at the replica that it is sent to.
  void charge() {
    const uint64_t bytes = prompt_bytes();
    const size_t index = router_.index_of(*replica_);
    const uint64_t known = match_ == nullptr ? 0 : std::min(match_->known[index], bytes);
    prompt_work_ = bytes - known;
    num_parts_ = 0;
    replica_->work += prompt_work_ + kRequestBytes;
    if (match_ == nullptr) return;
    replica_->known_bytes += known;
    ++(known > 0 ? replica_->hits : replica_->misses);
    router_.prefixes_->sent(match_, index);
  }
  void discharge() {
    if (router_.prefixes_) replica_->work -= std::exchange(prompt_work_, 0) + kRequestBytes;
  }
  uint64_t prompt_bytes() const { return match_ == nullptr ? sent_->size() : match_->bytes; }

  void try_next() {
    replica_ = router_.prefixes_ ? router_.choose_cheapest(tried_, prompt_bytes(), match_.get())
                                 : router_.choose(tried_);
    if (replica_ == nullptr) return give_up();
    tried_.insert(replica_);
    ++replica_->running;
    ++replica_->requests;
    if (router_.prefixes_) charge();
    connected_ = attempt_ended_ = false;
    connect_by_ = Clock::now() + kConnectTimeout;
    reply_by_ = computes() ? Clock::time_point::max() : Clock::now() + kShortReply;
    connection_ = evhttp_connection_base_bufferevent_new(
        router_.http_->loop(), nullptr, nullptr, replica_->numbers.c_str(),
        static_cast<ev_uint16_t>(replica_->address.port));
    evhttp_connection_set_timeout(connection_, kReplySeconds);
    evhttp_request* request = evhttp_request_new(done, this);
    evhttp_request_set_header_cb(request, headers);
    evhttp_request_set_chunked_cb(request, bytes);
    evkeyvalq* sent = evhttp_request_get_output_headers(request);
    evhttp_add_header(sent, "Host", replica_->address.host.c_str());
    evhttp_add_header(sent, "Connection", "close");
    exchange_->record().replica = replica_->address.url();
    evhttp_add_header(sent, kRequestId, exchange_->request_id().c_str());
    forward_trace(sent);
    for (const char* name : kForwardedHeaders) forward_header(sent, name);
    if (!router_.decides_origins_) {
      for (const char* name : kForwardedOfOrigins) forward_header(sent, name);
    }
    // libevent tells the length of some methods' bodies only. Without it, the bytes of others would
    // be a request of their own.
    if (const std::string& body = *sent_; !body.empty()) {
      evhttp_add_header(sent, "Content-Length", std::to_string(body.size()).c_str());
      evbuffer_add(evhttp_request_get_output_buffer(request), body.data(), body.size());
    }
    if (evhttp_make_request(connection_, request, method_, exchange_->target().c_str()) != 0) {
      finish_attempt_later(false);
    }
  }

  bool computes() const { return exchange_->method() == "POST"; }

  // The replica's spans are below the router's, or below the client's where the router has none.
  void forward_trace(evkeyvalq* sent) const {
    const auto& trace = exchange_->record().trace;
    if (!trace) {
      for (const char* name : {"traceparent", "tracestate"}) forward_header(sent, name);
      return;
    }
    evhttp_add_header(sent, "traceparent", traceparent_of(trace->own).c_str());
    if (!trace->state.empty()) evhttp_add_header(sent, "tracestate", trace->state.c_str());
  }
  void forward_header(evkeyvalq* sent, const char* name) const {
    const std::string value = exchange_->header(name);
    if (!value.empty()) evhttp_add_header(sent, name, value.c_str());
  }
  void keep_header(evhttp_request* reply, const char* name) {
    if (auto value = header_of(reply, name); !value.empty()) returned_[name] = value;
  }

  static int headers(evhttp_request* reply, void* self) {
    auto* forward = static_cast<Forward*>(self);
    forward->status_ = evhttp_request_get_response_code(reply);
    forward->type_ = header_of(reply, "Content-Type");
    forward->retry_after_ = header_of(reply, "Retry-After");
    forward->returned_.clear();
    for (const char* name : kReturnedHeaders) forward->keep_header(reply, name);
    if (!forward->router_.decides_origins_) {
      for (const char* name : kReturnedOfOrigins) forward->keep_header(reply, name);
    }
    // Where the router has a span, the client gets that.
    if (!forward->router_.tracer_) forward->keep_header(reply, "traceparent");
    if (!forward->type_.starts_with("text/event-stream")) {
      forward->keep_header(reply, "Cache-Control");
    } else {
      forward->streams_ = true;
      forward->return_headers();
      forward->exchange_->start_stream(forward->type_);
    }
    return 0;
  }

  static void bytes(evhttp_request* reply, void* self) {
    auto* forward = static_cast<Forward*>(self);
    if (forward->ended_) return;
    const std::string text = text_of(evhttp_request_get_input_buffer(reply));
    // The first part of a stream may come before anything is computed: who is speaking.
    if (++forward->num_parts_ == 2 && forward->router_.prefixes_) {
      forward->replica_->work -= std::exchange(forward->prompt_work_, 0);
    }
    if (forward->streams_) {
      forward->exchange_->send(text);
    } else {
      forward->body_ += text;
    }
  }

  // reply: null or without a status if the replica sent no reply.
  static void done(evhttp_request* reply, void* self) {
    auto* forward = static_cast<Forward*>(self);
    if (forward->ended_) return;
    forward->finish_attempt_later(reply != nullptr && evhttp_request_get_response_code(reply) != 0);
  }

  // Posted, because the connection may be freed only when its callback has returned.
  void finish_attempt_later(bool whole) {
    attempt_ended_ = true;
    router_.http_->post([kept = shared_from_this(), whole] {
      if (!kept->ended_) kept->finish_attempt(whole);
    });
  }

  // whole: the replica has sent a complete reply. Tries another replica, or replies to the client.
  void finish_attempt(bool whole) {
    const bool refused = !whole || status_ == 503 || status_ == 429 || status_ == 529;
    if (!whole || status_ == 503) {
      // One that drains has not failed: somebody takes it out for a while.
      if (!whole || !says_draining(body_)) ++replica_->failures;
      if (!whole && (attempt_ended_ || !connected_)) router_.lost(*replica_);
      replica_->up = false;
    }
    if (refused && !streams_ && has_other()) {
      disconnect();
      body_.clear();
      status_ = 0;
      return try_next();
    }
    if (!whole && !streams_) return give_up();
    if (!whole) {
      exchange_->record().error = kReplicaLost;
      exchange_->send(lost_in_stream());
    }
    if (streams_) {
      exchange_->end();
    } else {
      return_headers();
      exchange_->reply(status_, type_, body_, retry_after_);
    }
    end();
  }

  // What follows the part of a stream that has come: clients raise it as an error. It
  // begins with the end of an event that may have been cut.
  std::string lost_in_stream() const {
    const HttpError error{.status = 503,
                          .message = fmt::format("the replica {} was lost before the answer was "
                                                 "complete",
                                                 replica_->address.url()),
                          .code = kReplicaLost};
    if (is_anthropic(exchange_->head())) {
      return "\n\nevent: error\ndata: " + messages_error(error, "") + "\n";
    }
    return "\n\ndata: " + error.json() + "\ndata: [DONE]\n\n";
  }

  void return_headers() {
    for (const auto& [name, value] : returned_) exchange_->add_header(name, value);
    // A browser's question before a request.
    const auto allow = returned_.find("Allow");
    if (method_ == EVHTTP_REQ_OPTIONS && router_.decides_origins_ && allow != returned_.end()) {
      exchange_->allow_methods(allow->second);
    }
  }

  bool has_other() const { return tried_.size() < router_.replicas_.size(); }

  void give_up() {
    const HttpError error{.status = 503,
                          .message = "none of the replicas answers: " + router_.urls()};
    exchange_->reply(error.status, "application/json", error_form(exchange_->head(), error), "1");
    end();
  }

  // The client has its reply, or has left.
  void end() {
    if (std::exchange(ended_, true)) return;
    router_.http_->post([kept = shared_from_this()] {
      if (kept->exchange_ == nullptr) return;
      kept->release();
      kept->router_.finished(kept.get());
    });
  }

  void disconnect() {
    if (connection_ != nullptr) evhttp_connection_free(std::exchange(connection_, nullptr));
    if (replica_ == nullptr) return;
    discharge();
    --std::exchange(replica_, nullptr)->running;
  }

  Router& router_;
  std::shared_ptr<Exchange> exchange_;
  evhttp_cmd_type method_;
  std::shared_ptr<const std::string> sent_;  // the request's body
  // With kPrefix.
  std::shared_ptr<RouterPlacement> placement_;  // null: there was none
  std::shared_ptr<const PromptMatch> match_;    // null: nothing is known
  uint64_t prompt_work_ = 0;                    // of replica_->work, until the answer comes
  int num_parts_ = 0;                           // of the reply

  std::set<const Replica*> tried_;
  Replica* replica_ = nullptr;
  evhttp_connection* connection_ = nullptr;
  bool connected_ = false;
  bool attempt_ended_ = false;  // the replica has replied or failed; finish_attempt is posted
  Clock::time_point connect_by_, reply_by_;
  int status_ = 0;
  std::string type_, retry_after_, body_;
  std::map<std::string, std::string> returned_;  // headers of the reply, from kReturnedHeaders
  bool streams_ = false;
  bool ended_ = false;
};

Result<std::unique_ptr<Router>> Router::listen(const RouterOptions& options) {
  std::unique_ptr<Router> router(new Router(options));
  for (Replica& each : router->replicas_) {
    WIDEEP_TRY_ASSIGN(each.numbers, resolve(each.address));
  }
  Router* self = router.get();
  HttpOptions http_options = options.http;
  http_options.error_form = error_form;
  auto http = HttpServer::listen(http_options,
                                 [self](std::shared_ptr<Exchange> each) { self->handle(each); });
  if (!http.ok()) return http.status();
  router->http_ = std::move(*http);
  if (options.traces) router->tracer_.emplace(*options.traces);
  if (options.access_log || options.traces) {
    router->http_->on_ended([self, access_log = options.access_log](const RequestRecord& record) {
      if (access_log) log_access(record);
      if (self->tracer_) self->tracer_->ended(record);
    });
  }
  for (Replica& each : router->replicas_) {
    router->probes_.push_back(std::make_unique<Probe>(*self, each));
  }
  if (options.policy == RoutePolicy::kPrefix) router->begin_prefixes(options);
  router->http_->call_every(kProbeEveryMs, [self] { self->probe(); });
  router->http_->call_every(kConnectCheckMs, [self] { self->check_connections(); });
  return router;
}

Router::Router(const RouterOptions& options)
    : give_up_(options.give_up_seconds), decides_origins_(!options.http.cors_origins.empty()) {
  for (const ReplicaAddress& address : options.replicas) replicas_.push_back({.address = address});
}

// Connections must be freed before the event loop that they use. Posted calls may still hold
// Forwards, so destroying in_progress_ alone would not free them.
Router::~Router() {
  for (const std::shared_ptr<Forward>& each : in_progress_) each->release();
  probes_.clear();
  watches_.clear();
}

void Router::begin_prefixes(const RouterOptions& options) {
  prefixes_ = std::make_unique<RouterPrefixes>(replicas_.size(), RouterPrefixes::Limits());
  for (const Replica& each : replicas_) {
    watches_.push_back(
        std::make_unique<RouterPageWatch>(*http_, *prefixes_,
                                          RouterPageWatch::Target{.replica = index_of(each),
                                                                  .host = each.address.host,
                                                                  .numbers = each.numbers,
                                                                  .port = each.address.port,
                                                                  .key = options.replica_key}));
  }
}

void Router::lost(const Replica& replica) {
  if (!prefixes_) return;
  const size_t index = index_of(replica);
  prefixes_->forget_sent(index);
  prefixes_->forget_pages(index);
  watches_[index]->lost();
}

void Router::run() {
  http_->post([this] { probe(); });
  http_->run();
}

void Router::probe() {
  for (const auto& each : probes_) each->start();
  for (size_t i = 0; i < watches_.size(); ++i) {
    if (replicas_[i].up) watches_[i]->check();
  }
}

void Router::check_connections() {
  const Clock::time_point now = Clock::now();
  for (const auto& each : in_progress_) each->check_connection(now);
}

void Router::drain() {
  http_->post([this] {
    drains_ = true;
    if (in_progress_.empty()) http_->stop();
  });
}

void Router::stop() { http_->stop(); }

void Router::handle(const std::shared_ptr<Exchange>& exchange) {
  if (exchange->path() == "/metrics" && exchange->method() != "OPTIONS") {
    return exchange->reply(200, "text/plain; version=0.0.4", metrics());
  }
  const auto method = method_of(exchange->method());
  if (!method) {
    exchange->add_header("Allow", "GET, HEAD, POST, OPTIONS");
    return refuse(*exchange, {.status = 405,
                              .message = fmt::format("{} {}: expected GET, HEAD, POST or OPTIONS",
                                                     exchange->method(), exchange->path())});
  }
  if (is_health(exchange->path()) && *method == EVHTTP_REQ_GET) return reply_health(exchange);
  if (drains_) {
    return refuse(*exchange,
                  {.status = 503, .message = "the router is shutting down", .code = "draining"});
  }
  if (is_of_one_replica(exchange->path())) {
    return refuse(
        *exchange,
        {.status = 404,
         .message = fmt::format("{} is about a single replica: request it there, for example at {}",
                                exchange->path(), replicas_.front().address.url())});
  }
  if (tracer_ && exchange->method() == "POST") {
    exchange->record().trace = tracer_->begin(exchange->head());
    exchange->add_header("traceparent", traceparent_of(exchange->record().trace->own));
  }
  const auto forward = std::make_shared<Forward>(*this, exchange, *method);
  in_progress_.insert(forward);
  forward->start();
}

bool Router::hangs(const Replica& replica, Clock::time_point now) const {
  return replica.silent_since && now - *replica.silent_since >= give_up_;
}

std::string Router::urls() const {
  std::string urls;
  for (const Replica& each : replicas_) {
    urls += (urls.empty() ? "" : ", ") + each.address.url();
  }
  return urls;
}

// The router's own health, from the last health checks of the replicas: no replica can delay it.
void Router::reply_health(const std::shared_ptr<Exchange>& exchange) const {
  const auto up = std::ranges::count_if(replicas_, [](const Replica& each) { return each.up; });
  if (drains_) {
    return refuse(*exchange, {.status = 503, .message = "the router is shutting down"});
  }
  if (up == 0) {
    return refuse(*exchange,
                  {.status = 503, .message = "none of the replicas is healthy: " + urls()});
  }
  exchange->reply(
      200, "application/json",
      fmt::format("{{\"status\":\"ok\",\"replicas\":{},\"healthy\":{}}}\n", replicas_.size(), up));
}

// Healthy replicas first, then those with the fewest requests in progress; equal ones in turn.
Router::Replica* Router::choose(const std::set<const Replica*>& tried) {
  const auto busy = [](const Replica& replica) { return std::pair(!replica.up, replica.running); };
  Replica* best = nullptr;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Replica& each = replicas_[(next_ + i) % replicas_.size()];
    if (!tried.contains(&each) && (best == nullptr || busy(each) < busy(*best))) best = &each;
  }
  ++next_;
  return best;
}

Router::Replica* Router::choose_cheapest(const std::set<const Replica*>& tried,
                                         uint64_t prompt_bytes, const PromptMatch* match) {
  std::vector<ReplicaCost> costs;
  costs.reserve(replicas_.size());
  for (const Replica& each : replicas_) {
    costs.push_back({.is_tried = tried.contains(&each),
                     .is_up = each.up,
                     .work = each.work,
                     .known = match == nullptr ? 0 : match->known[costs.size()]});
  }
  const size_t best = cheapest_replica(costs, prompt_bytes, next_++);
  return best == kNoReplica ? nullptr : &replicas_[best];
}

// The least busy: what it is asked for takes no rank, but the processors of ranks.
std::optional<size_t> Router::choose_for_names() {
  const auto is_known = [](const auto& watch) { return watch->is_known(); };
  if (std::ranges::none_of(watches_, is_known)) return std::nullopt;
  const Clock::time_point now = Clock::now();
  const Replica* best = nullptr;
  for (const Replica& each : replicas_) {
    if (!each.up || now < each.names_from) continue;
    if (best == nullptr || each.work < best->work) best = &each;
  }
  if (best == nullptr) return std::nullopt;
  return index_of(*best);
}

RouterAsk::Question Router::question_of(size_t replica) const {
  const Replica& asked = replicas_[replica];
  return {.host = asked.address.host, .numbers = asked.numbers, .port = asked.address.port};
}

void Router::rest(size_t replica, std::chrono::seconds time) {
  replicas_[replica].names_from = Clock::now() + time;
}

void Router::finished(Forward* forward) {
  in_progress_.erase(forward->shared_from_this());
  if (drains_ && in_progress_.empty()) http_->stop();
}

std::string Router::metrics() const {
  struct Metric {
    const char* name;
    const char* type;
    const char* help;
    std::function<uint64_t(const Replica&)> value;
  };
  std::vector<Metric> all = {
      {"wideep_router_requests_total", "counter", "Requests forwarded to a replica",
       [](const Replica& each) { return each.requests; }},
      {"wideep_router_requests_running", "gauge", "Requests in progress on a replica",
       [](const Replica& each) { return static_cast<uint64_t>(each.running); }},
      {"wideep_router_failures_total", "counter", "Requests that failed on a replica",
       [](const Replica& each) { return each.failures; }},
      {"wideep_router_replica_up", "gauge", "1: the replica is healthy, 0: it is not",
       [](const Replica& each) { return uint64_t{each.up}; }}};
  const Metric of_prefixes[] = {
      {"wideep_router_prefix_hits_total", "counter",
       "Requests sent to a replica that has a beginning of their prompt",
       [](const Replica& each) { return each.hits; }},
      {"wideep_router_prefix_misses_total", "counter",
       "Requests sent to a replica that has no beginning of their prompt",
       [](const Replica& each) { return each.misses; }},
      {"wideep_router_prefix_matched_bytes_total", "counter",
       "Bytes of prompts whose beginning a replica has",
       [](const Replica& each) { return each.known_bytes; }},
      {"wideep_router_work_bytes", "gauge", "Work in progress on a replica, in bytes of prompts",
       [](const Replica& each) { return each.work; }},
      {"wideep_router_kv_events_known", "gauge",
       "1: the pages of a replica are known from its KV events, 0: they are not",
       [this](const Replica& each) { return uint64_t{watches_[index_of(each)]->is_known()}; }},
      {"wideep_router_kv_pages", "gauge", "Pages of a replica that are known from its KV events",
       [this](const Replica& each) { return uint64_t{watches_[index_of(each)]->num_pages()}; }}};
  if (prefixes_) all.insert(all.end(), std::begin(of_prefixes), std::end(of_prefixes));
  std::string text;
  for (const Metric& each : all) {
    text += metric_head(each.name, each.type, each.help);
    for (const Replica& replica : replicas_) {
      text += fmt::format("{}{{replica=\"{}\"}} {}\n", each.name, replica.address.url(),
                          each.value(replica));
    }
  }
  if (prefixes_) {
    text += metric("wideep_router_prompt_bytes_total", "counter", "Bytes of prompts that were read",
                   prompt_bytes_);
    text += metric("wideep_router_prefix_exact_total", "counter",
                   "Requests whose pages' names were known", num_exact_);
    text += metric("wideep_router_prefix_unread_total", "counter",
                   "Requests for text whose prompt was not read, or not in time", num_unread_);
  }
  if (tracer_) text += tracer_->metrics();
  return text + process_metrics();
}

}  // namespace wideep::server
