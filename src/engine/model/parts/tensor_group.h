// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallelism: the ranks that compute one batch together. Each rank computes some columns of
// every product, as whole sums over k, and every rank reads the columns of all ranks (an
// all-gather). An element is the same chain of additions as on one rank, so **its bits do not
// depend on the size of the group**. Adding up partial sums, as an all-reduce does, would change
// them. It moves no more bytes than an all-reduce: heads once and outputs once, instead of outputs
// twice.
//
//   what                          divided by     written to
//   residual stream, norms        tokens         kInput
//   q, k, v; attention            heads          kHeads
//   states (state_mixer.h)        units          kHeads
//   output projection, down       columns        kOutput
//   gate and up                   columns        kBetween
//   experts                       tokens, which dispatch sends to the experts' ranks
//   LM head                       columns        kLogits
//
// On one node these buffers are shared memory: each part is written once and read in place by all
// ranks. With several nodes, each node has the buffers, and meet() sends the parts to the other
// nodes.
//
// Thread safety: one thread per rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "ep/chunks.h"
#include "kernels/packed_matrix.h"
#include "model/config/config.h"
#include "model/parts/compute.h"
#include "transport/endpoint.h"

namespace wideep::model {

// The buffers of a group, which all its ranks read.
enum class JointBuffer : int { kInput, kHeads, kOutput, kBetween, kLogits, kCount };

// The likeliest token of a row, in a part of the vocabulary.
struct Likeliest {
  float logit = 0.0f;
  int32_t token = 0;
};

// The offsets of the buffers in bytes.
struct JointLayout {
  JointLayout() = default;
  // For ranks that compute batches together, of at most max_tokens tokens and max_logit_rows rows
  // of logits.
  JointLayout(const ModelConfig& config, int64_t max_tokens, int64_t max_logit_rows);
  // For ranks that hold slices of the same experts (moe_tp): only kBetween, the intermediate
  // activations of at most max_rows rows.
  static JointLayout of_experts(const ModelConfig& config, Dtype row_dtype, int64_t max_rows);

  // For ranks that share sequences (context parallelism), of a step of at most max_tokens tokens on
  // all of them: kLogits; if the model keeps states, also kInput and kHeads (state_mixer.h).
  static JointLayout of_context(const ModelConfig& config, int64_t max_tokens,
                                int64_t max_logit_rows);

  // For ranks with batches of their own that share the LM head (Model::predict()): kInput, the rows
  // of all ranks, at most max_rows of each; and kLogits, maxima.
  static JointLayout of_heads(const ModelConfig& config, int num_ranks, int64_t max_rows);

  size_t bytes() const { return begin.back(); }

  int64_t max_tokens = 0;
  std::array<size_t, static_cast<size_t>(JointBuffer::kCount) + 1> begin = {};

 private:
  // float32 elements of each buffer.
  void set_elements(const std::array<int64_t, static_cast<size_t>(JointBuffer::kCount)>& elements);
};

// The query heads that a rank computes, and the key-value heads that these read. Each key-value
// head serves count / num_kv consecutive query heads.
struct HeadRange {
  int first = 0;
  int count = 0;
  int first_kv = 0;
  int num_kv = 0;
};
// Part `rank` of `size` parts. REQUIRES: size divides num_heads; size divides num_kv_heads or the
// reverse (then several ranks have the same key-value head).
HeadRange part_of_heads(int rank, int size, int num_heads, int num_kv_heads);

// The panels that contain columns [first, first + count).
Panels panels_of_columns(int first, int count);

// Columns [begin, begin + size).
struct ColumnRange {
  int begin = 0;
  int size = 0;
};
// The panels that contain the columns of each range, which ascend; no panel twice.
template <size_t Count>
std::array<Panels, Count> panels_of_ranges(const std::array<ColumnRange, Count>& ranges) {
  std::array<Panels, Count> panels;
  int last = 0;  // of the panels so far
  for (size_t i = 0; i < Count; ++i) {
    panels[i] = panels_of_columns(ranges[i].begin, ranges[i].size);
    panels[i].first = std::max(panels[i].first, last);
    last = panels[i].last = std::max(panels[i].last, panels[i].first);
  }
  return panels;
}
// The columns of a product of n columns that part `part` of `parts` computes: whole panels.
ColumnRange columns_of_part(int n, int part, int parts);

// Describes what a rank has written into a buffer with `elements` elements per row: some whole rows
// (written_rows), or in the first num_rows rows the columns of some panels (written_columns).
template <typename T>
transport::Written written_rows(const T* buffer, size_t elements, ep::TokenRange rows) {
  return {.first = buffer + static_cast<size_t>(rows.begin) * elements,
          .width = static_cast<size_t>(rows.size) * elements * sizeof(T)};
}
transport::Written written_columns(const void* buffer, int elements, size_t element_bytes,
                                   int64_t num_rows, Panels panels);

class TensorGroup {
 public:
  // A group of one rank, with buffers in its own memory.
  TensorGroup() = default;
  // All ranks of the endpoint's group. The buffers begin `offset` bytes into the first rank's
  // segment. REQUIRES: they fit into it.
  TensorGroup(transport::Endpoint& endpoint, size_t offset, const JointLayout& layout);

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_alone() const { return size_ == 1; }
  // Whether the ranks are on several nodes.
  bool is_spread() const { return endpoint_ != nullptr && endpoint_->ranks_on_node() < size_; }

  ep::TokenRange tokens(int num_tokens) const { return ep::chunk_of(num_tokens, rank_, size_); }
  Panels panels(const kernels::PackedShape& w) const;
  HeadRange heads(int num_heads, int num_kv_heads) const {
    return part_of_heads(rank_, size_, num_heads, num_kv_heads);
  }

  // A shared buffer of the group. REQUIRES: count elements fit the layout; a group of one rank has
  // no limit.
  template <typename T>
  T* joint(JointBuffer buffer, size_t count) {
    if (is_alone()) return own_[static_cast<size_t>(buffer)].get<T>(count);
    return reinterpret_cast<T*>(shared(buffer, count * sizeof(T)));
  }

  // A barrier: returns when all ranks of the group have called it. Afterwards every rank sees what
  // all ranks wrote before. wrote: what this rank has written since the last barrier into a joint
  // buffer, or with meet_with_own into its own segment; only needed for other nodes. A group of one
  // rank returns at once. Errors: a peer failed or did not answer in time.
  Status meet(const transport::Awaited& where) { return meet_after(0, {}, where); }
  Status meet(const transport::Written& wrote, const transport::Awaited& where) {
    return meet_after(0, std::span(&wrote, 1), where);
  }
  Status meet(std::span<const transport::Written> wrote, const transport::Awaited& where) {
    return meet_after(0, wrote, where);
  }
  Status meet_with_own(std::span<const transport::Written> wrote, const transport::Awaited& where) {
    return meet_after(rank_, wrote, where);
  }

 private:
  Status meet_after(int owner, std::span<const transport::Written> wrote,
                    const transport::Awaited& where);
  std::byte* shared(JointBuffer buffer, size_t bytes) const;

  transport::Endpoint* endpoint_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  JointLayout layout_;
  std::byte* base_ = nullptr;
  std::array<Scratch, static_cast<size_t>(JointBuffer::kCount)> own_;
};

}  // namespace wideep::model
