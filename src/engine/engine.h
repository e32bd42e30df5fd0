// SPDX-License-Identifier: Apache-2.0
//
// One rank's engine: the loop that turns requests into tokens.
//
//   schedule → agree with all ranks → forward (collective) → sample → tell
//
// In a pipeline (engine/pipeline.h) every stage runs this loop over its layers: rows come from the
// stage before, and the tokens of an iteration are taken in by all stages before the m-th after it.
// "All ranks" are those of the stage.
//
// What ranks agree on carries the online balancer's news too: placements change here, between two
// iterations, on all ranks at once.
//
// All ranks of a group run the same iterations: a rank without work takes part with an empty batch,
// for its slots are needed by the others. The loop ends when no rank has work, or when one was
// asked to stop, after the same iteration on every rank.
//
// Ranks that share sequences (context parallelism) schedule the same, too, and each computes the
// tokens of its pages; the logits wanted of them are put together, and all sample.
//
// Ranks that compute one batch together (model/tensor_group.h) have the same requests and schedule
// and sample the same; the first of them tells of tokens, each of its own tokens' routing.
//
// Thread safety: one thread per engine.
#pragma once

#include <functional>
#include <span>

#include "engine/iteration_record.h"
#include "engine/pipeline.h"
#include "engine/request_feed.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/model.h"
#include "online/online_rank.h"

namespace wideep::engine {

enum class FinishReason : uint8_t { kNotFinished, kStop, kLength };  // an end token; max_tokens

struct TokenEvent {
  int request_index = 0;
  Sampled sampled;
  FinishReason finish_reason = FinishReason::kNotFinished;
  std::span<const float> logits;         // [vocab], that the token was sampled from
  std::span<const Sampled> likely = {};  // as the request asked for
  int cached_tokens = 0;                 // of the prompt, that were taken over from others
};

// The chosen experts of one MoE layer: token t of the batch belongs to request request_of[t].
struct RoutingEvent {
  int layer = 0;
  int64_t iteration = 0;
  std::span<const int32_t> experts;       // [num_tokens, top_k]
  std::span<const int32_t> counts;        // [num_experts]
  std::span<const int32_t> group_counts;  // [num_experts] the same, summed over all ranks
  std::span<Sequence* const> owners;      // [num_tokens]
};

// Whom the engine tells; each may be empty. Called on the engine's thread. A status that is not ok
// ends the run.
struct EngineObserver {
  std::function<void(int64_t iteration)> on_start;  // of an iteration, before ranks agree on it
  std::function<Status(const TokenEvent&)> on_token;
  std::function<void(const RoutingEvent&)> on_routing;
  std::function<Status(const IterationRecord&)> on_iteration;
  // The feed says whether what experts compute is to be recorded, from the next iteration on.
  std::function<Status(bool records)> on_record_experts;
  // Of rank 0, on a thread of the balancer's.
  std::function<void(const online::Rebalance&)> on_rebalance;
};

// How placements change under an engine. Without online balancing both are null.
struct OnlineHooks {
  online::OnlineRank* rank = nullptr;
  std::function<void(const online::PublishedLayer&)> switch_layer;
};

// How a rank spent its runs.
struct RunTimes {
  int64_t wall_ns = 0;
  int64_t stage_wait_ns = 0;  // waiting for other stages of the pipeline
};

// What a rank has sent to other nodes, or all ranks together.
struct NodeTraffic {
  int64_t dispatched_rows = 0;  // that its tokens had to be sent: one for each (token, node, layer)
  int64_t dispatched_bytes = 0;
  // That had to come back for them: one for each (token, expert, layer); where the combine is
  // reduced, for each (token, node, layer).
  int64_t returned_rows = 0;
  int64_t returned_bytes = 0;
  int64_t other_bytes = 0;  // counts, flags, rows of a pipeline, plans

  void add(const NodeTraffic& other);
};

class Engine : private model::MoeObserver {
 public:
  // endpoint: of the ranks that compute the same layers. dispatch_ranks: those of them that
  // dispatch rows to each other. place: among ranks that share sequences.
  Engine(const model::ModelConfig& config, const model::KvLayout& kv, const SchedulerLimits& limits,
         model::Model& model, model::MoeRunner& moe, model::Compute compute,
         transport::Endpoint& endpoint, ep::TokenRange dispatch_ranks, ContextPlace place,
         Pipeline& pipeline, OnlineHooks online, EngineObserver observer);

  // Errors (invalid input): as Scheduler::submit.
  Status submit(Request request) { return scheduler_.submit(std::move(request)); }

  // Runs until no rank of the group has work, or a stop was requested (the group's control page).
  // Collective. Errors: a peer failed or did not answer in time, or an observer's.
  Status run();
  // The same with requests that come while it runs: until a stop is requested. Where nobody has
  // work all ranks sleep, but for a look at each other every quarter of the endpoint's timeout.
  Status serve(RequestFeed& feed);
  RunTimes times() const { return {wall_ns_, pipeline_.waited_ns()}; }

 private:
  enum class Next { kContinue, kEnd };
  // An iteration under way, whose tokens are to be taken in.
  struct MicroBatch {
    int64_t iteration = 0;
    std::vector<Sequence*> sequences;
    std::vector<Sampled> sampled;  // of these; the last stage's
  };
  Status run_until_end();
  Status receive();
  Status follow_feed();
  Status follow(Command command);
  bool schedules_alone() const;
  uint64_t num_followed() const { return feed_ == nullptr ? 0 : feed_->taken(); }
  Result<Next> agree(Scheduler::Step& step);
  uint64_t flags() const;
  void hold_prompts();
  Status run_step(const Scheduler::Step& step);
  Status pass_on_end();
  Status compute(const Scheduler::Step& step, std::vector<Sampled>* sampled);
  void on_layer(const model::MoeLayerRecord& layer) override;
  Status share_logits(const Scheduler::Step& step);
  Status sample_rows(const Scheduler::Step& step, std::vector<Sampled>* sampled);
  FinishReason reason_to_finish(const Sequence& sequence, int32_t token) const;
  Scheduler::Step& schedule();
  Status take_in_tokens();
  MicroBatch& next_under_way() { return under_way_[begun_ % under_way_.size()]; }
  // Whether this rank tells what all ranks of its group and pipeline know.
  bool speaks() const {
    return pipeline_.is_last() && model_.group().rank() == 0 && model_.context().rank() == 0;
  }
  int64_t busy_cpu_ns() const;

  const model::ModelConfig& config_;
  const model::KvLayout& kv_;
  Scheduler scheduler_;
  model::Model& model_;
  model::Compute compute_;
  transport::Endpoint& endpoint_;
  ep::TokenRange dispatch_ranks_;
  Pipeline& pipeline_;
  OnlineHooks online_;
  EngineObserver observer_;

  int64_t iteration_ = 0;  // the same on all ranks
  const Scheduler::Step* current_ = nullptr;
  int moe_layers_done_ = 0;  // of the iteration
  IterationRecord record_;
  int64_t last_mark_cpu_ns_ = 0;               // busy_cpu_ns at the end of the last recorded layer
  std::vector<float> logits_;                  // of this rank's rows
  const float* all_logits_ = nullptr;          // [step.sampled, vocab]
  std::vector<std::vector<Sampled>> likely_;   // [step.sampled] where this rank speaks
  std::vector<MicroBatch> under_way_;          // a ring
  uint64_t begun_ = 0;                         // micro-batches, those without tokens too
  uint64_t taken_in_ = 0;                      // of these: whose tokens have been
  Pipeline::Received received_;                // of this iteration
  RequestFeed* feed_ = nullptr;                // null: all requests are there
  uint64_t num_agreed_ = 0;                    // commands that all ranks have seen
  PromptGate gate_;                            // of new prompts
  bool all_idle_ = false;                      // nobody has had work, nor command to follow
  int64_t wall_ns_ = 0;                        // of runs
  int64_t schedule_ns_ = 0;                    // since the last iteration's record
  std::vector<transport::AgreedWords> words_;  // of all ranks
};

}  // namespace wideep::engine
