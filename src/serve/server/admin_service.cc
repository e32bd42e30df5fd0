// SPDX-License-Identifier: Apache-2.0
//
// To scale is a wish that may outlive this process. The number of ranks to go back to is recorded
// with the request before the keeper is told: whoever goes on with it finds the new number wanted
// already. A timer answers only the request that has started it, which a counter tells. Names and
// messages are vLLM's, though nothing is drained here.
#include "server/admin_service.h"

#include <fmt/format.h>

#include <utility>

#include "api/openai_reply.h"
#include "api/openai_request.h"
#include "base/log.h"
#include "schedule/wire.h"

namespace wideep::server {

using nlohmann::ordered_json;

void AdminService::connect_scaling(std::function<Status(int)> want,
                                   std::function<void(int, std::function<void()>)> call_in) {
  want_ = std::move(want);
  call_in_ = std::move(call_in);
}

// Answers when the ranks compute, or after drain_timeout: then the number is again what it was.
// Nothing is drained; the name is vLLM's.
void AdminService::scale(const std::shared_ptr<Exchange>& exchange) {
  const Parsed<ScaleRequest> parsed = parse_scale_request(exchange->body());
  if (const auto* error = std::get_if<HttpError>(&parsed)) return replies_.refuse(exchange, *error);
  const ScaleRequest request = std::get<ScaleRequest>(parsed);
  const int wanted = static_cast<int>(request.num_ranks);
  if (state_.ranks.is_changing()) {
    return replies_.refuse(exchange,
                           {.status = 409,
                            .message = fmt::format("the number of ranks is changing to {} now",
                                                   state_.ranks.wanted())});
  }
  const auto done = [this, exchange](int status, const std::string& message) {
    ++scalings_;
    scaling_ = false;
    if (status == 200) return replies_.reply(exchange, kJson, json_text({{"message", message}}));
    replies_.refuse(exchange, {.status = status, .message = message});
  };
  const std::string success = fmt::format("Scaled to {} data parallel engines", wanted);
  if (want_ == nullptr) return done(400, "the number of ranks is fixed");
  const int before = wanted_before(*exchange);  // before the keeper is told
  if (const Status status = want_(wanted); !status.ok()) return done(400, status.message());
  // Another serving process, which has died, may have been asked for it: then they are on their
  // way.
  if (state_.ranks.compute_alone(wanted)) {
    state_.ranks.want(wanted, nullptr);
    return done(200, success);
  }
  scaling_ = true;
  state_.ranks.want(wanted, [done, success] { done(200, success); });
  call_in_(static_cast<int>(request.timeout_seconds), [this, done, before, number = scalings_,
                                                       seconds = request.timeout_seconds] {
    if (number != scalings_) return;  // it has succeeded
    state_.ranks.want(before, nullptr);
    [[maybe_unused]] const Status back = want_(before);
    done(408, fmt::format("the ranks did not compute within {} s; {} ranks stay", seconds, before));
  });
}

// The number of ranks to go back to. A process that goes on with the request finds the new one
// wanted already.
int AdminService::wanted_before(Exchange& exchange) const {
  const std::vector<std::string> records = exchange.records();
  if (!records.empty()) return engine::WireReader(records.front()).get<int>();
  engine::WireWriter writer;
  writer.put(state_.ranks.wanted());
  exchange.add_record(writer.take());
  return state_.ranks.wanted();
}

void AdminService::set_draining(bool now) {
  if (text_.is_ending()) return;  // there is no way back, and nothing more to refuse
  text_.set_draining(now);
  if (state_.metrics.draining != now) {
    log::info("{}", now ? fmt::format("draining: requests are refused until DELETE /drain; answers "
                                      "that run or wait: {}",
                                      text_.running())
                        : "requests are taken again");
  }
  state_.metrics.draining = now;
  if (told_ != nullptr) told_(now);
}

// Idempotent: another serving process may go on with the request.
void AdminService::set_and_reply(const std::shared_ptr<Exchange>& exchange, bool now) {
  if (text_.is_ending()) {
    return replies_.refuse(
        exchange, {.status = 409, .message = "the server is shutting down", .code = "draining"});
  }
  set_draining(now);
  replies_.reply(exchange, kJson,
                 json_text({{"status", now ? "draining" : "ok"}, {"running", text_.running()}}));
}

void AdminService::drain(const std::shared_ptr<Exchange>& exchange) {
  if (exchange->body().empty()) return set_and_reply(exchange, true);
  const auto body = ordered_json::parse(exchange->body(), nullptr, /*allow_exceptions=*/false);
  const bool is_right = body.is_object() && body.size() <= 1 &&
                        (body.empty() || (body.contains("drain") && body["drain"].is_boolean()));
  if (!is_right) {
    return replies_.refuse(
        exchange, {.message = "expected no body, or {\"drain\": true} or {\"drain\": false}",
                   .param = "drain"});
  }
  set_and_reply(exchange, body.value("drain", true));
}

void AdminService::is_scaling(const std::shared_ptr<Exchange>& exchange) {
  replies_.reply(exchange, kJson,
                 json_text({{"is_scaling_elastic_ep", state_.ranks.is_changing()}}));
}

void AdminService::start_record(const std::shared_ptr<Exchange>& exchange) {
  state_.recorder.start(reply_with_outcome(exchange, "recording"));
}

void AdminService::stop_record(const std::shared_ptr<Exchange>& exchange) {
  state_.recorder.stop(reply_with_outcome(exchange, "stopped"));
}

void AdminService::dump_record(const std::shared_ptr<Exchange>& exchange) {
  state_.recorder.dump(reply_with_outcome(exchange, "dumped"));
}

// Status 400: not possible in this state; 500: failed.
ExpertRecorder::Done AdminService::reply_with_outcome(const std::shared_ptr<Exchange>& exchange,
                                                      const char* what) {
  return [this, exchange, what](const ExpertRecorder::Outcome& outcome) {
    if (!outcome.status.ok()) {
      const bool invalid = outcome.status.code() == StatusCode::kInvalidInput;
      return replies_.refuse(exchange,
                             {.status = invalid ? 400 : 500, .message = outcome.status.message()});
    }
    ordered_json body = {{"status", what}, {"iterations", outcome.iterations}};
    if (!outcome.directory.empty()) body["directory"] = outcome.directory;
    replies_.reply(exchange, kJson, json_text(body));
  };
}

}  // namespace wideep::server
