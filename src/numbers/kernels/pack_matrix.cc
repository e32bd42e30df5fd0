// SPDX-License-Identifier: Apache-2.0
#include "kernels/pack_matrix.h"

#include "kernels/coded_matrix.h"
#include "kernels/interleave.h"

namespace wideep::kernels {
namespace {

PackedMatrix quantize_and_pack(const PackedShape& shape, const float* rows, std::byte* out) {
  const QuantizedMatrix coded = quantize_matrix(shape.format, shape.group, rows, shape.n, shape.k);
  begin_pack(shape, 0, shape.num_panels(), out);
  pack_codes(shape, coded.view, 0, out);
  return {shape, out, coded.view.scale};
}

}  // namespace

PackedMatrix pack_matrix(const PackedShape& shape, const float* rows, std::byte* out) {
  if (is_coded(shape.format)) return quantize_and_pack(shape, rows, out);
  if (shape.format == WeightFormat::kF32) {
    interleave(shape, reinterpret_cast<const std::byte*>(rows), out);
  } else {
    interleave_rounded(shape, rows, out);
  }
  return {shape, out};
}

}  // namespace wideep::kernels
