// SPDX-License-Identifier: Apache-2.0
#include "model/pack_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/try.h"
#include "model/model.h"
#include "model/model_forms.h"
#include "model/tensor_list.h"
#include "weights/expert_record.h"
#include "weights/weight_loader.h"

namespace wideep::model {
namespace {

using packed::PackedWriter;
using weights::WeightLoader;

constexpr size_t kStepBytes = size_t{1} << 30;

WeightLoader loader_of(const PackOrder& order) {
  return {order.tensors, order.format, order.progress, order.threads};
}

// Of what is written together, and counts when it is there.
struct Step {
  std::string name;
  int layer = 0;
  int first = 0, end = 0;  // experts; none: the rest of the layer
};

Status pack_layer(const PackOrder& order, int layer, PackedWriter& writer) {
  WeightLoader loader = loader_of(order);
  loader.tell_parts(
      [&writer](const std::string& part, std::span<const std::byte> bytes, float scale) {
        // The embedding is of the first layer, and of prediction layers.
        return writer.has_part(part) ? Status() : writer.add(part, bytes, scale);
      });
  return ModelWeights::load(order.config, loader, parallel::LayerRange{layer, layer + 1}).status();
}

Status pack_experts(const PackOrder& order, const Step& step, PackedWriter& writer) {
  const WeightLoader loader = loader_of(order);
  const weights::ExpertShape shape = experts_shape(order.config, loader, order.num_slices);
  base::AlignedBytes records(static_cast<size_t>((step.end - step.first) * order.num_slices) *
                             shape.record_bytes());
  std::memset(records.data(), 0, records.size());  // what lies between the matrices of a record
  std::byte* record = records.data();
  const auto for_each = [&](auto&& body) -> Status {
    record = records.data();
    for (int expert = step.first; expert < step.end; ++expert) {
      for (int slice = 0; slice < order.num_slices; ++slice) {
        WIDEEP_TRY(body(expert_prefix(step.layer, expert), slice));
        record += shape.record_bytes();
      }
    }
    return {};
  };
  WIDEEP_TRY(for_each([&](const std::string& prefix, int slice) {
    return weights::load_expert(loader, shape, prefix, record, slice);
  }));
  WIDEEP_TRY(loader.run());
  return for_each([&](const std::string& prefix, int slice) {
    return writer.add(weights::expert_part(shape, prefix, slice), {record, shape.record_bytes()});
  });
}

std::vector<Step> steps_of(const PackOrder& order) {
  const ModelConfig& config = order.config;
  const int num_experts = config.routing.num_experts;
  int at_once = 1;
  if (num_experts > 0) {
    const size_t bytes = experts_shape(config, loader_of(order), order.num_slices).record_bytes() *
                         static_cast<size_t>(order.num_slices);
    at_once = static_cast<int>(std::clamp(kStepBytes / bytes, size_t{1}, size_t{1} << 20));
  }
  std::vector<Step> steps;
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    steps.push_back({.name = fmt::format("layer {}", layer), .layer = layer});
    if (!config.is_moe(layer)) continue;
    for (int first = 0; first < num_experts; first += at_once) {
      const int end = std::min(first + at_once, num_experts);
      steps.push_back({.name = fmt::format("experts {} to {} of layer {}, in {} slices", first,
                                           end - 1, layer, order.num_slices),
                       .layer = layer,
                       .first = first,
                       .end = end});
    }
  }
  return steps;
}

}  // namespace

bool are_packed(const PackOrder& order, const packed::PackedFile& file) {
  return std::ranges::all_of(steps_of(order),
                             [&](const Step& step) { return file.steps().contains(step.name); });
}

Status pack_weights(const PackOrder& order, PackedWriter& writer) {
  for (const Step& step : steps_of(order)) {
    if (writer.has(step.name)) continue;
    WIDEEP_TRY(step.end == 0 ? pack_layer(order, step.layer, writer)
                             : pack_experts(order, step, writer));
    WIDEEP_TRY(order.tensors.check_unchanged());
    WIDEEP_TRY(writer.end(step.name));
  }
  return {};
}

}  // namespace wideep::model
