// SPDX-License-Identifier: Apache-2.0
//
// A matrix as a checkpoint stores it: floats, or codes in one of the usual layouts. The names and
// dtypes of the module's tensors determine the layout.
//
//   layout               tensors of "<module>."                          format
//   plain                weight F32, BF16 or F16 [n, k]                   f32, bf16
//   DeepSeek fp8         weight F8_E4M3 [n, k],
//                        weight_scale_inv [⌈n / 128⌉, ⌈k / 128⌉]           fp8
//   compressed-tensors   weight_packed I32 [n, k · bits / 32], codes with
//   pack-quantized       an offset and the lowest bits first,
//                        weight_scale [n, groups], weight_shape            int8, int4
//   ModelOpt NVFP4       weight U8 [n, k / 2], weight_scale F8_E4M3
//                        [n, k / 16], weight_scale_2                       nvfp4
//   compressed-tensors   weight_packed U8 [n, k / 2], weight_scale U8
//   mxfp4-pack-quantized [n, k / 32]                                       mxfp4
//   GPT-OSS experts      <name>_blocks U8 [experts, n, k / 32, 16],
//                        <name>_scales U8 [experts, n, k / 32]             mxfp4
//
// Scales without a dtype are F32, BF16 or F16. Four-bit codes lie low nibble first.
//
// Thread safety: immutable after open.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/coded_matrix.h"
#include "weights/tensor_source.h"
#include "wideep/status.h"

namespace wideep::weights {

// The form in which a matrix is packed: format and group together determine the bits of its
// products.
struct MatrixForm {
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  int group = 0;  // as in PackedShape

  kernels::PackedShape shape(int n, int k) const { return {format, n, k, group}; }
  bool operator==(const MatrixForm&) const = default;
};
inline MatrixForm default_form(kernels::WeightFormat format) {
  return {format, kernels::default_group(format)};
}

// The form of "<module>.weight" with k columns if it is packed as stored; bf16 for floats. Uses
// names, dtypes and shapes only; StoredMatrix::open() reports errors.
MatrixForm stored_form(const TensorSource& tensors, const std::string& name, int k);

// "<module>.weight" → "<module>".
std::string module_of(const std::string& name);

// The tensors that StoredMatrix::open() reads for this matrix, as far as the source has them; none:
// the matrix is missing. Uses names and dtypes only.
std::vector<std::string> stored_names(const TensorSource& tensors, const std::string& name);

class StoredMatrix {
 public:
  // name: "<module>.weight"; n rows and k columns. `tensors` must outlive the result.
  // Errors (invalid input) name file and tensor: missing, another shape or dtype, scales that are
  // not finite, an unknown layout.
  static Result<StoredMatrix> open(const TensorSource& tensors, const std::string& name, int n,
                                   int k);

  // n rows of one expert of GPT-OSS's "<name>_blocks" and "<name>_scales": first_row,
  // first_row + row_step, … GPT-OSS stores rows_each rows per expert; in gate_up_proj, rows of gate
  // and up alternate.
  struct ExpertRows {
    int num_experts = 0;
    int expert = 0;
    int rows_each = 0;
    int first_row = 0;
    int row_step = 1;
  };
  // REQUIRES: k is a multiple of 32; the rows exist.
  static Result<StoredMatrix> open_blocks(const TensorSource& tensors, const std::string& name,
                                          const ExpertRows& rows, int n, int k);

  int n() const { return n_; }
  int k() const { return k_; }
  bool is_coded() const { return coded_.has_value(); }
  const kernels::CodedMatrix& coded() const { return *coded_; }  // REQUIRES: is_coded()
  // The bytes of all its tensors.
  const std::vector<std::span<const std::byte>>& sources() const { return sources_; }

  // The scale of the whole matrix when it is packed in this shape: 1 except for nvfp4. Reads the
  // whole matrix if it must be quantised to nvfp4.
  float matrix_scale(const kernels::PackedShape& shape) const;

  // Rows [begin, end) as float32.
  void to_float32(int begin, int end, float* out) const;
  // The same. Errors (invalid input): a value that is not finite.
  Status to_finite(int begin, int end, float* out) const;

  // Packs panels [first, last) to `panels`: copies codes if the stored form is that of `shape`,
  // otherwise converts and quantises. Errors: as to_finite.
  // REQUIRES: first is a multiple of panels_together(shape), and last is one or the number of
  // panels; scale is matrix_scale(shape).
  Status pack(const kernels::PackedShape& shape, float scale, int first, int last,
              std::byte* panels) const;
  // The number of panels that share scales and must be packed together.
  int panels_together(const kernels::PackedShape& shape) const;

 private:
  StoredMatrix(int n, int k) : n_(n), k_(k) {}

  Status open_fp8(const TensorSource& tensors, const std::string& module);
  Status open_nvfp4(const TensorSource& tensors, const std::string& module);
  Status open_packed(const TensorSource& tensors, const std::string& module);
  Status open_packed_integers(const TensorSource& tensors, const std::string& module, int bits);
  Status open_packed_mxfp4(const TensorSource& tensors, const std::string& module);
  Result<const float*> read_scales(const TensorSource& tensors, const std::string& name,
                                   const std::vector<int64_t>& shape);
  // Packs the part.n rows from `begin` on, which are not stored in the codes of part.format.
  Status pack_floats(const kernels::PackedShape& part, float scale, int begin,
                     std::byte* out) const;
  bool is_stored_in(const kernels::PackedShape& shape) const;
  void set_codes(kernels::WeightFormat format, int group, const formats::TensorEntry& codes);

  int n_, k_;
  std::string where_;  // file and tensor
  std::vector<std::span<const std::byte>> sources_;
  const formats::TensorEntry* plain_ = nullptr;
  const formats::TensorEntry* codes_ = nullptr;  // of fp8, the only codes that may be NaN
  std::optional<kernels::CodedMatrix> coded_;
  // Memory that coded_ points to if it cannot point into the file.
  std::shared_ptr<std::vector<float>> scales_;
  std::shared_ptr<std::vector<std::byte>> gathered_;
};

}  // namespace wideep::weights
