// SPDX-License-Identifier: Apache-2.0
#include "measure/model/scored_model.h"

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/try.h"
#include "model/model_division.h"
#include "model/model_files.h"
#include "run/layouts.h"
#include "transport/shared_memory.h"

namespace wideep::measure {
namespace {

balance::ModelPlacement one_rank(const model::ModelConfig& config) {
  balance::ModelPlacement placement;
  placement.num_slots = config.routing.num_experts;
  for (const int layer : model::moe_layers(config)) {
    placement.layers[layer] = *balance::linear_placement(config.routing.num_experts, 1);
  }
  return placement;
}

}  // namespace

Result<std::unique_ptr<ScoredModel>> ScoredModel::load(const std::string& model_dir,
                                                       std::optional<kernels::WeightFormat> format,
                                                       base::ThreadPool& pool) {
  auto scored = std::make_unique<ScoredModel>();
  WIDEEP_TRY_ASSIGN(scored->kernels, kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  WIDEEP_TRY_ASSIGN(scored->config, model::read_model_config(model_dir));
  WIDEEP_TRY_ASSIGN(const model::ModelFiles files,
                    model::ModelFiles::open(model_dir, &scored->config));
  const weights::WeightLoader loader(files.tensors(), format, [](uint64_t) {}, &pool);
  WIDEEP_TRY_ASSIGN(scored->weights, model::ModelWeights::load(scored->config, loader));
  scored->placement = one_rank(scored->config);
  WIDEEP_TRY_ASSIGN(scored->slots,
                    model::ExpertSlots::load(scored->config, loader, scored->placement, 0));
  WIDEEP_TRY(files.tensors().check_unchanged());
  scored->row_dtype = loader.row_dtype();
  return scored;
}

Result<std::unique_ptr<ForwardPass>> ForwardPass::create(const ScoredModel& scored,
                                                         const model::MoeOptions& options,
                                                         int max_tokens, base::ThreadPool& pool) {
  std::unique_ptr<ForwardPass> pass(new ForwardPass());
  pass->layout_.emplace(run::dispatch_shape(
      scored.config, {.num_slots = scored.config.routing.num_experts, .max_num_tokens = max_tokens},
      options));
  WIDEEP_TRY_ASSIGN(const auto memory,
                    transport::SharedMemory::create(1, pass->layout_->segment_bytes()));
  pass->endpoint_.emplace(memory, 0, std::chrono::milliseconds(1000));
  pass->moe_.emplace(scored.config, scored.placement, *scored.slots, *pass->endpoint_,
                     *pass->layout_, options);
  if (options.measure_noise) pass->moe_->set_observer(pass.get());
  pass->model_.emplace(scored.config, scored.weights, model::Compute(*scored.kernels, pool),
                       *pass->moe_);
  pass->kv_.emplace(scored.config, scored.row_dtype);
  for (int at = 0; at < max_tokens; at += kernels::kPageTokens) {
    pass->pages_.emplace_back(pass->kv_->page_bytes());
  }
  const model::StateLayout states(scored.config, {0, scored.config.num_layers});
  if (states.bytes() > 0) pass->state_.emplace(states.bytes());
  return pass;
}

void ForwardPass::on_layer(const model::MoeLayerRecord& record) {
  noise_[record.layer].dispatched.add(record.dispatched);
  noise_[record.layer].returned.add(record.returned);
}

Status ForwardPass::forward(std::span<const int32_t> ids, std::vector<float>* logits) {
  model::PageList pages;
  for (base::AlignedBytes& page : pages_) pages.push_back(page.data());
  model::Batch batch;
  if (state_) {
    std::memset(state_->data(), 0, state_->size());
    batch.states.assign(ids.size(), state_->data());
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    batch.ids.push_back(ids[i]);
    batch.positions.push_back(static_cast<int32_t>(i));
    batch.prompt_lengths.push_back(static_cast<int32_t>(ids.size()));
    batch.pages.push_back(&pages);
    batch.logit_rows.push_back(static_cast<int32_t>(i));
  }
  return model_->forward(batch, *kv_, iteration_++, logits);
}

}  // namespace wideep::measure
