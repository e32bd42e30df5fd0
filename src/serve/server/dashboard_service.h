// SPDX-License-Identifier: Apache-2.0
//
// The endpoints that show what the ranks do: the dashboard and its data, and the iterations.
//
// Thread safety: the serving thread.
#pragma once

#include <memory>

#include "http/exchange.h"
#include "server/pd_service.h"
#include "server/replies.h"
#include "server/service_options.h"
#include "server/service_state.h"

namespace wideep::server {

class DashboardService {
 public:
  // All outlive it.
  DashboardService(const ServiceOptions& options, const ServiceState& state, const PdService& pd,
                   Replies& replies)
      : options_(options), state_(state), pd_(pd), replies_(replies) {}

  void perf_metrics(const std::shared_ptr<Exchange>& exchange);
  void dashboard(const std::shared_ptr<Exchange>& exchange);
  void dashboard_data(const std::shared_ptr<Exchange>& exchange);
  void dashboard_load(const std::shared_ptr<Exchange>& exchange);

 private:
  const ServiceOptions& options_;
  const ServiceState& state_;
  const PdService& pd_;
  Replies& replies_;
};

}  // namespace wideep::server
