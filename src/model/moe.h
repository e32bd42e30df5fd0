// SPDX-License-Identifier: Apache-2.0
//
// The expert half of a MoE layer over all ranks:
//
//   router → slot choice → dispatch → experts → combine, with the shared expert beside them
//
// MoeRouting chooses the experts, TokenRows brings rows into the form in which they travel and adds
// up what comes back, RankExperts makes results of the rows that come here. MoeRunner has the order
// of all this, the choice of slots, and the shared expert.
//
// All but the router and the shared expert runs chunk by chunk, where the layout bounds the tokens
// of a dispatch (ep/chunks.h).
//
// Work is done while rows travel. A rank whose rows have not all come runs the shared expert before
// its experts; a rank whose rows have all come, because it was the last, runs it while it waits for
// results. The rows of a chunk are sent before the experts of the chunk before are run, where the
// layout has buffers for two calls; if these buffers are still in use then, after them.
//
// Collective: every rank of the group runs every MoE layer of every iteration, with or without
// tokens.
//
// Thread safety: one thread per rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ep/chunks.h"
#include "ep/dispatch_combine.h"
#include "ep/slot_choice.h"
#include "model/expert_slots.h"
#include "model/mlp.h"
#include "model/moe_call.h"
#include "model/moe_options.h"
#include "model/moe_routing.h"
#include "model/rank_experts.h"
#include "model/token_rows.h"

namespace wideep::model {

// What the MoE layers of a rank share. One layer runs at a time.
class MoeRunner {
 public:
  // Results come back by the layout's Combine: by kReduced outside promise 1.
  // REQUIRES: the layout's rows and results have room for [hidden] in the options' formats, which
  // hidden fits (kernels::check_row_format); of ranks that share experts results are not coded.
  // shards: the ranks that have slices of the same experts as this one, in the order of the slices,
  // with buffers for RankExperts::between_rows.
  // config, slots and endpoint outlive the runner.
  MoeRunner(const ModelConfig& config, const balance::ModelPlacement& placement,
            const ExpertSlots& slots, transport::Endpoint& endpoint, const ep::BufferLayout& layout,
            const MoeOptions& options, TensorGroup shards = {});

  // Whom each layer is reported to; null: nobody.
  void set_observer(MoeObserver* observer) { observer_ = observer; }

  // Where the layer's experts are from the next forward() on: on every rank between the same two
  // iterations. shares: [S], of its expert's tokens that each slot receives; empty: equal ones.
  // REQUIRES: a MoE layer, as many slots as before, valid placement and shares.
  void set_placement(int layer, const balance::Placement& placement,
                     std::span<const double> shares) {
    chooser_.set_placement(layer, placement, shares);
  }

  // Rows as the shared expert takes them, for callers who run it: see TokenRows.
  SourceRows shared_input(const Compute& compute, const float* h, std::span<const int32_t> tokens) {
    return token_rows_.shared_input(compute, h, tokens);
  }

  // Null where all ranks share a node.
  const ep::NodeCrossing* crossing() const { return exchange_.crossing(); }

  // Adds the layer's output to call.x.
  Status forward(const Compute& compute, const MoeWeights& weights, const MoeCall& call);

 private:
  // A layer call on its way.
  struct Progress {
    const Compute& compute;
    const MoeWeights& weights;
    const MoeCall& call;
    kernels::InputRows rows;  // of the wanted tokens, as they travel
    int num_chunks;
    int begun = 0, sent = 0, reduced = 0;  // chunks that have got so far
    bool shared_done = false;
    const float* shared = call.shared;  // [wanted tokens, hidden]; null: none, or not yet

    ep::TokenRange tokens_of(int chunk) const {
      return ep::chunk_of(call.num_tokens, chunk, num_chunks);
    }
    transport::Awaited where() const { return {.layer = call.layer, .iteration = call.iteration}; }
  };
  // The chunk that is being sent.
  struct Chunk {
    std::vector<int32_t> tokens_of_ranks;  // [ep_size]
    std::vector<int32_t> counts;           // [num_experts] of this rank's tokens
    std::vector<int32_t> slots;            // [tokens that are sent, top_k]
  };
  // All chunks together, as in MoeLayerRecord.
  struct Totals {
    std::vector<int32_t> counts, group_counts, sent_entries;
    int64_t experts_cpu_ns = 0;
  };
  enum class Wait { kNo, kYes };

  bool reduced() const { return shape_.combine == ep::Combine::kReduced; }

  Status open(const Compute& compute);
  void start_totals();
  void report(const MoeCall& call) const;

  Status run_chunks(Progress& progress);
  Status send_chunk(Progress& progress, int chunk, Wait wait);
  Status begin_chunk(Progress& progress);
  Status receive(const Progress& progress);
  Status reduce_chunk(Progress& progress);

  bool splits_by_counts(int layer) const;
  Status choose_slots(const Progress& progress, ep::TokenRange tokens);
  void keep_wanted_slots(ep::TokenRange tokens);

  Status run_experts(const Progress& progress);
  void run_shared(Progress& progress);

  const ModelConfig& config_;
  transport::Endpoint& endpoint_;
  ep::DispatchShape shape_;
  balance::ShareUpdate share_update_;
  MoeObserver* observer_ = nullptr;

  MoeRouting routing_;
  ep::SlotChooser chooser_;
  TokenRows token_rows_;
  ep::DispatchCombine exchange_;
  RankExperts experts_;
  MlpRunner shared_runner_;
  Scratch shared_out_;

  Chunk chunk_;
  Totals totals_;
};

}  // namespace wideep::model
