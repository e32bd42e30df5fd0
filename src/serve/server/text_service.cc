// SPDX-License-Identifier: Apache-2.0
//
// A body is prepared at once if it is short and has no sign of a format, tools or a stored
// response, which take longer; all else goes to the work thread. What a dead process had accepted
// stays accepted, and what it had refused stays refused, whatever the limits say now. The time of a
// request, which a template may write into its prompt, is that of the first process. The id of a
// response that may be stored is random: who knows it may read it.
#include "server/text_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include "api/messages_reply.h"
#include "api/openai_reply.h"
#include "api/responses_items.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/printable.h"
#include "run/event.h"
#include "server/stream_records.h"
#include "store/page_peer.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// Bodies up to this size are prepared on the serving thread, in less than a millisecond.
constexpr size_t kMaxBytesAtOnce = 4 << 10;

// A format of the answer may take a tenth of a second, however short it is, and so may the schemas
// of tools. What might name one counts as if it did; "\\u00": names may have letters as escapes.
bool is_quick(std::string_view body) {
  if (body.size() > kMaxBytesAtOnce) return false;
  constexpr std::string_view kSigns[] = {
      "format\"",    "guided_", "structured_outputs",  "output_", "tools\"",
      "tool_choice", "\\u00",   "previous_response_id"};
  return std::ranges::none_of(
      kSigns, [&](std::string_view sign) { return body.find(sign) != std::string_view::npos; });
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

// Null: there is none.
const ApiSpec* api_at(std::string_view path) {
  for (const Api each : {Api::kCompletion, Api::kChat, Api::kResponses, Api::kMessages}) {
    if (path == spec_of(each).path) return &spec_of(each);
  }
  return nullptr;
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

// Null: there are none.
Result<std::shared_ptr<const AnswerRecords>> records_of(const ResumedBody& body) {
  std::shared_ptr<AnswerRecords> records;
  if (!body.records.empty()) {
    auto read = AnswerRecords::read(body.records);
    if (!read.ok()) return read.status().at(kResumeHeader);
    records = std::make_shared<AnswerRecords>(std::move(*read));
    records->leave_machine();
  }
  return std::shared_ptr<const AnswerRecords>(std::move(records));
}

HttpError response_not_found(const std::string& id) {
  return {.status = 404,
          .message = fmt::format("there is no stored response '{}'; it was not sent with store: "
                                 "true, or has made room for newer ones",
                                 base::printable(id, 60)),
          .param = "response_id",
          .code = "response_not_found"};
}

}  // namespace

TextService::TextService(const ServiceOptions& options, TextParts parts, Replies& replies)
    : options_(options),
      replies_(replies),
      metrics_(parts.metrics),
      responses_(options.stored_responses),
      preparation_({.model = options.model,
                    .other_name = options.other_name,
                    .max_sequence = options.max_sequence,
                    .vocab_size = options.vocab_size,
                    .returns_experts = options.returns_experts,
                    .responses = &responses_,
                    .has_end_tokens = options.has_end_tokens,
                    .sampling = options.sampling,
                    .finds_turns = options.keeps_states,
                    .record_class = options.record_class,
                    .page_trust = store::PageTrust(options.page_key)},
                   parts.tokenizer, std::move(parts.chat)),
      generation_{.tokenizer = parts.tokenizer,
                  .backend = parts.backend,
                  .metrics = parts.metrics,
                  .stream_interval = options.stream_interval,
                  .draft_metrics = options.draft_metrics,
                  .max_drafts = options.max_drafts,
                  .returns_experts = options.returns_experts,
                  .reuses_pages = options.reuses_pages,
                  .context_requests = options.context_requests,
                  .opaque_state = options.opaque_state},
      watch_(options.timeout_seconds) {}

bool TextService::fail(const std::string& why) {
  failure_ = HttpError{.status = 503, .message = why, .code = "ranks_ended"};
  const std::vector<Generation*> running(generation_.running.begin(), generation_.running.end());
  for (Generation* each : running) each->fail(*failure_);
  return !running.empty();
}

void TextService::ping() {
  for (Generation* each : generation_.running) each->ping();
}

void TextService::iteration_ended(double seconds) { watch_.ended(now_seconds(), seconds); }

std::optional<HttpError> TextService::trouble() const {
  if (failure_) return failure_;
  if (is_draining()) return refusal();
  const auto since = generation_.backend.computes_since();
  const auto overdue = since ? watch_.overdue(now_seconds(), *since) : std::nullopt;
  if (!overdue) return std::nullopt;
  return HttpError{.status = 503,
                   .message = fmt::format("no iteration has ended for {:.1f} s while requests run: "
                                          "a rank hangs or is very slow",
                                          *overdue),
                   .code = "iteration_overdue"};
}

void TextService::answer(const std::shared_ptr<Exchange>& exchange, const ApiSpec& api) {
  const AnswerPast past{.of_server = Generation::past_of(*exchange), .of_other = nullptr};
  begin_record(*exchange, api, past.of_server.get());
  std::shared_ptr<const ResponseStore::Loan> lent;
  if (api.stores && past.of_server != nullptr) {
    lent = responses_.lend(past.of_server->head.local.kept);
  }
  const bool keeps = exchange->keeps_records() || exchange->header(kJournalHeader) == "1";
  const std::string resumes = exchange->header(kResumeHeader);
  work_on_body(exchange, [this, &api, past, lent, keeps, resumes](std::string_view body) -> Rest {
    AnswerPast all = past;
    if (!resumes.empty()) {
      const auto split = split_resumed(resumes, body);
      const auto found = split.ok() ? records_of(*split) : split.status();
      if (!found.ok()) return rest_of(HttpError{.message = found.status().message()});
      body = split->request;
      all.of_other = *found;
    }
    const std::time_t came = all.newest() ? all.newest()->head.created : std::time(nullptr);
    auto prepared =
        std::make_shared<Parsed<Prepared>>(preparation_.prepare(api, body, came, keeps));
    return [this, &api, came, prepared, all](const std::shared_ptr<Exchange>& each) {
      generate(each, api, came, std::move(*prepared), all);
    };
  });
}

// A process that goes on with an answer is part of the same request: its client has its id already.
void TextService::begin_record(Exchange& exchange, const ApiSpec& api, const AnswerRecords* past) {
  RequestRecord& record = exchange.record();
  record.text = TextWork{.operation = api.api == Api::kCompletion ? "text_completion" : "chat",
                         .model = options_.model,
                         .is_resumed = past != nullptr};
  if (past != nullptr) {
    const AnswerHead::Local& local = past->head.local;
    record.id = local.request_id;
    record.came_ns = local.came_ns;
    record.trace = local.trace;
  } else if (tracer_ != nullptr) {
    record.trace = tracer_->begin(exchange.head());
  }
  if (record.trace) exchange.add_header("traceparent", traceparent_of(record.trace->own));
}

void TextService::stored_response(const std::shared_ptr<Exchange>& exchange) {
  const StoredPath path = stored_path(*exchange);
  const auto found = responses_.find(path.id);
  if (found == nullptr) return replies_.refuse(exchange, response_not_found(path.id));
  if (path.rest.empty()) {
    if (exchange->query("stream") != "true")
      return replies_.reply(exchange, kJson, found->response + "\n");
    return replies_.refuse(
        exchange,
        {.message = "stream: a stored response comes whole; leave it out", .param = "stream"});
  }
  if (path.rest != "input_items") {
    return replies_.refuse(
        exchange, {.status = 404, .message = fmt::format("no endpoint {}", path_of(*exchange))});
  }
  constexpr int64_t kDefault = 20;
  const auto limit =
      replies_.read_number(exchange, {.name = "limit", .what = "1 to 100", .by_default = kDefault});
  if (!limit) return;
  const ItemPage wanted{
      .after = exchange->query("after"), .order = exchange->query("order"), .limit = *limit};
  ExchangeWork::Work work = [this, found, wanted] {
    return rest_of(item_page(found->conversation, wanted));
  };
  if (found->conversation.size() <= kMaxBytesAtOnce) return work_.do_at_once(exchange, work);
  work_apart(exchange, std::move(work));
}

void TextService::delete_response(const std::shared_ptr<Exchange>& exchange) {
  const StoredPath path = stored_path(*exchange);
  if (!path.rest.empty() || !responses_.erase(path.id)) {
    return replies_.refuse(exchange, response_not_found(path.id));
  }
  replies_.reply(exchange, kJson,
                 json_text({{"id", path.id}, {"object", "response"}, {"deleted", true}}));
}

void TextService::count_tokens(const std::shared_ptr<Exchange>& exchange) {
  reply_with(exchange, &Preparation::count_tokens);
}

void TextService::tokenize(const std::shared_ptr<Exchange>& exchange) {
  reply_with(exchange, &Preparation::tokenize);
}

void TextService::detokenize(const std::shared_ptr<Exchange>& exchange) {
  reply_with(exchange, &Preparation::detokenize);
}

// The request is another endpoint's, whose path a client may say.
void TextService::prompt_tokens(const std::shared_ptr<Exchange>& exchange) {
  const std::string path = exchange->query("path");
  const ApiSpec* api = path.empty() ? nullptr : api_at(path);
  if (!path.empty() && api == nullptr) {
    return replies_.refuse(exchange,
                           {.message = fmt::format("path: expected that of an API for text, as "
                                                   "/v1/chat/completions, found '{}'",
                                                   base::printable(path, 60)),
                            .param = "path"});
  }
  const std::time_t came = std::time(nullptr);
  work_on_body(exchange, [this, api, came](std::string_view body) {
    return rest_of(preparation_.prompt_tokens(api, body, came));
  });
}

void TextService::tokenizer_info(const std::shared_ptr<Exchange>& exchange) {
  replies_.reply(exchange, kJson, json_text(preparation_.tokenizer_info()));
}

void TextService::reply_with(const std::shared_ptr<Exchange>& exchange,
                             Parsed<ordered_json> (Preparation::*make)(std::string_view) const) {
  work_on_body(exchange,
               [this, make](std::string_view body) { return rest_of((preparation_.*make)(body)); });
}

// What is left of work that has made a reply.
TextService::Rest TextService::rest_of(const Parsed<ordered_json>& made) {
  if (const auto* error = std::get_if<HttpError>(&made)) {
    return [this, error = *error](const std::shared_ptr<Exchange>& each) {
      replies_.refuse(each, error);
    };
  }
  return [this, text = json_text(std::get<ordered_json>(made))](
             const std::shared_ptr<Exchange>& each) { replies_.reply(each, kJson, text); };
}

// A short body is worked on at once, in less than a millisecond.
void TextService::work_on_body(const std::shared_ptr<Exchange>& exchange,
                               std::function<Rest(std::string_view body)> work) {
  const std::string encoding = exchange->header("Content-Encoding");
  if (!encoding.empty() && encoding != "identity") {
    return replies_.refuse(
        exchange, {.message = fmt::format("Content-Encoding: expected none, found '{}'; send the "
                                          "body as it is",
                                          base::printable(encoding, 40))});
  }
  if (is_quick(exchange->body())) {
    return work_.do_at_once(exchange, [&] { return work(exchange->body()); });
  }
  work_apart(exchange, [work = std::move(work),
                        body = std::make_shared<const std::string>(exchange->take_body())] {
    return work(*body);
  });
}

void TextService::work_apart(const std::shared_ptr<Exchange>& exchange, ExchangeWork::Work work) {
  if (!work_.is_connected()) return work_.do_at_once(exchange, work);
  const bool is_full = work_.size() >= static_cast<size_t>(options_.max_queue);
  if (is_full && !exchange->is_inherited()) return replies_.refuse(exchange, queue_full(1));
  work_.add(exchange, std::move(work));
}

void TextService::generate(const std::shared_ptr<Exchange>& exchange, const ApiSpec& api,
                           std::time_t came, Parsed<Prepared> parsed, AnswerPast past) {
  if (const auto* error = std::get_if<HttpError>(&parsed)) return replies_.refuse(exchange, *error);
  Prepared& prepared = std::get<Prepared>(parsed);
  GenerationOptions& options = prepared.options;
  const size_t num_answers = prepared.prompts.size() * static_cast<size_t>(options.n);
  if (const auto error = check(*exchange, options, num_answers))
    return replies_.refuse(exchange, *error);
  if (!options.stream) past.of_other = nullptr;  // nothing was sent before the whole reply
  if (past.of_other != nullptr) {
    if (const auto error = check(*past.of_other, api, prepared))
      return replies_.refuse(exchange, *error);
    exchange->record().text->is_resumed = true;
  }
  const auto too_much = exchange->hold(options.held_bytes);
  if (too_much && !exchange->is_inherited()) return replies_.refuse(exchange, *too_much);
  log_without_effect(exchange->request_id(), options);
  log_refused_peer(options);
  if (!options.has_seed) options.engine_request.sampling.seed = fresh_seed();
  ReplyHead head = head_for(api, came);
  if (api.errors.names_requests) exchange->add_header("request-id", request_id_of(head.id));
  Generation::start(generation_, exchange, std::move(head), std::move(prepared), past);
}

// Once for each field: clients send the same ones with every request. They are words of tables, of
// which there are fewer; should one be a client's, it writes no lines of its own.
void TextService::log_without_effect(const std::string& request_id,
                                     const GenerationOptions& options) {
  constexpr size_t kMaxNames = 1024;
  for (const std::string& name : options.without_effect) {
    if (without_effect_.size() == kMaxNames || !without_effect_.insert(name).second) continue;
    const log::Field id{.name = "request_id", .value = request_id};
    log::write({.text = fmt::format("http: a request has {}, which has no effect here; this is "
                                    "said once",
                                    base::printable(name)),
                .fields = std::span(&id, 1)});
  }
}

void TextService::log_refused_peer(const GenerationOptions& options) {
  if (options.peer_refusal.empty()) return;
  const run::PromptTransfer none{.from_peer = {.trouble = options.peer_refusal}};
  const std::string peer = store::text_of(*options.shared_prompt->peer);
  const std::string line = refused_peers_.line_of(none, peer, now_seconds());
  if (!line.empty()) log::warn("{}", line);
}

// What another process has accepted, or refused, before it died stays so: its client may have begun
// to read the answer.
std::optional<HttpError> TextService::check(const Exchange& exchange,
                                            const GenerationOptions& options,
                                            size_t num_answers) const {
  if (failure_) return failure_;
  if (exchange.was_refused()) return queue_full(num_answers);
  if (exchange.is_inherited()) return {};
  if (is_draining()) return refusal();
  if (num_answers > static_cast<size_t>(options_.max_queue)) {
    return HttpError{.message = fmt::format("{} answers are asked for at once, and at most {} may "
                                            "run or wait; ask for fewer, or raise --max-queue",
                                            num_answers, options_.max_queue),
                     .param = options.n > 1 ? "n" : "prompt"};
  }
  if (metrics_.running + static_cast<int64_t>(num_answers) > options_.max_queue) {
    return queue_full(num_answers);
  }
  return {};
}

// Records come from whoever sends the request: they have to be those of such an answer.
std::optional<HttpError> TextService::check(const AnswerRecords& past, const ApiSpec& api,
                                            const Prepared& prepared) const {
  const GenerationOptions& options = prepared.options;
  AnswerBounds bounds{.id_start = api.id_start,
                      .model = options_.model,
                      .other_model = options_.other_name,
                      .vocab_size = std::max(options_.vocab_size, generation_.tokenizer.id_limit()),
                      .answers = {},
                      .max_likely = std::max(options.engine_request.sampling.top_log_probabilities,
                                             options.prompt_logprobs.value_or(0))};
  for (size_t i = 0; i < prepared.prompts.size(); ++i) {
    const std::span<const int32_t> ids = prepared.prompts[i].ids();
    AnswerBounds::Tokens tokens{.prompt = static_cast<int>(ids.size())};
    if (options.scores_prompts()) tokens.forced = ids.subspan(1);
    tokens.max = options.max_tokens_of[i] + static_cast<int>(tokens.forced.size());
    bounds.answers.insert(bounds.answers.end(), static_cast<size_t>(options.n), tokens);
  }
  const Status status = server::check(past, bounds);
  if (status.ok()) return {};
  return HttpError{.message = fmt::format("{}: {}", kResumeHeader, status.message())};
}

HttpError TextService::refusal() const {
  return {.status = 503,
          .message = ending_ ? "the server is shutting down"
                             : "the server is draining: it takes no requests for now; ask another "
                               "one, or try again later",
          .code = "draining"};
}

HttpError TextService::queue_full(size_t num_answers) const {
  return {
      .status = 429,
      .message = fmt::format("{} answers run or wait and {} more are asked for, at most {} may; "
                             "try again later",
                             running(), num_answers, options_.max_queue),
      .code = "queue_full"};
}

ReplyHead TextService::head_for(const ApiSpec& api, std::time_t came) {
  return {.api = api.api,
          .id = api.stores ? secret_id(api.id_start) : replies_.id_with(api.id_start),
          .created = came,
          .model = options_.model};
}

}  // namespace wideep::server
