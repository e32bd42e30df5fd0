// SPDX-License-Identifier: Apache-2.0
//
// wideep bench accuracy: lm_eval's figures of a model, and whether its log-probabilities are the
// same to the last bit in every layout.
//
// Each layout is a server of its own, one after the other, which lm_eval's client asks the same.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "accuracy_client.h"
#include "base/log.h"
#include "base/scratch_directory.h"
#include "base/try.h"
#include "commands.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "measure/accuracy/lm_eval_client.h"
#include "measure/predict/served_model.h"
#include "model/config/config.h"

namespace wideep::tools {
namespace {

using measure::NamedEvaluation;
using nlohmann::ordered_json;

struct Options {
  std::string model;
  std::vector<std::string> layouts;
  std::string serve_options;
  measure::LmEvalOptions lm_eval{.batch_size = 8};
  bool json = false;
};

struct Layout {
  std::string name;
  std::vector<std::string> arguments;  // of wideep serve
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string default_environment() {
  if (const char* given = std::getenv("WIDEEP_LM_EVAL"); given != nullptr) return given;
  const char* home = std::getenv("HOME");
  return fmt::format("{}/.local/share/wideep/lm_eval", home == nullptr ? "" : home);
}

// One rank, and two: of a dense model each with requests of its own, else the online balancer moves
// experts between them, with two slots more than experts need.
Result<std::vector<Layout>> default_layouts(const std::string& model, const std::string& yaml) {
  const Result<model::ModelConfig> config = model::read_model_config(model);
  if (!config.ok()) {
    return invalid_input(fmt::format(
        "--layout: the balancer's layout needs the model's number of experts ({}); give layouts, "
        "say --layout \"--ranks 1\" --layout \"--ranks 2\"",
        config.status().message()));
  }
  if (!config->has_experts()) {
    return std::vector<Layout>{{"--ranks 1", {"--ranks", "1"}}, {"--ranks 2", {"--ranks", "2"}}};
  }
  const int experts = config->routing.num_experts, slots = experts + experts % 2 + 2;
  WIDEEP_TRY(
      formats::write_file(yaml, fmt::format("num_slots: {}\nlayer_updates_per_iter: 2\n", slots)));
  return std::vector<Layout>{{"--ranks 1", {"--ranks", "1"}},
                             {fmt::format("--ranks 2 with the online balancer ({} slots)", slots),
                              {"--ranks", "2", "--load-balancer", yaml}}};
}

Result<std::vector<Layout>> layouts_of(const Options& options, const std::string& yaml) {
  if (options.layouts.empty()) return default_layouts(options.model, yaml);
  if (options.layouts.size() == 1) {
    return invalid_input(fmt::format(
        "--layout: expected two or more, whose log-probabilities are compared, found one (\"{}\")",
        options.layouts[0]));
  }
  std::vector<Layout> layouts;
  for (const std::string& text : options.layouts) layouts.push_back({text, words_of(text)});
  return layouts;
}

Result<measure::Evaluation> evaluate(const Options& options, const Layout& layout) {
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return failed(fmt::format("/proc/self/exe: {}", error.message()));
  std::vector<std::string> arguments = {"--model", options.model};
  for (const auto& more : {words_of(options.serve_options), layout.arguments}) {
    arguments.insert(arguments.end(), more.begin(), more.end());
  }
  const auto served = measure::ServedModel::start(self, arguments);
  if (!served.ok()) return served.status().at(layout.name);
  Result<measure::Evaluation> evaluation =
      measure::run_lm_eval(options.lm_eval, (*served)->address(), measure::ServedModel::kName);
  if (!evaluation.ok()) return evaluation.status().at(layout.name);
  if (evaluation->requests.empty()) {
    return failed(layout.name + ": lm_eval has asked nothing; give tasks with examples");
  }
  return evaluation;
}

std::string text_of(const std::vector<NamedEvaluation>& all) {
  const measure::Evaluation& first = all[0].evaluation;
  std::string text =
      fmt::format("lm_eval {}, local-completions\n\n{}\n", first.version, first.table);
  for (const NamedEvaluation& each : all) text += fmt::format("layout    {}\n", each.layout);
  const int64_t logprobs = first.num_logprobs();
  return text +
         fmt::format("same bits {} requests, {} with {} layouts\n", first.requests.size(),
                     logprobs > 0
                         ? fmt::format("{} log-probabilities: equal to the last bit", logprobs)
                         : "no log-probabilities: equal texts",
                     all.size());
}

ordered_json json_of(const std::vector<NamedEvaluation>& all) {
  const measure::Evaluation& first = all[0].evaluation;
  ordered_json json = {{"lm_eval", first.version}, {"results", first.results}};
  for (const NamedEvaluation& each : all) json["layouts"].push_back(each.layout);
  json["requests"] = first.requests.size();
  json["log_probabilities"] = first.num_logprobs();
  json["same_bits"] = true;
  return json;
}

Status run(const Options& options) {
  WIDEEP_TRY(measure::check_lm_eval(options.lm_eval));
  const base::ScratchDirectory files;
  WIDEEP_TRY_ASSIGN(const std::vector<Layout> layouts,
                    layouts_of(options, files.file("balancer.yaml")));
  std::vector<NamedEvaluation> all;
  for (const Layout& layout : layouts) {
    log::info("layout {} of {}: {}", all.size() + 1, layouts.size(), layout.name);
    WIDEEP_TRY_ASSIGN(measure::Evaluation evaluation, evaluate(options, layout));
    all.push_back({layout.name, std::move(evaluation)});
    if (all.size() > 1) WIDEEP_TRY(measure::check_same_bits(all[0], all.back()));
  }
  const std::string text = options.json ? formats::json_text(json_of(all), 2) + "\n" : text_of(all);
  std::fputs(text.c_str(), stdout);
  return {};
}

void add_options(command_line::Command command, Options& options) {
  measure::LmEvalOptions& lm_eval = options.lm_eval;
  command.add_option("--model", options.model, "Model directory").model().required();
  command.add_option("--tasks", lm_eval.tasks, "Tasks of lm_eval, or of --include-path: A,B,C")
      .separate_values_by(',')
      .required();
  command
      .add_option("--include-path", lm_eval.include_path,
                  "Folder with further tasks; lm_eval runs there")
      .path();
  command.add_option("--limit", lm_eval.limit, "Examples of each task (default: all)")
      .range(1, 1 << 30);
  command.add_option("--batch-size", lm_eval.batch_size, "Prompts in a request")
      .range(1, 1024)
      .show_default();
  command
      .add_option(
          "--layout", options.layouts,
          "Options of a server, \"--ranks 4 --load-balancer FILE\"; repeat it, since all "
          "are compared with the first (default: one rank; two, with the online balancer if "
          "there are experts)")
      .one_value_each();
  command.add_option("--serve-options", options.serve_options,
                     "Options of every server, such as \"--random-weights\"");
  command
      .add_option("--lm-eval", lm_eval.environment,
                  "Environment that scripts/install_lm_eval.sh has made (also WIDEEP_LM_EVAL)")
      .show_default();
  command.add_flag("--json", options.json, "Only JSON on stdout");
}

}  // namespace

void add_bench_accuracy_command(command_line::Command bench, Status* status) {
  const command_line::Command command =
      bench.add_command("accuracy",
                        "Evaluate a model with lm_eval, and compare the log-probabilities of "
                        "layouts to the last bit");
  auto options = std::make_shared<Options>();
  options->lm_eval.environment = default_environment();
  options->lm_eval.client = accuracy_client();
  add_options(command, *options);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
