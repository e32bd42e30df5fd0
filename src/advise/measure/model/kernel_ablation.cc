// SPDX-License-Identifier: Apache-2.0
//
// SeparateQkv::separate() goes the way of LatentAttention::attend_expanded: one page of one head is
// expanded, packed and attended to while it is in the nearest cache. joint() does what engines do
// whose attention takes one tensor: it expands all positions, writes query, key and value of each
// head behind each other, and packs pages from there. The bits are the same.
#include "measure/model/kernel_ablation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/kv_page.h"

namespace wideep::measure {
namespace {

constexpr int kMaxTaskTokens = 1024;  // as in LatentAttention
constexpr uint32_t kSeed = 1;

template <typename T>
std::vector<T> normal_values(size_t count, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<T> values(count);
  for (T& value : values) value = T(normal(random));
  return values;
}

size_t product(int a, int b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }

}  // namespace

// ---- the shared expert's result ----

SharedSum::SharedSum(const kernels::Kernels& kernels, int hidden, int top_k, int tokens)
    : kernels_(kernels),
      hidden_(hidden),
      top_k_(top_k),
      tokens_(tokens),
      rows_(normal_values<Bf16>(product(tokens, top_k) * static_cast<size_t>(hidden), 1.0f, kSeed)),
      weights_(normal_values<float>(product(tokens, top_k), 0.3f, kSeed + 1)),
      shared_(normal_values<float>(product(tokens, hidden), 1.0f, kSeed + 2)),
      residual_(normal_values<float>(product(tokens, hidden), 1.0f, kSeed + 3)) {
  for (size_t i = 0; i < product(tokens, top_k); ++i) {
    pointers_.push_back(
        reinterpret_cast<const std::byte*>(rows_.data() + i * static_cast<size_t>(hidden)));
  }
}

kernels::ReduceArgs SharedSum::args_of(int token) {
  return {.n = hidden_,
          .top_k = top_k_,
          .format = kernels::RowFormat::kBf16,
          .rows = pointers_.data() + product(token, top_k_),
          .weights = weights_.data() + product(token, top_k_),
          .x = residual_.data() + product(token, hidden_)};
}

void SharedSum::fused() {
  for (int token = 0; token < tokens_; ++token) {
    kernels::ReduceArgs args = args_of(token);
    args.shared = shared_.data() + product(token, hidden_);
    kernels_.reduce_experts(args);
  }
}

void SharedSum::apart() {
  for (int token = 0; token < tokens_; ++token) kernels_.reduce_experts(args_of(token));
  for (int token = 0; token < tokens_; ++token) {
    kernels_.add_scaled(Dtype::kF32, shared_.data() + product(token, hidden_), 1.0f, hidden_,
                        residual_.data() + product(token, hidden_));
  }
}

// ---- queries, keys and values ----

SeparateQkv::SeparateQkv(const kernels::Kernels& kernels, const model::ModelConfig& config,
                         int tokens)
    : kernels_(kernels),
      tokens_(tokens),
      heads_(config.num_heads),
      rank_(config.kv_lora_rank),
      nope_(config.qk_nope_head_dim),
      rope_(config.qk_rope_head_dim),
      value_dim_(config.v_head_dim),
      scale_(1.0f / std::sqrt(static_cast<float>(key_dim()))),
      latent_stride_(static_cast<size_t>((rank_ + rope_ + 15) / 16 * 16)) {
  latents_ = normal_values<Bf16>(static_cast<size_t>(tokens) * latent_stride_, 1.0f, kSeed);
  q_ = normal_values<float>(product(tokens, heads_ * key_dim()), 1.0f, kSeed + 1);
  out_.resize(product(tokens, heads_ * value_dim_));
  const float deviation = 1.0f / std::sqrt(static_cast<float>(rank_));
  for (int head = 0; head < heads_; ++head) {
    const auto seed = kSeed + 2 + static_cast<uint32_t>(head);
    const auto weights = normal_values<float>(product(nope_ + value_dim_, rank_), deviation, seed);
    const auto pack = [&](int first, int n) {
      return weights::WeightLoader::pack_rows(kernels::WeightFormat::kBf16,
                                              weights.data() + product(first, rank_), n, rank_);
    };
    to_keys_.push_back(pack(0, nope_));
    to_values_.push_back(pack(nope_, value_dim_));
  }
  const int widest = std::max(nope_, value_dim_);
  floats_.resize(product(kernels::kPageTokens, widest));
  page_keys_.resize(product(kernels::kPageTokens, nope_));
  page_values_.resize(product(kernels::kPageTokens, value_dim_));
  all_keys_.resize(product(tokens, heads_ * nope_));
  all_values_.resize(product(tokens, heads_ * value_dim_));
  joint_.resize(static_cast<size_t>(tokens) * joint_stride());
  joint_q_.resize(q_.size());
  key_panels_ = base::AlignedBytes(kernels::key_panel_bytes(Dtype::kBf16, key_dim()));
  value_panels_ = base::AlignedBytes(kernels::value_panel_bytes(Dtype::kBf16, value_dim_));
}

template <typename Body>
void SeparateQkv::for_each_task(const Body& body) {
  for (int first = 0; first < tokens_; first += kMaxTaskTokens) {
    for (int head = 0; head < heads_; ++head) {
      body(Task{head, first, std::min(kMaxTaskTokens, tokens_ - first)});
    }
  }
}

void SeparateQkv::expand(int head, int first, int count, const Target& target) {
  const Bf16* rows = latents_.data() + static_cast<size_t>(first) * latent_stride_;
  const model::SourceRows source{
      {rows, latent_stride_ * sizeof(Bf16), nullptr}, count, rank_, Dtype::kBf16};
  model::Scratch unused;  // bf16 rows need no cast for bf16 weights
  const auto one = [&](const weights::Matrix& w, Bf16* out, size_t stride) {
    const auto width = static_cast<size_t>(w.packed.n());
    const model::Rows operands = model::cast_rows(kernels_, w.packed.shape, source, unused);
    kernels_.matmul(model::matmul_args(operands, w.packed, floats_.data(), width));
    for (int p = 0; p < count; ++p) {
      kernels_.store_row(Dtype::kBf16, floats_.data() + static_cast<size_t>(p) * width,
                         static_cast<int>(width),
                         reinterpret_cast<std::byte*>(out + static_cast<size_t>(p) * stride));
    }
  };
  one(to_keys_[static_cast<size_t>(head)], target.keys, target.key_stride);
  one(to_values_[static_cast<size_t>(head)], target.values, target.value_stride);
}

// The page's panels are filled. q: of the whole prompt.
void SeparateQkv::attend_page(const Task& task, int base, const float* q) {
  const int end = task.first + task.count;
  const kernels::KvPage panels{key_panels_.data(), value_panels_.data()};
  kernels::AttentionArgs args{
      .num_tokens = task.count,
      .num_heads = 1,
      .first_position = task.first,
      .key_dim = key_dim(),
      .value_dim = value_dim_,
      .scale = scale_,
      .q = q + product(task.first, heads_ * key_dim()) + product(task.head, key_dim()),
      .q_token_stride = product(heads_, key_dim()),
      .q_head_stride = static_cast<size_t>(key_dim()),
      .out =
          out_.data() + product(task.first, heads_ * value_dim_) + product(task.head, value_dim_),
      .out_token_stride = product(heads_, value_dim_),
      .out_head_stride = static_cast<size_t>(value_dim_),
      .cache_dtype = Dtype::kBf16,
      .pages = &panels,
      .first_page = base / kernels::kPageTokens,
      .num_pages = 1,
      .start = base == 0,
      .finish = base + kernels::kPageTokens >= end};
  if (const size_t bytes = kernels::attention_scratch_bytes(args); bytes > scratch_.size()) {
    scratch_ = base::AlignedBytes(bytes);
  }
  args.scratch = scratch_.data();
  kernels_.attention(args);
}

void SeparateQkv::separate() {
  const Target page{page_keys_.data(), page_values_.data(), static_cast<size_t>(nope_),
                    static_cast<size_t>(value_dim_)};
  const auto bytes = [](const Bf16* rows) { return reinterpret_cast<const std::byte*>(rows); };
  for_each_task([&](const Task& task) {
    const int end = task.first + task.count;
    for (int base = 0; base < end; base += kernels::kPageTokens) {
      const int count = std::min(kernels::kPageTokens, end - base);
      expand(task.head, base, count, page);
      kernels_.pack_keys({Dtype::kBf16, bytes(page.keys), page.key_stride, count, nope_},
                         key_panels_.data());
      const Bf16* rotary = latents_.data() + static_cast<size_t>(base) * latent_stride_ + rank_;
      kernels_.pack_keys({Dtype::kBf16, bytes(rotary), latent_stride_, count, rope_},
                         key_panels_.data() + kernels::key_panel_bytes(Dtype::kBf16, nope_));
      kernels_.pack_values({Dtype::kBf16, bytes(page.values), page.value_stride, count, value_dim_},
                           value_panels_.data());
      attend_page(task, base, q_.data());
    }
  });
}

// [token][head]: key without rotary part, rotary part, value; and the queries.
void SeparateQkv::join() {
  const size_t nope = static_cast<size_t>(nope_), rope = static_cast<size_t>(rope_),
               value = static_cast<size_t>(value_dim_);
  for (int token = 0; token < tokens_; ++token) {
    const Bf16* rotary = latents_.data() + static_cast<size_t>(token) * latent_stride_ + rank_;
    for (int head = 0; head < heads_; ++head) {
      const size_t row = product(token, heads_) + static_cast<size_t>(head);
      Bf16* out = joint_.data() + row * (nope + rope + value);
      std::memcpy(out, all_keys_.data() + row * nope, nope * sizeof(Bf16));
      std::memcpy(out + nope, rotary, rope * sizeof(Bf16));
      std::memcpy(out + nope + rope, all_values_.data() + row * value, value * sizeof(Bf16));
      std::memcpy(joint_q_.data() + row * (nope + rope), q_.data() + row * (nope + rope),
                  (nope + rope) * sizeof(float));
    }
  }
}

void SeparateQkv::joint() {
  for (int head = 0; head < heads_; ++head) {
    for (int base = 0; base < tokens_; base += kernels::kPageTokens) {
      const size_t row = product(base, heads_) + static_cast<size_t>(head);
      expand(head, base, std::min(kernels::kPageTokens, tokens_ - base),
             {all_keys_.data() + row * static_cast<size_t>(nope_),
              all_values_.data() + row * static_cast<size_t>(value_dim_), product(heads_, nope_),
              product(heads_, value_dim_)});
    }
  }
  join();
  for_each_task([&](const Task& task) {
    const int end = task.first + task.count;
    for (int base = 0; base < end; base += kernels::kPageTokens) {
      const int count = std::min(kernels::kPageTokens, end - base);
      const Bf16* rows = joint_.data() + static_cast<size_t>(base) * joint_stride() +
                         product(task.head, key_dim() + value_dim_);
      const auto part = [&](int first, int dim) {
        return kernels::PageRows{Dtype::kBf16, reinterpret_cast<const std::byte*>(rows + first),
                                 joint_stride(), count, dim};
      };
      kernels_.pack_keys(part(0, key_dim()), key_panels_.data());
      kernels_.pack_values(part(key_dim(), value_dim_), value_panels_.data());
      attend_page(task, base, joint_q_.data());
    }
  });
}

}  // namespace wideep::measure
