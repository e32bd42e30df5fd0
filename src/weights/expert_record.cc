// SPDX-License-Identifier: Apache-2.0
#include "weights/expert_record.h"

#include <cstring>

#include "base/try.h"

namespace wideep::weights {

GatedMlp view_expert(const ExpertShape& shape, const std::byte* record) {
  const kernels::PackedShape gate = shape.gate();
  GatedMlp mlp{
      {gate, record}, {gate, record + gate.bytes()}, {shape.down(), record + 2 * gate.bytes()}};
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
                   std::byte* record) {
  const kernels::PackedShape gate = shape.gate();
  std::byte* const up = record + gate.bytes();
  float scales[3];
  WIDEEP_TRY_ASSIGN(scales[0], loader.pack(prefix + ".gate_proj.weight", gate, record));
  WIDEEP_TRY_ASSIGN(scales[1], loader.pack(prefix + ".up_proj.weight", gate, up));
  WIDEEP_TRY_ASSIGN(scales[2],
                    loader.pack(prefix + ".down_proj.weight", shape.down(), up + gate.bytes()));
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
