// SPDX-License-Identifier: Apache-2.0
//
// The endpoints that say what is served and how it does: models, health, version, metrics.
//
// Thread safety: the serving thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "http/exchange.h"
#include "server/pd_service.h"
#include "server/replies.h"
#include "server/service_options.h"
#include "server/service_state.h"
#include "server/text_service.h"

namespace wideep::server {

class StatusService {
 public:
  // All outlive it.
  StatusService(const ServiceOptions& options, const ServiceState& state, const TextService& text,
                const PdService& pd, Replies& replies)
      : options_(options), state_(state), text_(text), pd_(pd), replies_(replies) {}

  void models(const std::shared_ptr<Exchange>& exchange);
  void model(const std::shared_ptr<Exchange>& exchange);
  void health(const std::shared_ptr<Exchange>& exchange);
  void version(const std::shared_ptr<Exchange>& exchange);
  void metrics(const std::shared_ptr<Exchange>& exchange);

 private:
  nlohmann::ordered_json model_json() const;

  const ServiceOptions& options_;
  const ServiceState& state_;
  const TextService& text_;
  const PdService& pd_;
  Replies& replies_;
};

}  // namespace wideep::server
