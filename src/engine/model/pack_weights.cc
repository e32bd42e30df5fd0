// SPDX-License-Identifier: Apache-2.0
#include "model/pack_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

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
  return {order.tensors, order.format, order.progress, &order.threads};
}

Status pack_layer(const PackOrder& order, int layer, PackedWriter& writer) {
  WeightLoader loader = loader_of(order);
  loader.tell_parts(
      [&writer](const std::string& part, std::span<const std::byte> bytes, float scale) {
        // The embedding is of the first layer, and of prediction layers.
        return writer.has_part(part) ? Status() : writer.add(part, bytes, scale);
      });
  return ModelWeights::load(order.config, loader, parallel::LayerRange{layer, layer + 1}).status();
}

// Experts first … end of a layer, all slices.
Status pack_experts(const PackOrder& order, int layer, int first, int end, PackedWriter& writer) {
  const WeightLoader loader = loader_of(order);
  const weights::ExpertShape shape = experts_shape(order.config, loader, order.num_slices);
  base::AlignedBytes records(static_cast<size_t>((end - first) * order.num_slices) *
                             shape.record_bytes());
  std::memset(records.data(), 0, records.size());  // what lies between the matrices of a record
  std::byte* record = records.data();
  const auto for_each = [&](auto&& body) -> Status {
    record = records.data();
    for (int expert = first; expert < end; ++expert) {
      for (int slice = 0; slice < order.num_slices; ++slice) {
        WIDEEP_TRY(body(expert_prefix(layer, expert), slice));
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

// Unless an earlier process has done it.
template <typename Step>
Status do_step(const PackOrder& order, const std::string& name, PackedWriter& writer, Step step) {
  if (writer.has(name)) return {};
  WIDEEP_TRY(step());
  WIDEEP_TRY(order.tensors.check_unchanged());
  return writer.end(name);
}

}  // namespace

Status pack_weights(const PackOrder& order, PackedWriter& writer) {
  const ModelConfig& config = order.config;
  const size_t record_bytes =
      config.routing.num_experts == 0
          ? 1
          : experts_shape(config, loader_of(order), order.num_slices).record_bytes() *
                static_cast<size_t>(order.num_slices);
  const int at_once = static_cast<int>(std::max(kStepBytes / record_bytes, size_t{1}));
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    WIDEEP_TRY(do_step(order, fmt::format("layer {}", layer), writer,
                       [&] { return pack_layer(order, layer, writer); }));
    if (!config.is_moe(layer)) continue;
    for (int first = 0; first < config.routing.num_experts; first += at_once) {
      const int end = std::min(first + at_once, config.routing.num_experts);
      WIDEEP_TRY(do_step(order, fmt::format("experts {} to {} of layer {}", first, end, layer),
                         writer, [&] { return pack_experts(order, layer, first, end, writer); }));
    }
  }
  return {};
}

}  // namespace wideep::model
