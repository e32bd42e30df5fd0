// SPDX-License-Identifier: Apache-2.0
//
// Runs golden models, whose files tests/golden/README.md describes, on one rank.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "formats/safetensors.h"
#include "model/model.h"
#include "model/model_files.h"
#include "transport/rank_threads.h"

namespace wideep::model {

using kernels::WeightFormat;

template <typename T>
std::vector<T> values(const formats::SafetensorsFile& file, const std::string& name) {
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

// One rank, one prompt, all logits.
inline Result<Output> run_model(const std::string& dir, const kernels::Kernels& kernels,
                                const RunOptions& options, const std::vector<int32_t>& ids) {
  const WeightFormat format = options.format;
  auto config = read_model_config(dir);
  if (!config.ok()) return config.status();
  auto files = ModelFiles::open(dir, &*config);
  if (!files.ok()) return files.status();
  const weights::WeightLoader loader(files->tensors(), format);
  auto model_weights = ModelWeights::load(*config, loader);
  if (!model_weights.ok()) return model_weights.status();

  const int num_experts = config->routing.num_experts;
  balance::ModelPlacement placement;
  placement.num_slots = num_experts;
  for (int layer = 0; layer < config->num_layers; ++layer) {
    if (config->is_moe(layer)) {
      placement.layers[layer] = *balance::linear_placement(num_experts, 1);
    }
  }
  auto slots = ExpertSlots::load(*config, loader, placement, 0);
  if (!slots.ok()) return slots.status();

  const Dtype dtype = kernels::row_dtype(format);
  const size_t row_bytes = config->hidden_size * dtype_bytes(dtype);
  const ep::BufferLayout layout({.ep_size = 1,
                                 .num_experts = num_experts,
                                 .slots_per_rank = num_experts,
                                 .top_k = config->routing.top_k,
                                 .row_bytes = row_bytes,
                                 .result_bytes = row_bytes,
                                 .max_tokens = static_cast<int>(ids.size())});
  auto memory = transport::SharedMemory::create(1, layout.segment_bytes());
  if (!memory.ok()) return memory.status();
  transport::Endpoint endpoint(*memory, 0, std::chrono::milliseconds(1000));
  base::ThreadPool pool(options.num_threads);
  MoeRunner moe(*config, placement, *slots, endpoint, layout, {.row_dtype = dtype});
  Output output;
  moe.set_observer(&output);
  Model model(*config, *model_weights, Compute(kernels, pool), moe);

  const KvLayout kv(*config, options.cache.value_or(kernels::row_dtype(format)));
  std::vector<base::AlignedBytes> memory_of_pages;
  PageList pages;
  for (size_t at = 0; at < ids.size(); at += kernels::kPageTokens) {
    memory_of_pages.emplace_back(kv.page_bytes());
    pages.push_back(memory_of_pages.back().data());
  }
  const StateLayout states(*config, {0, config->num_layers});
  base::AlignedBytes state(std::max(states.bytes(), size_t{64}));
  std::memset(state.data(), 0, state.size());
  const int prompt_length =
      options.prompt_length > 0 ? options.prompt_length : static_cast<int>(ids.size());
  const size_t chunk = options.chunk > 0 ? static_cast<size_t>(options.chunk) : ids.size();
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    Batch batch;
    for (size_t i = begin; i < std::min(begin + chunk, ids.size()); ++i) {
      batch.ids.push_back(ids[i]);
      batch.positions.push_back(static_cast<int32_t>(i));
      batch.prompt_lengths.push_back(prompt_length);
      batch.pages.push_back(&pages);
      if (config->has_state()) batch.states.push_back(state.data());
      batch.logit_rows.push_back(static_cast<int32_t>(i - begin));
    }
    std::vector<float> logits;
    const auto iteration = static_cast<int64_t>(begin / chunk);
    const Status status = model.forward(batch, kv, iteration, &logits);
    if (!status.ok()) return status;
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
