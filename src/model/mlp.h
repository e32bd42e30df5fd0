// SPDX-License-Identifier: Apache-2.0
//
// The gated MLP: down(silu(gate(x)) · up(x)). Dense layers and shared experts run on all rows,
// routed experts each on its own rows.
//
// Thread safety: one thread calls, all threads of the pool compute.
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

// Runs gated MLPs on all threads. Keeps memory for what gate and up make: the rows in between.
class MlpRunner {
 public:
  // y[num_rows, hidden] = mlp(x), float32, y_stride elements from row to row.
  void run(const Compute& compute, const weights::GatedMlp& mlp, const SourceRows& x, float* y,
           size_t y_stride);

  // The same by all ranks of a group, all of which have x. The result, [num_rows, hidden], is in
  // JointBuffer::kOutput. Collective.
  Result<const float*> run(const Compute& compute, TensorGroup& group, const weights::GatedMlp& mlp,
                           const SourceRows& x, const transport::Awaited& where);

  // Every expert on its rows. All experts have the same shape.
  void run(const Compute& compute, std::span<const ExpertWork> work);

  // The same by all ranks of a group. Each has its slice of the experts and all of the rows, in the
  // same order, and computes its columns of the results. between: memory that all of them see, for
  // a row between gate and down of each row of work. Collective.
  Status run(const Compute& compute, TensorGroup& group, std::span<const ExpertWork> work,
             std::byte* between, const transport::Awaited& where);

 private:
  // Calls body(expert, panels, next) for runs of the experts' panels, over all threads. unit:
  // panels that the kernel takes at once. next: if these are the last panels of the expert, the
  // next expert that has rows; else null.
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

  std::vector<int64_t> first_row_;      // [experts + 1] where each expert's rows begin in between
  std::vector<Rows> inputs_;            // [experts] of the product that is being computed
  std::vector<int64_t> thread_starts_;  // [threads] see for_panels
  Scratch cast_, between_, between_cast_;
};

}  // namespace wideep::model
