// SPDX-License-Identifier: Apache-2.0
//
// The gated MLP: down(silu(gate(x)) · up(x)), or another function of gate(x) and up(x), or of up(x)
// alone (kernels::Activation). Dense layers and shared experts run on all rows, each routed expert
// on its own rows. "between" means the intermediate activations silu(gate(x)) · up(x).
//
// Thread safety: one thread calls, all threads of the pool compute.
#pragma once

#include <span>
#include <vector>

#include "model/parts/compute.h"
#include "model/parts/tensor_group.h"
#include "weights/expert_record.h"

namespace wideep::model {

// One expert and its rows.
struct ExpertWork {
  weights::GatedMlp mlp;
  Rows x;                      // [num_rows, hidden], operands of gate and up
  kernels::OutputRows result;  // [num_rows, hidden]
};

// Runs gated MLPs on all threads. Keeps the memory for intermediate activations.
class MlpRunner {
 public:
  // y[num_rows, hidden] = mlp(x), float32, y_stride elements from row to row.
  void run(const Compute& compute, const weights::GatedMlp& mlp, const SourceRows& x, float* y,
           size_t y_stride);

  // The same by all ranks of a group: all have x, and each computes a part of the columns. The
  // result, [num_rows, hidden], is in JointBuffer::kOutput. Collective.
  Result<const float*> run(const Compute& compute, TensorGroup& group, const weights::GatedMlp& mlp,
                           const SourceRows& x, const transport::Awaited& where);

  // Runs every expert on its rows. All experts have the same shape.
  void run(const Compute& compute, std::span<const ExpertWork> work);

  // The same by all ranks of a group. Each has its slice of the experts and all of the rows, in the
  // same order, and computes its columns of the results. between: shared memory of the group for
  // one intermediate row per row of work. Collective.
  Status run(const Compute& compute, TensorGroup& group, std::span<const ExpertWork> work,
             std::byte* between, const transport::Awaited& where);

 private:
  // Calls body(expert, panels, next) for ranges of the experts' panels, on all threads. unit: the
  // panels that the kernel computes at once. next: if these are the last panels of the expert, the
  // next expert that has rows, for prefetching; else null.
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
  // The same for MLPs without a gate.
  void only_up(const Compute& compute, std::span<const ExpertWork> work, Panels panels,
               std::byte* between);
  void cast_between(const Compute& compute, std::span<const ExpertWork> work,
                    const std::byte* between);
  void down(const Compute& compute, std::span<const ExpertWork> work, Panels panels);

  std::vector<int64_t> first_row_;  // [experts + 1] index of each expert's first intermediate row
  std::vector<Rows> inputs_;        // [experts] operands of the product that is computed now
  std::vector<int64_t> thread_starts_;  // [threads] see for_panels
  Scratch cast_, between_, between_cast_;
};

}  // namespace wideep::model
