// SPDX-License-Identifier: Apache-2.0
//
// Two optimisations of the forward path that have no switch, because nobody would want them off,
// beside the form that they have replaced:
//
//   SharedSum       the shared expert's result is added inside the sum of a token's results, or in
//                   a pass of its own
//   SeparateQkv     attention over a prompt with multi-head latents reads queries, and expands keys
//                   and values page by page; or all three are first written into joint tensors
//
// Both use the engine's kernels, on one thread. The second form of each computes the same.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_bytes.h"
#include "kernels/kernels.h"
#include "model/config/config.h"
#include "model/parts/compute.h"
#include "weights/weight_loader.h"

namespace wideep::measure {

class SharedSum {
 public:
  // Random rows in bf16 of so many tokens.
  SharedSum(const kernels::Kernels& kernels, int hidden, int top_k, int tokens);

  // Adds the results of all tokens to their residual rows.
  void fused();
  void apart();

  std::vector<float>& residual() { return residual_; }  // [tokens, hidden]

 private:
  kernels::ReduceArgs args_of(int token);

  const kernels::Kernels& kernels_;
  int hidden_, top_k_, tokens_;
  std::vector<Bf16> rows_;                  // [tokens, top_k, hidden]
  std::vector<const std::byte*> pointers_;  // [tokens, top_k]
  std::vector<float> weights_, shared_, residual_;
};

class SeparateQkv {
 public:
  // A prompt of so many tokens, with random latents, queries and weights in bf16.
  // REQUIRES: config.is_mla().
  SeparateQkv(const kernels::Kernels& kernels, const model::ModelConfig& config, int tokens);

  // Attention of all heads, into out().
  void separate();
  void joint();

  std::vector<float>& out() { return out_; }  // [tokens, heads × value_dim]

 private:
  // Where a page's keys and values are, in bf16.
  struct Target {
    Bf16* keys = nullptr;
    Bf16* values = nullptr;
    size_t key_stride = 0, value_stride = 0;
  };
  // Rows of queries: attention of this many tokens from here on, of one head.
  struct Task {
    int head = 0;
    int first = 0;
    int count = 0;
  };
  int key_dim() const { return nope_ + rope_; }
  size_t joint_stride() const { return static_cast<size_t>(heads_) * (key_dim() + value_dim_); }
  template <typename Body>
  void for_each_task(const Body& body);
  void expand(int head, int first, int count, const Target& target);
  void join();
  void attend_page(const Task& task, int base, const float* q);

  const kernels::Kernels& kernels_;
  int tokens_, heads_, rank_, nope_, rope_, value_dim_;
  float scale_;
  size_t latent_stride_;
  std::vector<weights::Matrix> to_keys_, to_values_;  // [heads]
  std::vector<Bf16> latents_;                         // [tokens, rank + rope], padded
  std::vector<float> q_, out_;                        // [tokens, heads × key_dim or value_dim]
  std::vector<float> floats_;                         // products of a page
  std::vector<Bf16> page_keys_, page_values_;         // of a page and head
  std::vector<Bf16> all_keys_, all_values_;           // [tokens, heads × nope or value_dim]
  std::vector<Bf16> joint_;                           // [tokens, heads × (key, value)]
  std::vector<float> joint_q_;
  base::AlignedBytes key_panels_, value_panels_, scratch_;
};

}  // namespace wideep::measure
