// SPDX-License-Identifier: Apache-2.0
//
// wideep bench throughput and latency: a dataset through the engine in this process, with
// trtllm-bench's options and report.
//
// Both are one command with other defaults: latency is one request at a time with times of tokens.
// The report is made once, and goes to stdout and to files.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/try.h"
#include "bench_throughput_output.h"
#include "commands.h"
#include "formats/files.h"
#include "load_options.h"
#include "output_file.h"
#include "plan_output.h"

namespace wideep::tools {
namespace {

struct Options {
  LoadOptions load;
  bool streaming = false;
  bool json = false;
  std::string report_json, request_json, output_json;
};

// Checked before the run, so that a bad path does not cost its results.
Status check_outputs(const Options& options) {
  const std::pair<const char*, const std::string&> outputs[] = {
      {"--report-json", options.report_json},
      {"--request-json", options.request_json},
      {"--output-json", options.output_json}};
  for (const auto& [option, path] : outputs) {
    if (path.empty()) continue;
    for (const auto& [before, other] : outputs) {
      if (&other == &path) break;
      if (!other.empty()) WIDEEP_TRY(check_different_files(other, before, path, option));
    }
    WIDEEP_TRY(check_output_file(path, option));
  }
  return {};
}

Status write_json(const std::string& path, const nlohmann::ordered_json& json) {
  return path.empty() ? Status() : formats::write_file(path, json_text(json));
}

Status run(const Options& options) {
  WIDEEP_TRY(check_outputs(options));
  WIDEEP_TRY_ASSIGN(const measure::ThroughputOptions bench, read_load_options(options.load));
  WIDEEP_TRY_ASSIGN(const measure::ThroughputRun run, run_with_progress(bench));
  const measure::ThroughputReport report = measure::report_of(run.requests);
  const BenchedRun benched{.model = name_of_model(options.load),
                           .model_path = bench.run.model_dir,
                           .dataset = options.load.dataset,
                           .streaming = options.streaming,
                           .options = bench,
                           .run = run};
  const nlohmann::ordered_json json = throughput_json(benched, report);
  const std::string text = options.json ? json_text(json) : throughput_text(benched, report);
  std::fputs(text.c_str(), stdout);
  WIDEEP_TRY(write_json(options.report_json, json));
  if (!options.request_json.empty()) {
    WIDEEP_TRY(write_json(options.request_json, requests_json(benched)));
  }
  return options.output_json.empty() ? Status()
                                     : write_json(options.output_json, outputs_json(benched));
}

void add_output_options(command_line::Command command, Options& options) {
  command.add_flag("--streaming,!--no-streaming", options.streaming,
                   "Also report per-token times: TTFT, TPOT, ITL");
  command.add_option("--report-json", options.report_json, "File for the report").path();
  command.add_option("--request-json", options.request_json, "File for the times of each request")
      .path();
  command.add_option("--output-json", options.output_json, "File for the outputs of each request")
      .path();
  command.add_flag("--json", options.json, "Only JSON on stdout");
}

void add_command(command_line::Command bench, const char* name, const char* what,
                 const std::shared_ptr<Options>& options, Status* status) {
  const command_line::Command command = bench.add_command(name, what);
  add_load_options(command, &options->load);
  add_output_options(command, *options);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace

void add_bench_throughput_command(command_line::Command bench, Status* status) {
  add_command(bench, "throughput", "Run a dataset through the engine and measure throughput",
              std::make_shared<Options>(), status);
}

void add_bench_latency_command(command_line::Command bench, Status* status) {
  auto options = std::make_shared<Options>();
  options->load.concurrency = 1;
  options->streaming = true;
  add_command(bench, "latency", "As throughput, but one request at a time, with per-token times",
              options, status);
}

}  // namespace wideep::tools
