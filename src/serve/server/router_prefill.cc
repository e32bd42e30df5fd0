// SPDX-License-Identifier: Apache-2.0
#include "server/router_prefill.h"

#include "http/http_server.h"
#include "server/router_pd_costs.h"

namespace wideep::server {
namespace {

constexpr std::chrono::milliseconds kReachTimeout{1500};
// It is silent until the whole prompt is computed, perhaps behind a long queue.
constexpr int kPromptMs = 600'000;
// The reply has the prompt's tokens, in decimal.
constexpr size_t kMaxReplyBytes = size_t{16} << 20;

RouterPrefill::End end_of(int status) {
  if (status == 200) return RouterPrefill::End::kComputed;
  if (status == 429 || status == 503 || status == 529) return RouterPrefill::End::kRefused;
  return status >= 500 ? RouterPrefill::End::kLost : RouterPrefill::End::kWrong;
}

}  // namespace

RouterPrefill::RouterPrefill(HttpServer& http, RouterReplicas& replicas, RouterReplica& replica)
    : replicas_(replicas), replica_(replica), ask_(http) {
  ++replica_.prefills_running;
  ++replica_.prefills;
}

RouterPrefill::~RouterPrefill() {
  replica_.end_prompt(prompt_bytes_);
  --replica_.prefills_running;
  if (!is_long()) return;
  --replica_.long_prefills_running;
  replica_.long_prefilled = std::chrono::steady_clock::now();
}

void RouterPrefill::start(const Request& request, Ended ended) {
  ended_ = std::move(ended);
  prompt_bytes_ = request.prompt_bytes;
  replica_.begin_prompt(prompt_bytes_);
  if (is_long()) ++replica_.long_prefills_running;
  connect_by_ = std::chrono::steady_clock::now() + kReachTimeout;
  ask_.ask({.host = replica_.address().host,
            .numbers = replica_.numbers,
            .port = replica_.address().port,
            .target = request.target,
            .timeout_ms = kPromptMs,
            .max_reply_bytes = kMaxReplyBytes,
            .body = &request.body,
            .headers = request.headers},
           [this](int status, const std::string& reply) { take(status, reply); });
}

bool RouterPrefill::is_long() const {
  return static_cast<double>(prompt_bytes_) >= kLongTokens * kBytesPerToken;
}

void RouterPrefill::check(std::chrono::steady_clock::time_point now) {
  if (!ask_.waits()) return;
  connected_ = connected_ || ask_.is_connected();
  const bool is_late = connected_ ? replicas_.hangs(replica_, now) : now >= connect_by_;
  if (!is_late) return;
  ask_.cancel();
  take(0, "");
}

void RouterPrefill::take(int status, const std::string& reply) {
  const End end = status == 0 ? connected_ ? End::kLost : End::kRefused : end_of(status);
  if (status == 0 || status >= 500) {
    if (!says_draining(reply)) ++replica_.prefill_failures;
    // Until its next health check.
    if (status == 0 || status == 503) replica_.up = false;
    if (status == 0) replicas_.lost(replica_);
  }
  const Ended ended = std::move(ended_);
  ended(end, reply);
}

}  // namespace wideep::server
