// SPDX-License-Identifier: Apache-2.0
#include "weights/expert_record.h"

#include <fmt/format.h>

#include <cstring>
#include <span>

#include "base/try.h"

namespace wideep::weights {

GatedMlp view_expert(const ExpertShape& shape, const std::byte* record, int slice) {
  const kernels::PackedShape gate = shape.gate(), down = shape.down();
  const int columns = kernels::panels_of_part(gate, slice, shape.num_slices).first;
  const int rows = kernels::panels_of_part(down, slice, shape.num_slices).first;
  // The last member of a matrix is the first panel that the record contains.
  GatedMlp mlp{{gate, record, 1.0f, columns},
               {gate, record + shape.up_offset(), 1.0f, columns},
               {down, record + shape.down_offset(), 1.0f, rows}};
  mlp.activation = shape.activation;
  if (shape.biased) {
    const auto bias = [record](size_t offset) {
      return reinterpret_cast<const float*>(record + offset);
    };
    if (shape.has_gate()) mlp.gate_bias = bias(shape.gate_bias_offset());
    mlp.up_bias = bias(shape.up_bias_offset());
    mlp.down_bias = bias(shape.down_bias_offset());
  }
  if (shape.has_scales()) {
    float scales[3];
    std::memcpy(scales, record + shape.scales_offset(), sizeof(scales));
    mlp.gate.scale = scales[0];
    mlp.up.scale = scales[1];
    mlp.down.scale = scales[2];
  }
  return mlp;
}

std::string expert_part(const ExpertShape& shape, const std::string& prefix, int slice) {
  const auto form = [](const kernels::PackedShape& matrix) {
    return fmt::format("{}/{}", kernels::weight_format_name(matrix.format), matrix.group);
  };
  return fmt::format("{} [{}, {}] {} {}{}{} {} of {}", prefix, shape.intermediate, shape.hidden,
                     form(shape.gate()), form(shape.down()), shape.biased ? " biased" : "",
                     shape.has_gate() ? "" : " without gate", slice, shape.num_slices);
}

Status load_expert(const WeightLoader& loader, const ExpertShape& shape, const std::string& prefix,
                   std::byte* record, int slice) {
  const std::string part = expert_part(shape, prefix, slice);
  const std::span<std::byte> bytes(record, shape.record_bytes());
  if (loader.take(part, bytes)) return {};
  loader.tell(part, bytes);
  const auto pack = [&](const char* name, const kernels::PackedShape& matrix, size_t offset) {
    return loader.pack(prefix + name, matrix,
                       kernels::panels_of_part(matrix, slice, shape.num_slices), record + offset);
  };
  float scales[3] = {1.0f, 1.0f, 1.0f};
  if (shape.has_gate()) {
    WIDEEP_TRY_ASSIGN(scales[0], pack(".gate_proj.weight", shape.gate(), 0));
  }
  WIDEEP_TRY_ASSIGN(scales[1], pack(".up_proj.weight", shape.gate(), shape.up_offset()));
  WIDEEP_TRY_ASSIGN(scales[2], pack(".down_proj.weight", shape.down(), shape.down_offset()));
  if (shape.has_scales()) std::memcpy(record + shape.scales_offset(), scales, sizeof(scales));
  if (!shape.biased) return {};
  const auto load_bias = [&](const char* name, int size, size_t offset) -> Status {
    WIDEEP_TRY_ASSIGN(const std::vector<float> bias, loader.floats(prefix + name, {size}));
    std::memcpy(record + offset, bias.data(), bias.size() * sizeof(float));
    return {};
  };
  if (shape.has_gate()) {
    WIDEEP_TRY(load_bias(".gate_proj.bias", shape.intermediate, shape.gate_bias_offset()));
  }
  WIDEEP_TRY(load_bias(".up_proj.bias", shape.intermediate, shape.up_bias_offset()));
  WIDEEP_TRY(load_bias(".down_proj.bias", shape.hidden, shape.down_bias_offset()));
  return {};
}

ExpertShape expert_shape(const WeightLoader& loader, const std::vector<std::string>& prefixes,
                         int hidden, int intermediate, const kernels::Activation& activation) {
  const bool apart = loader.packs_down_apart();
  std::vector<WeightLoader::NameAndWidth> matrices, downs;
  for (const std::string& prefix : prefixes) {
    if (activation.has_gate()) matrices.push_back({prefix + ".gate_proj.weight", hidden});
    matrices.push_back({prefix + ".up_proj.weight", hidden});
    (apart ? downs : matrices).push_back({prefix + ".down_proj.weight", intermediate});
  }
  const MatrixForm form = loader.common_form(matrices);
  ExpertShape shape{.format = form.format,
                    .hidden = hidden,
                    .intermediate = intermediate,
                    .group = form.group,
                    .activation = activation};
  if (!apart) return shape;
  const MatrixForm down = loader.common_form(downs);
  if (down != form) shape.down_form = down;
  return shape;
}

Result<MlpRecord> load_mlp(const WeightLoader& loader, const std::string& prefix, int hidden,
                           int intermediate, const MlpOptions& options) {
  ExpertShape shape = expert_shape(loader, {prefix}, hidden, intermediate, options.activation);
  shape.biased = options.biased;
  MlpRecord record{shape, base::AlignedBytes(shape.record_bytes())};
  WIDEEP_TRY(load_expert(loader, shape, prefix, record.bytes.data()));
  return record;
}

}  // namespace wideep::weights
