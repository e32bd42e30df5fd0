// SPDX-License-Identifier: Apache-2.0
//
// Placements depend on EP size and slots alone, so layouts share them.
#include "advise/weighed_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "advise/range.h"
#include "advise/rank_memory.h"
#include "advise/sweep.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "base/try.h"

namespace wideep::advise {
namespace {

using balance::ModelLoad;
using model::ModelConfig;

// Errors of what is neither experts nor exchange, as shares: of assumed constants what peaks and
// rooflines usually miss.
constexpr double kAssumedError = 0.35;
constexpr double kCalibratedError = 0.10;

Status check_load(const ModelConfig& config, const ModelLoad& load) {
  if (static_cast<int>(load.layers.size()) != config.num_moe_layers() ||
      load.num_experts != config.routing.num_experts) {
    return invalid_input(fmt::format(
        "statistics: {} layers of {} experts, but the model has {} MoE layers of {}; take "
        "statistics of this model",
        load.layers.size(), load.num_experts, config.num_moe_layers(), config.routing.num_experts));
  }
  return {};
}

// The engine refuses requests that are longer.
Status check_positions(const ModelConfig& config, const Workload& workload) {
  const int64_t positions = int64_t{workload.isl} + workload.osl;
  if (positions <= config.max_position_embeddings) return {};
  return invalid_input(
      fmt::format("--isl {} and --osl {}: {} positions, expected at most the model's {} "
                  "(max_position_embeddings); take shorter prompts or answers",
                  workload.isl, workload.osl, positions, config.max_position_embeddings));
}

double mean_imbalance(const std::vector<cost::PlacedLayer>& layers) {
  double sum = 0.0;
  for (const cost::PlacedLayer& layer : layers) sum += cost::imbalance_of(layer);
  return layers.empty() ? 0.0 : sum / static_cast<double>(layers.size());
}

struct SharedPlacement {
  std::shared_ptr<const std::vector<cost::PlacedLayer>> layers;
  double imbalance = 0.0;
};

// Of a batch, in the memory and within the workload's and the engine's bounds.
int max_requests(const Question& question, const cost::Layout& layout, const RankMemory& memory) {
  const Workload& workload = question.workload;
  const Choices& choices = question.choices;
  const double request = memory.token * (workload.isl + workload.osl);
  const double room = question.hardware.memory_bytes * choices.memory_share - memory.weights;
  int max = static_cast<int>(std::clamp(room / std::max(request, 1.0), 0.0, 1024.0));
  max = std::min(max, choices.max_num_tokens / (1 + layout.drafts));
  if (workload.concurrency) {
    max = std::min(max, static_cast<int>(std::ceil(*workload.concurrency / layout.num_batches())));
  }
  return max;
}

Status check_any(const Question& question, const WeighedLayouts& weighed) {
  const cost::Hardware& hardware = question.hardware;
  if (!weighed.layouts.empty()) return {};
  if (weighed.num_too_large == 0 && !weighed.outside.empty()) {
    return invalid_input(cannot_tell(hardware, weighed.outside));
  }
  return invalid_input(fmt::format(
      "no layout on at most {} ranks of {} fits their memory ({:.0f} GB each); allow more ranks",
      question.choices.max_ranks, hardware.name, hardware.memory_bytes / 1e9));
}

}  // namespace

Result<std::vector<cost::PlacedLayer>> place_layers(const Question& question,
                                                    const cost::Layout& layout) {
  const ModelLoad &planned = question.planned, &judged = question.judged;
  WIDEEP_TRY(check_load(question.config, judged));
  WIDEEP_TRY(check_load(question.config, planned));
  std::vector<cost::PlacedLayer> layers;
  const balance::PlanShape shape{
      .num_experts = judged.num_experts, .ep_size = layout.ep, .num_slots = layout.num_slots};
  for (size_t i = 0; i < judged.load.size(); ++i) {
    WIDEEP_TRY_ASSIGN(
        cost::PlacedLayer layer,
        cost::place_layer(planned.load[i], judged.load[i], question.config.routing.top_k, shape,
                          question.choices.weighted_shares));
    layers.push_back(std::move(layer));
  }
  return layers;
}

Result<WeighedLayouts> weigh_layouts(const Question& question) {
  WIDEEP_TRY(check_load(question.config, question.judged));
  WIDEEP_TRY(check_load(question.config, question.planned));
  WIDEEP_TRY(check_range(question.hardware, question.config));
  WIDEEP_TRY(check_positions(question.config, question.workload));
  WeighedLayouts weighed;
  std::map<std::pair<int, int>, SharedPlacement> placements;
  for (const cost::Layout& layout :
       layouts_of(question.hardware, question.config, question.choices)) {
    ++weighed.num_layouts;
    if (const std::string why = outside_range(question.hardware, layout); !why.empty()) {
      ++weighed.outside[why];
      continue;
    }
    const RankMemory memory = memory_of(question.config, layout);
    const int max = max_requests(question, layout, memory);
    if (max < 1) {
      ++weighed.num_too_large;
      continue;
    }
    SharedPlacement& placement = placements[{layout.ep, layout.num_slots}];
    if (placement.layers == nullptr) {
      WIDEEP_TRY_ASSIGN(std::vector<cost::PlacedLayer> layers, place_layers(question, layout));
      placement.imbalance = mean_imbalance(layers);
      placement.layers = std::make_shared<const std::vector<cost::PlacedLayer>>(std::move(layers));
    }
    weighed.layouts.push_back({.layout = layout,
                               .placed = placement.layers,
                               .imbalance = placement.imbalance,
                               .weights = memory.weights,
                               .token = memory.token,
                               .max_requests = max});
  }
  WIDEEP_TRY(check_any(question, weighed));
  return weighed;
}

void for_each_in_parallel(size_t count, const std::function<void(size_t)>& work) {
  base::ThreadPool pool(base::read_machine().usable_cores());
  pool.parallel_for(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) work(i);
  });
}

double error_of(const cost::Hardware& hardware, const cost::StepTime& step) {
  const double rest = hardware.calibrated_dense ? kCalibratedError : kAssumedError;
  const double all = step.seconds();
  return std::hypot(hardware.errors.experts * step.experts,
                    hardware.errors.exchange * (step.dispatch + step.combine + step.joint),
                    rest * (step.attention + step.dense + step.fixed)) /
         all;
}

}  // namespace wideep::advise
