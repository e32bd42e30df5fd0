// SPDX-License-Identifier: Apache-2.0
//
// Runs golden models, whose files tests/golden/README.md describes, on one rank.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/try.h"
#include "model/model.h"
#include "model/model_files.h"
#include "tensor_files/safetensors.h"
#include "transport/rank_threads.h"

namespace wideep::model {

using kernels::WeightFormat;

template <typename T>
std::vector<T> values(const tensor_files::SafetensorsFile& file, const std::string& name) {
  const auto* entry = file.find(name);
  EXPECT_NE(entry, nullptr) << name;
  std::vector<T> out(entry->num_elements());
  std::memcpy(out.data(), entry->bytes.data(), entry->bytes.size());
  return out;
}

struct Output : MoeObserver {
  std::vector<float> logits;     // [T, V]
  std::vector<int32_t> experts;  // [moe layer][T, k]

  void on_layer(const MoeLayerRecord& record) override {
    experts.insert(experts.end(), record.experts.begin(), record.experts.end());
  }
};

struct RunOptions {
  WeightFormat format = WeightFormat::kBf16;
  std::optional<Dtype> cache;  // else as rows are dispatched
  int chunk = 0;               // tokens of an iteration; 0: the whole prompt
  int num_threads = 2;
  int prompt_length = 0;  // tokens that have the role of a prompt; 0: all
};

// A model on one rank, with a cache for one sequence.
class GoldenRank {
 public:
  // num_predicting: prediction layers.
  static Result<std::unique_ptr<GoldenRank>> create(const std::string& dir,
                                                    const kernels::Kernels& kernels,
                                                    const RunOptions& options, int max_tokens,
                                                    int num_predicting = 0) {
    std::unique_ptr<GoldenRank> rank(new GoldenRank(options));
    const Status made = rank->make(dir, kernels, options, max_tokens, num_predicting);
    if (!made.ok()) return made;
    return rank;
  }

  const ModelConfig& config() const { return *config_; }
  Model& model() { return *model_; }
  const KvLayout& kv() const { return *kv_; }
  const PageList& pages() const { return pages_; }
  MoeRunner& moe() { return *moe_; }
  Compute compute() { return Compute(*kernels_, pool_); }
  transport::Endpoint& endpoint() { return *endpoint_; }
  std::byte* state() { return state_.data(); }

 private:
  explicit GoldenRank(const RunOptions& options) : pool_(options.num_threads) {}

  Status make(const std::string& dir, const kernels::Kernels& kernels, const RunOptions& options,
              int max_tokens, int num_predicting) {
    WIDEEP_TRY_ASSIGN(config_, read_model_config(dir));
    if (num_predicting > 0) WIDEEP_TRY(add_prediction_layers(num_predicting, &*config_));
    WIDEEP_TRY_ASSIGN(files_, ModelFiles::open(dir, &*config_));
    const weights::WeightLoader loader(files_->tensors(), options.format);
    WIDEEP_TRY_ASSIGN(weights_, ModelWeights::load(*config_, loader));
    const int num_experts = config_->routing.num_experts;
    placement_.num_slots = num_experts;
    for (int layer = 0; layer < config_->num_all_layers(); ++layer) {
      if (config_->is_moe(layer)) {
        placement_.layers[layer] = *balance::linear_placement(num_experts, 1);
      }
    }
    WIDEEP_TRY_ASSIGN(slots_, ExpertSlots::load(*config_, loader, placement_, 0));
    return start(kernels, options, max_tokens);
  }

  Status start(const kernels::Kernels& kernels, const RunOptions& options, int max_tokens) {
    kernels_ = &kernels;
    const Dtype dtype = kernels::row_dtype(options.format);
    const size_t row_bytes = config_->expert_hidden_size() * dtype_bytes(dtype);
    const int num_experts = config_->routing.num_experts;
    const ep::BufferLayout layout({.ep_size = 1,
                                   .num_experts = num_experts,
                                   .slots_per_rank = num_experts,
                                   .top_k = config_->routing.top_k,
                                   .row_bytes = row_bytes,
                                   .result_bytes = row_bytes,
                                   .max_tokens = max_tokens});
    WIDEEP_TRY_ASSIGN(memory_, transport::SharedMemory::create(1, layout.segment_bytes()));
    endpoint_.emplace(memory_, 0, std::chrono::milliseconds(1000));
    moe_.emplace(*config_, placement_, *slots_, *endpoint_, layout, MoeOptions{.row_dtype = dtype});
    model_.emplace(*config_, *weights_, Compute(kernels, pool_), *moe_);
    kv_.emplace(*config_, options.cache.value_or(dtype));
    for (int at = 0; at < max_tokens; at += kernels::kPageTokens) {
      memory_of_pages_.emplace_back(kv_->page_bytes());
      pages_.push_back(memory_of_pages_.back().data());
    }
    const StateLayout states(*config_, {0, config_->num_all_layers()});
    state_ = base::AlignedBytes(std::max(states.bytes(), size_t{64}));
    std::memset(state_.data(), 0, state_.size());
    return {};
  }

  base::ThreadPool pool_;
  const kernels::Kernels* kernels_ = nullptr;
  std::optional<ModelConfig> config_;
  std::optional<ModelFiles> files_;
  std::optional<ModelWeights> weights_;
  balance::ModelPlacement placement_;
  std::optional<ExpertSlots> slots_;
  std::shared_ptr<transport::SharedMemory> memory_;
  std::optional<transport::Endpoint> endpoint_;
  std::optional<MoeRunner> moe_;
  std::optional<Model> model_;
  std::optional<KvLayout> kv_;
  std::vector<base::AlignedBytes> memory_of_pages_;
  PageList pages_;
  base::AlignedBytes state_;
};

// Rows [begin, end) of a text, of which the first prompt_length tokens are the prompt; all logits.
inline Batch batch_of(GoldenRank& rank, const std::vector<int32_t>& ids, size_t begin, size_t end,
                      int prompt_length) {
  Batch batch;
  for (size_t i = begin; i < end; ++i) {
    batch.ids.push_back(ids[i]);
    batch.positions.push_back(static_cast<int32_t>(i));
    batch.prompt_lengths.push_back(prompt_length);
    batch.pages.push_back(&rank.pages());
    if (rank.config().has_state()) batch.states.push_back(rank.state());
    batch.logit_rows.push_back(static_cast<int32_t>(i - begin));
  }
  return batch;
}

// One rank, one prompt, all logits.
inline Result<Output> run_model(const std::string& dir, const kernels::Kernels& kernels,
                                const RunOptions& options, const std::vector<int32_t>& ids) {
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<GoldenRank> rank,
                    GoldenRank::create(dir, kernels, options, static_cast<int>(ids.size())));
  Output output;
  rank->moe().set_observer(&output);
  const int prompt_length =
      options.prompt_length > 0 ? options.prompt_length : static_cast<int>(ids.size());
  const size_t chunk = options.chunk > 0 ? static_cast<size_t>(options.chunk) : ids.size();
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const Batch batch =
        batch_of(*rank, ids, begin, std::min(begin + chunk, ids.size()), prompt_length);
    std::vector<float> logits;
    const auto iteration = static_cast<int64_t>(begin / chunk);
    WIDEEP_TRY(rank->model().forward(batch, rank->kv(), iteration, &logits));
    output.logits.insert(output.logits.end(), logits.begin(), logits.end());
  }
  return output;
}

inline double largest_magnitude(const std::vector<float>& values) {
  double largest = 0.0;
  for (float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

inline double root_mean_square_difference(const std::vector<float>& a,
                                          const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// golden top_k is [T, layer, k]; ours [layer][T, k].
inline std::vector<int32_t> by_layer(const std::vector<int32_t>& golden, size_t tokens,
                                     size_t layers, size_t k) {
  std::vector<int32_t> out;
  for (size_t l = 0; l < layers; ++l) {
    for (size_t t = 0; t < tokens; ++t) {
      const auto row = golden.begin() + static_cast<std::ptrdiff_t>((t * layers + l) * k);
      out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(k));
    }
  }
  return out;
}

}  // namespace wideep::model
