// SPDX-License-Identifier: Apache-2.0
//
// A model on one rank in the calling process, and forward passes that return the logits of every
// token, for score.h and compare_rows.h.
//
// Thread safety: as model::Model; one pass at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/model.h"
#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::measure {

// The loaded model, which several passes can share.
struct ScoredModel {
  // format: of the matrices; nothing: as stored. Errors (invalid input): the model cannot be read.
  static Result<std::unique_ptr<ScoredModel>> load(const std::string& model_dir,
                                                   std::optional<kernels::WeightFormat> format,
                                                   base::ThreadPool& pool);

  model::ModelConfig config;
  model::ModelWeights weights;
  balance::ModelPlacement placement;
  std::optional<model::ExpertSlots> slots;
  const kernels::Kernels* kernels = nullptr;
  Dtype row_dtype = Dtype::kBf16;
};

// Signal and noise of the rows of one MoE layer, summed over all passes.
struct LayerNoise {
  model::RowNoise dispatched, returned;
};

class ForwardPass : private model::MoeObserver {
 public:
  // REQUIRES: scored and pool outlive the pass; options.row_dtype is the model's. max_tokens: of
  // one forward().
  static Result<std::unique_ptr<ForwardPass>> create(const ScoredModel& scored,
                                                     const model::MoeOptions& options,
                                                     int max_tokens, base::ThreadPool& pool);

  // logits: [ids.size(), vocab], each row after the ids up to its own. REQUIRES: at most max_tokens
  // ids.
  Status forward(std::span<const int32_t> ids, std::vector<float>* logits);

  // By layer; empty unless options.measure_noise.
  const std::map<int, LayerNoise>& noise() const { return noise_; }

 private:
  ForwardPass() = default;
  void on_layer(const model::MoeLayerRecord& record) override;

  std::optional<ep::BufferLayout> layout_;
  std::optional<transport::Endpoint> endpoint_;
  std::optional<model::MoeRunner> moe_;
  std::optional<model::Model> model_;
  std::optional<model::KvLayout> kv_;
  std::vector<base::AlignedBytes> pages_;
  std::optional<base::AlignedBytes> state_;  // if the model keeps states
  std::map<int, LayerNoise> noise_;
  int64_t iteration_ = 0;
};

}  // namespace wideep::measure
