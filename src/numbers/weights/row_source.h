// SPDX-License-Identifier: Apache-2.0
//
// Matrices that are not stored as safetensors store them: a TensorSource that has such matrices
// answers with readers of their rows instead of slices and modules (GGUF files: model/gguf/).
//
// Thread safety: all calls.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weights/coded_source.h"
#include "weights/stored_layout.h"
#include "wideep/status.h"

namespace wideep::weights {

// The rows of a matrix [n, k].
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Rows [begin, end) as float32, [end − begin][k].
  virtual void to_float32(int begin, int end, float* out) const = 0;
  // Whether codes of this form have the values of all rows.
  virtual bool holds(const MatrixForm&) const { return false; }
  // Rows [begin, end) as such codes. REQUIRES: holds(form).
  virtual CodedSource::Rows rows(int begin, int end, const MatrixForm& form) const;
  // The bytes that rows are made of, about in their order.
  virtual std::vector<std::span<const std::byte>> sources() const = 0;
};

// What a TensorSource with such matrices has.
class RowSources {
 public:
  virtual ~RowSources() = default;

  // name: "<module>.weight". Errors (invalid input) name file and tensor: missing, or another
  // shape. The result must not outlive the source.
  virtual Result<std::shared_ptr<const RowSource>> open_rows(const std::string& name, int n,
                                                             int k) const = 0;
  // The form in which all of these are packed if they must have one: the smallest that holds them,
  // or else int8; bf16, if one has floats.
  virtual MatrixForm form_of(const std::vector<std::string>& names) const = 0;
  // As stored_names() (stored_matrix.h).
  virtual std::vector<std::string> names_of(const std::string& name) const = 0;
};

}  // namespace wideep::weights
