// SPDX-License-Identifier: Apache-2.0
#include "weights/expert_record.h"

#include <cstring>

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
  // Only formats with a scale per matrix have this part of the record.
  if (shape.record_bytes() > shape.scales_offset()) {
    float scales[3];
    std::memcpy(scales, record + shape.scales_offset(), sizeof(scales));
    mlp.gate.scale = scales[0];
    mlp.up.scale = scales[1];
    mlp.down.scale = scales[2];
  }
  return mlp;
}

Status load_expert(const WeightLoader& loader, const ExpertShape& shape, const std::string& prefix,
                   std::byte* record, int slice) {
  const auto pack = [&](const char* name, const kernels::PackedShape& matrix, size_t offset) {
    return loader.pack(prefix + name, matrix,
                       kernels::panels_of_part(matrix, slice, shape.num_slices), record + offset);
  };
  float scales[3];
  WIDEEP_TRY_ASSIGN(scales[0], pack(".gate_proj.weight", shape.gate(), 0));
  WIDEEP_TRY_ASSIGN(scales[1], pack(".up_proj.weight", shape.gate(), shape.up_offset()));
  WIDEEP_TRY_ASSIGN(scales[2], pack(".down_proj.weight", shape.down(), shape.down_offset()));
  if (shape.record_bytes() > shape.scales_offset()) {
    std::memcpy(record + shape.scales_offset(), scales, sizeof(scales));
  }
  return {};
}

ExpertShape expert_shape(const WeightLoader& loader, const std::vector<std::string>& prefixes,
                         int hidden, int intermediate) {
  std::vector<WeightLoader::NameAndWidth> matrices;
  for (const std::string& prefix : prefixes) {
    matrices.push_back({prefix + ".gate_proj.weight", hidden});
    matrices.push_back({prefix + ".up_proj.weight", hidden});
    matrices.push_back({prefix + ".down_proj.weight", intermediate});
  }
  const MatrixForm form = loader.common_form(matrices);
  return {form.format, hidden, intermediate, form.group};
}

Result<MlpRecord> load_mlp(const WeightLoader& loader, const std::string& prefix, int hidden,
                           int intermediate) {
  const ExpertShape shape = expert_shape(loader, {prefix}, hidden, intermediate);
  MlpRecord record{shape, base::AlignedBytes(shape.record_bytes())};
  WIDEEP_TRY(load_expert(loader, shape, prefix, record.bytes.data()));
  return record;
}

}  // namespace wideep::weights
