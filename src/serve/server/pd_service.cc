// SPDX-License-Identifier: Apache-2.0
//
// An epoch is a role that was asked for, in the life of the server; a number is what the ranks were
// told by this process, which begins with the epoch that it finds. So a router sees no change where
// a process goes on with the role of one that has died.
#include "server/pd_service.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "api/openai_reply.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/printable.h"
#include "schedule/wire.h"
#include "server/prometheus_text.h"
#include "server/role_memory.h"

namespace wideep::server {

using engine::Role;
using nlohmann::ordered_json;

namespace {

template <typename T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json null_if_empty(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

std::optional<Role> parse_role(const std::string& text) {
  const auto body = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || body.size() != 1 || !body.contains("new_role")) return std::nullopt;
  const ordered_json& name = body["new_role"];
  return name.is_string() ? engine::role_named(name.get<std::string>()) : std::nullopt;
}

}  // namespace

void PdService::begin(Ranks ranks) {
  ranks_ = std::move(ranks);
  if (options_.role->epoch() == 0) options_.role->change(options_.role->role());
  told_ = ranks_.change(options_.role->role());
}

Role PdService::present() const { return options_.role ? options_.role->role() : Role::kBoth; }

uint64_t PdService::epoch() const { return options_.role ? options_.role->epoch() : 0; }

void PdService::transferred(const run::PromptTransfer& transfer, std::string_view peer,
                            double now) {
  transfers_.add(transfer);
  const std::string line = troubles_.line_of(transfer, peer, now);
  if (!line.empty()) log::warn("{}", line);
}

void PdService::role(const std::shared_ptr<Exchange>& exchange, bool tells_peer) {
  replies_.reply(exchange, kJson, json_text(state_of(*exchange, tells_peer)));
}

ordered_json PdService::state_of(const Exchange& exchange, bool tells_peer) const {
  const int ranks = state_.ranks.wanted();
  const bool is_seen = told_ > 0 && seen_ == told_;
  const bool is_told = tells_peer && options_.opaque_state;
  const std::string opaque = is_told ? options_.opaque_state(exchange) : "";
  return {{"role", engine::name_of(present())},
          {"epoch", epoch()},
          {"ranks", ranks},
          {"seen_by", is_seen ? ranks : 0},
          {"instance", options_.role ? options_.role->instance() : ""},
          {"version", WIDEEP_VERSION},
          {"model", options_.model},
          {"record_class", null_if_empty(options_.record_class)},
          {"encoded_opaque_state", null_if_empty(opaque)},
          {"load", load(static_cast<double>(base::wall_ns()) * 1e-9)}};
}

ordered_json PdService::load(double now) const {
  return {{"prompt_tokens", ranks_.prompt_tokens ? ranks_.prompt_tokens() : 0},
          {"running", state_.metrics.running},
          {"prefill_seconds_per_token", or_null(price_.seconds_per_token(now))},
          {"iteration_seconds", or_null(price_.decode_seconds())},
          {"kv_share", state_.metrics.kv_share()},
          {"pages_per_second", or_null(transfers_.pages_per_second())},
          {"max_context", options_.max_sequence}};
}

// Another process may have begun with this request, and died.
Role PdService::before(Exchange& exchange) const {
  const std::vector<std::string> records = exchange.records();
  if (!records.empty()) {
    return static_cast<Role>(engine::WireReader(records.front()).get<uint8_t>());
  }
  engine::WireWriter writer;
  writer.put(static_cast<uint8_t>(present()));
  exchange.add_record(writer.take());
  return present();
}

void PdService::switch_role(const std::shared_ptr<Exchange>& exchange) {
  const std::optional<Role> wanted = parse_role(exchange->body());
  if (!wanted) {
    return replies_.refuse(
        exchange, {.message = fmt::format("expected {{\"new_role\": \"prefill\", \"decode\" or "
                                          "\"both\"}}, found '{}'",
                                          base::printable(exchange->body(), 100)),
                   .param = "new_role"});
  }
  if (options_.role == nullptr || ranks_.change == nullptr) {
    return replies_.refuse(exchange, {.message = "the role of this server is fixed"});
  }
  const Role previous = before(*exchange);
  options_.role->change(*wanted);
  told_ = ranks_.change(*wanted);
  log::info("the role is {} now, it was {} (epoch {})", engine::name_of(*wanted),
            engine::name_of(previous), epoch());
  waiting_.emplace(told_, Waiting{exchange, previous, epoch()});
  ranks_.call_in(kPatienceSeconds, [this, number = told_] { give_up(number); });
}

// Who waits for an earlier number gets the present state, too: its role was seen, and another
// followed.
void PdService::seen(const run::RoleSeen& seen) {
  seen_ = seen.number;
  while (!waiting_.empty() && waiting_.begin()->first <= seen_) {
    const Waiting each = std::move(waiting_.extract(waiting_.begin()).mapped());
    ordered_json state = state_of(*each.exchange, true);
    state["previous_role"] = engine::name_of(each.before);
    replies_.reply(each.exchange, kJson, json_text(state));
  }
}

// Unless it has been answered.
void PdService::give_up(int number) {
  const auto found = waiting_.extract(number);
  if (found.empty()) return;
  const Waiting& late = found.mapped();
  replies_.refuse(late.exchange,
                  {.status = 503,
                   .message = fmt::format(
                       "epoch {} is not seen by all ranks within {} s; it holds, and they may "
                       "see it yet",
                       late.epoch, kPatienceSeconds),
                   .code = "role_not_seen"});
}

std::string PdService::metrics() const {
  constexpr const char* kRole = "wideep_role";
  std::string text = metric_head(kRole, "gauge", "1: what the server prefers to do.");
  for (const Role each : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
    text += fmt::format("{}{{role=\"{}\"}} {}\n", kRole, engine::name_of(each),
                        each == present() ? 1 : 0);
  }
  text += metric("wideep_role_epoch", "gauge", "Roles that were asked for.", epoch());
  if (options_.pages_given == nullptr) return text;
  const run::PeerWaits waiting = waits();
  return text +
         metric("wideep_prompts_computed_for_others", "gauge",
                "Prompts that are computed for other servers now.", num_computing()) +
         metric("wideep_prompts_awaited", "gauge",
                "Requests that wait for pages of other servers, or for room for them, now.",
                waiting.requests) +
         metric("wideep_prompt_pages_arrived", "gauge", "Pages of these that have come.",
                waiting.pages) +
         transfers_.text(*options_.pages_given);
}

int64_t PdService::num_computing() const {
  return options_.context_requests == nullptr
             ? 0
             : static_cast<int64_t>(options_.context_requests->num_running());
}

ordered_json PdService::sharing() const {
  if (options_.pages_given == nullptr) return nullptr;
  const run::PeerWaits waiting = waits();
  return {{"role", engine::name_of(present())},
          {"computing", num_computing()},
          {"awaited", waiting.requests},
          {"arrived", waiting.pages},
          {"taken", transfers_.json()},
          {"given",
           {{"pages", options_.pages_given->records.load()},
            {"bytes", options_.pages_given->bytes.load()}}}};
}

std::string PdService::vllm_metrics(std::string_view labels) const {
  return options_.pages_given ? transfers_.vllm_text(labels) : "";
}

}  // namespace wideep::server
