// SPDX-License-Identifier: Apache-2.0
//
// One rank's engine: the loop that turns requests into tokens.
//
//   apply commands → schedule → agree with all ranks → forward (collective) → sample → report
//
// With speculation (engine/speculation) a sequence brings drafts into the step: guesses of its next
// tokens. The step samples after its last token and after each draft, with the random numbers of
// those places in the answer. A draft that is the token sampled before it stays, the first that is
// not ends the sequence's part in the step (engine/verifier.h): the answer is the same as without
// drafts, bit for bit. If the model's own prediction layer drafts, it follows in the same
// iteration.
//
// In a pipeline (engine/pipeline.h) every stage runs this loop over its own layers. It receives the
// rows of the previous stage, and with m micro-batches in flight it receives the sampled tokens of
// micro-batch n − m before it schedules micro-batch n. "All ranks" means all ranks of the stage.
//
// Ranks that compute one batch together (model/parts/tensor_group.h) have the same requests, and
// schedule and sample identically. Only the first of them reports sampled tokens; each of them
// reports the routing of its own tokens.
//
// The group may get other members while requests run (group/seat.h). run() then returns
// kMembersChange, between two iterations, or fails in the middle of one; what it has not computed
// is given up (EngineState::give_up_step). A new engine with the new members goes on from the same
// EngineState, with the same answers.
//
// Thread safety: one thread per engine.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/iteration_recorder.h"
#include "engine/kept_prompts.h"
#include "engine/rank_state.h"
#include "engine/speculation/drafting.h"
#include "engine/verifier.h"
#include "engine/yield.h"

namespace wideep::engine {

// How a rank has spent its time since its first request.
struct RunTimes {
  int64_t wall_ns = 0;
  int64_t stage_wait_ns = 0;  // waiting for other stages of the pipeline
};

// What a rank keeps when its group gets other members: its requests with their caches, and how it
// drafts for them.
struct EngineState {
  // speculates: on the last stage of a pipeline, which drafts.
  EngineState(const EngineParts& parts, bool speculates);

  // Gives up the step that an engine has scheduled but not computed, if there is one. Returns the
  // requests that end with it, because they were cancelled.
  std::vector<int> give_up_step();
  // Ends all requests. Their pages stay in the cache. REQUIRES: no fetch runs (PageStore).
  void drop_requests();

  Scheduler scheduler;
  KeptPrompts kept_prompts{scheduler};
  std::optional<Speculation> speculation;
  bool has_step = false;         // scheduled, and not computed yet
  int64_t iteration = 0;         // the next one; equal on all ranks; counts only those with tokens
  bool finishing = false;        // the run ends when no rank has work
  int64_t first_request_ns = 0;  // when the first request came; 0: none has
};

class Engine {
 public:
  // state: outlives this.
  Engine(EngineParts parts, EngineState& state);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  enum class Ended {
    kFinished,       // a stop was requested, or no rank has work after a kFinish
    kMembersChange,  // the group gets other members (control().change_requested)
  };
  // Runs until it ends in one of these ways. A stop is requested by command, or on the group's
  // control page. While no rank has work all ranks sleep; they wake up for one
  // agreement every quarter of the endpoint's timeout. Collective. Errors: a peer failed or did not
  // answer in time; an error of the reporter; a request that can never fit into the cache.
  Result<Ended> run();
  RunTimes times() const;

 private:
  enum class Next { kContinue, kEnd, kLeave };
  // An iteration in flight: its tokens have not been appended to the sequences yet.
  struct MicroBatch {
    int64_t iteration = 0;
    std::vector<Sequence*> sequences;
    std::vector<Yield> yields;  // [sequences]; filled on the last stage
  };

  struct Clock {
    int64_t begin_ns = 0;          // start of this iteration
    int64_t schedule_ns = 0;       // time spent since the last iteration's record
    int64_t agree_cpu_ns = 0;      // the same, of agreements, without waits
    int64_t waited_before_ns = 0;  // Pipeline::waited_ns() at the first request
    int64_t ended_ns = 0;
  };

  Status receive_rows();
  Status apply_commands();
  Status apply(Command command);
  bool schedules_alone() const;
  Result<Scheduler::Step*> schedule();

  Result<Next> agree(Scheduler::Step& step);
  RankState rank_state(int own_tokens) const;
  void update_prompt_gate();
  Result<Next> decide();

  Status run_step(const Scheduler::Step& step);
  Status send_end();
  Status compute(const Scheduler::Step& step, std::vector<Yield>* yields);
  void spoil_sequences(const Scheduler::Step& step);
  Status gather_logits(const Scheduler::Step& step);
  Status sample_rows(const Scheduler::Step& step, std::vector<Yield>* yields);
  std::span<const float> logits_of(int row) const;
  Status report_begun_prompts(const Scheduler::Step& step);
  Status report_prompts(const Scheduler::Step& step);
  Status report(const Scheduler::Step& step);
  void send_yields(std::span<const Yield> yields);
  Status complete_oldest();
  Status note_end(int request);
  MicroBatch& next_in_flight() { return in_flight_[num_begun_ % in_flight_.size()]; }
  // Whether this rank is the one that reports the tokens of its group and pipeline.
  bool reports_tokens() const {
    return parts_.pipeline.is_last() && parts_.model.group().rank() == 0 &&
           parts_.model.context().rank() == 0;
  }

  EngineParts parts_;
  EngineState& state_;
  Scheduler& scheduler_;
  PromptGate gate_;  // of new prompts
  Verifier verifier_;
  IterationRecorder recorder_;
  Drafting drafting_;

  std::vector<MicroBatch> in_flight_;          // a ring
  uint64_t num_begun_ = 0;                     // micro-batches, also those without tokens
  uint64_t num_completed_ = 0;                 // micro-batches whose tokens have been appended
  Pipeline::Received received_;                // from the previous stage, for this micro-batch
  std::vector<transport::AgreedWords> words_;  // [ranks of the stage] sent for this iteration
  std::vector<RankState> ranks_;               // what they say

  uint64_t num_agreed_ = 0;  // commands that all ranks have received
  bool all_idle_ = false;    // no rank has work or a command to apply
  bool released_ = false;    // held requests were released, and RanksIdle has not been sent since

  std::vector<float> logits_;                   // [logit rows of this rank, vocab]
  const float* all_logits_ = nullptr;           // [step.first_row.back(), vocab]
  std::vector<std::vector<Verdict>> verdicts_;  // [step.sampled]
  std::vector<int32_t> words_sent_;             // of send_yields()
  Clock clock_;
};

}  // namespace wideep::engine
