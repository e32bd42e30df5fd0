// SPDX-License-Identifier: Apache-2.0
#include "server/router.h"

#include <event2/http.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "api/error_form.h"
#include "base/log.h"
#include "base/try.h"
#include "http/http_error.h"
#include "server/access_log.h"
#include "server/process_metrics.h"
#include "server/router_metrics.h"

namespace wideep::server {
namespace {

// How often replicas are asked how they are.
constexpr int kProbeEveryMs = 1000;
// How often connections to replicas are checked.
constexpr int kConnectCheckMs = 200;

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

// Endpoints about one engine: a reply from an arbitrary replica would mislead, and what one has not
// answered would be done by the next one, too.
bool is_of_one_replica(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  return path == "/dashboard" || path.starts_with("/dashboard/") || path == "/perf_metrics" ||
         path == "/drain" || path.ends_with("_expert_distribution_record") ||
         path == "/scale_elastic_ep" || path == "/is_scaling_elastic_ep" || path == "/v1/cache" ||
         path.starts_with("/v1/cache/") || path == "/v1/kv_events" ||
         path.starts_with("/v1/kv_events/") || path == "/v1/pd_role" || path == "/pd_role_switch";
}

bool is_health(std::string_view path) { return path == "/health" || path == "/health/"; }

}  // namespace

Result<std::unique_ptr<Router>> Router::listen(const RouterOptions& options) {
  std::vector<RouterReplicas::Resolved> members;
  for (const RouterMember& each : options.replicas) {
    WIDEEP_TRY_ASSIGN(std::string numbers, resolve(each.address));
    members.push_back({.member = each, .numbers = std::move(numbers)});
  }
  std::unique_ptr<Router> router(new Router());
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
  router->replicas_ = std::make_unique<RouterReplicas>(*router->http_, options, members);
  router->context_.emplace(
      RouterForward::Context{.http = *router->http_,
                             .replicas = *router->replicas_,
                             .journals = router->journals_,
                             .decides_origins = !options.http.cors_origins.empty(),
                             .has_spans = options.traces.has_value(),
                             .over = [self](const auto& forward) { self->over(forward); }});
  router->http_->call_every(kProbeEveryMs, [self] { self->replicas_->probe(); });
  router->http_->call_every(kConnectCheckMs, [self] { self->check_connections(); });
  return router;
}

// Connections must be freed before the event loop that they use. Posted calls may still hold
// Forwards, so destroying in_progress_ alone would not free them.
Router::~Router() {
  for (const auto& each : in_progress_) each->release();
  in_progress_.clear();
  replicas_.reset();
}

void Router::run() {
  http_->post([this] { replicas_->probe(); });
  http_->run();
}

void Router::set_members(const std::vector<RouterMember>& members) { names_.set(members); }

void Router::check_connections() {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& each : in_progress_) each->check_connection(now);
}

void Router::drain() {
  http_->post([this] {
    drains_ = true;
    if (in_progress_.empty()) http_->stop();
  });
}

void Router::stop() { http_->stop(); }

void Router::over(const std::shared_ptr<RouterForward>& forward) {
  in_progress_.erase(forward);
  if (drains_ && in_progress_.empty()) http_->stop();
}

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
                                exchange->path(), replicas_->urls())});
  }
  if (tracer_ && exchange->method() == "POST") {
    exchange->record().trace = tracer_->begin(exchange->head());
    exchange->add_header("traceparent", traceparent_of(exchange->record().trace->own));
  }
  const auto forward = std::make_shared<RouterForward>(*context_, exchange, *method);
  in_progress_.insert(forward);
  forward->start();
}

// The router's own health, from the last health checks of the replicas: no replica can delay it.
void Router::reply_health(const std::shared_ptr<Exchange>& exchange) const {
  const size_t up = replicas_->num_healthy();
  if (drains_) {
    return refuse(*exchange, {.status = 503, .message = "the router is shutting down"});
  }
  if (up == 0) {
    return refuse(*exchange, {.status = 503,
                              .message = "none of the replicas is healthy: " + replicas_->urls()});
  }
  exchange->reply(200, "application/json",
                  fmt::format("{{\"status\":\"ok\",\"replicas\":{},\"healthy\":{}}}\n",
                              replicas_->num_members(), up));
}

std::string Router::metrics() const {
  std::string text = metrics_of(*replicas_);
  if (tracer_) text += tracer_->metrics();
  return text + process_metrics();
}

}  // namespace wideep::server
