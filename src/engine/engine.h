// SPDX-License-Identifier: Apache-2.0
//
// One rank's engine: the loop that turns requests into tokens.
//
//   follow the feed → schedule → agree with all ranks → forward (collective) → sample → report
//
// In a pipeline (engine/pipeline.h) every stage runs this loop over its layers: rows come from the
// stage before, and all stages take in the tokens of an iteration before the m-th after it. "All
// ranks" are those of the stage.
//
// Ranks that compute one batch together (model/tensor_group.h) have the same requests, schedule
// alike and sample alike; the first of them reports tokens, each the routing of its own tokens.
//
// Thread safety: one thread per engine.
#pragma once

#include <vector>

#include "engine/iteration_recorder.h"
#include "engine/online_layers.h"
#include "engine/pipeline.h"
#include "engine/reporter.h"
#include "engine/request_feed.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/model.h"

namespace wideep::engine {

// What an engine works with; all of it outlives the engine.
struct EngineParts {
  const model::ModelConfig& config;
  const SchedulerLimits& limits;
  model::Model& model;
  const model::KvLayout& kv;
  model::MoeRunner& moe;
  model::Compute compute;
  transport::Endpoint& stage;     // of the ranks that compute the same layers
  ep::TokenRange dispatch_ranks;  // those of them that dispatch rows to each other
  ContextPlace context_place;     // among the ranks that share sequences
  Pipeline& pipeline;
  OnlineLayers* online = nullptr;  // null: placements never change
  RequestFeed& feed;
  Reporter& reporter;
};

// How a rank has spent its time since its first request came.
struct RunTimes {
  int64_t wall_ns = 0;
  int64_t stage_wait_ns = 0;  // waiting for other stages of the pipeline
};

class Engine {
 public:
  explicit Engine(EngineParts parts);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs until a stop is requested (by command, or on the group's control page), or until nobody
  // has work after a kFinish. Where nobody has work all ranks sleep, but for a look at each other
  // every quarter of the endpoint's timeout. Collective. Errors: a peer failed or did not answer in
  // time; the reporter's; a request that can never fit into the cache.
  Status run();
  RunTimes times() const;

 private:
  enum class Next { kContinue, kEnd };
  // An iteration in flight, whose tokens are to be taken in.
  struct MicroBatch {
    int64_t iteration = 0;
    std::vector<Sequence*> sequences;
    std::vector<Sampled> sampled;  // of these; on the last stage
  };

  Status receive();
  Status follow_feed();
  Status follow(Command command);
  bool schedules_alone() const;
  Scheduler::Step& schedule();

  Result<Next> agree(Scheduler::Step& step);
  uint64_t flags() const;
  void hold_prompts();
  Result<Next> decide();

  Status run_step(const Scheduler::Step& step);
  Status pass_on_end();
  Status compute(const Scheduler::Step& step, std::vector<Sampled>* sampled);
  Status share_logits(const Scheduler::Step& step);
  Status sample_rows(const Scheduler::Step& step, std::vector<Sampled>* sampled);
  FinishReason reason_to_finish(const Sequence& sequence, int32_t token) const;
  Status take_in_tokens();
  MicroBatch& next_in_flight() { return in_flight_[begun_ % in_flight_.size()]; }
  // Whether this rank reports what all ranks of its group and pipeline know.
  bool speaks() const {
    return parts_.pipeline.is_last() && parts_.model.group().rank() == 0 &&
           parts_.model.context().rank() == 0;
  }

  EngineParts parts_;
  Scheduler scheduler_;
  PromptGate gate_;  // of new prompts
  IterationRecorder recorder_;

  int64_t iteration_ = 0;              // the same on all ranks; only iterations with tokens count
  std::vector<MicroBatch> in_flight_;  // a ring
  uint64_t begun_ = 0;                 // micro-batches, also those without tokens
  uint64_t taken_in_ = 0;              // of these: whose tokens have been taken in
  Pipeline::Received received_;        // of this iteration
  std::vector<transport::AgreedWords> words_;  // of all ranks: what they said of this iteration

  uint64_t num_agreed_ = 0;  // commands that all ranks have seen
  bool all_idle_ = false;    // nobody has work, nor a command to follow
  bool released_ = false;    // requests were, and nobody has been idle since
  bool finishing_ = false;   // the run ends when nobody has work

  std::vector<float> logits_;                 // of this rank's rows
  const float* all_logits_ = nullptr;         // [step.sampled, vocab]
  std::vector<std::vector<Sampled>> likely_;  // [step.sampled] where this rank speaks
  int64_t begin_ns_ = 0;                      // of this iteration
  int64_t schedule_ns_ = 0;                   // since the last iteration's record
  int64_t first_request_ns_ = 0;              // when the first came; 0: none has
  int64_t waited_before_ns_ = 0;              // for other stages, until then
  int64_t ended_ns_ = 0;
};

}  // namespace wideep::engine
