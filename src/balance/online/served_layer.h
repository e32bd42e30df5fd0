// SPDX-License-Identifier: Apache-2.0
//
// A layer as an engine serves it in a replay: its placement, its shares, and whether they follow
// the load.
//
// Thread safety: one thread at a time.
#pragma once

#include <span>

#include "online/placement_judge.h"
#include "wideep/balancer.h"

namespace wideep::online {

class ServedLayer {
 public:
  // plan.shares: used by kExpectedLoad and kEqual.
  ServedLayer(Sharing sharing, balance::LayerPlan plan);

  void replace(balance::LayerPlan plan);
  const balance::Placement& placement() const { return plan_.placement; }

  // Imbalance ratio with these tokens per expert, [E]; 0 without any.
  double imbalance(std::span<const double> load);

 private:
  Sharing sharing_;
  balance::LayerPlan plan_;
  balance::Resplitter resplitter_;
  balance::Shares best_;
};

}  // namespace wideep::online
