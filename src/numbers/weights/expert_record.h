// SPDX-License-Identifier: Apache-2.0
//
// The weights of one expert (an MLP) as one contiguous record: the content of a slot, and what a
// move copies. The MLPs of dense layers and shared experts have the same form.
//
//   gate     packed [intermediate, hidden]; nothing where the activation has no gate, here and below
//   up       packed [intermediate, hidden]
//   down     packed [hidden, intermediate]
//   scales   only for formats with a scale per matrix (nvfp4): the scales of gate, up and down,
//            float32, padded to 64 bytes
//   biases   only if the experts have them: of gate, up and down, float32, each padded to 64 bytes;
//            of the whole expert in every slice
//
// An expert that is sharded over several ranks consists of as many slices, each a record with some
// panels (groups of rows) of gate, up and down, and all of k. All records have the length of
// the longest slice.
//
// Thread safety: pure functions and plain values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/aligned_bytes.h"
#include "kernels/matmul.h"
#include "kernels/packed_matrix.h"
#include "weights/weight_loader.h"
#include "wideep/status.h"

namespace wideep::weights {

struct ExpertShape {
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  int hidden = 0;
  int intermediate = 0;
  int group = kernels::default_group(format);  // columns that share a scale
  int num_slices = 1;
  bool biased = false;
  kernels::Activation activation = {};
  // Of down, where it differs from gate and up, as in GGUF files.
  std::optional<MatrixForm> down_form = std::nullopt;

  kernels::PackedShape gate() const { return {format, intermediate, hidden, group}; }  // also of up
  kernels::PackedShape down() const {
    return down_form.value_or(MatrixForm{format, group}).shape(hidden, intermediate);
  }
  bool has_gate() const { return activation.has_gate(); }
  size_t up_offset() const { return has_gate() ? slice_bytes(gate()) : 0; }
  size_t down_offset() const { return up_offset() + slice_bytes(gate()); }
  size_t scales_offset() const { return down_offset() + slice_bytes(down()); }
  bool has_scales() const { return format == kernels::WeightFormat::kNvfp4; }
  size_t gate_bias_offset() const { return scales_offset() + (has_scales() ? 64 : 0); }
  size_t up_bias_offset() const {
    return gate_bias_offset() + (has_gate() ? bias_bytes(intermediate) : 0);
  }
  size_t down_bias_offset() const { return up_bias_offset() + bias_bytes(intermediate); }
  size_t record_bytes() const {
    return biased ? down_bias_offset() + bias_bytes(hidden) : gate_bias_offset();
  }

 private:
  static size_t bias_bytes(int size) {
    return (static_cast<size_t>(size) * sizeof(float) + 63) / 64 * 64;
  }
  // Bytes of a matrix in the longest slice.
  size_t slice_bytes(const kernels::PackedShape& whole) const {
    const int panels = (whole.num_panels() + num_slices - 1) / num_slices;
    return whole.panel_bytes() * static_cast<size_t>(panels);
  }
};

// Views of an MLP's matrices for the kernels. The matrices of a slice have the whole shape but only
// the slice's panels. Where the activation has no gate, `gate` is `up`, and multiplies nothing.
struct GatedMlp {
  kernels::PackedMatrix gate;
  kernels::PackedMatrix up;
  kernels::PackedMatrix down;
  // [intermediate], [intermediate] and [hidden]; null: none.
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
  kernels::Activation activation = {};

  int hidden() const { return down.n(); }
  int intermediate() const { return down.k(); }
};

// REQUIRES: record is 64-byte aligned and shape.record_bytes() long.
GatedMlp view_expert(const ExpertShape& shape, const std::byte* record, int slice = 0);

// The part of a packed file (packed/packed_file.h) that is such a record.
std::string expert_part(const ExpertShape& shape, const std::string& prefix, int slice);

// Checks "<prefix>.{gate,up,down}_proj.weight", and ".bias" if the shape is biased (those of gate
// only if it has one), and packs the
// slice into `record` when the loader runs. Errors: as WeightLoader::pack. REQUIRES: as
// view_expert; `record` stays valid until the loader ran.
Status load_expert(const WeightLoader& loader, const ExpertShape& shape, const std::string& prefix,
                   std::byte* record, int slice = 0);

// The shape of records for the whole MLPs of these prefixes, all in one form (common_form); in a
// source with row_sources() gate and up in one, and down in one.
ExpertShape expert_shape(const WeightLoader& loader, const std::vector<std::string>& prefixes,
                         int hidden, int intermediate, const kernels::Activation& activation = {});

// A record that owns its memory, for a dense layer or a shared expert.
struct MlpRecord {
  ExpertShape shape;
  base::AlignedBytes bytes;

  bool empty() const { return bytes.size() == 0; }
  GatedMlp view() const { return view_expert(shape, bytes.data()); }
};
struct MlpOptions {
  bool biased = false;
  kernels::Activation activation = {};
};
Result<MlpRecord> load_mlp(const WeightLoader& loader, const std::string& prefix, int hidden,
                           int intermediate, const MlpOptions& options = {});

}  // namespace wideep::weights
