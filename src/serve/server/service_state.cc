// SPDX-License-Identifier: Apache-2.0
#include "server/service_state.h"

namespace wideep::server {
namespace {

int num_ranks(const ServiceOptions& options) {
  return static_cast<int>(options.ranks.ranks.size());
}

}  // namespace

ServiceState::ServiceState(const ServiceOptions& options)
    : monitor(num_ranks(options), options.online_totals != nullptr, metrics),
      load(options.ranks),
      ranks(num_ranks(options), options.start_ranks > 0 ? options.start_ranks : num_ranks(options)),
      balancer(options.online_totals),
      places(options.prompt_places),
      recorder(options.recorder, options.ranks) {
  metrics.speculates = options.max_drafts > 0;
  if (options.metrics_names != MetricsNames::kWideep) {
    metrics.vllm.emplace(options.model, options.max_sequence);
  }
}

}  // namespace wideep::server
