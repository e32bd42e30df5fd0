// SPDX-License-Identifier: Apache-2.0
//
// A matrix as a checkpoint stores it: floats, or codes in one of the usual layouts. The names,
// dtypes and shapes of the module's tensors determine the layout, for each module on its own.
//
//   layout               tensors of "<module>."                           packed as
//   floats               weight F32, BF16 or F16 [n, k]                    f32, bf16
//   fp8                  weight F8_E4M3 [n, k], weight_scale_inv,
//                        weight_scale or scale: one number, one for each
//                        row ([n], [n, 1]), or for blocks of a × b
//                        ([⌈n / a⌉, ⌈k / b⌉] or [⌈n / a⌉, 1, ⌈k / b⌉, 1],
//                        a and b powers of two)                            fp8 (b ≥ 128), bf16
//   compressed-tensors   weight_packed I32 [n, k · bits / 32] of 4 or 8
//   pack-quantized       bits, codes with an offset and the lowest bits
//                        first; weight_scale [n, groups]; weight_shape;
//                        weight_zero_point I32 [n · bits / 32, groups]     int8, int4
//   compressed-tensors   weight I8 [n, k], weight_scale: one number,
//   int-quantized        [n, 1] or [n, groups]                             int8
//   GPTQ                 qweight I32 [k · bits / 32, n] of 4 or 8 bits,
//                        scales [groups, n], qzeros I32
//                        [groups, n · bits / 32] with zero points minus 1,
//                        g_idx I32 [k] with groups of consecutive columns  int8, int4
//   AWQ                  qweight I32 [k, n / 8] and qzeros [groups, n / 8]
//                        of 4 bits, a word's nibbles being rows 0, 2, 4,
//                        6, 1, 3, 5, 7; scales [groups, n]                 int8, int4
//   ModelOpt NVFP4       weight U8 [n, k / 2], weight_scale F8_E4M3
//                        [n, k / 16], weight_scale_2                       nvfp4
//   compressed-tensors   weight_packed U8 [n, k / 2], weight_scale
//   nvfp4-pack-quantized F8_E4M3 [n, k / 16], weight_global_scale, the
//                        inverse of the matrix's scale                     nvfp4
//   compressed-tensors   weight_packed U8 [n, k / 2], weight_scale U8
//   mxfp4-pack-quantized [n, k / 32]                                       mxfp4
//   DeepSeek fp4         weight I8 or U8 [n, k / 2], scale F8_E8M0
//                        [n, k / 32]                                       mxfp4
//   GPT-OSS              <module>_blocks U8 [n, k / 32, 16],
//                        <module>_scales U8 [n, k / 32]                    mxfp4
//
// Scales without a dtype are F32, BF16 or F16, those of fp8 also F8_E8M0 or U8 (powers of two).
// Four-bit codes lie low nibble first. Tensors of several experts have one more dimension in front
// (StoredModule). Scales of activations (input_scale) are not read: activations are never quantised
// as the file says.
//
// Matrices of GGUF files: block_matrix.h.
//
// "packed as" is the format with equal values. Where there is none, values are rounded to bf16:
// fp8 with blocks narrower than 128 columns, and 8 bits with zero points. 4 bits with zero points
// other than 8 are packed as int8, whose codes hold the differences exactly.
//
// Thread safety: immutable after open.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weights/coded_source.h"
#include "weights/row_source.h"
#include "weights/stored_layout.h"
#include "weights/tensor_source.h"
#include "wideep/status.h"

namespace wideep::weights {

// The form of "<module>.weight" with k columns if it is packed as stored; bf16 for floats. Uses
// names, dtypes, shapes and zero points only; StoredMatrix::open() reports errors.
MatrixForm stored_form(const TensorSource& tensors, const std::string& name, int k);

// "<module>.weight" → "<module>".
std::string module_of(const std::string& name);

// The stored tensors that StoredMatrix::open() reads for this matrix, as far as the source has
// them; none: the matrix is missing. Uses names and dtypes only.
std::vector<std::string> stored_names(const TensorSource& tensors, const std::string& name);

// Whether the source has a weight, or codes, of a module of this stored name.
bool has_module(const TensorSource& source, const std::string& module);

class StoredMatrix {
 public:
  // name: "<module>.weight"; n rows and k columns. `tensors` must outlive the result.
  // Errors (invalid input) name file and tensor: missing, another shape or dtype, scales that are
  // not finite, an unknown layout.
  static Result<StoredMatrix> open(const TensorSource& tensors, const std::string& name, int n,
                                   int k);

  int n() const { return n_; }
  int k() const { return k_; }
  bool is_coded() const { return coded_.has_value(); }  // in a layout of the table above
  const CodedSource& coded() const { return *coded_; }  // REQUIRES: is_coded()
  // The bytes of its tensors, in the order of its rows. Of tensors that hold several matrices, a
  // part of the right size.
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

  // Packs the part.n rows from `begin` on, which are not stored in the codes of part.format.
  Status pack_floats(const kernels::PackedShape& part, float scale, int begin,
                     std::byte* out) const;
  bool is_stored_in(const kernels::PackedShape& shape) const;
  // What may not be finite in rows that are packed as they are stored: fp8 codes, and scales
  // between the codes of a GGUF type.
  Status check_codes(const CodedSource::Rows& rows, int begin) const;

  int n_, k_;
  std::string where_;  // file and tensor
  std::vector<std::span<const std::byte>> sources_;
  // One of them.
  std::optional<TensorSlice> plain_;
  std::optional<CodedSource> coded_;
  std::shared_ptr<const RowSource> rows_;  // of a source that has row_sources()
};

}  // namespace wideep::weights
