// SPDX-License-Identifier: Apache-2.0
//
// The rows that a rank's experts take and the results that they return, between the form in which
// these travel and the form in which experts compute:
//
//   place     received rows are decoded, and cast to operands of gate and up, each once, however
//             many of this rank's experts take it
//   (experts  read inputs() and write results())
//   finish    results are coded; Combine::kReduced: those of a token are weighted and added up
//
// Where rows travel just as experts take and return them, nothing is copied: experts read and write
// in the segment.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "ep/dispatch_combine.h"
#include "model/compute.h"
#include "model/config.h"
#include "model/moe_options.h"
#include "model/row_noise.h"
#include "model/tensor_group.h"

namespace wideep::model {

class ExpertRows {
 public:
  // columns: of a result that this rank computes; all, but for ranks that share experts.
  ExpertRows(const ModelConfig& config, const ep::DispatchShape& shape, const MoeOptions& options,
             ColumnRange columns);

  // For the rows that `exchange` has received. gate: the shape of all experts' gate and up.
  void place(const Compute& compute, const ep::DispatchCombine& exchange,
             const kernels::PackedShape& gate);

  // After place: one for each of DispatchCombine::rows_of_slot, slot by slot. Results are rows of
  // all columns, of which only `columns` are there: a pointer is to where column 0 would be.
  const void* const* inputs() const { return inputs_.data(); }
  void* const* results() const { return results_.data(); }

  ColumnRange columns() const { return columns_; }

  // All results are written. Gives exchange what goes back.
  void finish(const Compute& compute, const ep::DispatchCombine& exchange);

  // With MoeOptions::measure_noise: what coding results has cost since clear_noise.
  const RowNoise& noise() const { return noise_; }
  void clear_noise() { noise_ = {}; }

  // Combine::kReduced: adds up what ranks of a node return for another node. kernels outlives it.
  ep::RowSum row_sum(const kernels::Kernels& kernels) const;

 private:
  bool reduced() const { return shape_.combine == ep::Combine::kReduced; }
  // Whether results travel as experts return them.
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
  size_t columns_offset_;  // bytes from where column 0 would be to the first of columns_

  std::vector<const void*> messages_;  // the received rows, each once
  std::vector<const void*> inputs_;    // of this rank's experts, slot by slot
  std::vector<void*> results_;         // the same; see results()
  std::vector<std::byte*> returned_;   // the same; where results belong; kReduced: null
  Scratch decoded_;                    // rows, where they do not travel in row_dtype
  Scratch operands_;                   // rows, where products do not take row_dtype
  Scratch plain_results_;              // where results do not travel as experts return them
  Scratch sums_;                       // kReduced: of received tokens
  RowNoise noise_;
};

}  // namespace wideep::model
