// SPDX-License-Identifier: Apache-2.0
#include "engine/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/try.h"
#include "engine/memory_plan.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"
#include "transport/shared_memory.h"
#include "weights/checkpoint.h"

namespace wideep::engine {
namespace {

balance::ModelPlacement one_rank(const model::ModelConfig& config) {
  balance::ModelPlacement placement;
  placement.num_slots = config.routing.num_experts;
  for (const int layer : moe_layers(config)) {
    placement.layers[layer] = *balance::linear_placement(config.routing.num_experts, 1);
  }
  return placement;
}

// Everything that a forward pass on one rank needs.
class ScoredModel {
 public:
  static Result<std::unique_ptr<ScoredModel>> load(const ScoreOptions& options,
                                                   base::ThreadPool& pool) {
    std::unique_ptr<ScoredModel> scored(new ScoredModel());
    WIDEEP_TRY_ASSIGN(const kernels::Kernels* kernels,
                      kernels::select_kernels(std::getenv("WIDEEP_ISA")));
    WIDEEP_TRY_ASSIGN(scored->config_, model::read_model_config(options.model_dir));
    WIDEEP_TRY_ASSIGN(const weights::Checkpoint checkpoint,
                      weights::Checkpoint::open(options.model_dir));
    const weights::WeightLoader loader(checkpoint, options.format, [](uint64_t) {}, &pool);
    WIDEEP_TRY_ASSIGN(scored->weights_, model::ModelWeights::load(scored->config_, loader));
    scored->placement_ = one_rank(scored->config_);
    WIDEEP_TRY_ASSIGN(scored->slots_,
                      model::ExpertSlots::load(scored->config_, loader, scored->placement_, 0));
    WIDEEP_TRY(scored->connect(*kernels, loader.row_dtype(), options.window, pool));
    return scored;
  }

  // logits: [ids.size(), vocab].
  Status forward(std::span<const int32_t> ids, std::vector<float>* logits) {
    model::PageList pages;
    for (base::AlignedBytes& page : pages_) pages.push_back(page.data());
    model::Batch batch;
    for (size_t i = 0; i < ids.size(); ++i) {
      batch.ids.push_back(ids[i]);
      batch.positions.push_back(static_cast<int32_t>(i));
      batch.prompt_lengths.push_back(static_cast<int32_t>(ids.size()));
      batch.pages.push_back(&pages);
      batch.logit_rows.push_back(static_cast<int32_t>(i));
    }
    return model_->forward(batch, *kv_, iteration_++, logits);
  }

  int vocab_size() const { return config_.vocab_size; }

 private:
  Status connect(const kernels::Kernels& kernels, Dtype row_dtype, int max_tokens,
                 base::ThreadPool& pool) {
    const int num_experts = config_.routing.num_experts;
    const size_t row_bytes = config_.hidden_size * dtype_bytes(row_dtype);
    layout_.emplace(ep::DispatchShape{.ep_size = 1,
                                      .num_experts = num_experts,
                                      .slots_per_rank = num_experts,
                                      .top_k = config_.routing.top_k,
                                      .row_bytes = row_bytes,
                                      .result_bytes = row_bytes,
                                      .max_tokens = max_tokens});
    WIDEEP_TRY_ASSIGN(const auto memory,
                      transport::SharedMemory::create(1, layout_->segment_bytes()));
    endpoint_.emplace(memory, 0, std::chrono::milliseconds(1000));
    moe_.emplace(config_, placement_, *slots_, *endpoint_, *layout_,
                 model::MoeOptions{.row_dtype = row_dtype});
    model_.emplace(config_, weights_, model::Compute(kernels, pool), *moe_);
    kv_.emplace(config_, row_dtype);
    for (int at = 0; at < max_tokens; at += kernels::kPageTokens) {
      pages_.emplace_back(kv_->page_bytes());
    }
    return {};
  }

  model::ModelConfig config_;
  model::ModelWeights weights_;
  balance::ModelPlacement placement_;
  std::optional<model::ExpertSlots> slots_;
  std::optional<ep::BufferLayout> layout_;
  std::optional<transport::Endpoint> endpoint_;
  std::optional<model::MoeRunner> moe_;
  std::optional<model::Model> model_;
  std::optional<model::KvLayout> kv_;
  std::vector<base::AlignedBytes> pages_;
  int64_t iteration_ = 0;
};

void add_scores(std::span<const float> logits, int32_t token, TextScores* scores) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{*largest});
  const double of_token = double{logits[static_cast<size_t>(token)]} - double{*largest};
  scores->log_probabilities.push_back(static_cast<float>(of_token - std::log(sum)));
  scores->best.push_back(static_cast<int32_t>(largest - logits.begin()));
}

}  // namespace

double TextScores::perplexity() const {
  double sum = 0.0;
  for (const float value : log_probabilities) sum -= double{value};
  return std::exp(sum / static_cast<double>(log_probabilities.size()));
}

double top1_agreement(const TextScores& a, const TextScores& b) {
  size_t same = 0;
  for (size_t i = 0; i < a.best.size(); ++i) same += a.best[i] == b.best[i] ? 1 : 0;
  return static_cast<double>(same) / static_cast<double>(a.best.size());
}

Result<TextScores> score_text(const ScoreOptions& options, const std::string& text,
                              base::ThreadPool& pool) {
  WIDEEP_TRY_ASSIGN(const tokenizer::Tokenizer tokenizer,
                    tokenizer::Tokenizer::read(options.model_dir));
  const std::vector<int32_t> ids = tokenizer.encode(text);
  if (ids.size() < 2) {
    return invalid_input(fmt::format("text: expected 2 tokens or more, found {}", ids.size()));
  }
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<ScoredModel> model, ScoredModel::load(options, pool));
  TextScores scores;
  std::vector<float> logits;
  const auto window = static_cast<size_t>(options.window);
  for (size_t begin = 0; begin + 1 < ids.size(); begin += window) {
    const std::span<const int32_t> piece =
        std::span(ids).subspan(begin, std::min(window, ids.size() - begin));
    WIDEEP_TRY(model->forward(piece, &logits));
    const auto vocab = static_cast<size_t>(model->vocab_size());
    for (size_t i = 0; i + 1 < piece.size(); ++i) {
      add_scores(std::span(logits).subspan(i * vocab, vocab), piece[i + 1], &scores);
    }
  }
  return scores;
}

}  // namespace wideep::engine
