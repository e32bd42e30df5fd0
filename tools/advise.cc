// SPDX-License-Identifier: Apache-2.0
//
// wideep advise: which layout, how many slots, which machine, with what is predicted of them.
//
// Order: inputs → the kept calibration, if any → whether memory holds the model at all (else what
// reading its experts makes of it, and the end) → all layouts weighed, and servers of two kinds, if
// asked → simulated, if asked → printed, and the page → files of the servers → measured, if asked →
// files of the recommendation. Options that exclude each other and files that cannot be written are
// found before anything is computed, because a search, and more so a measurement, takes long.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "advise/advise.h"
#include "advise/beyond_memory.h"
#include "advise/config_files.h"
#include "advise/disaggregation.h"
#include "advise/range.h"
#include "advise/update_rate.h"
#include "advise_beyond_memory.h"
#include "advise_disaggregated.h"
#include "advise_html.h"
#include "advise_measure.h"
#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "dataset_reuse.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "model_hit_rates.h"
#include "output_file.h"
#include "precision_option.h"
#include "recordings/balancer_yaml.h"
#include "simulate_inputs.h"

namespace wideep::tools {
namespace {

using advise::Candidate;

struct AdviseOptions {
  std::string model;
  std::string hardware;
  StatisticsOptions statistics;
  std::string holdout;
  advise::Workload workload;
  advise::Choices choices;
  std::optional<double> ttft_ms, tpot_ms;
  PrecisionOption precision;
  std::string output, html, dataset;
  int simulated = 0;              // requests
  std::optional<int> drafts_max;  // of a request; default: 5
  MeasureOptions measure;
  bool disaggregated = false;
  bool json = false;
};

std::string row(const Candidate& each) {
  return fmt::format("{:9.1f} {:9.1f} {:8.1f} {:8.0f} {:8} {:6} {:6.3f}  {}\n",
                     each.tokens_per_rank, each.tokens_per_user, each.tpot * 1e3, each.ttft * 1e3,
                     each.requests(), each.layout.num_ranks(), each.imbalance,
                     text_of(each.layout));
}

constexpr const char* kHeading =
    " tokens/s  tokens/s     TPOT     TTFT requests  ranks  imba-\n"
    "   a rank    a user       ms       ms                  lance  layout\n";

void print_parts(const Candidate& best) {
  const cost::StepTime& step = best.step;
  const bool is_dense = best.layout.num_slots == 0;
  fmt::print(
      "iteration    {:.2f} ms without prompts: attention {:.2f}, dense {:.2f}, {}all-reduces "
      "{:.2f}, "
      "fixed {:.2f}\n",
      step.seconds() * 1e3, step.attention * 1e3, step.dense * 1e3,
      is_dense ? ""
               : fmt::format("experts {:.2f}, dispatch {:.2f}, combine {:.2f}, ",
                             step.experts * 1e3, step.dispatch * 1e3, step.combine * 1e3),
      step.joint * 1e3, step.fixed * 1e3);
}

// The layouts of which none is better in both, and the recommendation.
std::string table_of(const advise::Advice& advice) {
  std::string table = kHeading;
  for (const Candidate& each : advice.pareto) table += row(each);
  if (advice.best) table += fmt::format("\nrecommended\n{}{}", kHeading, row(*advice.best));
  return table;
}

void print_advice(const cost::Hardware& hardware, const advise::Advice& advice,
                  const Loads& loads) {
  fmt::print("hardware     {} ({})\n", hardware.name, hardware.device);
  if (!loads.planned.layers.empty()) fmt::print("imbalance    {}\n", loads.text);
  fmt::print("weighed      {} layouts, {} of them without room for a request\n", advice.num_layouts,
             advice.num_too_large);
  if (!advice.outside.empty()) {
    fmt::print("outside      {}\n", advise::cannot_tell(hardware, advice.outside));
  }
  fmt::print("\n");
  fmt::print("{}", table_of(advice));
  if (!advice.best) return;
  const Candidate& best = *advice.best;
  fmt::print("predicted within about {:.0f} % (docs/advisor.md)\n", 100.0 * best.error);
  print_parts(best);
  fmt::print("memory       {:.1f} GB of {:.0f} GB of a rank\n", best.memory / 1e9,
             hardware.memory_bytes / 1e9);
  for (const std::string& reason : advice.reasons) fmt::print("because      {}\n", reason);
}

std::string quantiles(const base::Percentiles& seconds) {
  return fmt::format("median {:.1f} ms, p90 {:.1f}, p99 {:.1f}", seconds.median * 1e3,
                     seconds.p90 * 1e3, seconds.p99 * 1e3);
}

// What moves beside an iteration's own tokens: requests and, on average, their prompts.
Result<advise::UpdateRates> update_rates(const AdviseOptions& options,
                                         const cost::Hardware& hardware,
                                         const model::ModelConfig& config, const Loads& loads,
                                         const Candidate& best) {
  if (loads.windows.load.empty()) {
    return advise::UpdateRates{.reason =
                                   "updates 0 (static): without --stats nothing is known "
                                   "of how the load changes"};
  }
  const cost::Layout& layout = best.layout;
  const double prompts =
      best.tokens_of_step * options.workload.isl / static_cast<double>(options.workload.osl);
  const double requests = best.requests() / layout.context / layout.stages;
  const double free = hardware.memory_bytes * options.choices.memory_share - best.memory;
  return advise::weigh_update_rates(hardware, config, loads.planned, loads.windows,
                                    {.layout = layout,
                                     .tokens = requests * (1 + layout.drafts + prompts),
                                     .iteration_seconds = best.tpot * best.tokens_of_step,
                                     .spare_bytes = free});
}

void print_rates(const advise::UpdateRates& updates) {
  if (updates.rates.empty()) return;
  fmt::print(
      "\nlayers of an  imba-  experts       moved of    link  longer   load is old\n"
      "iteration     lance       ms  an iteration    busy    by ms    iterations\n");
  for (const advise::UpdateRate& each : updates.rates) {
    fmt::print("{:9}  {:9.3f} {:8.3f} {:13.3f} {:6.1f}% {:8.4f} {:13.1f}\n", each.rate,
               each.imbalance, each.experts * 1e3, each.moves, 100.0 * each.link_share,
               each.copying * 1e3, each.age);
  }
}

nlohmann::ordered_json json_of(const advise::UpdateRate& each) {
  return {{"layer_updates_per_iter", each.rate}, {"imbalance", each.imbalance},
          {"experts_ms", each.experts * 1e3},    {"moves_per_iteration", each.moves},
          {"bytes_per_iteration", each.bytes},   {"link_share", each.link_share},
          {"copying_ms", each.copying * 1e3},    {"age_iterations", each.age},
          {"spare_bytes", each.spare_bytes}};
}

void print_served(const advise::SimulatedServing& served, int requests, int ranks) {
  fmt::print("\nsimulated    {} requests, {} iterations, {:.1f} s: {:.1f} tokens/s of a rank\n",
             requests, served.iterations, served.seconds, served.output_tokens_per_second / ranks);
  fmt::print("  TTFT       {}\n", quantiles(served.ttft));
  fmt::print("  TPOT       {}\n", quantiles(served.tpot));
  fmt::print("  all        {}\n", quantiles(served.end_to_end));
}

nlohmann::ordered_json json_of(const base::Percentiles& seconds) {
  return {{"median", seconds.median * 1e3}, {"p90", seconds.p90 * 1e3}, {"p99", seconds.p99 * 1e3}};
}

nlohmann::ordered_json json_of(const advise::SimulatedServing& served, int requests, int ranks) {
  return {{"requests", requests},
          {"iterations", served.iterations},
          {"seconds", served.seconds},
          {"output_tokens_per_second_per_rank", served.output_tokens_per_second / ranks},
          {"ttft_ms", json_of(served.ttft)},
          {"tpot_ms", json_of(served.tpot)},
          {"end_to_end_ms", json_of(served.end_to_end)}};
}

nlohmann::ordered_json json_of(const Candidate& each) {
  const cost::Layout& layout = each.layout;
  return {{"ranks", layout.num_ranks()},
          {"ep", layout.ep},
          {"moe_tp", layout.expert_slices},
          {"pp", layout.stages},
          {"cp", layout.context},
          {"attention_dp", layout.attention_dp},
          {"num_slots", layout.num_slots},
          {"dtype", kernels::weight_format_name(layout.format)},
          {"drafts", layout.drafts},
          {"requests", each.requests()},
          {"tokens_per_second_per_rank", each.tokens_per_rank},
          {"tokens_per_second_per_user", each.tokens_per_user},
          {"tpot_ms", each.tpot * 1e3},
          {"ttft_ms", each.ttft * 1e3},
          {"imbalance", each.imbalance},
          {"memory_bytes", each.memory},
          {"relative_error", each.error}};
}

nlohmann::ordered_json json_of(const cost::PartFactors& factors) {
  return {{"experts", factors.experts}, {"dense", factors.dense}, {"exchange", factors.exchange}};
}

nlohmann::ordered_json json_of(const std::vector<advise::ReuseRow>& rows) {
  auto json = nlohmann::ordered_json::array();
  for (const advise::ReuseRow& row : rows) {
    json.push_back({{"bytes", row.bytes}, {"share", row.share}, {"seconds_saved", row.seconds}});
  }
  return json;
}

// What is known beside the layouts; null: it was not asked for.
struct More {
  nlohmann::ordered_json simulated, prompt_cache, disaggregated;
};

void print_json(const cost::Hardware& hardware, const advise::Advice& advice, const Loads& loads,
                const advise::UpdateRates& updates, More more) {
  nlohmann::ordered_json json = {
      {"hardware", hardware.name},     {"statistics", loads.text},
      {"layouts", advice.num_layouts}, {"pareto", nlohmann::ordered_json::array()},
      {"recommended", nullptr},        {"nearest", advice.nearest},
      {"reasons", advice.reasons}};
  if (!advice.outside.empty()) json["outside"] = advice.outside;
  if (hardware.factors != cost::IterationFactors{}) {
    json["factors"] = {{"generating", json_of(hardware.factors.generating)},
                       {"prompts", json_of(hardware.factors.prompts)}};
  }
  for (const Candidate& each : advice.pareto) json["pareto"].push_back(json_of(each));
  if (advice.best) {
    json["recommended"] = json_of(*advice.best);
    json["recommended"]["layer_updates_per_iter"] = updates.best;
  }
  json["update_rates"] = nlohmann::ordered_json::array();
  for (const advise::UpdateRate& each : updates.rates) {
    json["update_rates"].push_back(json_of(each));
  }
  if (!more.simulated.is_null()) json["simulated"] = std::move(more.simulated);
  if (!more.prompt_cache.is_null()) json["prompt_cache"] = std::move(more.prompt_cache);
  if (!more.disaggregated.is_null()) json["disaggregated"] = std::move(more.disaggregated);
  fmt::print("{}\n", formats::json_text(json, 2));
}

// parallel_config.yaml and, of a model with experts, moe_load_balancer.yaml in the directory
// --output.
Status write_files(const AdviseOptions& options, const advise::Question& question,
                   const Candidate& best, int layer_updates) {
  const std::string balancer = options.output + "/moe_load_balancer.yaml";
  const std::string parallel = options.output + "/parallel_config.yaml";
  WIDEEP_TRY_ASSIGN(const advise::ConfigFiles files,
                    advise::config_files(question, best, layer_updates, balancer));
  const bool has_experts = question.config.has_experts();
  if (has_experts) WIDEEP_TRY(recordings::write_balancer_yaml(balancer, files.placement));
  WIDEEP_TRY(formats::write_file(parallel, files.parallel));
  log::info("wrote {}{}; wideep serve --config {} --dtype {}", parallel,
            has_experts ? " and " + balancer : "", parallel,
            kernels::weight_format_name(best.layout.format));
  return {};
}

Status write_page(const AdviseOptions& options, AdvisePage page) {
  if (options.html.empty()) return {};
  page.model = std::filesystem::path(options.model).filename().string();
  page.summary = table_of(page.advice);
  WIDEEP_TRY_ASSIGN(const std::string html, advise_html(page));
  WIDEEP_TRY(formats::write_file(options.html, html));
  log::info("wrote {}", options.html);
  return {};
}

Status check_options(const AdviseOptions& options) {
  if (options.drafts_max && options.workload.acceptance == 0.0) {
    return invalid_input(
        "--drafts-max: has no effect without --acceptance, the probability that a draft is right");
  }
  if (options.measure.measure && options.workload.acceptance > 0.0) {
    return invalid_input("--measure: runs without drafts; leave out --acceptance");
  }
  WIDEEP_TRY(check_measure_options(options.measure, options.hardware));
  if (!options.html.empty()) WIDEEP_TRY(check_output_file(options.html, "--html"));
  if (options.output.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  if (error) {
    return invalid_input(
        fmt::format("--output: {}: cannot be made: {}", options.output, error.message()));
  }
  return {};
}

Result<advise::SimulatedServing> simulated(const advise::Question& question, const Candidate& best,
                                           int num_requests) {
  WIDEEP_TRY_ASSIGN(const cost::StepCost cost, advise::step_cost(question, best.layout));
  return advise::simulate_candidate(best, cost, question.workload, question.choices, num_requests);
}

// What computing a token of a prompt takes: the time to the first token has it for all of them.
Result<std::vector<advise::ReuseRow>> reuse_of(const AdviseOptions& options,
                                               const model::ModelConfig& config,
                                               const advise::Advice& advice) {
  if (options.dataset.empty()) return std::vector<advise::ReuseRow>();
  const double seconds = advice.best ? advice.best->ttft / options.workload.isl : 0.0;
  return dataset_reuse(options.dataset, options.model, config, seconds);
}

// What needs a layout that fits.
Status check_beyond_memory(const AdviseOptions& options) {
  const std::pair<const char*, bool> without_effect[] = {
      {"--ttft", options.ttft_ms.has_value()},
      {"--rate", options.workload.rate.has_value()},
      {"--acceptance", options.workload.acceptance > 0.0},
      {"--simulate", options.simulated > 0},
      {"--measure", options.measure.measure},
      {"--dataset", !options.dataset.empty()},
      {"--disaggregated", options.disaggregated},
      {"--html", !options.html.empty()},
      {"--output", !options.output.empty()}};
  for (const auto& [name, is_given] : without_effect) {
    if (!is_given) continue;
    return invalid_input(
        fmt::format("{}: has no effect on a model larger than memory, of which only generated "
                    "tokens are predicted; leave it out",
                    name));
  }
  return {};
}

// Prints what reading experts from disk makes of a model larger than memory. Returns false, and
// prints nothing, if memory holds it or nothing is known of reading.
Result<bool> advise_beyond_memory(const AdviseOptions& options, const advise::Question& question,
                                  const Loads& loads) {
  const int tokens = static_cast<int>(std::ceil(question.workload.concurrency.value_or(1.0)));
  advise::HitRates rates = advise::recorded_hit_rates(tokens);
  WIDEEP_TRY_ASSIGN(auto found, advise::partly_resident(question, rates));
  if (found.empty()) return false;
  WIDEEP_TRY(check_beyond_memory(options));
  if (loads.is_known) {
    WIDEEP_TRY_ASSIGN(rates, model_hit_rates(options.statistics, options.holdout, loads, tokens));
    WIDEEP_TRY_ASSIGN(found, advise::partly_resident(question, rates));
  }
  const BeyondMemory beyond{
      .question = question, .rates = rates, .found = found, .model = options.model};
  fmt::print("{}", options.json ? formats::json_text(beyond_memory_json(beyond), 2) + "\n"
                                : beyond_memory_text(beyond));
  const advise::ReadingTime& best = found.front().forecast.expected;
  const std::optional<double> limit = question.workload.max_tpot;
  if (limit && best.seconds > *limit) {
    return failed(fmt::format("{:.1f} ms between tokens are not reached; nearest: {:.1f} ms",
                              *limit * 1e3, best.seconds * 1e3));
  }
  return true;
}

// Sets what the library takes in other units, or from several options.
void complete(AdviseOptions* options) {
  const auto seconds = [](std::optional<double> ms) -> std::optional<double> {
    if (!ms) return {};
    return *ms * 1e-3;
  };
  options->workload.max_ttft = seconds(options->ttft_ms);
  options->workload.max_tpot = seconds(options->tpot_ms);
  if (options->workload.acceptance > 0.0) {
    options->choices.max_drafts = options->drafts_max.value_or(5);
  }
  if (const auto format = options->precision.format()) options->choices.formats = {*format};
}

Status run(AdviseOptions options) {
  WIDEEP_TRY(check_options(options));
  complete(&options);
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, read_config(options.model));
  WIDEEP_TRY(check_kept_calibration(options.measure, config));
  WIDEEP_TRY_ASSIGN(cost::Hardware hardware,
                    find_hardware(options.hardware, options.choices.formats));
  for (const auto format : options.choices.formats) {
    if (!hardware.supports(format)) {
      return invalid_input(fmt::format("--dtype: {} has no products of {}", hardware.name,
                                       kernels::weight_format_name(format)));
    }
  }
  if (const std::string line = advise::bound_tokens(hardware, &options.choices); !line.empty()) {
    log::warn("{}", line);
  }
  WIDEEP_TRY(use_kept_calibration(options.measure, options.hardware, config, &hardware));
  WIDEEP_TRY_ASSIGN(const Loads loads, read_loads(options.statistics, options.holdout, config));
  const advise::Question question{.hardware = hardware,
                                  .config = config,
                                  .planned = loads.planned,
                                  .judged = loads.judged,
                                  .workload = options.workload,
                                  .choices = options.choices};
  WIDEEP_TRY_ASSIGN(const bool is_larger, advise_beyond_memory(options, question, loads));
  if (is_larger) return {};
  WIDEEP_TRY_ASSIGN(advise::Advice advice, advise::advise(question));
  advise::UpdateRates updates;
  if (advice.best) {
    WIDEEP_TRY_ASSIGN(updates, update_rates(options, hardware, config, loads, *advice.best));
    if (config.has_experts()) advice.reasons.push_back(updates.reason);
  }
  std::optional<advise::DisaggregatedAdvice> servers;
  if (options.disaggregated) {
    WIDEEP_TRY_ASSIGN(servers, advise::disaggregate(question, advice));
  }
  const bool simulates = advice.best && options.simulated > 0;
  WIDEEP_TRY_ASSIGN(const auto reuse, reuse_of(options, config, advice));
  if (options.json) {
    More more;  // before anything is printed: one object or none
    if (simulates) {
      WIDEEP_TRY_ASSIGN(const auto found, simulated(question, *advice.best, options.simulated));
      more.simulated = json_of(found, options.simulated, advice.best->layout.num_ranks());
    }
    if (!reuse.empty()) more.prompt_cache = json_of(reuse);
    if (servers) more.disaggregated = disaggregated_json(*servers);
    print_json(hardware, advice, loads, updates, std::move(more));
  } else {
    print_advice(hardware, advice, loads);
    print_rates(updates);
    if (!reuse.empty()) fmt::print("\nprompt cache\n{}", advise::reuse_text(reuse));
    if (servers) fmt::print("\ndisaggregated\n{}", disaggregated_text(*servers));
  }
  WIDEEP_TRY(write_page(options, {.config = config,
                                  .hardware = hardware,
                                  .advice = advice,
                                  .workload = options.workload,
                                  .choices = options.choices,
                                  .loads = loads}));
  if (servers && servers->best && !options.output.empty()) {
    WIDEEP_TRY(write_disaggregated(options.output, question, *servers->best));
  }
  // Servers of two kinds may keep limits that no layout keeps.
  if (!advice.best) return servers && servers->best ? Status() : failed(advice.nearest);
  if (options.measure.measure) {
    WIDEEP_TRY(measure_and_keep(options.measure,
                                {.question = question, .advice = advice, .quiet = options.json}));
  }
  if (simulates && !options.json) {
    WIDEEP_TRY_ASSIGN(const auto found, simulated(question, *advice.best, options.simulated));
    print_served(found, options.simulated, advice.best->layout.num_ranks());
  }
  return options.output.empty() ? Status()
                                : write_files(options, question, *advice.best, updates.best);
}

}  // namespace

void add_advise_command(command_line::Command app, Status* status) {
  auto options = std::make_shared<AdviseOptions>();
  const command_line::Command command = app.add_command(
      "advise", "Recommend a layout for a model, a machine and a workload, with what is predicted");
  add_model_and_hardware(command, &options->model, &options->hardware);
  add_statistics_options(command, &options->statistics, true);
  add_holdout_option(command, &options->holdout);
  command.add_option("--isl", options->workload.isl, "Tokens of a prompt")
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--osl", options->workload.osl, "Tokens of an answer")
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--rate", options->workload.rate, "Requests per second, over all ranks")
      .positive();
  command
      .add_option("--concurrency", options->workload.concurrency,
                  "Requests at the same time, over all ranks")
      .positive();
  command.add_option("--ttft", options->ttft_ms, "Longest time to the first token, in ms")
      .positive();
  command.add_option("--tpot", options->tpot_ms, "Longest time between two tokens, in ms")
      .positive();
  command
      .add_option("--acceptance", options->workload.acceptance,
                  "Also weigh drafts, each right with this probability if those before it are")
      .range(0.0, 1.0);
  command.add_option("--drafts-max", options->drafts_max, "Most drafts of a request (default: 5)")
      .range(1, 8);
  command.add_option("--ranks-max", options->choices.max_ranks, "Most ranks of a layout")
      .range(1, 1 << 16)
      .show_default();
  command
      .add_option("--max-num-tokens", options->choices.max_num_tokens,
                  "Tokens of a rank's iteration")
      .range(1, 1 << 20)
      .show_default();
  add_precision_option(command, &options->precision);
  command
      .add_option("--output", options->output, "Directory for the configuration of `wideep serve`")
      .path();
  command
      .add_option("--simulate", options->simulated,
                  "Also serve so many requests in simulated time, with the engine's scheduler")
      .not_negative();
  command
      .add_option("--dataset", options->dataset,
                  "Also say what a gigabyte of prompt cache is worth on these requests, in order")
      .path();
  command.add_option("--html", options->html, "Also write a page with pictures to this file")
      .path();
  add_measure_options(command, &options->measure);
  command.add_flag("--disaggregated", options->disaggregated,
                   "Also weigh servers that compute prompts beside servers that answer, and how "
                   "many of each");
  command.add_flag("--json", options->json, "Only JSON on stdout");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
