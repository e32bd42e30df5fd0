// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine on GPUs, for engines other than wideep's: the ranks are processes or threads
// of one machine, each with a GPU and a stream of its own. Kernels write rows directly into the
// memory of the receiving rank's GPU and read results in place. No CUDA header is needed: a stream
// is a cudaStream_t as void*, and pointers are to device memory unless said otherwise.
//
//   auto joined = DeviceCommunicator::join({.group = "layer exchange of job 17", .rank = rank,
//                                           .num_ranks = 8, .slots_per_rank = 32, .top_k = 8,
//                                           .max_tokens = 128, .hidden = 7168});
//   if (!joined.ok()) return joined.status();
//   DeviceCommunicator& communicator = *joined;
//   const DeviceCall call{.num_tokens = n, .slots = slots, .weights = weights, .stream = stream};
//   communicator.dispatch(call, rows, row_stride);
//   communicator.expand(call, matrix, row_stride);        // rows by slot, for a grouped product
//   my_experts(matrix, communicator.received().slot_starts, results, stream);
//   communicator.finalize(call, results, row_stride);
//   communicator.combine(call, {.out = out, .out_stride = row_stride});
//
// Slots are numbered over the group: slot s is on rank s / slots_per_rank, as its local slot s %
// slots_per_rank. The caller decides which expert is in which slot (balancer.h plans it), and
// either which slot a token's expert is computed in, or leaves that, and the counting of tokens for
// the next plan, to the communicator (num_layers, num_experts):
//
//   communicator.set_placement(layer, plan.placement, plan.shares, stream);  // when a plan changes
//   communicator.choose(call, experts, slots);       // each call, before dispatch: experts → slots
//   communicator.end_iteration(stream);              // each iteration
//   Result<DeviceLoads> loads = communicator.take_loads(stream_of_balancer);  // now and then
//
// A call is dispatch, what the experts do, and combine, on one stream. It is collective: every rank
// makes equally many calls in the same order, also without tokens. Nothing here waits, allocates or
// reads what is on the device, except join, set_placement, take_loads, status and restart, so calls
// can be captured in a CUDA graph and replayed. The result of a token does not depend on the ranks,
// the placement or other tokens: it has the bits of wideep's CPU path (docs/cuda.md).
//
// Errors: join finds what is missing before the first kernel: a driver, a GPU, access to the GPU of
// another rank, device memory, or a rank with other options; all ranks get the error. Arguments
// that the host can see are checked by every call (invalid input). What only kernels can see (a
// slot that does not exist, more than max_tokens, a rank that does not come before the deadline) is
// kept on the device: later kernels do nothing, outputs are undefined, and status() names it. After
// that the group can go on without the ranks that are lost (restart).
//
// A build without the CUDA toolkit has the same functions; join and available say what is missing.
//
// Thread safety: one thread at a time; different ranks are independent.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::ep {

// What a row is (docs/precisions.md): hidden bf16 or float32 values, or codes with their scales.
enum class DeviceRowFormat : int { kBf16 = 0, kF32 = 1, kFp8 = 2, kNvfp4 = 3 };

// The bytes of a row; 0: no such format, or hidden below 1.
size_t device_row_bytes(DeviceRowFormat format, int hidden);

struct DeviceCommunicatorOptions {
  std::string group;  // a name that the ranks of this machine have agreed on: 1 to 64 characters
  int rank = 0;       // 0 … num_ranks − 1
  int num_ranks = 1;  // at most 128
  int slots_per_rank = 1;                                  // at most 512, and 8,192 in the group
  int top_k = 1;                                           // slots of each token, at most 32
  int max_tokens = 1;                                      // of each rank in a call
  int hidden = 0;                                          // values of a row
  DeviceRowFormat row_format = DeviceRowFormat::kBf16;     // of dispatched rows
  DeviceRowFormat result_format = DeviceRowFormat::kBf16;  // of experts' results
  int device = -1;     // number of the GPU; −1: the calling thread's current one
  int num_blocks = 0;  // of dispatch and combine; 0: as many as fit the GPU beside its other ranks
  std::chrono::milliseconds join_timeout{30'000};  // of join, for all ranks
  std::chrono::milliseconds timeout{10'000};       // of every single wait of a kernel
  // Ranks that do not join, the same on all others: no token may have a slot of theirs.
  std::vector<int> inactive_ranks = {};
  // For set_placement, choose and take_loads; 0: not used.
  int num_layers = 0;   // MoE layers, each with a placement, at most 1,024
  int num_experts = 0;  // of a layer, at most as many as slots, and both at most 12,000
};

// The tokens of a rank that choose has seen, summed over iterations.
struct DeviceLoads {
  int64_t first_iteration = 0;    // counted from 0
  int64_t num_iterations = 0;     // 0: none has ended since the last time, and there are no sums
  std::vector<uint64_t> experts;  // [num_layers, num_experts]
  std::vector<uint64_t> slots;    // [num_layers, slots of the group]
};

// The tokens of a call. Unchanged until combine has run.
struct DeviceCall {
  const int32_t* num_tokens = nullptr;  // one number, 0 … max_tokens
  const int32_t* slots = nullptr;       // [num_tokens, top_k] of the group, distinct in a token
  const float* weights = nullptr;       // [num_tokens, top_k] router weights
  int layer = 0;                        // for messages
  void* stream = nullptr;               // a cudaStream_t; null: the default stream
};

// A row received for a slot, and the place for the slot's result, both 16-byte aligned.
struct DeviceReceivedRow {
  const std::byte* row = nullptr;  // a row in row_format
  std::byte* result = nullptr;     // must be written in result_format before combine
  float weight = 0;                // the router's
  int32_t source = 0;              // rank
  int32_t message = 0;             // of the source
  int32_t slot = 0;                // local
};

// What dispatch brings. The addresses stay the same from call to call; the contents are those of
// the last dispatch, in the order of the stream.
struct DeviceReceived {
  const DeviceReceivedRow* rows = nullptr;  // by slot, then source rank, then the source's tokens
  const int32_t* slot_starts = nullptr;     // [slots_per_rank + 1] where each slot's rows begin
  int64_t max_rows = 0;                     // that can come
};

struct DeviceOutput {
  // [num_tokens] rows of hidden bf16, 16-byte aligned: the sum over k of weight · result, in top-k
  // order in float32, rounded once.
  void* out = nullptr;
  size_t out_stride = 0;                 // bytes, a multiple of 16 with room for a row
  const float* shared_expert = nullptr;  // [num_tokens, hidden], added last; or null
};

// One rank. Move-only; a moved-from communicator is closed.
class DeviceCommunicator {
 public:
  // Whether this build has kernels, and this machine a driver and a GPU; whether that GPU runs them
  // is known when a rank joins. Errors (failed): what is missing.
  static Status available();

  // Collective: waits for all ranks and allocates device_bytes() on each. Errors (invalid input):
  // options out of range, or other than those of another rank; a rank that joins twice. Failed: no
  // driver, GPU, peer access or memory, here or at another rank. kDeadlineExceeded: names the rank
  // that did not come.
  static Result<DeviceCommunicator> join(const DeviceCommunicatorOptions& options);

  DeviceCommunicator();  // closed: every call is an error
  ~DeviceCommunicator();
  DeviceCommunicator(DeviceCommunicator&&) noexcept;
  DeviceCommunicator& operator=(DeviceCommunicator&&) noexcept;

  int rank() const;             // −1: closed
  int device() const;           // number of its GPU; −1: closed, or not a GPU
  size_t device_bytes() const;  // of this rank's memory

  // Which experts a layer's slots hold, from the next choose on. shares: the part of its expert's
  // tokens that each slot of the group gets (balancer.h), or empty: equal parts. stream: that of
  // the layer's calls, for which it waits, so that none of them is under way. Forgets what rounding
  // has left of earlier calls. A graph with a choose, captured once the layer has a placement, goes
  // on with each later one. Errors (invalid input): closed; no such layer; a placement or shares
  // that are not valid, of another shape, or with an expert on an inactive rank.
  Status set_placement(int layer, const balance::Placement& placement,
                       std::span<const double> shares = {}, void* stream = nullptr);

  // Before dispatch: the slots of a call's tokens, for call.slots. An expert's tokens are divided
  // among its replicas so that all ranks together meet the shares, if they have equally many of
  // them; as many as possible stay on their rank. In whole tokens: what rounding leaves is carried
  // to the layer's next call. No rank waits for another. Tokens are counted for take_loads. Of the
  // call num_tokens, layer and stream are used. experts: [num_tokens, top_k], distinct in a token;
  // slots: the same, other memory, written; −1, which dispatch refuses, for an expert that does not
  // exist. Errors (invalid input): closed; a null pointer; experts as slots; a layer without a
  // placement.
  Status choose(const DeviceCall& call, const int32_t* experts, int32_t* slots);

  // After the last call of an iteration: hands what choose has counted to take_loads, if that has
  // taken the last ones. Nothing waits.
  Status end_iteration(void* stream = nullptr);

  // What end_iteration has handed over since the last time. The iterations after it are handed over
  // together, at the first end after this: none is lost. stream: one of the caller's own, not that
  // of the calls, which go on meanwhile; waits for it. By the thread of the calls, or between two
  // of them. Errors (invalid input): closed; no layers.
  Result<DeviceLoads> take_loads(void* stream);

  // Sends rows, [num_tokens] rows of row_format row_stride bytes apart, of any alignment, to the
  // ranks of their slots, and receives those of all ranks. They must not change before combine has
  // run. Errors (invalid input): closed; the previous dispatch has no combine yet; a null pointer;
  // a stride below a row.
  Status dispatch(const DeviceCall& call, const void* rows, size_t row_stride);

  DeviceReceived received() const;

  // Between dispatch and combine, for experts that take matrices instead of pointers: all received
  // rows one after the other, row i of the matrix being received().rows[i]; and their results back.
  // The work grows with the rows that have come. matrix: 16-byte aligned, max_rows rows; stride:
  // bytes, a multiple of 16 with room for a row. Errors (invalid input): as dispatch.
  Status expand(const DeviceCall& call, void* matrix, size_t stride);
  Status finalize(const DeviceCall& call, const void* results, size_t stride);

  // Awaits the results of all ranks and sums up those of this rank's tokens. Errors (invalid
  // input): as dispatch; not after a dispatch.
  Status combine(const DeviceCall& call, const DeviceOutput& output);

  // The first error of this rank's kernels since it joined: rank, peer, layer and what was awaited.
  // Waits for the stream.
  Status status(void* stream = nullptr);

  // After an error of status(), or between two calls: forgets the error and a call that has no
  // combine, and goes on without inactive_ranks: all that are lost, those included that were left
  // out before. The rows of the call that failed are lost. Collective among the ranks that go on,
  // each with the same list; waits for this rank's device, and at most join_timeout for the others.
  // Layers with an expert on one of them need a new placement before their next choose, and before
  // a graph with one is replayed.
  // All ranks of a group notice an error, so all come here, each when its status() says so. Graphs
  // that were captured before can be replayed. Errors (invalid input): closed; a rank out of range,
  // or this one; one missing that was left out before; another list on another rank.
  // kDeadlineExceeded: names the rank that did not come. After an error: close, or once more with
  // other ranks.
  Status restart(std::span<const int> inactive_ranks);

  // Leaves the group and frees its memory: no more calls follow. Waits for the device.
  void close();

  struct State;  // of the library
  explicit DeviceCommunicator(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace wideep::ep
