// SPDX-License-Identifier: Apache-2.0
//
// Everything one expert of a gated MLP owns, as one run of bytes: what a slot holds and what a move
// copies. Dense layers' and shared experts' MLPs lie in the same form.
//
//   gate     packed [intermediate, hidden]
//   up       packed [intermediate, hidden]
//   down     packed [hidden, intermediate]
//   scales   of formats with one scale a matrix: those of gate, up and down, float32, and padding
//            to 64 bytes
#pragma once

#include <cstddef>
#include <string>

#include "base/aligned_bytes.h"
#include "kernels/packed_matrix.h"
#include "weights/weight_loader.h"
#include "wideep/status.h"

namespace wideep::weights {

struct ExpertShape {
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  int hidden = 0;
  int intermediate = 0;
  int group = kernels::default_group(format);

  kernels::PackedShape gate() const { return {format, intermediate, hidden, group}; }  // and of up
  kernels::PackedShape down() const { return {format, hidden, intermediate, group}; }
  size_t scales_offset() const { return 2 * gate().bytes() + down().bytes(); }
  size_t record_bytes() const {
    return scales_offset() + (format == kernels::WeightFormat::kNvfp4 ? 64 : 0);
  }
};

// A gated MLP as the kernels see it.
struct GatedMlp {
  kernels::PackedMatrix gate;
  kernels::PackedMatrix up;
  kernels::PackedMatrix down;

  int hidden() const { return down.n(); }
  int intermediate() const { return down.k(); }
};

// REQUIRES: record is 64-byte aligned and shape.record_bytes() long.
GatedMlp view_expert(const ExpertShape& shape, const std::byte* record);

// Packs "<prefix>.{gate,up,down}_proj.weight" into `record`, when the loader runs.
Status load_expert(const WeightLoader& loader, const ExpertShape& shape, const std::string& prefix,
                   std::byte* record);

// The shape of records that hold the MLPs of these prefixes: of one form.
ExpertShape expert_shape(const WeightLoader& loader, const std::vector<std::string>& prefixes,
                         int hidden, int intermediate);

// A record with its memory: of a dense layer or a shared expert.
struct MlpRecord {
  ExpertShape shape;
  base::AlignedBytes bytes;

  bool empty() const { return bytes.size() == 0; }
  GatedMlp view() const { return view_expert(shape, bytes.data()); }
};
Result<MlpRecord> load_mlp(const WeightLoader& loader, const std::string& prefix, int hidden,
                           int intermediate);

}  // namespace wideep::weights
