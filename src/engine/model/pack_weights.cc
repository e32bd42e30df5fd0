// SPDX-License-Identifier: Apache-2.0
#include "model/pack_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
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

// Of experts' records. Small, so that reading, packing and writing of neighbouring steps overlap.
constexpr size_t kStepBytes = size_t{128} << 20;

WeightLoader loader_of(const PackOrder& order) {
  return {order.tensors, order.format, order.progress, order.threads};
}

// Of what is written together, and counts when it is there.
struct Step {
  std::string name;
  int layer = 0;
  int first = 0, end = 0;  // experts; none: the rest of the layer

  bool has_experts() const { return end > 0; }
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

// The experts of a step: begin(), then pack(), and so on with others.
class ExpertPacker {
 public:
  explicit ExpertPacker(const PackOrder& order) : order_(order) {}

  // Asks for the experts, and has the disk read what they need.
  Status begin(const Step& step) {
    step_ = &step;
    loader_.emplace(loader_of(order_));
    shape_ = experts_shape(order_.config, *loader_, order_.num_slices);
    const size_t bytes = static_cast<size_t>(step.end - step.first) *
                         static_cast<size_t>(order_.num_slices) * shape_.record_bytes();
    // What lies between the matrices of a record stays 0: it is at the same place in all.
    if (records_.size() < bytes) records_ = base::AlignedBytes(bytes);
    WIDEEP_TRY(for_each_record([&](const std::string& prefix, int slice, std::byte* record) {
      return weights::load_expert(*loader_, shape_, prefix, record, slice);
    }));
    loader_->read_ahead();
    return {};
  }

  Status pack(PackedWriter& writer) {
    WIDEEP_TRY(loader_->run());
    return for_each_record([&](const std::string& prefix, int slice, const std::byte* record) {
      return writer.add(weights::expert_part(shape_, prefix, slice),
                        {record, shape_.record_bytes()});
    });
  }

 private:
  template <typename Body>
  Status for_each_record(Body body) {
    std::byte* record = records_.data();
    for (int expert = step_->first; expert < step_->end; ++expert) {
      for (int slice = 0; slice < order_.num_slices; ++slice) {
        WIDEEP_TRY(body(expert_prefix(step_->layer, expert), slice, record));
        record += shape_.record_bytes();
      }
    }
    return {};
  }

  const PackOrder& order_;
  const Step* step_ = nullptr;
  std::optional<WeightLoader> loader_;
  weights::ExpertShape shape_;
  base::AlignedBytes records_;
};

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

// While a step is packed, the disk reads the next experts, and writes what was packed before.
Status pack_weights(const PackOrder& order, PackedWriter& writer) {
  std::vector<Step> steps = steps_of(order);
  std::erase_if(steps, [&](const Step& step) { return writer.has(step.name); });
  std::vector<const Step*> of_experts;
  for (const Step& step : steps) {
    if (step.has_experts()) of_experts.push_back(&step);
  }
  std::array<ExpertPacker, 2> packers{ExpertPacker(order), ExpertPacker(order)};
  size_t begun = 0, packed = 0;  // of these
  for (const Step& step : steps) {
    const size_t wanted = std::min(packed + (step.has_experts() ? 2 : 1), of_experts.size());
    for (; begun < wanted; ++begun) WIDEEP_TRY(packers[begun % 2].begin(*of_experts[begun]));
    WIDEEP_TRY(step.has_experts() ? packers[packed++ % 2].pack(writer)
                                  : pack_layer(order, step.layer, writer));
    WIDEEP_TRY(order.tensors.check_unchanged());
    WIDEEP_TRY(writer.end(step.name));
  }
  return {};
}

}  // namespace wideep::model
