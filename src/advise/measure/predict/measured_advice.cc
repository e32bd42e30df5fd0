// SPDX-License-Identifier: Apache-2.0
//
// A layout is run with the placement that advise() writes for it, so what is measured is what a
// user would start. Factors are ratios of sums over cells, each divided by its own measured time:
// else long iterations would decide alone. They are bounded, since a part that is nearly 0 has a
// ratio without a meaning. Batches in pipeline stages overlap, and their iterations are no sums of
// parts: such layouts are left out.
#include "measure/predict/measured_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "advise/config_files.h"
#include "advise/neighbours.h"
#include "base/machine.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/yaml.h"

namespace wideep::measure {
namespace {

constexpr size_t kMaxLayouts = 5;
constexpr int kRounds = 3, kRepetitions = 1;
constexpr int kMaxBatch = 64;    // requests of a rank
constexpr int kMaxPrompt = 512;  // tokens
constexpr formats::NumberRange kFactor{.min = 0.25, .max = 4.0};

std::string needed(formats::YamlMap& map, std::string_view key) {
  std::string value = map.string_or(key, "");
  if (value.empty()) map.complain(key, "missing; expected a text");
  return value;
}

cost::PartFactors read_factors(formats::YamlMap map) {
  const cost::PartFactors factors{.experts = map.number("experts", kFactor),
                                  .dense = map.number("dense", kFactor),
                                  .exchange = map.number("exchange", kFactor)};
  map.refuse_unknown_keys();
  return factors;
}

std::string yaml_of(const cost::PartFactors& factors) {
  return fmt::format("{{experts: {:.4f}, dense: {:.4f}, exchange: {:.4f}}}", factors.experts,
                     factors.dense, factors.exchange);
}

cost::PartFactors factors_of(const std::vector<CheckedCell>& cells, bool is_prompt) {
  const auto factor = [&](double IterationParts::* part) {
    double predicted = 0.0, measured = 0.0;
    for (const CheckedCell& cell : cells) {
      if (cell.is_prompt != is_prompt) continue;
      predicted += cell.predicted_parts.*part / cell.measured;
      measured += cell.measured_parts.*part / cell.measured;
    }
    return predicted > 0.0 ? std::clamp(measured / predicted, kFactor.min, kFactor.max) : 1.0;
  };
  return {.experts = factor(&IterationParts::experts),
          .dense = factor(&IterationParts::dense),
          .exchange = factor(&IterationParts::exchange)};
}

// A layout as `wideep serve` would run it with what advise() writes.
Result<parallel::ParallelConfig> parallel_of(const advise::Question& question,
                                             const advise::Candidate& candidate) {
  const cost::Layout& layout = candidate.layout;
  WIDEEP_TRY_ASSIGN(const advise::ConfigFiles files,
                    advise::config_files(question, candidate, 0, "in memory"));
  parallel::ParallelConfig parallel;
  parallel.name = "the recommendation";
  parallel.sizes.tp = layout.tensor_ranks();
  parallel.sizes.cp = layout.context;
  parallel.sizes.pp = layout.stages;
  parallel.sizes.moe_tp = layout.expert_slices;
  parallel.sizes.moe_ep = layout.ep;
  parallel.enable_attention_dp = layout.attention_dp;
  if (layout.ep == 1) return parallel;
  std::map<int, std::vector<int64_t>> assignments;
  for (const auto& [layer, placement] : files.placement.layers) {
    assignments[layer].assign(placement.slot_to_expert.begin(), placement.slot_to_expert.end());
  }
  parallel.moe_config.load_balancer = {.num_slots = layout.num_slots,
                                       .initial_global_assignments = std::move(assignments)};
  if (layout.num_slots > question.planned.num_experts) {  // without replicas there are no shares
    parallel.moe_config.load_balancer->share_update = files.placement.share_update;
  }
  return parallel;
}

}  // namespace

std::string machine_text() {
  const base::Machine machine = base::read_machine();
  return fmt::format("{}, {} cores", machine.processor.empty() ? "unknown" : machine.processor,
                     machine.usable_cores());
}

std::string model_text(const model::ModelConfig& config) {
  return fmt::format("{} layers of {}, {} heads, {} experts of {}, top {}, vocabulary {}",
                     config.num_layers, config.hidden_size, config.num_heads,
                     config.routing.num_experts, config.moe_intermediate_size, config.routing.top_k,
                     config.vocab_size);
}

Result<AdviceCalibration> parse_advice_calibration(const std::string& text,
                                                   const std::string& name) {
  WIDEEP_TRY_ASSIGN(const formats::YamlDocument document, formats::YamlDocument::parse(text, name));
  formats::YamlMap root = document.root();
  AdviceCalibration calibration{.machine = needed(root, "machine"),
                                .model = needed(root, "model"),
                                .version = needed(root, "version"),
                                .date = needed(root, "date")};
  formats::YamlMap factors = root.map("factors");
  calibration.factors = {.generating = read_factors(factors.map("generating")),
                         .prompts = read_factors(factors.map("prompts"))};
  factors.refuse_unknown_keys();
  formats::YamlMap measured = root.map("measured");
  const formats::NumberRange seconds{.min = 1e-9, .max = 1e6};
  for (const std::string& key : measured.keys()) {
    formats::YamlMap cell = measured.map(key);
    calibration.measured.push_back({.name = key,
                                    .predicted = cell.number("predicted", seconds),
                                    .measured = cell.number("measured", seconds)});
    cell.refuse_unknown_keys();
  }
  root.refuse_unknown_keys();
  WIDEEP_TRY(document.status());
  return calibration;
}

Result<AdviceCalibration> read_advice_calibration(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  return parse_advice_calibration(text, path);
}

std::string advice_calibration_text(const AdviceCalibration& calibration) {
  std::string text = fmt::format(
      "# Written by `wideep advise --measure`, which later `advise` on this machine corrects its\n"
      "# predictions with. Seconds of an iteration are without these factors.\n"
      "machine: \"{}\"\nmodel: \"{}\"\nversion: \"{}\"\ndate: \"{}\"\n"
      "factors:\n  generating: {}\n  prompts: {}\nmeasured:\n",
      calibration.machine, calibration.model, calibration.version, calibration.date,
      yaml_of(calibration.factors.generating), yaml_of(calibration.factors.prompts));
  for (const MeasuredCell& cell : calibration.measured) {
    text += fmt::format("  \"{}\": {{predicted: {:.6g}, measured: {:.6g}}}\n", cell.name,
                        cell.predicted, cell.measured);
  }
  return text;
}

Status check_matches(const AdviceCalibration& calibration, const std::string& path,
                     const std::string& machine, const std::string& model) {
  const auto check = [&](const char* what, const std::string& found,
                         const std::string& expected) -> Status {
    if (found == expected) return {};
    return invalid_input(
        fmt::format("{}: is of another {}: expected '{}', found '{}'; measure here "
                    "with --measure",
                    path, what, expected, found));
  };
  WIDEEP_TRY(check("machine", calibration.machine, machine));
  return check("model", calibration.model, model);
}

std::string text_of(const cost::IterationFactors& factors) {
  const cost::PartFactors &generating = factors.generating, &prompts = factors.prompts;
  return fmt::format(
      "experts ×{:.2f}, dense ×{:.2f}, exchange ×{:.2f}; of prompts ×{:.2f}, ×{:.2f}, ×{:.2f}",
      generating.experts, generating.dense, generating.exchange, prompts.experts, prompts.dense,
      prompts.exchange);
}

cost::IterationFactors factors_of(const std::vector<CheckedCell>& cells) {
  return {.generating = factors_of(cells, false), .prompts = factors_of(cells, true)};
}

std::vector<advise::Candidate> to_measure(const advise::Advice& advice,
                                          const advise::Workload& workload, int num_experts) {
  std::vector<advise::Candidate> candidates = {*advice.best};
  for (const advise::Neighbour& neighbour : advise::neighbours_of(advice, workload, num_experts)) {
    // Batches in the stages of a pipeline overlap: their iterations are no sums of parts.
    if (neighbour.candidate.layout.stages > 1 || candidates.size() == kMaxLayouts) continue;
    candidates.push_back(neighbour.candidate);
  }
  return candidates;
}

Result<std::vector<CheckedCell>> measure_advice(const advise::Question& question,
                                                const std::vector<advise::Candidate>& candidates,
                                                run::RunView& view,
                                                std::vector<std::string>* left_out) {
  std::vector<LayoutCheck> checks;
  for (const advise::Candidate& candidate : candidates) {
    if (candidate.layout.stages > 1) {
      left_out->push_back(text_of(candidate.layout) + ": layouts with stages are not measured");
      continue;
    }
    WIDEEP_TRY_ASSIGN(auto parallel, parallel_of(question, candidate));
    CheckedLayout layout{.name = text_of(candidate.layout),
                         .config = question.config,
                         .format = candidate.layout.format,
                         .parallel = std::move(parallel),
                         .batches = {std::min(candidate.batch, kMaxBatch)},
                         .prompts = {std::min(question.workload.isl, kMaxPrompt)}};
    checks.emplace_back(std::move(layout));
  }
  Status last = failed("no layout can be measured here");
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < checks.size();) {
      Status status = checks[i].measure(kRepetitions, view);
      if (status.code() == StatusCode::kInterrupted) return status;
      if (status.ok()) {
        ++i;
        continue;
      }
      left_out->push_back(fmt::format("{}: {}", checks[i].name(), status.message()));
      checks.erase(checks.begin() + static_cast<ptrdiff_t>(i));
      last = status;
    }
  }
  std::vector<CheckedCell> cells;
  for (const LayoutCheck& check : checks) {
    for (CheckedCell& cell : check.judge(question.hardware)) cells.push_back(std::move(cell));
  }
  if (cells.empty()) return last;
  return cells;
}

}  // namespace wideep::measure
