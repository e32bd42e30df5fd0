// SPDX-License-Identifier: Apache-2.0
#include "server/service.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <random>

#include "api/messages_reply.h"
#include "api/openai_reply.h"
#include "api/openai_request.h"
#include "api/responses_items.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/printable.h"
#include "engine/wire.h"
#include "server/dashboard_page.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// Bodies up to this size are prepared on the serving thread, in less than a millisecond.
constexpr size_t kMostBytesAtOnce = 4 << 10;
// Of bodies that no endpoint needs to be longer. As many as there may be connections must leave
// room for those of requests for text.
constexpr size_t kShortBodyBytes = 4 << 10;
constexpr const char* kJson = "application/json";

// A format of the answer may take a tenth of a second, however short it is, and so may the schemas
// of tools. What might name one counts as if it did; "\\u00": names may have letters as escapes.
bool is_quick(std::string_view body) {
  if (body.size() > kMostBytesAtOnce) return false;
  constexpr std::string_view kSigns[] = {
      "format\"",    "guided_", "structured_outputs",  "output_", "tools\"",
      "tool_choice", "\\u00",   "previous_response_id"};
  return std::ranges::none_of(
      kSigns, [&](std::string_view sign) { return body.find(sign) != std::string_view::npos; });
}

// Takes the same time for every wrong key of the right length, so that timing does not reveal how
// much of a guess is right.
bool same_text(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// The path without a slash at the end, which has no meaning here.
std::string_view without_last_slash(std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

std::string_view path_of(const Exchange& exchange) { return without_last_slash(exchange.path()); }

// The key of "Bearer <key>"; "" for another scheme or none. Schemes are case-insensitive (RFC
// 9110).
std::string_view bearer_key(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const bool bears =
      authorization.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b | 0x20 : b); });
  if (!bears) return {};
  authorization.remove_prefix(kScheme.size());
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' '), authorization.size()));
  return authorization;
}

// An endpoint that ends with a slash ("/v1/models/") matches every path below it.
bool is_at(std::string_view path, std::string_view endpoint) {
  return endpoint.ends_with('/') ? path.starts_with(endpoint) && path != endpoint
                                 : path == endpoint;
}

double now_seconds() { return static_cast<double>(base::wall_ns()) * 1e-9; }

uint64_t fresh_seed() {
  static std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Who knows the id of a stored response can read it: it cannot be guessed.
std::string secret_id(std::string_view start) {
  const uint64_t begin = fresh_seed();
  return fmt::format("{}{:016x}{:016x}", start, begin, fresh_seed());
}

// What follows "/v1/responses/".
struct StoredPath {
  std::string id;
  std::string rest;  // after the id and a slash
};

StoredPath stored_path(const Exchange& exchange) {
  std::string_view path = path_of(exchange);
  path.remove_prefix(std::string_view("/v1/responses/").size());
  const size_t slash = std::min(path.find('/'), path.size());
  return {.id = std::string(path.substr(0, slash)),
          .rest = std::string(path.substr(std::min(slash + 1, path.size())))};
}

ApiError response_not_found(const std::string& id) {
  return {.status = 404,
          .message = fmt::format("there is no stored response '{}'; it was not sent with store: "
                                 "true, or has made room for newer ones",
                                 base::printable(id, 60)),
          .param = "response_id",
          .code = "response_not_found"};
}

}  // namespace

const Service::Endpoint Service::kEndpoints[] = {
    {"POST", "/v1/completions", kClients, kAnyBody, &Service::completions},
    {"POST", "/v1/chat/completions", kClients, kAnyBody, &Service::chat_completions},
    {"POST", "/v1/responses", kClients, kAnyBody, &Service::responses},
    {"GET", "/v1/responses/", kClients, kShortBody, &Service::stored_response},
    {"DELETE", "/v1/responses/", kClients, kShortBody, &Service::delete_response},
    {"POST", "/v1/messages", kClients, kAnyBody, &Service::messages},
    {"POST", "/v1/messages/count_tokens", kClients, kAnyBody, &Service::count_tokens},
    {"POST", "/tokenize", kClients, kAnyBody, &Service::tokenize},
    {"POST", "/detokenize", kClients, kAnyBody, &Service::detokenize},
    {"GET", "/v1/models", kClients, kShortBody, &Service::models},
    {"GET", "/v1/models/", kClients, kShortBody, &Service::model},
    {"GET", "/health", kPublic, kShortBody, &Service::health},
    {"GET", "/version", kPublic, kShortBody, &Service::version},
    {"GET", "/metrics", kClients, kShortBody, &Service::metrics_page},
    {"GET", "/perf_metrics", kClients, kShortBody, &Service::perf_metrics},
    {"GET", "/dashboard", kPublic, kShortBody, &Service::dashboard},
    {"GET", "/dashboard/data", kClients, kShortBody, &Service::dashboard_data},
    {"GET", "/dashboard/load", kClients, kShortBody, &Service::dashboard_load},
    {"POST", "/start_expert_distribution_record", kAdmins, kShortBody, &Service::start_record},
    {"POST", "/stop_expert_distribution_record", kAdmins, kShortBody, &Service::stop_record},
    {"POST", "/dump_expert_distribution_record", kAdmins, kShortBody, &Service::dump_record},
    {"POST", "/scale_elastic_ep", kAdmins, kShortBody, &Service::scale},
    {"POST", "/is_scaling_elastic_ep", kClients, kShortBody, &Service::is_scaling},
};

Service::Service(ServiceOptions options, const tokenizer::Tokenizer& tokenizer, ChatFiles chat,
                 Backend& backend)
    : options_(std::move(options)),
      responses_(options_.stored_responses),
      preparation_({.model = options_.model,
                    .max_sequence = options_.max_sequence,
                    .vocab_size = options_.vocab_size,
                    .returns_experts = options_.returns_experts,
                    .responses = &responses_,
                    .has_end_tokens = options_.has_end_tokens,
                    .sampling = options_.sampling},
                   tokenizer, std::move(chat)),
      monitor_(static_cast<int>(options_.ranks.ranks.size()), options_.online_totals != nullptr,
               metrics_),
      load_(options_.ranks),
      ranks_(static_cast<int>(options_.ranks.ranks.size()),
             options_.start_ranks > 0 ? options_.start_ranks
                                      : static_cast<int>(options_.ranks.ranks.size())),
      balancer_(options_.online_totals),
      recorder_(options_.recorder, options_.ranks),
      generation_{.tokenizer = tokenizer,
                  .backend = backend,
                  .metrics = metrics_,
                  .stream_interval = options_.stream_interval,
                  .draft_metrics = options_.draft_metrics,
                  .most_drafts = options_.most_drafts,
                  .returns_experts = options_.returns_experts},
      started_(std::time(nullptr)),
      watch_(options_.timeout_seconds) {
  metrics_.speculates = options_.most_drafts > 0;
}

const Service::Endpoint* Service::endpoint_of(std::string_view method, std::string_view path) {
  if (method == "HEAD") method = "GET";
  const auto* found = std::find_if(
      std::begin(kEndpoints), std::end(kEndpoints),
      [&](const Endpoint& each) { return is_at(path, each.path) && method == each.method; });
  return found == std::end(kEndpoints) ? nullptr : found;
}

void Service::handle(const std::shared_ptr<Exchange>& exchange) {
  const std::string_view path = path_of(*exchange);
  const HeadVerdict verdict = judge(exchange->head(), path);
  if (verdict.error) return refuse(exchange, *verdict.error);
  if (exchange->body().size() > verdict.most_body_bytes) {
    return refuse(exchange, body_too_large(verdict.most_body_bytes));
  }
  const Endpoint* endpoint = endpoint_of(exchange->method(), path);
  if (endpoint == nullptr) return answer_options(exchange);
  (this->*endpoint->handler)(exchange);
}

HeadVerdict Service::check_head(const RequestHead& head) {
  const std::string path = path_of_target(head.target);
  HeadVerdict verdict = judge(head, without_last_slash(path));
  if (verdict.error) count_reply(without_last_slash(path), verdict.error->status);
  return verdict;
}

// Bodies of clients without a key, and those that nobody reads, must not fill the memory.
HeadVerdict Service::judge(const RequestHead& head, std::string_view path) const {
  const Endpoint* endpoint = endpoint_of(head.method, path);
  if (endpoint == nullptr) {
    return {.error = without_endpoint(head.method, path), .most_body_bytes = kShortBodyBytes};
  }
  return {.error = check_key(head, endpoint->access),
          .most_body_bytes = endpoint->body == kAnyBody ? SIZE_MAX : kShortBodyBytes};
}

// nullopt: OPTIONS, which is answered for all that there is.
std::optional<ApiError> Service::without_endpoint(std::string_view method, std::string_view path) {
  const std::string allowed = allowed_methods(path);
  if (allowed.empty()) {
    return ApiError{.status = 404, .message = fmt::format("no endpoint {}", path)};
  }
  if (method == "OPTIONS") return std::nullopt;
  return ApiError{.status = 405,
                  .message = fmt::format("{} {}: expected {}", method, path, allowed),
                  .allow = allowed};
}

// The methods of a path, as the header Allow has them; "": there is no such endpoint.
std::string Service::allowed_methods(std::string_view path) {
  if (path == "*") return "GET, HEAD, POST, DELETE, OPTIONS";
  std::string methods;
  for (const Endpoint& endpoint : kEndpoints) {
    if (!is_at(path, endpoint.path)) continue;
    methods += fmt::format("{}, ", endpoint.method);
    if (std::string_view(endpoint.method) == "GET") methods += "HEAD, ";
  }
  return methods.empty() ? "" : methods + "OPTIONS";
}

// Also what a browser asks before it lets a page of another origin send a request (CORS). Such a
// question has no key.
void Service::answer_options(const std::shared_ptr<Exchange>& exchange) {
  const std::string allowed = allowed_methods(path_of(*exchange));
  exchange->add_header("Allow", allowed);
  exchange->allow_methods(allowed);
  count_reply(path_of(*exchange), 204);
  exchange->reply(204, "", "");
}

bool Service::fail(const std::string& why) {
  failure_ = ApiError{.status = 503, .message = why, .code = "ranks_ended"};
  const std::vector<Generation*> running(generation_.running.begin(), generation_.running.end());
  for (Generation* each : running) each->fail(*failure_);
  return !running.empty();
}

void Service::ping() {
  for (Generation* each : generation_.running) each->ping();
}

void Service::iteration_ended(double seconds) { watch_.ended(now_seconds(), seconds); }

// The admin key opens everything.
std::optional<ApiError> Service::check_key(const RequestHead& head, Access access) const {
  const bool wants_admin = access == kAdmins && !options_.admin_key.empty();
  if (access == kPublic || (!wants_admin && options_.api_key.empty())) return std::nullopt;
  const std::string authorization = head.field("authorization"), key = head.field("x-api-key");
  const auto has = [&](const std::string& right) {
    const bool bears = same_text(bearer_key(authorization), right);
    return (bears | same_text(key, right)) && !right.empty();
  };
  if (has(options_.admin_key) || (!wants_admin && has(options_.api_key))) return std::nullopt;
  return ApiError{.status = 401,
                  .message = fmt::format("expected the server's {} key as \"Authorization: Bearer "
                                         "<key>\" or \"x-api-key: <key>\"",
                                         wants_admin ? "admin" : "API"),
                  .code = "invalid_api_key"};
}

// ---- generation ----

void Service::completions(const std::shared_ptr<Exchange>& exchange) {
  answer(exchange, spec_of(Api::kCompletion));
}

void Service::chat_completions(const std::shared_ptr<Exchange>& exchange) {
  answer(exchange, spec_of(Api::kChat));
}

void Service::answer(const std::shared_ptr<Exchange>& exchange, const ApiSpec& api) {
  const auto begun = Generation::begun(*exchange);
  const std::time_t came = begun ? begun->created : std::time(nullptr);
  std::shared_ptr<const ResponseStore::Loan> lent;
  if (api.stores) lent = responses_.lend(begun ? begun->kept : "");
  const bool keeps = exchange->keeps_records();
  work_on_body(exchange, [this, &api, came, lent, keeps](std::string_view body) -> Rest {
    auto prepared =
        std::make_shared<Parsed<Prepared>>(preparation_.prepare(api, body, came, keeps));
    return [this, &api, came, prepared](const std::shared_ptr<Exchange>& each) {
      generate(each, api, came, std::move(*prepared));
    };
  });
}

void Service::responses(const std::shared_ptr<Exchange>& exchange) {
  answer(exchange, spec_of(Api::kResponses));
}

void Service::stored_response(const std::shared_ptr<Exchange>& exchange) {
  const StoredPath path = stored_path(*exchange);
  const auto found = responses_.find(path.id);
  if (found == nullptr) return refuse(exchange, response_not_found(path.id));
  if (path.rest.empty()) {
    if (exchange->query("stream") != "true") return reply(exchange, kJson, found->response + "\n");
    return refuse(exchange, {.message = "stream: a stored response comes whole; leave it out",
                             .param = "stream"});
  }
  if (path.rest != "input_items") {
    return refuse(exchange,
                  {.status = 404, .message = fmt::format("no endpoint {}", path_of(*exchange))});
  }
  constexpr int64_t kDefault = 20;
  const auto limit = read_number(exchange, "limit", "1 to 100", kDefault);
  if (!limit) return;
  const ItemPage wanted{
      .after = exchange->query("after"), .order = exchange->query("order"), .limit = *limit};
  ExchangeWork::Work work = [this, found, wanted] {
    return rest_of(item_page(found->conversation, wanted));
  };
  if (found->conversation.size() <= kMostBytesAtOnce) return work()(exchange);
  work_apart(exchange, std::move(work));
}

void Service::delete_response(const std::shared_ptr<Exchange>& exchange) {
  const StoredPath path = stored_path(*exchange);
  if (!path.rest.empty() || !responses_.erase(path.id)) {
    return refuse(exchange, response_not_found(path.id));
  }
  reply(exchange, kJson, json_text({{"id", path.id}, {"object", "response"}, {"deleted", true}}));
}

void Service::messages(const std::shared_ptr<Exchange>& exchange) {
  answer(exchange, spec_of(Api::kMessages));
}

void Service::count_tokens(const std::shared_ptr<Exchange>& exchange) {
  reply_with(exchange, &Preparation::count_tokens);
}

void Service::tokenize(const std::shared_ptr<Exchange>& exchange) {
  reply_with(exchange, &Preparation::tokenize);
}

void Service::detokenize(const std::shared_ptr<Exchange>& exchange) {
  reply_with(exchange, &Preparation::detokenize);
}

void Service::reply_with(const std::shared_ptr<Exchange>& exchange,
                         Parsed<ordered_json> (Preparation::*make)(std::string_view) const) {
  work_on_body(exchange,
               [this, make](std::string_view body) { return rest_of((preparation_.*make)(body)); });
}

// What is left of work that has made a reply.
Service::Rest Service::rest_of(const Parsed<ordered_json>& made) {
  if (const auto* error = std::get_if<ApiError>(&made)) {
    return [this, error = *error](const std::shared_ptr<Exchange>& each) { refuse(each, error); };
  }
  return [this, text = json_text(std::get<ordered_json>(made))](
             const std::shared_ptr<Exchange>& each) { reply(each, kJson, text); };
}

// A short body is worked on at once, in less than a millisecond.
void Service::work_on_body(const std::shared_ptr<Exchange>& exchange,
                           std::function<Rest(std::string_view body)> work) {
  const std::string encoding = exchange->header("Content-Encoding");
  if (!encoding.empty() && encoding != "identity") {
    return refuse(exchange,
                  {.message = fmt::format("Content-Encoding: expected none, found '{}'; send the "
                                          "body as it is",
                                          base::printable(encoding, 40))});
  }
  if (is_quick(exchange->body())) return work(exchange->body())(exchange);
  work_apart(exchange, [work = std::move(work),
                        body = std::make_shared<const std::string>(exchange->take_body())] {
    return work(*body);
  });
}

void Service::work_apart(const std::shared_ptr<Exchange>& exchange, ExchangeWork::Work work) {
  if (!work_.is_connected()) return work()(exchange);
  const bool is_full = work_.size() >= static_cast<size_t>(options_.max_queue);
  if (is_full && !exchange->is_inherited()) return refuse(exchange, queue_full(1));
  work_.add(exchange, std::move(work));
}

void Service::join() {
  work_.join();
  recorder_.join();
}

void Service::generate(const std::shared_ptr<Exchange>& exchange, const ApiSpec& api,
                       std::time_t came, Parsed<Prepared> parsed) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) return refuse(exchange, *error);
  Prepared& prepared = std::get<Prepared>(parsed);
  GenerationOptions& options = prepared.options;
  const size_t num_answers = prepared.prompts.size() * static_cast<size_t>(options.n);
  if (const auto error = check(*exchange, options, num_answers)) return refuse(exchange, *error);
  const auto too_much = exchange->hold(options.held_bytes);
  if (too_much && !exchange->is_inherited()) return refuse(exchange, *too_much);
  log_without_effect(options);
  if (!options.has_seed) options.sampling.seed = fresh_seed();
  if (metrics_.running == 0) watch_.began(now_seconds());
  ReplyHead head = head_for(api, came);
  if (api.errors.names_requests) exchange->add_header("request-id", request_id_of(head.id));
  Generation::start(generation_, exchange, std::move(head), std::move(options),
                    std::move(prepared.prompts));
}

// Once for each field: clients send the same ones with every request. They are words of tables, of
// which there are fewer; should one be a client's, it writes no lines of its own.
void Service::log_without_effect(const GenerationOptions& options) {
  constexpr size_t kMostNames = 1024;
  for (const std::string& name : options.without_effect) {
    if (without_effect_.size() == kMostNames || !without_effect_.insert(name).second) continue;
    log::info("http: a request has {}, which has no effect here; this is said once",
              base::printable(name));
  }
}

// What another process has accepted, or refused, before it died stays so: its client may have begun
// to read the answer.
std::optional<ApiError> Service::check(const Exchange& exchange, const GenerationOptions& options,
                                       size_t num_answers) const {
  if (failure_) return failure_;
  if (exchange.was_refused()) return queue_full(num_answers);
  if (exchange.is_inherited()) return {};
  if (draining_) {
    return ApiError{.status = 503, .message = "the server is shutting down", .code = "draining"};
  }
  if (num_answers > static_cast<size_t>(options_.max_queue)) {
    return ApiError{.message = fmt::format("{} answers are asked for at once, and at most {} may "
                                           "run or wait; ask for fewer, or raise --max-queue",
                                           num_answers, options_.max_queue),
                    .param = options.n > 1 ? "n" : "prompt"};
  }
  if (metrics_.running + static_cast<int64_t>(num_answers) > options_.max_queue) {
    return queue_full(num_answers);
  }
  return {};
}

ApiError Service::queue_full(size_t num_answers) const {
  return {
      .status = 429,
      .message = fmt::format("{} answers run or wait and {} more are asked for, at most {} may; "
                             "try again later",
                             metrics_.running + static_cast<int64_t>(work_.size()), num_answers,
                             options_.max_queue),
      .code = "queue_full"};
}

ReplyHead Service::head_for(const ApiSpec& api, std::time_t came) {
  return {.api = api.api,
          .id = api.stores ? secret_id(api.id_start) : id_with(api.id_start),
          .created = came,
          .model = options_.model};
}

std::string Service::id_with(std::string_view start) {
  return fmt::format("{}{:x}{}-{}", start, started_,
                     restarts_ > 0 ? fmt::format(".{}", restarts_) : "", replies_begun_++);
}

// ---- replies that need no engine ----

ordered_json Service::model_json() const {
  return {{"id", options_.model},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "wideep"},
          {"max_model_len", options_.max_sequence}};
}

void Service::models(const std::shared_ptr<Exchange>& exchange) {
  if (is_anthropic(exchange->head())) {
    return reply(exchange, kJson,
                 json_text(anthropic_models(options_.model, started_, options_.max_sequence)));
  }
  reply(exchange, kJson,
        json_text({{"object", "list"}, {"data", ordered_json::array({model_json()})}}));
}

void Service::model(const std::shared_ptr<Exchange>& exchange) {
  if (path_of(*exchange) == "/v1/models/" + options_.model) {
    return reply(exchange, kJson,
                 json_text(is_anthropic(exchange->head())
                               ? anthropic_model(options_.model, started_, options_.max_sequence)
                               : model_json()));
  }
  refuse(exchange, {.status = 404,
                    .message = fmt::format("the model here is '{}'", options_.model),
                    .code = "model_not_found"});
}

void Service::health(const std::shared_ptr<Exchange>& exchange) {
  if (failure_) return refuse(exchange, *failure_);
  if (draining_) {
    return refuse(exchange, {.status = 503, .message = "the server is shutting down"});
  }
  const auto overdue = idle() ? std::nullopt : watch_.overdue(now_seconds());
  if (overdue) {
    return refuse(exchange, {.status = 503,
                             .message = fmt::format("no iteration has ended for {:.1f} s while "
                                                    "requests run: a rank hangs or is very slow",
                                                    *overdue),
                             .code = "iteration_overdue"});
  }
  // Still 200: requests are answered, by fewer ranks.
  const std::string degraded = ranks_.degraded();
  if (degraded.empty()) return reply(exchange, kJson, json_text({{"status", "ok"}}));
  reply(exchange, kJson, json_text({{"status", "degraded"}, {"reason", degraded}}));
}

void Service::version(const std::shared_ptr<Exchange>& exchange) {
  reply(exchange, kJson, json_text({{"version", WIDEEP_VERSION}}));
}

void Service::metrics_page(const std::shared_ptr<Exchange>& exchange) {
  reply(exchange, "text/plain; version=0.0.4; charset=utf-8",
        metrics_.text() + ranks_.metrics() + responses_.metrics() +
            balancer_.metrics(monitor_.recent_imbalance(unix_seconds())));
}

// ---- statistics of the engine ----

// The value of "?name=…". nullopt: it is not a number, and an error was sent.
std::optional<int64_t> Service::read_number(const std::shared_ptr<Exchange>& exchange,
                                            const std::string& name, const char* what,
                                            int64_t by_default) {
  const std::string text = exchange->query(name);
  if (text.empty()) return by_default;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  refuse(exchange,
         {.message = fmt::format("{}: expected {}, an integer, found '{}'", name, what, text),
          .param = name});
  return std::nullopt;
}

void Service::perf_metrics(const std::shared_ptr<Exchange>& exchange) {
  constexpr int64_t kBeforeTheFirst = -1;
  const auto since = read_number(exchange, "since", "the number of an iteration", kBeforeTheFirst);
  if (!since) return;
  reply(exchange, kJson, monitor_.iterations(std::max(*since, kBeforeTheFirst)));
}

// The page itself contains no data and needs no key. Its script asks the user for the key, if one
// is required, and sends it with /dashboard/data.
void Service::dashboard(const std::shared_ptr<Exchange>& exchange) {
  reply(exchange, "text/html; charset=utf-8", dashboard_page());
}

void Service::dashboard_data(const std::shared_ptr<Exchange>& exchange) {
  const auto since = read_number(exchange, "since", "seconds since 1970", 0);
  if (!since) return;
  ordered_json data = monitor_.dashboard(*since, unix_seconds());
  data["model"] = options_.model;
  data["ranks"] = ranks_.json();
  data["balancer"] = balancer_.json();
  data["version"] = WIDEEP_VERSION;
  data["started"] = started_;
  data["returns_experts"] = options_.returns_experts;
  reply(exchange, kJson, json_text(data));
}

void Service::dashboard_load(const std::shared_ptr<Exchange>& exchange) {
  const std::vector<int>& layers = load_.layers();
  const auto layer = read_number(exchange, "layer", "the number of a MoE layer",
                                 layers.empty() ? 0 : layers.front());
  if (!layer) return;
  const auto since = read_number(exchange, "since", "seconds since 1970", 0);
  if (!since) return;
  const auto found = std::ranges::find(layers, *layer);
  if (found == layers.end() && !layers.empty()) {
    return refuse(exchange, {.message = fmt::format("layer: expected one of the MoE layers {}, "
                                                    "found {}",
                                                    fmt::join(layers, ", "), *layer),
                             .param = "layer"});
  }
  const auto index = static_cast<size_t>(found - layers.begin());
  reply(exchange, kJson, json_text(load_.json(index, *since)));
}

void Service::start_record(const std::shared_ptr<Exchange>& exchange) {
  recorder_.start(reply_with_outcome(exchange, "recording"));
}

void Service::stop_record(const std::shared_ptr<Exchange>& exchange) {
  recorder_.stop(reply_with_outcome(exchange, "stopped"));
}

void Service::dump_record(const std::shared_ptr<Exchange>& exchange) {
  recorder_.dump(reply_with_outcome(exchange, "dumped"));
}

// ---- the number of ranks ----

void Service::restarted(int number, int wanted) {
  restarts_ = number;
  ranks_.begin_again(number, wanted, unix_seconds());
}

void Service::connect_scaling(std::function<Status(int)> want,
                              std::function<void(int, std::function<void()>)> call_in) {
  want_ = std::move(want);
  call_in_ = std::move(call_in);
}

// Answers when the ranks compute, or after drain_timeout: then the number is again what it was.
// Nothing is drained; the name is vLLM's.
void Service::scale(const std::shared_ptr<Exchange>& exchange) {
  const Parsed<ScaleRequest> parsed = parse_scale_request(exchange->body());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return refuse(exchange, *error);
  const ScaleRequest request = std::get<ScaleRequest>(parsed);
  const int wanted = static_cast<int>(request.num_ranks);
  if (ranks_.is_changing()) {
    return refuse(exchange, {.status = 409,
                             .message = fmt::format("the number of ranks is changing to {} now",
                                                    ranks_.wanted())});
  }
  const auto done = [this, exchange](int status, const std::string& message) {
    ++scalings_;
    scaling_ = false;
    if (status == 200) return reply(exchange, kJson, json_text({{"message", message}}));
    refuse(exchange, {.status = status, .message = message});
  };
  const std::string success = fmt::format("Scaled to {} data parallel engines", wanted);
  if (want_ == nullptr) return done(400, "the number of ranks is fixed");
  const int before = wanted_before(*exchange);  // before the keeper is told
  if (const Status status = want_(wanted); !status.ok()) return done(400, status.message());
  // Another serving process, which has died, may have been asked for it: then they are on their
  // way.
  if (wanted == ranks_.wanted() && ranks_.all_compute()) return done(200, success);
  scaling_ = true;
  ranks_.want(wanted, [done, success] { done(200, success); });
  call_in_(static_cast<int>(request.timeout_seconds), [this, done, before, number = scalings_,
                                                       seconds = request.timeout_seconds] {
    if (number != scalings_) return;  // it has succeeded
    ranks_.want(before, nullptr);
    [[maybe_unused]] const Status back = want_(before);
    done(408, fmt::format("the ranks did not compute within {} s; {} ranks stay", seconds, before));
  });
}

// The number of ranks to go back to. A process that goes on with the request finds the new one
// wanted already.
int Service::wanted_before(Exchange& exchange) const {
  const std::vector<std::string> records = exchange.records();
  if (!records.empty()) return engine::WireReader(records.front()).get<int>();
  engine::WireWriter writer;
  writer.put(ranks_.wanted());
  exchange.add_record(writer.take());
  return ranks_.wanted();
}

void Service::is_scaling(const std::shared_ptr<Exchange>& exchange) {
  reply(exchange, kJson, json_text({{"is_scaling_elastic_ep", ranks_.is_changing()}}));
}

// Status 400: not possible in this state; 500: failed.
ExpertRecorder::Done Service::reply_with_outcome(const std::shared_ptr<Exchange>& exchange,
                                                 const char* what) {
  return [this, exchange, what](const ExpertRecorder::Outcome& outcome) {
    if (!outcome.status.ok()) {
      const bool invalid = outcome.status.code() == StatusCode::kInvalidInput;
      return refuse(exchange, {.status = invalid ? 400 : 500, .message = outcome.status.message()});
    }
    ordered_json body = {{"status", what}, {"iterations", outcome.iterations}};
    if (!outcome.directory.empty()) body["directory"] = outcome.directory;
    reply(exchange, kJson, json_text(body));
  };
}

void Service::reply(const std::shared_ptr<Exchange>& exchange, std::string_view type,
                    std::string_view body) {
  count_reply(path_of(*exchange), 200);
  exchange->reply(200, type, body);
}

void Service::refuse(const std::shared_ptr<Exchange>& exchange, const ApiError& error) {
  const std::string retry_after = error.status == 429 ? "1" : "";
  if (!error.allow.empty()) exchange->add_header("Allow", error.allow);
  const ErrorStyle& style = errors_for(exchange->head());
  const std::string id = style.names_requests ? id_with("req_") : "";
  if (style.names_requests) exchange->add_header("request-id", id);
  const int status = style.status(error);
  count_reply(path_of(*exchange), status);
  exchange->reply(status, kJson, style.body(error, id), retry_after);
}

// Counts unknown paths as "other": clients could otherwise fill the memory with invented paths.
void Service::count_reply(std::string_view path, int status) {
  const auto found = std::find_if(std::begin(kEndpoints), std::end(kEndpoints),
                                  [&](const Endpoint& each) { return is_at(path, each.path); });
  ++metrics_.replies[{found == std::end(kEndpoints) ? "other" : found->path, status}];
}

}  // namespace wideep::server
