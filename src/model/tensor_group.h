// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallelism: the ranks that compute one batch together. Each rank computes some columns of
// every product, as whole sums, and all read the columns of all. So an element is one chain of
// additions along all of k, as on one rank, and **its bits do not depend on the size of the
// group**; if partial sums were added up, as an all-reduce does, they would. It does not move more
// bytes: heads once and outputs once, where an all-reduce moves outputs twice.
//
//   what                          parted by      written to
//   residual stream, norms        tokens         kInput
//   q, k, v; attention            heads          kHeads
//   output projection, down       columns        kOutput
//   gate and up                   columns        kBetween
//   experts                       tokens, which dispatch sends to the experts' ranks
//   LM head                       columns        kLogits
//
// On one node these buffers are shared memory: a part is written once and read in place by all. If
// ranks are on several nodes, each node has the buffers, and parts are sent to the other nodes when
// ranks meet.
//
// Thread safety: one thread per rank.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ep/chunks.h"
#include "kernels/packed_matrix.h"
#include "model/compute.h"
#include "model/config.h"
#include "transport/endpoint.h"

namespace wideep::model {

// Buffers that all ranks of a group see.
enum class JointBuffer : int { kInput, kHeads, kOutput, kBetween, kLogits, kCount };

// Where each buffer begins, in bytes.
struct JointLayout {
  JointLayout() = default;
  // For batches of at most max_tokens tokens and max_logit_rows wanted logits.
  JointLayout(const ModelConfig& config, int64_t max_tokens, int64_t max_logit_rows);
  // Of ranks that share experts (moe_tp): what gate and up of at most max_rows rows make, in
  // kBetween.
  static JointLayout of_experts(const ModelConfig& config, Dtype row_dtype, int64_t max_rows);

  // Of ranks that share sequences (context parallelism): the wanted logits.
  static JointLayout of_context(const ModelConfig& config, int64_t max_logit_rows);

  size_t bytes() const { return begin.back(); }

  int64_t max_tokens = 0;
  std::array<size_t, static_cast<size_t>(JointBuffer::kCount) + 1> begin = {};
};

// Heads that a rank computes, and the heads of the cache that these read: each head of the cache
// serves count / num_kv heads, in order.
struct HeadRange {
  int first = 0;
  int count = 0;
  int first_kv = 0;
  int num_kv = 0;
};
// Part `rank` of `size`. REQUIRES: size divides num_heads; of size and num_kv_heads one divides the
// other (several ranks hold the same one where there are more ranks).
HeadRange part_of_heads(int rank, int size, int num_heads, int num_kv_heads);

// Panels that hold columns [first, first + count).
Panels panels_of_columns(int first, int count);

// Columns [begin, begin + size).
struct ColumnRange {
  int begin = 0;
  int size = 0;
};
// The columns of a product of n columns that part `part` of `parts` computes: whole panels.
ColumnRange columns_of_part(int n, int part, int parts);

// What a rank has written into a buffer whose rows have so many elements: some rows; or of its
// first num_rows rows the columns of some panels.
template <typename T>
transport::Written written_rows(const T* buffer, size_t elements, ep::TokenRange rows) {
  return {.first = buffer + static_cast<size_t>(rows.begin) * elements,
          .width = static_cast<size_t>(rows.size) * elements * sizeof(T)};
}
transport::Written written_columns(const void* buffer, int elements, size_t element_bytes,
                                   int64_t num_rows, Panels panels);

class TensorGroup {
 public:
  // A rank on its own, with buffers in its own memory.
  TensorGroup() = default;
  // All ranks of the endpoint's group. The buffers lie `offset` bytes into the first rank's
  // segment.
  TensorGroup(transport::Endpoint& endpoint, size_t offset, const JointLayout& layout);

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_alone() const { return size_ == 1; }
  // Whether its ranks are on several nodes.
  bool is_spread() const { return endpoint_ != nullptr && endpoint_->ranks_on_node() < size_; }

  ep::TokenRange tokens(int num_tokens) const { return ep::chunk_of(num_tokens, rank_, size_); }
  Panels panels(const kernels::PackedShape& w) const;
  HeadRange heads(int num_heads, int num_kv_heads) const {
    return part_of_heads(rank_, size_, num_heads, num_kv_heads);
  }

  // A buffer that all ranks of the group see. REQUIRES: count fits the layout (for a rank on its
  // own any count).
  template <typename T>
  T* joint(JointBuffer buffer, size_t count) {
    if (is_alone()) return own_[static_cast<size_t>(buffer)].get<T>(count);
    return reinterpret_cast<T*>(shared(buffer, count * sizeof(T)));
  }

  // Returns when all ranks of the group have come here: what each wrote before, all see after it.
  // wrote: what this rank has written since the last meeting, into a joint buffer or, with
  // meet_with_own, into its own segment; left out: nothing.
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
