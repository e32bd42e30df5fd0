// SPDX-License-Identifier: Apache-2.0
//
// What has gone between this server and others: pages of prompts that it has taken from peers, and
// those that it has given.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "run/event.h"
#include "server/histogram.h"
#include "store/page_server.h"

namespace wideep::server {

class TransferMetrics {
 public:
  TransferMetrics();

  void add(const run::PromptTransfer& transfer);
  std::string text(const store::PageServerCounts& given) const;
  // What was taken; for the dashboard.
  nlohmann::ordered_json json() const;
  // vLLM's names; labels: of each series.
  std::string vllm_text(std::string_view labels) const;

 private:
  uint64_t whole_ = 0, part_ = 0, none_ = 0;  // requests, by what came of what was wanted
  uint64_t pages_ = 0, bytes_ = 0;
  double hidden_seconds_ = 0.0, exposed_seconds_ = 0.0;
  Histogram seconds_, vllm_seconds_, vllm_bytes_;
};

}  // namespace wideep::server
