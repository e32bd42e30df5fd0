// SPDX-License-Identifier: Apache-2.0
//
// The experts in the slots of a rank, run on the rows that dispatch has brought there.
//
// Ranks that share experts (moe_tp) each get the rows of all of them, compute their slice of what
// is between the products, meet, and compute their slice of the results' columns from all of it.
// Every element is one whole sum (docs/decisions/0015-sharded-experts.md): the same bits as of
// whole experts.
//
// Thread safety: one thread per rank.
#pragma once

#include <cstdint>
#include <vector>

#include "ep/dispatch_combine.h"
#include "model/expert_rows.h"
#include "model/expert_slots.h"
#include "model/mlp.h"
#include "model/moe_options.h"
#include "model/tensor_group.h"

namespace wideep::model {

class RankExperts {
 public:
  // shards: the ranks that have slices of the same experts as this one, in the order of the slices,
  // with buffers for between_rows(shape). config and slots outlive the experts.
  RankExperts(const ModelConfig& config, const ExpertSlots& slots, const ep::DispatchShape& shape,
              const MoeOptions& options, TensorGroup shards);

  // Rows between the products: of all experts of a rank, in all calls that may be in flight.
  static int64_t between_rows(const ep::DispatchShape& shape);

  // Runs the experts of where.layer on what `exchange` has received, up to results in the form that
  // it sends back. Collective among ranks that share experts. Errors: one of these does not come.
  Status run(const Compute& compute, const ep::DispatchCombine& exchange,
             const transport::Awaited& where);

  ExpertRows& rows() { return rows_; }
  const ExpertRows& rows() const { return rows_; }

 private:
  void list_work(const ep::DispatchCombine& exchange, int layer, kernels::WeightFormat format);
  Status run_work(const Compute& compute, const transport::Awaited& where);
  std::byte* shared_between();

  const ModelConfig& config_;
  const ExpertSlots& slots_;
  ep::DispatchShape shape_;
  Dtype row_dtype_;
  TensorGroup shards_;
  ExpertRows rows_;
  std::vector<ExpertWork> work_;
  MlpRunner runner_;
  uint64_t calls_run_ = 0;  // with shards
};

}  // namespace wideep::model
