// SPDX-License-Identifier: Apache-2.0
//
// Runs the experts in the slots of a rank on the rows that dispatch has brought there.
//
// With moe_tp > 1, several ranks hold slices of the same experts, and each gets the rows of all of
// them. A rank computes its columns of the intermediate activations (between gate/up and down),
// waits for the other slices (a barrier), and computes its columns of the results from all
// intermediate columns. Every element is one whole sum, so the bits are those of whole experts
// (docs/decisions/0015-sharded-experts.md).
//
// Where experts are absent (resident_experts.h), those that are in memory run first, and the others
// as they come.
//
// Thread safety: one thread per rank.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ep/dispatch_combine.h"
#include "model/parts/expert_rows.h"
#include "model/parts/expert_slots.h"
#include "model/parts/mlp.h"
#include "model/parts/moe_options.h"
#include "model/parts/tensor_group.h"

namespace wideep::model {

class ResidentExperts;

class RankExperts {
 public:
  // shards: the ranks that hold slices of the same experts as this one, in the order of the slices,
  // with buffers for between_rows(shape). config and slots outlive this.
  // options.resident: all experts of slots, which are whole and not borrowed.
  RankExperts(const ModelConfig& config, const ExpertSlots& slots, const ep::DispatchShape& shape,
              const MoeOptions& options, TensorGroup shards);

  // The largest number of intermediate rows of a rank, over all calls that may be in flight.
  static int64_t between_rows(const ep::DispatchShape& shape);

  // Runs the experts of where.layer on the rows that `exchange` has received, and leaves the
  // results where it sends them from. borrowed: the experts of the borrowed slots. Collective over
  // the shards. Errors: one of them failed or did not answer in time.
  Status run(const Compute& compute, const ep::DispatchCombine& exchange,
             std::span<const int32_t> borrowed, const transport::Awaited& where);

  // With MoeOptions::resident, in place of run(): orders what is absent, then runs all of them.
  // num_tokens: of this iteration, of all ranks. meanwhile: called once, when nothing is left to do
  // but to wait for experts. The results of an expert that could not be read are not numbers.
  void choose(const Compute& compute, const ep::DispatchCombine& exchange,
              const transport::Awaited& where, int64_t num_tokens);
  void run_chosen(const Compute& compute, const ep::DispatchCombine& exchange, int layer,
                  const std::function<void()>& meanwhile);

  ExpertRows& rows() { return rows_; }
  const ExpertRows& rows() const { return rows_; }

 private:
  void list_work(const ep::DispatchCombine& exchange, std::span<const int32_t> borrowed, int layer,
                 kernels::WeightFormat format);
  weights::GatedMlp of_layer(int layer, weights::GatedMlp expert) const;
  void run_slots(const Compute& compute, int layer, std::span<const int> slots);
  void spoil_results(int slot);
  Status run_work(const Compute& compute, const transport::Awaited& where);
  std::byte* shared_between();

  const ModelConfig& config_;
  const ExpertSlots& slots_;
  ep::DispatchShape shape_;
  Dtype row_dtype_;
  ResidentExperts* resident_;
  TensorGroup shards_;
  ExpertRows rows_;
  std::vector<ExpertWork> work_;
  std::vector<int> rows_of_slots_;      // with resident_: [slots]
  std::vector<size_t> first_of_slots_;  // [slots] in rows_
  MlpRunner runner_;
  uint64_t calls_run_ = 0;  // with shards
};

}  // namespace wideep::model
