// SPDX-License-Identifier: Apache-2.0
//
// What has gone between this server and others: pages of prompts that it has taken from peers, and
// those that it has given.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "run/event.h"
#include "server/histogram.h"
#include "store/page_server.h"
#include "store/places.h"

namespace wideep::server {

class TransferMetrics {
 public:
  using Clock = std::function<double()>;  // seconds, steady

  explicit TransferMetrics(Clock now = store::Places::steady_seconds);

  void add(const run::PromptTransfer& transfer);
  std::string text(const store::PageServerCounts& given) const;
  // Of late, of the seconds in which pages came; nullopt: none has come in the last minute. What
  // was measured under a load would else be told for ever, and nothing be sent that measures again.
  std::optional<double> pages_per_second() const;
  // What was taken; for the dashboard.
  nlohmann::ordered_json json() const;
  // vLLM's names; labels: of each series.
  std::string vllm_text(std::string_view labels) const;

 private:
  uint64_t whole_ = 0, part_ = 0, none_ = 0;  // requests, by what came of what was wanted
  uint64_t pages_ = 0, bytes_ = 0;
  double hidden_seconds_ = 0.0, exposed_seconds_ = 0.0;
  Clock now_;
  double measured_at_ = 0.0;
  double late_pages_ = 0.0, late_seconds_ = 0.0;  // sums in which late transfers count more
  Histogram seconds_, vllm_seconds_, vllm_bytes_;
};

}  // namespace wideep::server
