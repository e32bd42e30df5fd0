// SPDX-License-Identifier: Apache-2.0
//
// Converts rows between the formats in which they travel and the formats in which experts compute:
//
//   place     decodes received rows and casts them to operands of gate and up; each row once,
//             however many of this rank's experts take it
//   (experts  read inputs() and write results())
//   finish    encodes the results; with Combine::kReduced it weights and sums those of a token
//
// If the formats are equal, nothing is copied: experts read and write in the segment.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "ep/dispatch_combine.h"
#include "model/config/config.h"
#include "model/parts/compute.h"
#include "model/parts/moe_options.h"
#include "model/parts/row_noise.h"
#include "model/parts/tensor_group.h"

namespace wideep::model {

class ExpertRows {
 public:
  // columns: the columns of a result that this rank computes; all of them unless it holds slices of
  // experts (moe_tp).
  ExpertRows(const ModelConfig& config, const ep::DispatchShape& shape, const MoeOptions& options,
             ColumnRange columns);

  // Converts the rows that `exchange` has received. gate: the shape of all experts' gate and up.
  void place(const Compute& compute, const ep::DispatchCombine& exchange,
             const kernels::PackedShape& gate);

  // After place(): one pointer for each element of DispatchCombine::rows_of_slot, slot by slot. A
  // result pointer points to column 0 of the row, but only `columns` of it may be written.
  const void* const* inputs() const { return inputs_.data(); }
  void* const* results() const { return results_.data(); }

  ColumnRange columns() const { return columns_; }

  // To be called when all results are written: puts them where exchange sends them from.
  void finish(const Compute& compute, const ep::DispatchCombine& exchange);

  // With MoeOptions::measure_noise: the noise of coding results since clear_noise().
  const RowNoise& noise() const { return noise_; }
  void clear_noise() { noise_ = {}; }

  // For Combine::kReduced: sums rows that several ranks of a node return to another node. `kernels`
  // must outlive it.
  ep::RowSum row_sum(const kernels::Kernels& kernels) const;

 private:
  bool reduced() const { return shape_.combine == ep::Combine::kReduced; }
  // Whether results travel in the dtype that experts return.
  bool return_plain() const {
    return options_.combine_format() == kernels::row_format(options_.row_dtype);
  }
  kernels::InputRows received_inputs(const Compute& compute, const kernels::PackedShape& gate);
  void place_results(const ep::DispatchCombine& exchange);
  void encode_results(const Compute& compute);
  void sum_results(const Compute& compute, const ep::DispatchCombine& exchange);

  ep::DispatchShape shape_;
  MoeOptions options_;
  int hidden_;
  ColumnRange columns_;
  size_t result_bytes_;    // of a result as an expert writes it
  size_t columns_offset_;  // bytes from column 0 to the first of columns_

  std::vector<const void*> messages_;  // the received rows, each once
  std::vector<const void*> inputs_;    // of this rank's experts, slot by slot
  std::vector<void*> results_;         // in the order of inputs_; see results()
  std::vector<std::byte*> returned_;   // in the order of inputs_: final places; kReduced: null
  Scratch decoded_;                    // used if rows do not travel in row_dtype
  Scratch operands_;                   // used if products do not take row_dtype
  Scratch plain_results_;              // used unless experts write to the final places
  Scratch sums_;                       // kReduced: [received tokens, columns] float32
  RowNoise noise_;
};

}  // namespace wideep::model
