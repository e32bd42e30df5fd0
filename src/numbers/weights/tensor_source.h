// SPDX-License-Identifier: Apache-2.0
//
// The source of a model's tensors: a checkpoint on disk, or random tensors.
//
// The model asks for names and shapes of its own. A source may store what is asked for under other
// names, or as a part of a larger tensor (one expert of all, the first half of the rows, every
// second row, a transposed matrix). It answers in two ways:
//
//   slice()    floats: where the elements lie in a stored tensor
//   module()   matrices in any layout: which stored module holds the matrix, and which of its rows.
//              StoredMatrix finds that module's codes, scales and zero points in
//              StoredModule::source by their stored names, so that a source need not know layouts.
//
// Thread safety: all calls.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor_files/safetensors.h"
#include "weights/declared_layout.h"
#include "wideep/status.h"

namespace wideep::weights {

class RowSources;
class TensorSource;

// A matrix of floats that is a part of a stored tensor. Element (i, j) is element
// first + i · row_stride + j · column_stride of the tensor. A vector is one row.
struct TensorSlice {
  const tensor_files::TensorEntry* entry = nullptr;
  int64_t first = 0;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t row_stride = 1;
  int64_t column_stride = 1;

  // All elements of a tensor. Shape [n, …] has n rows; [n] and [] are one row.
  static TensorSlice whole(const tensor_files::TensorEntry& entry) {
    const int64_t rows = entry.shape.size() < 2 ? 1 : entry.shape.front();
    const int64_t columns = entry.num_elements() / (rows > 0 ? rows : 1);
    return {&entry, 0, rows, columns, columns, 1};
  }
  int64_t num_elements() const { return rows * columns; }
  // Whether the elements of rows [0, rows) lie one behind the other.
  bool is_contiguous() const { return column_stride == 1 && (row_stride == columns || rows == 1); }
};

// The module that stores a matrix [n, k], in any layout (stored_matrix.h). Its tensors are called
// "<name>.weight", "<name>.weight_scale", "<name>_blocks" and so on in `source`; the weight may be
// called "<name>" alone.
//
// With experts, every stored tensor has a first dimension for the expert; scales of whole matrices
// have one number per expert or one for all. The stored matrix has parts · n rows. The asked matrix
// is one part of them: rows [part · n, (part + 1) · n), or rows part, part + parts, … if parts
// alternate.
struct StoredModule {
  const TensorSource* source = nullptr;
  std::string name;
  int num_experts = 0;  // 0: the tensors have no dimension for experts
  int expert = 0;
  int part = 0;
  int parts = 1;
  bool alternating = false;
  // Instead of equal parts: rows first … first + n of so many. 0: equal parts.
  int64_t first = 0;
  int64_t total = 0;
  bool transposed = false;                   // the weight is stored as [k, rows]
  const DeclaredLayout* declared = nullptr;  // of the checkpoint; null: nothing is said

  // Row i of the asked matrix with n rows is row first_row(n) + i · row_step() of all_rows(n).
  int64_t all_rows(int64_t n) const { return total > 0 ? total : parts * n; }
  int64_t first_row(int64_t n) const { return total > 0 ? first : alternating ? part : part * n; }
  int64_t row_step() const { return alternating ? parts : 1; }
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The tensor of this name, checked to have this shape and dtype F32, BF16 or F16. Valid as long
  // as the source. Errors (invalid input) name source and tensor: missing, or another shape or
  // dtype.
  virtual Result<const tensor_files::TensorEntry*> tensor(
      const std::string& name, const std::vector<int64_t>& shape) const = 0;

  // The elements of the tensor of this name and shape (F32, BF16 or F16), which may be a part of a
  // stored tensor. Errors: as tensor(). The default is the whole tensor.
  virtual Result<TensorSlice> slice(const std::string& name,
                                    const std::vector<int64_t>& shape) const {
    const auto entry = tensor(name, shape);
    if (!entry.ok()) return entry.status();
    return TensorSlice::whole(**entry);
  }

  // The stored module of the matrix "<module>.weight". Says nothing about whether it exists. The
  // default is the module itself.
  virtual StoredModule module(const std::string& module) const {
    StoredModule stored;
    stored.source = this;
    stored.name = module;
    return stored;
  }

  // Of a source with matrices that are no safetensors; then module() is not asked, and slice() only
  // for vectors. nullptr: there are none.
  virtual const RowSources* row_sources() const { return nullptr; }

  // ---- overridden by sources that contain codes and scales; the defaults are for floats only ----

  // As tensor(), but with one of the given dtypes.
  virtual Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                          const std::vector<int64_t>& shape,
                                                          std::span<const Dtype>) const {
    return tensor(name, shape);
  }
  // nullptr if there is no such tensor.
  virtual const tensor_files::TensorEntry* find(const std::string&) const { return nullptr; }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // Checks that the tensors have not changed since the source was opened. Call it after reading
  // them. Errors (failed) name the changed file.
  virtual Status check_unchanged() const { return {}; }
  // Equal on machines with the same weights, and as far as a sample of each tensor shows
  // (sampled_hash.h) another one for others. "": the source has nothing that could differ.
  virtual std::string fingerprint() const { return {}; }
  // The source and the name of the tensor, for messages.
  virtual std::string where(const std::string& name) const { return name; }
};

}  // namespace wideep::weights
