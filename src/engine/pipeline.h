// SPDX-License-Identifier: Apache-2.0
//
// One rank's place in a pipeline: every stage holds some of the layers, and micro-batches pass from
// stage to stage, so that all stages compute at once, each another micro-batch.
//
//   stage 0   schedule → embed, layers → rows ──┐
//   stage 1   schedule ──────── rows → layers → rows ──┐
//   stage 2   schedule ─────────────── rows → layers, head → sample → tokens to all stages
//
// The ranks of a pipeline have the same requests and schedule the same micro-batches, each by
// itself: before micro-batch n all of them have taken in the tokens of n − m, where m are under way
// at once, and no later ones. So nothing but rows and tokens travels. Stage 0 says when the run
// ends.
//
// Rows are the residual stream in float32, as it is between layers on one rank: no bit depends on
// the number of stages. A rank writes them straight into the memory of its peer in the next stage;
// to one on another node they are carried from there.
//
// Buffers: m sets, used in turn. Whoever sends of micro-batch n has taken in the tokens of n − m,
// or has received rows of n from someone who has: so every stage is done with n − m, and its set is
// free. No further flag says so.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "transport/endpoint.h"

namespace wideep::engine {

// The part of a rank's segment that other stages write to.
struct PipelineLayout {
  int num_stages = 1;
  int micro_batches = 1;  // under way at once
  int max_tokens = 0;     // of a rank in a micro-batch, that rows travel of
  int max_sampled = 0;    // tokens sampled in one
  int hidden = 0;

  size_t rows_bytes() const;    // of one set
  size_t tokens_bytes() const;  // likewise
  size_t bytes() const;         // of all sets; 0 where there is one stage
};

class Pipeline {
 public:
  // The only stage.
  Pipeline() = default;
  // world: this rank's end of all ranks. ranks: the pipeline's, in the order of the stages. The
  // buffers lie `offset` bytes into the segments.
  Pipeline(transport::Endpoint& world, std::vector<int> ranks, const PipelineLayout& layout,
           size_t offset);

  bool is_first() const { return !ranks_ || ranks_->rank() == 0; }
  bool is_last() const { return !ranks_ || ranks_->rank() + 1 == ranks_->num_ranks(); }
  int micro_batches() const { return layout_.micro_batches; }

  // What the stage before has sent of the next micro-batch.
  struct Received {
    const float* rows = nullptr;  // [num_tokens, hidden]
    int num_tokens = 0;
    bool ends = false;          // no rows; the run ends here
    uint64_t num_commands = 0;  // that were followed before it was scheduled
  };
  // REQUIRES: not the first stage.
  Result<Received> receive(int64_t iteration);
  // Where rows for the next stage go. REQUIRES: not the last stage.
  float* room();
  void send(int num_tokens, bool ends, uint64_t num_commands);

  // REQUIRES: the last stage.
  void send_tokens(std::span<const Sampled> sampled);
  // Of the oldest micro-batch whose tokens have not been received. REQUIRES: not the last stage.
  Result<std::span<const Sampled>> receive_tokens(int64_t iteration);

  // Time that this rank has waited for other stages.
  int64_t waited_ns() const { return waited_ns_; }

 private:
  struct Header;
  Header& header(int rank, uint64_t number) const;
  std::byte* tokens(int rank, uint64_t number) const;
  Status wait(transport::Channel channel, int peer, uint64_t number,
              const transport::Awaited& awaited);

  std::optional<transport::Endpoint> ranks_;  // none: the only stage
  PipelineLayout layout_;
  size_t offset_ = 0;
  uint64_t sent_ = 0, received_ = 0;  // micro-batches
  uint64_t tokens_sent_ = 0, tokens_received_ = 0;
  int64_t waited_ns_ = 0;
};

}  // namespace wideep::engine
