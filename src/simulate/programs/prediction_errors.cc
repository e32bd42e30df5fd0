// SPDX-License-Identifier: Apache-2.0
//
// prediction_errors [hardware.yaml]: calibrates this machine, or reads its description, and holds
// predicted iterations against measured ones.
#include <fmt/format.h>

#include <cstdlib>

#include "simulate/calibrate.h"
#include "simulate/check_cells.h"

using namespace wideep;            // NOLINT(google-build-using-namespace): a program
using namespace wideep::simulate;  // NOLINT(google-build-using-namespace)

template <typename T>
T or_exit(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "error: {}\n", result.status().message());
  std::exit(2);
}

int main(int argc, char** argv) {
  using kernels::WeightFormat;
  CalibrationView view;
  const Hardware hardware =
      argc > 1 ? or_exit(read_hardware(argv[1]))
               : or_exit(calibrate({.formats = {WeightFormat::kBf16, WeightFormat::kInt8}}, view))
                     .hardware;
  const std::pair<const char*, const char*> models[] = {
      {"qwen3_moe", R"({"model_type": "qwen3_moe", "vocab_size": 16384, "hidden_size": 768,
        "num_hidden_layers": 6, "num_attention_heads": 12, "num_key_value_heads": 4,
        "head_dim": 64, "intermediate_size": 1536, "moe_intermediate_size": 384,
        "num_experts": 32, "num_experts_per_tok": 4, "norm_topk_prob": true,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "tie_word_embeddings": false, "decoder_sparse_step": 1, "mlp_only_layers": []})"},
      {"deepseek_v3", R"({"model_type": "deepseek_v3", "vocab_size": 16384, "hidden_size": 512,
        "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 8,
        "q_lora_rank": 256, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
        "v_head_dim": 64, "intermediate_size": 1024, "moe_intermediate_size": 256,
        "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 1, "n_group": 1,
        "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": true,
        "routed_scaling_factor": 1.0, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "moe_layer_freq": 1, "hidden_act": "silu"})"},
      {"gpt_oss", R"({"model_type": "gpt_oss", "vocab_size": 16384, "hidden_size": 640,
        "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 64, "num_local_experts": 16, "num_experts_per_tok": 4,
        "intermediate_size": 640, "hidden_act": "silu", "attention_bias": true,
        "swiglu_limit": 7.0, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
        "full_attention"], "rms_norm_eps": 1e-5, "rope_theta": 150000,
        "max_position_embeddings": 4096, "tie_word_embeddings": false})"}};
  std::vector<CheckedCell> cells;
  for (const auto& [name, text] : models) {
    for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8}) {
      for (const int ranks : {1, 2, 4, 8}) {
        CheckedLayout layout{
            .name = fmt::format("{} {} EP {}", name, kernels::weight_format_name(format), ranks),
            .config = or_exit(model::parse_model_config(text, name)),
            .format = format,
            .parallel = or_exit(parallel::parallel_config_for_ranks(ranks)),
            .batches = {1, 8},
            .prompts = {256}};
        for (const CheckedCell& cell : or_exit(check_layout(hardware, layout, view))) {
          fmt::print("{:40} {:9.3f} ms predicted {:9.3f} measured {:+6.1f} % noise {:4.1f} %\n",
                     cell.name, cell.predicted * 1e3, cell.measured * 1e3, 100 * cell.error(),
                     100 * cell.noise);
          cells.push_back(cell);
        }
      }
    }
  }
  const CheckedSummary summary = summarize(cells);
  fmt::print("{} cells: median error {:.1f} %, worst {:.1f} %, noise {:.1f} %, Kendall {:.3f}\n",
             cells.size(), 100 * summary.median, 100 * summary.worst, 100 * summary.noise,
             summary.kendall);
}
