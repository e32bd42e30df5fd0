// SPDX-License-Identifier: Apache-2.0
//
// wideep bench speculation: what drafts bring, over batch sizes and two turns of a conversation.
//
// Each cell is measured with and without drafts in turn (measure/speculation_run.h) and printed
// when it is known, since all of them take long. The page has the same table for browsers without
// scripts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "commands.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "formats/page.h"
#include "held_out_prompts.h"
#include "measure/model/speculation_run.h"
#include "output_file.h"
#include "prompts_file.h"
#include "run_options.h"
#include "speculation_page.h"

namespace wideep::tools {
namespace {

using measure::SpeculationCell;
using nlohmann::ordered_json;
using parallel::SpeculativeConfig;

struct Options {
  measure::SpeculationPlan plan;
  RankRunOptions ranks;
  std::string prompts_file;
  std::vector<std::string> drafters = {"auto", "NGram", "SA"};
  int max_draft_len = 5;
  int max_matching_ngram_size = 3;
  std::string html;
  bool json = false;
};

measure::DraftedBy drafter_of(const Options& options, const std::string& name) {
  SpeculativeConfig config{.type = SpeculativeConfig::Type::kNgram,
                           .max_draft_len = options.max_draft_len,
                           .max_matching_ngram_size = options.max_matching_ngram_size};
  if (name == "SA") config.type = SpeculativeConfig::Type::kSuffix;
  if (name.starts_with("MTP")) config.type = SpeculativeConfig::Type::kMtp;
  if (name == "MTP+SA") config.sa_spec_threshold = 4;
  if (name == "auto") config = {.type = SpeculativeConfig::Type::kAuto, .max_draft_len = 8};
  return {name, config};
}

Result<measure::SpeculationPlan> plan_of(const Options& options) {
  measure::SpeculationPlan plan = options.plan;
  WIDEEP_TRY(
      refuse_recording(options.ranks.record, "bench speculation", "it runs once for each drafter"));
  WIDEEP_TRY(apply_rank_run_options(options.ranks, true, &plan.run));
  if (plan.run.parallel.speculative_config) {
    return invalid_input(fmt::format(
        "{}: speculative_config: has no effect here; choose with --drafters, --max-draft-len and "
        "--max-matching-ngram-size",
        plan.run.parallel.name));
  }
  plan.prompts = held_out_prompts();
  if (!options.prompts_file.empty()) {
    WIDEEP_TRY_ASSIGN(plan.prompts, read_prompts(options.prompts_file));
  }
  for (const std::string& name : options.drafters) {
    plan.drafters.push_back(drafter_of(options, name));
  }
  const int max = *std::ranges::max_element(plan.batches);
  if (!plan.run.parallel.max_batch_size) plan.run.parallel.max_batch_size = max;
  return plan;
}

std::string line_of(const SpeculationCell& cell) {
  const run::SpeculationTotals& totals = cell.last.totals;
  const auto [min, max] = std::ranges::minmax(cell.ratios);
  return fmt::format(
      "{:4} {:6} {:>7} {:11.1f} {:11.1f} {:8.2f} ({:.2f} to {:.2f}) {:9.2f} {:9.2f}\n", cell.turn,
      cell.batch, cell.drafter, cell.without, cell.with, cell.ratio(), min, max,
      totals.acceptance_rate(), totals.acceptance_length());
}

ordered_json json_of(const SpeculationCell& cell) {
  ordered_json steps = ordered_json::array();
  for (const auto& step : cell.last.steps) steps.push_back({step.requests, step.tokens});
  const run::SpeculationTotals& totals = cell.last.totals;
  return {{"turn", cell.turn},
          {"batch", cell.batch},
          {"drafter", cell.drafter},
          {"tokens_per_second_without", cell.without},
          {"tokens_per_second", cell.with},
          {"ratio", cell.ratio()},
          {"ratios", cell.ratios},
          {"num_draft_tokens", totals.drafted},
          {"num_accepted_draft_tokens", totals.accepted},
          {"draft_acceptance_rate", totals.acceptance_rate()},
          {"acceptance_length", totals.acceptance_length()},
          {"accepted_histogram", cell.last.accepted},
          {"expected_tokens", totals.expected_tokens},
          {"expected_seconds", totals.expected_seconds},
          {"tokens", totals.tokens},
          {"seconds", totals.seconds},
          {"steps", std::move(steps)}};
}

Status run(const Options& options) {
  WIDEEP_TRY_ASSIGN(const measure::SpeculationPlan plan, plan_of(options));
  if (!options.html.empty()) WIDEEP_TRY(check_output_file(options.html, "--html"));
  ordered_json json = {{"model", plan.run.model_dir},
                       {"ranks", plan.run.parallel.mapping().world_size()},
                       {"max_tokens", plan.max_tokens},
                       {"rounds", plan.rounds},
                       {"cells", ordered_json::array()}};
  std::string table =
      "turn  batch drafter  without t/s    with t/s    ratio (of rounds)  accepted  tokens of a "
      "step\n";
  if (!options.json) fmt::print("{}", table);
  WIDEEP_TRY(measure::measure_speculation(plan, [&](const SpeculationCell& cell) {
    json["cells"].push_back(json_of(cell));
    const std::string line = line_of(cell);
    table += line;
    if (!options.json) fmt::print("{}", line);
    std::fflush(stdout);
  }));
  if (options.json) fmt::print("{}\n", formats::json_text(json, 2));
  if (options.html.empty()) return {};
  const std::string page = formats::fill_marks(
      speculation_page(),
      {{"DATA", formats::script_json(json)}, {"SUMMARY", formats::escape_html(table)}});
  return formats::write_file(options.html, page);
}

}  // namespace

void add_bench_speculation_command(command_line::Command bench, Status* status) {
  const command_line::Command command =
      bench.add_command("speculation", "Measure what drafts bring, without and with them in turn");
  auto options = std::make_shared<Options>();
  options->plan.batches = {1, 4, 8, 32};
  command
      .add_option("--model", options->plan.run.model_dir,
                  "Model directory (Hugging Face layout), or a GGUF file")
      .model()
      .required();
  add_rank_run_options(command, &options->ranks);
  command
      .add_option("--prompts", options->prompts_file,
                  "JSONL file with a \"prompt\" per line; empty: sentences of a text in wideep")
      .path();
  command
      .add_option(
          "--drafters", options->drafters,
          "Ways to draft: auto, NGram, SA, MTP (the model's prediction layer), MTP+SA (with "
          "use_sa_spec)")
      .separate_values_by(',')
      .one_of({"auto", "NGram", "SA", "MTP", "MTP+SA"})
      .show_default();
  command.add_option("--max-draft-len", options->max_draft_len, "Drafts of NGram, SA and MTP")
      .range(1, 64)
      .show_default();
  command
      .add_option("--max-matching-ngram-size", options->max_matching_ngram_size,
                  "Tokens of a pattern of NGram")
      .range(1, 64)
      .show_default();
  command.add_option("--batch", options->plan.batches, "Requests at the same time: A,B,C")
      .separate_values_by(',')
      .range(1, 4096)
      .show_default();
  command.add_option("--max-tokens", options->plan.max_tokens, "Tokens of an answer")
      .range(2, 1 << 20)
      .show_default();
  command.add_option("--rounds", options->plan.rounds, "Runs of each, in turn")
      .range(1, 1000)
      .show_default();
  command.add_option("--html", options->html, "File for a page with pictures").path();
  command.add_flag("--json", options->json, "Only JSON on stdout");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
