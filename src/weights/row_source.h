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
  // Rows [begin, end) as codes of form(). REQUIRES: form() is a format of codes.
  virtual CodedSource::Rows rows(int begin, int end) const;
  // The form with equal values; bf16: there is none, or the rows are floats.
  virtual MatrixForm form() const { return default_form(kernels::WeightFormat::kBf16); }
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
  // As stored_form() and stored_names() (stored_matrix.h).
  virtual MatrixForm form_of(const std::string& name) const = 0;
  virtual std::vector<std::string> names_of(const std::string& name) const = 0;
};

}  // namespace wideep::weights
