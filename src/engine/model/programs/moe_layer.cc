// SPDX-License-Identifier: Apache-2.0
//
// One MoE layer of wideep's engine on one rank, for comparisons with other implementations:
//
//   moe_layer FOLDER TOP_K
//
// FOLDER/model.safetensors has model.layers.0.mlp.gate.weight [experts, hidden], the experts'
// matrices under the names of Mixtral's family in transformers (….experts.0.gate_proj.weight), and
// the tokens as `input` [tokens, hidden]. Writes FOLDER/output: [tokens, hidden] float32, the
// weighted sum of the experts' results before it is rounded or added to anything.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "base/thread_pool.h"
#include "base/try.h"
#include "kernels/kernels.h"
#include "model/model_forms.h"
#include "model/parts/moe.h"
#include "transport/rank_threads.h"
#include "weights/checkpoint.h"

namespace wideep::model {
namespace {

constexpr const char* kGate = "model.layers.0.mlp.gate.weight";
constexpr const char* kUp = "model.layers.0.mlp.experts.0.up_proj.weight";

struct Layer {
  ModelConfig config;
  int num_tokens = 0;
  std::vector<float> input;  // [num_tokens, hidden]
};

Result<Layer> read_layer(const weights::Checkpoint& tensors, int top_k) {
  const tensor_files::TensorEntry* const gate = tensors.find(kGate);
  const tensor_files::TensorEntry* const up = tensors.find(kUp);
  const tensor_files::TensorEntry* const input = tensors.find("input");
  if (gate == nullptr || up == nullptr || input == nullptr) {
    return invalid_input(fmt::format("expected tensors '{}', '{}' and 'input'", kGate, kUp));
  }
  Layer layer;
  ModelConfig& config = layer.config;
  config.hidden_size = static_cast<int>(gate->shape[1]);
  config.num_layers = 1;
  config.moe_intermediate_size = static_cast<int>(up->shape[0]);
  config.routing = {.num_experts = static_cast<int>(gate->shape[0]), .top_k = top_k};
  config.layers.resize(1);
  layer.num_tokens = static_cast<int>(input->shape[0]);
  const weights::WeightLoader loader(tensors, kernels::WeightFormat::kBf16);
  WIDEEP_TRY_ASSIGN(layer.input, loader.floats("input", input->shape));
  return layer;
}

Status compute_layer(const weights::Checkpoint& tensors, const Layer& layer,
                     transport::Endpoint& endpoint, const ep::BufferLayout& layout,
                     std::vector<float>* output) {
  const ModelConfig& config = layer.config;
  const int num_experts = config.routing.num_experts;
  const weights::WeightLoader loader(tensors, kernels::WeightFormat::kBf16);
  const balance::ModelPlacement placement{
      .num_slots = num_experts,
      .layers = {{0, *balance::default_placement(num_experts, 1, num_experts)}}};
  WIDEEP_TRY_ASSIGN(ExpertSlots slots, ExpertSlots::load(config, loader, placement, 0));
  MoeWeights weights;
  WIDEEP_TRY_ASSIGN(weights.router,
                    loader.matrix(kGate, num_experts, config.hidden_size,
                                  weights::default_form(kernels::WeightFormat::kF32)));
  WIDEEP_TRY(loader.run());
  base::ThreadPool pool(1);
  WIDEEP_TRY_ASSIGN(const auto host_pool,
                    weights::HostPool::create(experts_shape(config, loader, 1), 1, num_experts));
  const std::vector<int> layers = {0};
  WIDEEP_TRY(fill_host_pool(layers, loader, 0, pool, *host_pool));
  slots.read_pool(*host_pool);
  const Compute compute(*kernels::all_kernels().back(), pool);
  MoeRunner runner(config, placement, slots, endpoint, layout, {});
  const std::vector<int32_t> tokens_of_ranks = {layer.num_tokens};
  output->assign(layer.input.size(), 0.0f);
  return runner.forward(compute, weights,
                        {.num_tokens = layer.num_tokens,
                         .tokens_of_ranks = tokens_of_ranks,
                         .h = layer.input.data(),
                         .x = output->data()});
}

Status run(const std::filesystem::path& folder, int top_k) {
  WIDEEP_TRY_ASSIGN(const weights::Checkpoint tensors, weights::Checkpoint::open(folder.string()));
  WIDEEP_TRY_ASSIGN(const Layer layer, read_layer(tensors, top_k));
  const size_t row_bytes = kernels::row_bytes(kernels::RowFormat::kBf16, layer.config.hidden_size);
  const ep::BufferLayout layout({.ep_size = 1,
                                 .num_experts = layer.config.routing.num_experts,
                                 .slots_per_rank = layer.config.routing.num_experts,
                                 .top_k = top_k,
                                 .row_bytes = row_bytes,
                                 .result_bytes = row_bytes,
                                 .max_tokens = layer.num_tokens});
  std::vector<float> output;
  WIDEEP_TRY_ASSIGN(
      const std::vector<Status> statuses,
      transport::run_rank_threads({.num_ranks = 1, .segment_bytes = layout.segment_bytes()},
                                  [&](transport::Endpoint& endpoint) {
                                    return compute_layer(tensors, layer, endpoint, layout, &output);
                                  }));
  WIDEEP_TRY(statuses[0]);
  std::ofstream file(folder / "output", std::ios::binary);
  file.write(reinterpret_cast<const char*>(output.data()),
             static_cast<std::streamsize>(output.size() * sizeof(float)));
  return file.flush() ? Status() : failed(fmt::format("{}/output: cannot write", folder.string()));
}

}  // namespace
}  // namespace wideep::model

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: moe_layer FOLDER TOP_K\n");
    return 2;
  }
  const wideep::Status status = wideep::model::run(argv[1], std::atoi(argv[2]));
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return status.exit_code();
}
