// SPDX-License-Identifier: Apache-2.0
// wideep bench load: times loading a model from the page cache, next to the least that it must
// cost.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/progress.h"
#include "base/try.h"
#include "commands.h"
#include "formats/json_text.h"
#include "measure/model/bench_load.h"

namespace wideep::tools {
namespace {

struct Options {
  measure::LoadBenchOptions bench;
  bool json = false;
};

double gigabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

std::string text_of(const measure::LoadBenchReport& report) {
  const measure::LoadRound median = report.median();
  const auto line = [](const char* what, uint64_t bytes, double seconds) {
    return fmt::format("{:<34}{:>8.3f} s{:>8.1f} GB/s\n", what, seconds,
                       gigabytes(bytes) / seconds);
  };
  return fmt::format("{} threads, medians of {} rounds; {:.2f} GB to read, {:.2f} GB packed\n",
                     report.threads, report.rounds.size(), gigabytes(report.file_bytes),
                     gigabytes(report.packed_bytes)) +
         line("reading the page cache", report.file_bytes, median.read) +
         line("first touch of as much memory", report.packed_bytes, median.touch) +
         line("load, packing included", report.file_bytes, median.load) +
         fmt::format("load / the slower of the two: {:.2f} (goal: at most 1.30)\n",
                     report.median_ratio());
}

nlohmann::json json_of(const measure::LoadBenchReport& report) {
  nlohmann::json rounds = nlohmann::json::array();
  for (const measure::LoadRound& round : report.rounds) {
    rounds.push_back({{"read_seconds", round.read},
                      {"touch_seconds", round.touch},
                      {"load_seconds", round.load},
                      {"ratio", round.ratio()}});
  }
  return {{"threads", report.threads},
          {"file_bytes", report.file_bytes},
          {"packed_bytes", report.packed_bytes},
          {"median_ratio", report.median_ratio()},
          {"rounds", rounds}};
}

Status run(const Options& given) {
  Options options = given;
  WIDEEP_TRY_ASSIGN(options.bench.config, model::read_model_config(options.bench.model_dir));
  const auto report = [&] {
    base::Progress progress("measuring", options.bench.rounds, "rounds");
    return measure::run_load_bench(options.bench, [&] { progress.step(); });
  }();
  if (!report.ok()) return report.status();
  std::fputs(
      (options.json ? formats::json_text(json_of(*report), 2) + "\n" : text_of(*report)).c_str(),
      stdout);
  return {};
}

}  // namespace

void add_bench_load_command(command_line::Command bench, Status* status) {
  auto options = std::make_shared<Options>();
  const command_line::Command command =
      bench.add_command("load", "Time loading a model from the page cache, next to its limits");
  command
      .add_option("--model", options->bench.model_dir,
                  "Model directory (Hugging Face layout), or a GGUF file")
      .model()
      .required();
  command.add_option("--threads", options->bench.threads, "Threads that load; 0: one per core")
      .range(0, 4096);
  command.add_option("--repeat", options->bench.rounds, "Number of rounds")
      .range(1, 1000)
      .show_default();
  command.add_flag("--json", options->json, "Only JSON on stdout, with every round");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
