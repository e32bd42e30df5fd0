// SPDX-License-Identifier: Apache-2.0
//
// The expert half of a MoE layer over all ranks:
//
//   router → slot choice → dispatch → experts → combine, with the shared expert beside them
//
// All but the router and the shared expert run chunk by chunk, where the layout bounds the tokens
// of a dispatch (ep/chunks.h).
//
// Work is done while rows travel. A rank whose rows have not all come runs the shared expert first;
// one that came last does so while it waits for results. A chunk's rows are sent before the experts
// of the chunk before are run, where the layout has buffers for two calls; if its buffers are still
// in use, after them.
//
// Ranks that share experts (moe_tp) each get the rows of all of them, compute their slice of what
// is between the products, meet, compute their slice of the results' columns over all of it, and
// send back that. Every element is one whole sum, so the bits are the same as with whole experts
// (docs/decisions/0015-sharded-experts.md).
//
// Collective: every rank of the group runs every MoE layer of every iteration, with or without
// tokens.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ep/chunks.h"
#include "ep/dispatch_combine.h"
#include "ep/slot_choice.h"
#include "model/expert_slots.h"
#include "model/mlp.h"
#include "model/moe_options.h"
#include "model/perfect_router.h"
#include "model/row_noise.h"

namespace wideep::model {

// The weights of a MoE layer that every rank has.
struct MoeWeights {
  weights::Matrix router;          // [num_experts, hidden], always float32
  std::vector<float> router_bias;  // [num_experts]; DeepSeek only
  weights::MlpRecord shared;       // empty without shared expert
  bool has_shared() const { return !shared.empty(); }
};

// One MoE layer of one iteration.
struct MoeCall {
  int layer = 0;
  int64_t iteration = 0;
  int num_tokens = 0;                        // of this rank
  std::span<const int32_t> tokens_of_ranks;  // [ep_size]; empty: see Batch
  const float* h = nullptr;                  // [num_tokens, hidden], the normalised input
  float* x = nullptr;                        // [num_tokens, hidden], to which the output is added
  // The tokens whose output is added, ascending; empty optional: all of them. The others are routed
  // and told to observers as ever, and are not sent. Ranks need not know each other's.
  std::optional<std::span<const int32_t>> wanted;
  // The shared expert's output for these tokens, [wanted tokens, hidden], where the caller has it.
  const float* shared = nullptr;
};

// What one MoE layer of one iteration did on this rank, told to whoever observes it: all chunks
// together.
struct MoeLayerRecord {
  int layer = 0;
  std::span<const int32_t> experts;       // [num_tokens, top_k] chosen experts, top-k order
  std::span<const int32_t> counts;        // [num_experts] tokens of this rank per expert
  std::span<const int32_t> group_counts;  // [num_experts] the same, summed over all ranks
  // [ep_size] (token, expert) pairs for each rank, of all tokens, wanted or not
  std::span<const int32_t> sent_entries;
  int64_t experts_cpu_ns = 0;  // critical processor time of computing this rank's experts
  // By MoeOptions::measure_noise: what the forms of this rank's rows, and of its experts' results,
  // cost.
  RowNoise dispatched, returned;
};
using MoeObserver = std::function<void(const MoeLayerRecord&)>;

// What the MoE layers of a rank share. One layer runs at a time.
class MoeRunner {
 public:
  // Results come back by the layout's Combine: by kReduced outside promise 1.
  // REQUIRES: the layout's rows and results have room for [hidden] in the options' formats, which
  // hidden fits (kernels::check_row_format); of ranks that share experts results are not coded.
  // shards: the ranks that have slices of the same experts as this one, in the order of the slices,
  // with buffers for between_rows(layout's shape).
  MoeRunner(const ModelConfig& config, const balance::ModelPlacement& placement,
            const ExpertSlots& slots, transport::Endpoint& endpoint, const ep::BufferLayout& layout,
            const MoeOptions& options, TensorGroup shards = {});

  // Of all experts of a rank, in all calls that may be in flight.
  static int64_t between_rows(const ep::DispatchShape& shape);

  void set_observer(MoeObserver observer) { observer_ = std::move(observer); }

  // Where the layer's experts are from the next forward() on: on every rank between the same two
  // iterations. shares: [S], of its expert's tokens that each slot receives; empty: equal ones.
  // REQUIRES: a MoE layer, as many slots as before, valid placement and shares.
  void set_placement(int layer, const balance::Placement& placement,
                     std::span<const double> shares);

  // Rows as the shared expert takes them, for callers who run it: in the experts' dtype where rows
  // travel in it, so that its bits do not depend on who runs it. h: [rows' tokens, hidden] float32.
  SourceRows shared_input(const Compute& compute, const float* h, std::span<const int32_t> tokens);

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
  enum class Wait { kNo, kYes };

  ep::RowSum row_sum(const kernels::Kernels& kernels) const;
  Status run_chunks(Progress& progress);
  Status send_chunk(Progress& progress, int chunk, Wait wait);
  Status receive(const Progress& progress);
  Status reduce_chunk(Progress& progress);
  void route(const Compute& compute, const MoeWeights& weights, const MoeCall& call);
  void keep_wanted(const MoeCall& call);
  kernels::InputRows rows_to_send(const Compute& compute, const MoeCall& call);
  SourceRows rows_of_shared(const MoeCall& call, const kernels::InputRows& sent);
  // These tokens' float32 rows; valid until the next call.
  SourceRows rows_of(const float* h, std::span<const int32_t> tokens);
  kernels::InputRows encode(const Compute& compute, const SourceRows& rows);
  void start_totals();
  Status begin_chunk(Progress& progress);
  bool splits_by_counts(int layer) const;
  Status choose_slots(const Progress& progress, ep::TokenRange tokens);
  void keep_wanted_slots(ep::TokenRange tokens);
  Status run_experts(const Progress& progress);
  Status run_work(const Progress& progress);
  std::byte* shared_between();
  void place_rows(const Compute& compute, const kernels::PackedShape& gate);
  void place_results();
  kernels::InputRows received_operands(const Compute& compute, const kernels::PackedShape& gate);
  void encode_results(const Compute& compute);
  void sum_results(const Compute& compute);
  void run_shared(Progress& progress);
  void reduce(const Compute& compute, const MoeCall& call, ep::TokenRange wanted,
              const float* shared);
  void reduce_token(const Compute& compute, int token, const float* weights, const float* shared,
                    float* x) const;
  // Do rows travel in the experts' dtype?
  bool travels_plain() const {
    return options_.dispatch_format() == kernels::row_format(options_.row_dtype);
  }
  bool reduced() const { return shape_.combine == ep::Combine::kReduced; }
  // Of the chunk's tokens, [size, top_k].
  std::span<const int32_t> experts_of(ep::TokenRange tokens) const;
  // Which of wanted_ are among the chunk's tokens; and of these, [size, top_k].
  ep::TokenRange wanted_of(ep::TokenRange tokens) const;
  // Columns [begin, begin + size) of a result that a slice has.
  ep::TokenRange columns_of(int slice) const;
  size_t result_bytes() const;  // of this rank's slice, as the experts write it
  std::span<const float> weights_of(ep::TokenRange wanted) const;

  const ModelConfig& config_;
  const ExpertSlots& slots_;
  TensorGroup shards_;
  ep::DispatchShape shape_;
  MoeOptions options_;
  balance::ShareUpdate share_update_;
  ep::SlotChooser chooser_;
  ep::DispatchCombine exchange_;
  MoeObserver observer_;

  std::vector<int32_t> experts_, slot_ids_;  // [num_tokens, top_k]
  std::vector<int32_t> wanted_;              // the tokens to compute, ascending
  std::vector<float> expert_weights_;        // [num_tokens, top_k]; then of wanted_
  std::vector<int32_t> chunk_tokens_;        // [ep_size] tokens of each rank in this chunk
  std::vector<int32_t> chunk_counts_;        // [num_experts]
  std::vector<const void*> row_pointers_;    // of rows_of
  std::vector<const void*> received_;        // rows of this rank's experts, slot by slot
  std::vector<void*> results_;               // where they write theirs: a row's column 0
  std::vector<std::byte*> returned_;         // where those belong
  std::vector<const void*> messages_;        // the received rows, each once
  std::vector<ExpertWork> work_;
  Scratch logits_, cast_, sent_, shared_out_;
  Scratch decoded_, plain_results_;  // where rows do not travel in row_dtype
  Scratch operands_;                 // where products do not take it
  Scratch sums_;                     // reduced: of received tokens
  uint64_t calls_run_ = 0;           // of experts: two in flight use different rows in between
  std::vector<float> ones_;          // [top_k] reduced: results have their weights in them
  MlpRunner experts_runner_, shared_runner_;
  std::optional<PerfectRouter> perfect_router_;

  // Of all chunks, for the observer: as MoeLayerRecord.
  std::vector<int32_t> counts_, group_counts_, sent_entries_;
  int64_t experts_cpu_ns_ = 0;
  RowNoise dispatched_, returned_noise_;
};

}  // namespace wideep::model
