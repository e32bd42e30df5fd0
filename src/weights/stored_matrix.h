// SPDX-License-Identifier: Apache-2.0
//
// A matrix as a checkpoint holds it: floats, or codes in one of the usual layouts, told by the
// names and dtypes of the tensors of its module.
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

// In what form a matrix is packed: all that its products' operands depend on.
struct MatrixForm {
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  int group = 0;  // as PackedShape

  kernels::PackedShape shape(int n, int k) const { return {format, n, k, group}; }
  bool operator==(const MatrixForm&) const = default;
};
inline MatrixForm default_form(kernels::WeightFormat format) {
  return {format, kernels::default_group(format)};
}

// The form in which "<module>.weight" with k columns is multiplied as it is stored: bf16 for
// floats. Looks at names, dtypes and shapes only; what is broken shows when it is opened.
MatrixForm stored_form(const TensorSource& tensors, const std::string& name, int k);

class StoredMatrix {
 public:
  // name: "<module>.weight". The checkpoint must outlive the result.
  // Errors (invalid input) name file and tensor: missing, another shape or dtype, scales that are
  // no numbers, a layout that is none of the above.
  static Result<StoredMatrix> open(const TensorSource& tensors, const std::string& name, int n,
                                   int k);

  // Rows first_row, first_row + row_step, … (n of them) of one expert of GPT-OSS's "<name>_blocks"
  // and "<name>_scales", which hold rows_each rows an expert. gate_up_proj has gate and up rows in
  // turns.
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
  // The bytes of its tensors.
  const std::vector<std::span<const std::byte>>& sources() const { return sources_; }

  // The scale of the whole matrix when packed so: reads all of it where nvfp4 is made of others.
  float matrix_scale(const kernels::PackedShape& shape) const;

  // Rows [begin, end) as float32.
  void to_float32(int begin, int end, float* out) const;
  // The same to be quantised. Errors (invalid input): a value that is not finite, of which most
  // formats can say nothing.
  Status to_finite(int begin, int end, float* out) const;

  // Packs panels [first, last): codes as they are where the form is the stored one, or else rounded
  // and quantised. Errors: to_finite's.
  // REQUIRES: first is a multiple of panels_together(shape), last too or the end; scale is
  // matrix_scale(shape); panels is where the first of them belongs.
  Status pack(const kernels::PackedShape& shape, float scale, int first, int last,
              std::byte* panels) const;
  // Panels that share scales.
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
  // Panels [0, part.num_panels()) of rows from `begin` on, by way of float32.
  Status pack_floats(const kernels::PackedShape& part, float scale, int begin,
                     std::byte* out) const;
  bool is_stored_in(const kernels::PackedShape& shape) const;
  void set_codes(kernels::WeightFormat format, int group, const formats::TensorEntry& codes);

  int n_, k_;
  std::string where_;  // file and tensor
  std::vector<std::span<const std::byte>> sources_;
  const formats::TensorEntry* plain_ = nullptr;
  std::optional<kernels::CodedMatrix> coded_;
  // What coded_ points to where the file has it in another form.
  std::shared_ptr<std::vector<float>> scales_;
  std::shared_ptr<std::vector<std::byte>> gathered_;
};

}  // namespace wideep::weights
