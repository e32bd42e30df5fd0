// SPDX-License-Identifier: Apache-2.0
//
// One rank's place in a pipeline. Every stage holds some of the layers. Micro-batches pass from
// stage to stage, so that all stages compute at the same time, each a different micro-batch.
//
//   stage 0   schedule → embed, layers → rows ──┐
//   stage 1   schedule ──────── rows → layers → rows ──┐
//   stage 2   schedule ─────────────── rows → layers, head → sample → tokens to all stages
//
// The ranks of a pipeline have the same requests and schedule the same micro-batches independently:
// with m micro-batches in flight, each stage has received exactly the tokens up to micro-batch n −
// m when it schedules n. So only rows and tokens travel. Stage 0 decides when the run ends.
//
// Rows are the residual stream in float32, as it is between layers on one rank, so no bit depends
// on the number of stages. A rank writes them directly into the memory of its peer in the next
// stage; if the peer is on another node, the bridge carries them there.
//
// Buffers: m sets, used in turn, without a flag that marks a set as free. A stage sends rows of
// micro-batch n after it has received the tokens of n − m, so after every stage is done with the
// rows of n − m. The last stage sends tokens of n after it has received rows of n, so after every
// earlier stage has received the tokens of n − m.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::engine {

// The part of a rank's segment that other stages write to.
struct PipelineLayout {
  int num_stages = 1;
  int micro_batches = 1;  // in flight at the same time
  int max_tokens = 0;     // rows that a rank sends per micro-batch
  int max_words = 0;      // of what a micro-batch has yielded, send_tokens()
  int hidden = 0;

  size_t rows_bytes() const;    // of one set
  size_t tokens_bytes() const;  // of one set
  size_t bytes() const;         // of all sets; 0 if there is one stage
};

class Pipeline {
 public:
  // The only stage.
  Pipeline() = default;
  // world: connects all ranks of the run. ranks: the world ranks of this pipeline, in the order of
  // the stages. The buffers begin `offset` bytes into each rank's segment.
  Pipeline(transport::Endpoint& world, std::vector<int> ranks, const PipelineLayout& layout,
           size_t offset);

  bool is_first() const { return !ranks_ || ranks_->rank() == 0; }
  bool is_last() const { return !ranks_ || ranks_->rank() + 1 == ranks_->num_ranks(); }
  int micro_batches() const { return layout_.micro_batches; }

  // What the previous stage has sent for a micro-batch.
  struct Received {
    const float* rows = nullptr;  // [num_tokens, hidden]
    int num_tokens = 0;
    bool ends = false;          // no rows: the run ends here
    uint64_t num_commands = 0;  // commands that were applied before it was scheduled
  };
  // Waits for the next micro-batch of the previous stage. The rows stay valid until the tokens of
  // this micro-batch have been received or sent. REQUIRES: not the first stage.
  Result<Received> receive(int64_t iteration);
  // The buffer for the rows of the next send(), [num_tokens, hidden]. REQUIRES: not the last stage.
  float* next_rows();
  // Publishes those rows to the next stage; on the last stage it does nothing.
  void send(int num_tokens, bool ends, uint64_t num_commands);

  // Sends what the next micro-batch has yielded, tokens in a form of the caller's, to all earlier
  // stages. REQUIRES: the last stage.
  void send_tokens(std::span<const int32_t> words);
  // Waits for the tokens of the oldest micro-batch whose tokens have not been received.
  // REQUIRES: not the last stage.
  Result<std::span<const int32_t>> receive_tokens(int64_t iteration);

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
