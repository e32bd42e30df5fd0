// SPDX-License-Identifier: Apache-2.0
//
// wideep doctor: what this machine is, and whether a model would run on it.
//
// Findings are collected and printed together, the model's error too: a report that ends at the
// first one would hide what else is wrong. Whether a model fits is not estimated here but planned
// as for a run (run/advice.h).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/byte_size.h"
#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "dataset_reuse.h"
#include "doctor_experts.h"
#include "doctor_report.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "model/model_forms.h"
#include "model_run.h"
#include "output_file.h"
#include "parallel_options.h"
#include "prompt_cache_options.h"
#include "run/cache_memory.h"
#include "simulate_inputs.h"
#include "tensor_files/gguf.h"
#include "tokenizer/tokenizer.h"

namespace wideep::tools {
namespace {

struct Options {
  ParallelOptions parallel;
  PromptCacheOptions prompts_kept;
  ExpertReadingOptions reading;
  std::string model_dir;
  bool recovery = false;
  int num_nodes = 1;
  std::string hardware;  // file to write
  std::string dataset;
  bool verify = false;
  bool json = false;
};

// Sizes follow from config.json alone, so a model can be checked before its large files are
// downloaded; missing files are only a warning.
std::optional<run::Advice> missing_files(const std::string& model_dir) {
  std::vector<std::string> missing;
  if (!has_weights(model_dir)) missing.push_back("model.safetensors (or its index)");
  const bool is_gguf = tensor_files::is_gguf(model_dir);
  if (!tokenizer::Tokenizer::is_in(model_dir)) {
    missing.push_back(is_gguf ? "tokenizer in its metadata" : "tokenizer.json");
  }
  if (missing.empty()) return {};
  if (is_gguf) {
    return run::Advice{fmt::format("{} is not complete: no {}", model_dir, missing.front()),
                       "take a file that has one; only `bench model` needs none"};
  }
  return run::Advice{fmt::format("{} is not complete: no {}; the sizes follow from config.json",
                                 model_dir, fmt::join(missing, ", no ")),
                     "download the whole model before you run it"};
}

// Of a budget that leaves some experts to be read.
Status judge_expert_memory(const ExpertReadingOptions& options, DoctorReport* report) {
  const ExpertReading& reading = *report->reading;
  if (options.packed_cache.empty()) {
    report->warnings.push_back(
        {"--expert-memory: the other experts are read from packed weights, of which no directory "
         "is "
         "named",
         "add --packed-cache DIR, and write them beforehand with wideep pack"});
  }
  if (reading.fits) return {};
  const uint64_t most = run::expert_memory_to_give(*report->fit);
  return failed(fmt::format(
      "--expert-memory {}: with it a run needs {}, and {} can be used; {}", options.expert_memory,
      base::byte_size(reading.bytes_needed - reading.expert_bytes + reading.resident_bytes),
      base::byte_size(reading.bytes_usable),
      most > 0 ? "give at most " + run::memory_to_give(most) : "no less would do"));
}

// places: the options that say where prompts are kept.
Status judge_model(const Options& options, const run::RunOptions& places, DoctorReport* report) {
  WIDEEP_TRY_ASSIGN(ModelRun run,
                    model_run(options.model_dir, options.parallel.format(), places.parallel));
  run.options.host_cache_bytes = places.host_cache_bytes;
  WIDEEP_TRY_ASSIGN(report->fit, run::judge_fit(run.model, run.options, report->machine));
  report->model_dir = options.model_dir;
  if (tensor_files::is_gguf(options.model_dir)) {
    WIDEEP_TRY_ASSIGN(report->gguf, gguf_content(options.model_dir));
  }
  if (!options.dataset.empty()) {
    WIDEEP_TRY_ASSIGN(report->reuse,
                      dataset_reuse(options.dataset, options.model_dir, run.model.config, 0.0));
  }
  if (options.recovery) {
    run::RunPlan plan = report->fit->plan;
    if (options.num_nodes > 1) {
      plan.kept_nodes = transport::NodeMap::even(plan.mapping.world_size(), options.num_nodes);
    }
    report->recovery = run::forecast_recovery(
        plan,
        model::experts_shape(plan.model.config, plan.model.forms, plan.mapping.sizes().moe_tp));
  }
  if (const auto missing = missing_files(options.model_dir)) report->warnings.push_back(*missing);
  WIDEEP_TRY_ASSIGN(report->reading,
                    forecast_expert_reading(options.reading, *report->fit, report->machine));
  if (!options.reading.expert_memory.empty() && report->reading) {
    return judge_expert_memory(options.reading, report);
  }
  if (!report->fit->advice) return {};
  if (report->fit->fits()) {
    report->warnings.push_back(*report->fit->advice);
    return {};
  }
  return failed(report->fit->advice->finding + "; " + report->fit->advice->remedy);
}

// What `wideep advise` predicts with.
Status write_hardware(const std::string& path) {
  WIDEEP_TRY(check_output_file(path, "--write-hardware"));
  WIDEEP_TRY_ASSIGN(const cost::Hardware hardware, measure_hardware());
  WIDEEP_TRY(formats::write_file(path, cost::hardware_text(hardware)));
  log::info("wrote {}", path);
  return {};
}

Status run(const Options& options) {
  if (!options.hardware.empty()) return write_hardware(options.hardware);
  if (options.recovery && options.model_dir.empty()) {
    return invalid_input("--recovery: depends on the model; add --model");
  }
  if (!options.dataset.empty() && options.model_dir.empty()) {
    return invalid_input("--dataset: what its prompts take depends on the model; add --model");
  }
  if (options.reading.depends_on_model() && options.model_dir.empty()) {
    return invalid_input(
        "--expert-memory, --hardware: what is read of experts depends on the model; add --model");
  }
  if (options.num_nodes > 1 && !options.recovery) {
    return invalid_input("--nnodes: has no effect without --recovery; add it");
  }
  if (options.verify && options.reading.packed_cache.empty()) {
    return invalid_input("--verify: has no effect without --packed-cache DIR");
  }
  DoctorReport report;
  WIDEEP_TRY_ASSIGN(report.chosen_kernels, kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  WIDEEP_TRY_ASSIGN(const kernels::Kernels* best, kernels::select_kernels(nullptr));
  run::RunOptions wanted;
  WIDEEP_TRY_ASSIGN(wanted.parallel, read_parallel_options(options.parallel));
  const parallel::ParallelConfig& parallel = wanted.parallel;
  wanted.host_cache_bytes = parallel.kv_cache_config.host_cache_bytes();
  WIDEEP_TRY(apply_prompt_cache_options(options.prompts_kept, true, &wanted));
  warn_of_batch_size(parallel);
  report.machine = base::read_machine();
  report.num_ranks = parallel.mapping().world_size();
  if (report.num_ranks < options.num_nodes) {
    return invalid_input(
        fmt::format("--nnodes: {} nodes for {} ranks: expected at most one node "
                    "for each; add ranks (--ranks, --config)",
                    options.num_nodes, report.num_ranks));
  }
  report.warnings =
      run::machine_advice(report.machine, report.num_ranks, report.chosen_kernels->isa, best->isa);
  report.places = look_at_places(wanted, report.machine);
  for (const PromptPlace& place : report.places) {
    if (place.trouble) report.warnings.push_back(*place.trouble);
  }
  if (!options.reading.packed_cache.empty()) {
    WIDEEP_TRY_ASSIGN(report.packed, look_at_packed(options.reading.packed_cache, options.verify));
    report.outcome = outcome_of(*report.packed);
  }
  if (!options.model_dir.empty()) {
    const Status judged = judge_model(options, wanted, &report);
    if (!judged.ok()) report.outcome = judged;
  }
  const std::string text =
      options.json ? formats::json_text(doctor_json(report), 2) + "\n" : doctor_text(report);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);  // so that the error of the outcome, on stderr, comes after it
  return report.outcome;
}

}  // namespace

void add_doctor_command(command_line::Command app, Status* status) {
  const command_line::Command command =
      app.add_command("doctor", "Check this machine, and with --model whether it can run a model");
  auto options = std::make_shared<Options>();
  command
      .add_option("--model", options->model_dir,
                  "Model directory (config.json is enough), or a GGUF file")
      .model();
  add_parallel_options(command, &options->parallel);
  add_prompt_cache_options(command, &options->prompts_kept);
  add_expert_reading_options(command, &options->reading);
  command.add_flag("--recovery", options->recovery,
                   "With --model: what the loss of a rank or of the node would mean");
  command
      .add_option(
          "--nnodes", options->num_nodes,
          "With --recovery: as if the ranks were spread over so many nodes (serve --nnodes)")
      .range(1, 1024)
      .show_default();
  command
      .add_option("--write-hardware", options->hardware,
                  "Only measure this machine, for half a minute, and write its description to this "
                  "file, for wideep advise")
      .path();
  command
      .add_option("--dataset", options->dataset,
                  "With --model: what a gigabyte of prompt cache finds of these requests, in order")
      .path();
  command.add_flag("--verify", options->verify,
                   "With --packed-cache: compare all bytes with their hashes");
  command.add_flag("--json", options->json, "Only JSON on stdout");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
