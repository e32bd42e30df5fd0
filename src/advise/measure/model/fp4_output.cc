// SPDX-License-Identifier: Apache-2.0
#include "measure/model/fp4_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "kernels/weight_format.h"

namespace wideep::measure {

using kernels::WeightFormat;

Result<std::unique_ptr<weights::TensorSource>> Fp4OutputTensors::make(
    const model::ModelConfig& config, uint64_t seed) {
  const int n = config.hidden_size, k = config.num_heads * config.value_dim();
  const int group = kernels::default_group(WeightFormat::kNvfp4);
  if (!weights::fits_layout(WeightFormat::kNvfp4, group, k)) {
    return invalid_input(
        fmt::format("wo in NVFP4: has {} columns, which are no whole groups of {}", k, group));
  }
  std::unique_ptr<Fp4OutputTensors> source(new Fp4OutputTensors(seed));
  const std::string module = "model.layers.0.self_attn.o_proj";
  WIDEEP_TRY_ASSIGN(const tensor_files::TensorEntry* entry,
                    source->tensor(module + ".weight", {n, k}));
  const auto* halves = reinterpret_cast<const Bf16*>(entry->bytes.data());
  std::vector<float> rows(static_cast<size_t>(n) * static_cast<size_t>(k));
  std::transform(halves, halves + rows.size(), rows.begin(),
                 [](Bf16 x) { return static_cast<float>(x); });
  source->stored_ = weights::quantized_tensors(
      module, kernels::quantize_matrix(WeightFormat::kNvfp4, group, rows.data(), n, k));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (const weights::NamedTensor& tensor : source->stored_) {
      const std::string name = fmt::format("model.layers.{}.self_attn.o_proj{}", layer,
                                           tensor.name.substr(module.size()));
      source->entries_[name] = {tensor.dtype, tensor.shape, tensor.bytes};
    }
  }
  return std::unique_ptr<weights::TensorSource>(std::move(source));
}

const tensor_files::TensorEntry* Fp4OutputTensors::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Result<const tensor_files::TensorEntry*> Fp4OutputTensors::tensor(
    const std::string& name, const std::vector<int64_t>& shape,
    std::span<const Dtype> dtypes) const {
  const tensor_files::TensorEntry* stored = find(name);
  if (stored == nullptr) return RandomTensors::tensor(name, shape);
  if (stored->shape == shape && std::ranges::find(dtypes, stored->dtype) != dtypes.end()) {
    return stored;
  }
  return invalid_input(fmt::format("{}: is asked for in another shape or dtype than it has", name));
}

}  // namespace wideep::measure
