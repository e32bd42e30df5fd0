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
//
// An expert that several ranks share is cut by columns into as many slices, each a record: some
// panels of gate and up, some of down, all of k. All records are as long as the longest.
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
  int num_slices = 1;

  kernels::PackedShape gate() const { return {format, intermediate, hidden, group}; }  // and of up
  kernels::PackedShape down() const { return {format, hidden, intermediate, group}; }
  size_t up_offset() const { return slice_bytes(gate()); }
  size_t down_offset() const { return 2 * slice_bytes(gate()); }
  size_t scales_offset() const { return down_offset() + slice_bytes(down()); }
  size_t record_bytes() const {
    return scales_offset() + (format == kernels::WeightFormat::kNvfp4 ? 64 : 0);
  }

 private:
  // Of the longest slice.
  size_t slice_bytes(const kernels::PackedShape& whole) const {
    const int panels = (whole.num_panels() + num_slices - 1) / num_slices;
    return whole.panel_bytes() * static_cast<size_t>(panels);
  }
};

// A gated MLP as the kernels see it: of a slice, the matrices have the whole shape and some of the
// panels.
struct GatedMlp {
  kernels::PackedMatrix gate;
  kernels::PackedMatrix up;
  kernels::PackedMatrix down;

  int hidden() const { return down.n(); }
  int intermediate() const { return down.k(); }
};

// REQUIRES: record is 64-byte aligned and shape.record_bytes() long.
GatedMlp view_expert(const ExpertShape& shape, const std::byte* record, int slice = 0);

// Packs the slice of "<prefix>.{gate,up,down}_proj.weight" into `record`, when the loader runs.
Status load_expert(const WeightLoader& loader, const ExpertShape& shape, const std::string& prefix,
                   std::byte* record, int slice = 0);

// The shape of records that hold the MLPs of these prefixes whole: of one form.
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
