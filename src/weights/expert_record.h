// SPDX-License-Identifier: Apache-2.0
//
// Everything one expert of a gated MLP owns, as one run of bytes: what a slot holds and what a move
// copies.
//
//   gate and up   packed [2 × intermediate, hidden]: rows of gate, then rows of up
//   down          packed [hidden, intermediate]
#pragma once

#include <cstddef>

#include "kernels/packed_matrix.h"
#include "weights/weight_loader.h"
#include "wideep/status.h"

namespace wideep::weights {

struct ExpertShape {
  Dtype dtype = Dtype::kBf16;
  int hidden = 0;
  int intermediate = 0;

  size_t gate_up_bytes() const { return kernels::packed_bytes(dtype, 2 * intermediate, hidden); }
  size_t record_bytes() const {
    return gate_up_bytes() + kernels::packed_bytes(dtype, hidden, intermediate);
  }
};

// A gated MLP as the kernels see it: of an expert's record, or of dense weights.
struct GatedMlp {
  kernels::PackedMatrix gate_up;
  kernels::PackedMatrix down;
};

// REQUIRES: record is 64-byte aligned and shape.record_bytes() long.
inline GatedMlp view_expert(const ExpertShape& shape, const std::byte* record) {
  return {{shape.dtype, 2 * shape.intermediate, shape.hidden, record},
          {shape.dtype, shape.hidden, shape.intermediate, record + shape.gate_up_bytes()}};
}

// Reads "<prefix>.{gate,up,down}_proj.weight" and packs them into `record`.
Status load_expert(const WeightLoader& loader, const ExpertShape& shape, const std::string& prefix,
                   std::byte* record);

}  // namespace wideep::weights
