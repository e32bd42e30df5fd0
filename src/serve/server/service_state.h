// SPDX-License-Identifier: Apache-2.0
//
// What a service knows of its ranks and of what it has answered: whoever pulls the ranks' events
// writes it, and endpoints show it.
//
// Thread safety: the serving thread.
#pragma once

#include "server/balancer_state.h"
#include "server/expert_places.h"
#include "server/expert_recorder.h"
#include "server/load_history.h"
#include "server/metrics.h"
#include "server/monitor.h"
#include "server/place_states.h"
#include "server/rank_states.h"
#include "server/service_options.h"

namespace wideep::server {

struct ServiceState {
  explicit ServiceState(const ServiceOptions& options);

  Metrics metrics;
  Monitor monitor;
  LoadHistory load;
  RankStates ranks;
  BalancerState balancer;
  PlaceStates places;
  ExpertPlaces experts;
  ExpertRecorder recorder;
};

}  // namespace wideep::server
