// SPDX-License-Identifier: Apache-2.0
#include "recordings/trace_spread.h"

#include <optional>

#include "base/check.h"
#include "base/try.h"

namespace wideep::recordings {
namespace {

using balance::Assessment;
using balance::Figures;
using balance::LayerSpread;
using balance::PlannedModel;
using balance::Spread;

Status add_spread_of(const TracePart& trace, const PlannedModel& plan, int num_nodes,
                     std::optional<Spread> Figures::* member, Assessment* assessment) {
  WIDEEP_TRY_ASSIGN(const std::vector<Spread> spreads, measure_spread(trace, plan, num_nodes));
  WIDEEP_CHECK_EQ(spreads.size(), assessment->layers.size());
  for (size_t i = 0; i < spreads.size(); ++i) assessment->layers[i].*member = spreads[i];
  assessment->mean.*member = balance::mean_spread(spreads);
  return {};
}

}  // namespace

Result<std::vector<Spread>> measure_spread(const TracePart& trace, const PlannedModel& plan,
                                           int num_nodes) {
  std::vector<LayerSpread> layers;
  for (int i = 0; i < trace.shape.num_layers; ++i) {
    const int layer = trace.shape.first_layer + i;
    layers.emplace_back(plan.placement.layers.at(layer), plan.shares.at(layer), num_nodes);
  }
  WIDEEP_TRY(visit_trace(trace.path, trace.shape, [&](const TokenChoice& choice) {
               if (!trace.contains(choice.token)) return;
               layers[static_cast<size_t>(choice.layer_idx)].add(choice.token, choice.experts);
             }).status());
  std::vector<Spread> spreads;
  for (const LayerSpread& layer : layers) spreads.push_back(layer.spread());
  return spreads;
}

Status add_spread(const TracePart& planned_on, const TracePart* held_out, const PlannedModel& plan,
                  int num_nodes, Assessment* assessment) {
  WIDEEP_TRY(add_spread_of(planned_on, plan, num_nodes, &Figures::spread, assessment));
  if (held_out == nullptr) return {};
  return add_spread_of(*held_out, plan, num_nodes, &Figures::spread_held_out, assessment);
}

}  // namespace wideep::recordings
