// SPDX-License-Identifier: Apache-2.0
//
// Steps of the calibration are spread evenly between the layouts, and every second round goes
// backwards: a machine that changes slowly does so for what is fitted and for what is judged. A
// goal is missed only beyond the noise that was measured beside it, and disturbed cells are left
// out: a build on a machine that nobody has seen must not fail by luck
// (docs/decisions/0044-costs-for-an-advisor.md).
#include "measure/predict/prediction_check.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/try.h"

namespace wideep::measure {
namespace {

using kernels::WeightFormat;

struct Family {
  const char* name;
  const char* config;
  int replicated_slots;  // at EP 4
};
constexpr Family kFamilies[] = {
    {"qwen3_moe", R"({"model_type": "qwen3_moe", "vocab_size": 16384, "hidden_size": 768,
      "num_hidden_layers": 6, "num_attention_heads": 12, "num_key_value_heads": 4,
      "head_dim": 64, "intermediate_size": 1536, "moe_intermediate_size": 384,
      "num_experts": 32, "num_experts_per_tok": 4, "norm_topk_prob": true,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
      "tie_word_embeddings": false, "decoder_sparse_step": 1, "mlp_only_layers": []})",
     40},
    {"deepseek_v3", R"({"model_type": "deepseek_v3", "vocab_size": 16384, "hidden_size": 512,
      "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 8,
      "q_lora_rank": 256, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
      "v_head_dim": 64, "intermediate_size": 1024, "moe_intermediate_size": 256,
      "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 1, "n_group": 1,
      "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": true,
      "routed_scaling_factor": 1.0, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "moe_layer_freq": 1, "hidden_act": "silu"})",
     72},
    {"gpt_oss", R"({"model_type": "gpt_oss", "vocab_size": 16384, "hidden_size": 640,
      "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
      "head_dim": 64, "num_local_experts": 16, "num_experts_per_tok": 4,
      "intermediate_size": 640, "hidden_act": "silu", "attention_bias": true,
      "swiglu_limit": 7.0, "sliding_window": 128,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
      "full_attention"], "rms_norm_eps": 1e-5, "rope_theta": 150000,
      "max_position_embeddings": 4096, "tie_word_embeddings": false})",
     20}};
constexpr WeightFormat kFormats[] = {WeightFormat::kBf16, WeightFormat::kInt8};

}  // namespace

Result<std::vector<CheckedLayout>> checked_grid() {
  std::vector<CheckedLayout> layouts;
  for (const Family& family : kFamilies) {
    WIDEEP_TRY_ASSIGN(const model::ModelConfig config,
                      model::parse_model_config(family.config, family.name));
    for (const WeightFormat format : kFormats) {
      for (const int ranks : {1, 2, 4, 8}) {
        WIDEEP_TRY_ASSIGN(auto parallel, parallel::parallel_config_for_ranks(ranks));
        // more: of its name
        const auto add = [&](parallel::ParallelConfig settings,
                             std::string_view more) -> CheckedLayout& {
          return layouts.emplace_back(
              CheckedLayout{.name = fmt::format("{} {} EP {}{}", family.name,
                                                kernels::weight_format_name(format), ranks, more),
                            .config = config,
                            .format = format,
                            .parallel = std::move(settings),
                            .batches = {1, 8},
                            .prompts = {256}});
        };
        add(parallel, "");
        if (ranks == 1 && format == WeightFormat::kBf16) {
          // The tokens of a long prompt are dealt to two ranks.
          auto context = parallel;
          context.sizes.cp = 2;
          CheckedLayout& added = add(std::move(context), ", CP 2");
          added.batches = {};
          added.prompts = {512};
        }
        if (ranks != 4) continue;
        const bool online = format == WeightFormat::kInt8;
        parallel.moe_config.load_balancer = {.num_slots = family.replicated_slots,
                                             .layer_updates_per_iter = online ? 1 : 0};
        CheckedLayout& added = add(
            std::move(parallel),
            fmt::format(", {} slots {}", family.replicated_slots, online ? "online" : "static"));
        added.prompts = {};
      }
    }
  }
  return layouts;
}

PredictionCheck::PredictionCheck(std::vector<CheckedLayout> layouts)
    : calibrator_({.formats = {std::begin(kFormats), std::end(kFormats)}}) {
  for (CheckedLayout& layout : layouts) layouts_.emplace_back(std::move(layout));
}

// Backwards in every second round, so that a slow change of the machine touches all alike.
Status PredictionCheck::measure_round(run::RunView& view) {
  const bool backwards = rounds_++ % 2 == 1;
  const int steps = calibrator_.num_steps(), layouts = static_cast<int>(layouts_.size());
  const auto place = [&](int i, int count) { return backwards ? count - 1 - i : i; };
  int step = 0;
  for (int layout = 0; layout < layouts; ++layout) {
    for (; step < steps && step * layouts < (layout + 1) * steps; ++step) {
      WIDEEP_TRY(calibrator_.measure_step(place(step, steps)));
    }
    WIDEEP_TRY(layouts_[static_cast<size_t>(place(layout, layouts))].measure(1, view));
  }
  return {};
}

std::vector<CheckedCell> PredictionCheck::judge(const cost::Hardware& hardware) const {
  std::vector<CheckedCell> cells;
  for (const LayoutCheck& layout : layouts_) {
    for (CheckedCell& cell : layout.judge(hardware)) cells.push_back(std::move(cell));
  }
  return cells;
}

std::vector<CheckedCell> undisturbed(const std::vector<CheckedCell>& cells) {
  std::vector<CheckedCell> found;
  for (const CheckedCell& cell : cells) {
    if (!cell.is_disturbed()) found.push_back(cell);
  }
  return found;
}

std::vector<std::string> missed(const std::vector<CheckedCell>& all, const PredictionGoals& goals) {
  const std::vector<CheckedCell> cells = undisturbed(all);
  std::vector<std::string> lines;
  if (cells.empty()) return lines;
  for (const CheckedCell& cell : cells) {
    if (std::abs(cell.error()) <= goals.worst + cell.noise) continue;
    lines.push_back(
        fmt::format("{}: beyond {:.0f} % and its noise", text_of(cell), 100.0 * goals.worst));
  }
  const CheckedSummary summary = summarize(cells);
  if (summary.median > goals.median + summary.noise) {
    lines.push_back(fmt::format("median error {:.1f} %: beyond {:.0f} % and the noise of {:.1f} %",
                                100.0 * summary.median, 100.0 * goals.median,
                                100.0 * summary.noise));
  }
  if (summary.kendall < goals.kendall) {
    lines.push_back(fmt::format("Kendall's tau {:.3f}: below {}", summary.kendall, goals.kendall));
  }
  return lines;
}

std::string text_of(const CheckedCell& cell) {
  const IterationParts& predicted = cell.predicted_parts;
  const IterationParts& measured = cell.measured_parts;
  return fmt::format(
      "{:38} {:8.3f} ms predicted {:8.3f} measured {:+6.1f} % noise {:4.1f} %  experts {:.3f} / "
      "{:.3f}, dense {:.3f} / {:.3f}, rest {:.3f} / {:.3f}",
      cell.name, cell.predicted * 1e3, cell.measured * 1e3, 100 * cell.error(), 100 * cell.noise,
      predicted.experts * 1e3, measured.experts * 1e3, predicted.dense * 1e3, measured.dense * 1e3,
      predicted.exchange * 1e3, measured.exchange * 1e3);
}

std::string text_of(const CheckedSummary& summary, size_t cells) {
  return fmt::format(
      "{} cells: median error {:.1f} %, worst {:.1f} %, noise {:.1f} %, Kendall's tau {:.3f}",
      cells, 100 * summary.median, 100 * summary.worst, 100 * summary.noise, summary.kendall);
}

}  // namespace wideep::measure
