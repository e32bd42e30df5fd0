// SPDX-License-Identifier: Apache-2.0
#include "online/served_layer.h"

#include <utility>

namespace wideep::online {

ServedLayer::ServedLayer(Sharing sharing, balance::LayerPlan plan) : sharing_(sharing) {
  replace(std::move(plan));
}

void ServedLayer::replace(balance::LayerPlan plan) {
  plan_ = std::move(plan);
  best_.resize(plan_.shares.size());
  if (sharing_ == Sharing::kEachSample) resplitter_.reset(plan_.placement);
}

double ServedLayer::imbalance(std::span<const double> load) {
  if (sharing_ != Sharing::kEachSample) {
    return balance::imbalance_ratio(plan_.placement, load, plan_.shares);
  }
  resplitter_.resplit(load, best_);
  return balance::imbalance_ratio(plan_.placement, load, best_);
}

}  // namespace wideep::online
