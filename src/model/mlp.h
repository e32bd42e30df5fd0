// SPDX-License-Identifier: Apache-2.0
//
// The gated MLP: down(silu(gate(x)) · up(x)); dense layers and shared experts on all rows, and
// routed experts each on its own.
#pragma once

#include <span>
#include <vector>

#include "model/compute.h"
#include "model/tensor_group.h"
#include "weights/expert_record.h"

namespace wideep::model {

// One expert and its rows.
struct ExpertWork {
  weights::GatedMlp mlp;
  Rows x;                      // [num_rows, hidden], operands of gate and up
  kernels::OutputRows result;  // [num_rows, hidden]
};

// Runs gated MLPs on all threads; keeps the memory for what is in between.
class MlpRunner {
 public:
  // y[num_rows, hidden] = mlp(x), float32, y_stride elements from row to row.
  void run(const Compute& compute, const weights::GatedMlp& mlp, const SourceRows& x, float* y,
           size_t y_stride);

  // The same by all ranks of a group, all of which have x; the result is in JointBuffer::kOutput.
  // Collective.
  Result<const float*> run(const Compute& compute, TensorGroup& group, const weights::GatedMlp& mlp,
                           const SourceRows& x, const transport::Awaited& where);

  // Every expert on its rows. All have the same shape.
  void run(const Compute& compute, std::span<const ExpertWork> work);

  // The same by all ranks of a group, each of which has its slice of the experts and all of the
  // rows, in the same order: it computes its columns of the results. between: what all of them see,
  // between_bytes() long. Collective.
  Status run(const Compute& compute, TensorGroup& group, std::span<const ExpertWork> work,
             std::byte* between, const transport::Awaited& where);

 private:
  // Calls body(expert, panels, next) for runs of the experts' panels, over all threads. unit:
  // panels that the kernel takes at once. next: the next expert that has rows, where these are the
  // last panels, or null.
  template <typename Body>
  void for_panels(const Compute& compute, std::span<const ExpertWork> work, Panels panels, int unit,
                  Body&& body);
  void place(std::span<const ExpertWork> work);
  size_t between_bytes(const kernels::PackedShape& down) const;
  transport::Written written_between(const std::byte* between, const weights::GatedMlp& mlp,
                                     const TensorGroup& group) const;
  // between: between_bytes long.
  void gate_and_up(const Compute& compute, std::span<const ExpertWork> work, Panels panels,
                   std::byte* between);
  void cast_between(const Compute& compute, std::span<const ExpertWork> work,
                    const std::byte* between);
  void down(const Compute& compute, std::span<const ExpertWork> work, Panels panels);

  std::vector<int64_t> first_row_;  // of each expert, and the end
  std::vector<Rows> inputs_;        // of each expert, of the product that is under way
  std::vector<int64_t> thread_starts_;
  Scratch cast_, between_, between_cast_;
};

}  // namespace wideep::model
