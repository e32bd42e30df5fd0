// SPDX-License-Identifier: Apache-2.0
#include "advise/beyond_memory.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "advise/advise.h"
#include "advise/range.h"
#include "advise/rank_memory.h"
#include "advise/weighed_layouts.h"
#include "advise/workload_steps.h"
#include "base/try.h"
#include "model/model_cost.h"
#include "model/model_division.h"
#include "model/model_forms.h"

namespace wideep::advise {
namespace {

int requests_of(const Workload& workload) {
  return static_cast<int>(std::max(1.0, std::ceil(workload.concurrency.value_or(1.0))));
}

// A rank on each node.
cost::Layout layout_in(const Question& question, kernels::WeightFormat format) {
  const int nodes = question.hardware.nodes, experts = question.config.routing.num_experts;
  return {.ep = nodes,
          .num_slots = (experts + nodes - 1) / nodes * nodes,
          .format = format,
          .cache = question.choices.cache};
}

// Of one expert, as it is packed.
double record_bytes(const model::ModelConfig& config, kernels::WeightFormat format) {
  const model::ModelForms forms = model::uniform_forms(config, format);
  return static_cast<double>(model::experts_shape(config, forms).record_bytes());
}

double dense_weight_bytes(const model::ModelConfig& config, kernels::WeightFormat format) {
  const model::ModelForms forms = model::uniform_forms(config, format);
  return static_cast<double>(model::dense_weight_bytes(config, forms, {0, config.num_layers}));
}

PartlyResident memory_in(const Question& question, const cost::Layout& layout) {
  const cost::Hardware& hardware = question.hardware;
  const model::ModelConfig& config = question.config;
  const Workload& workload = question.workload;
  PartlyResident found{.layout = layout, .requests = requests_of(workload)};
  const int of_node = (found.requests + hardware.nodes - 1) / hardware.nodes;
  found.dense_bytes = dense_weight_bytes(config, layout.format) +
                      memory_of(config, layout).token * of_node * (workload.isl + workload.osl);
  found.expert_bytes =
      record_bytes(config, layout.format) * config.num_moe_layers() * layout.num_slots / layout.ep;
  const double usable =
      hardware.memory_bytes * hardware.devices_per_node * question.choices.memory_share;
  found.resident_bytes = std::min(usable - found.dense_bytes, found.expert_bytes);
  return found;
}

// The mean over layers of the experts that the tokens choose.
double experts_chosen(const std::vector<cost::PlacedLayer>& layers, double tokens) {
  double sum = 0.0;
  for (const cost::PlacedLayer& layer : layers) sum += layer.work_of_all(tokens, 1).experts;
  return sum / static_cast<double>(layers.size());
}

Result<ReadingForecast> forecast(const Question& question, const PartlyResident& found,
                                 const HitRates& rates) {
  const model::ModelConfig& config = question.config;
  WIDEEP_TRY_ASSIGN(std::vector<cost::PlacedLayer> placed, place_layers(question, found.layout));
  const cost::StepCost cost(question.hardware, config, found.layout, placed);
  // Requests are spread over the nodes; with fewer than nodes, some have none.
  std::vector<model::StepShape> batches;
  for (int left = found.requests, node = question.hardware.nodes; node > 0 && left > 0; --node) {
    const int batch = (left + node - 1) / node;
    batches.push_back(generating(batch, 0, question.workload));
    left -= batch;
  }
  const cost::StepTime step = cost.step(batches);
  // Of the embedding a token reads one row.
  const double embedding =
      config.tie_word_embeddings ? 0.0 : 2.0 * config.vocab_size * config.hidden_size;
  const IterationInMemory iteration{
      .tokens = static_cast<double>(found.requests),
      .reads = experts_chosen(placed, found.requests),
      .experts = step.experts,
      .rest = step.seconds() - step.experts,
      .dense_bytes = dense_weight_bytes(config, found.layout.format) - embedding};
  const double disk = question.hardware.disk_bandwidth;
  const StoredExperts stored{.num_layers = config.num_moe_layers(),
                             .num_experts = config.routing.num_experts,
                             .nodes = question.hardware.nodes,
                             .record_bytes = record_bytes(config, found.layout.format),
                             .disk_bandwidth = disk > 0.0 ? disk : kAssumedDiskBandwidth};
  return forecast_reading(iteration, stored, found.resident_bytes / found.expert_bytes, rates);
}

}  // namespace

ReadingForecast forecast_reading(const IterationInMemory& iteration, const StoredExperts& stored,
                                 double share, const HitRates& rates) {
  const double expected = rates.expected.at(share);
  return {
      .share = share,
      .expected = reading_time(iteration, stored, expected),
      .uniform = reading_time(iteration, stored, share),
      .upper = reading_time(iteration, stored, rates.upper ? rates.upper->at(share) : expected)};
}

Result<std::vector<PartlyResident>> partly_resident(const Question& question,
                                                    const HitRates& rates) {
  std::vector<PartlyResident> all;
  const cost::Hardware& hardware = question.hardware;
  if (!hardware.divisible || !question.config.has_experts()) return all;
  WIDEEP_TRY(check_range(hardware, question.config));
  std::vector<kernels::WeightFormat> formats = question.choices.formats;
  if (formats.empty()) {
    for (const auto& [format, peak] : hardware.peak) formats.push_back(format);
  }
  for (const kernels::WeightFormat format : formats) {
    const cost::Layout layout = layout_in(question, format);
    if (!outside_range(hardware, layout).empty()) continue;
    PartlyResident found = memory_in(question, layout);
    if (found.resident_bytes >= found.expert_bytes) return std::vector<PartlyResident>();
    if (found.resident_bytes <= 0.0) continue;
    WIDEEP_TRY_ASSIGN(found.forecast, forecast(question, found, rates));
    all.push_back(found);
  }
  std::ranges::sort(all, std::greater(), [](const PartlyResident& each) {
    return each.forecast.expected.tokens_per_second();
  });
  return all;
}

}  // namespace wideep::advise
