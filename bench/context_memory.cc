// SPDX-License-Identifier: Apache-2.0
//
// What a rank's memory grows by while one long prompt is prefilled on 1, 2 and 4 ranks that share
// its sequence: KV cache, intermediate results and buffers, which shall be an n-th each. Measured
// as the kernel counts it, pages that processes share divided among them; what is there for a
// prompt of one token (weights, code) is subtracted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/stopped_threads.h"
#include "base/try.h"
#include "engine/generate.h"

namespace wideep {
namespace {

struct Options {
  std::string model = "models/reference";
  int characters = 87'500;  // of the prompt: some 32,000 tokens of the reference model
  std::vector<int> ranks = {1, 2, 4};
};

// Of one run, the largest of all ranks.
struct Peak {
  int prompt_tokens = 0;
  double mib = 0.0;
};

// Proportional set size of a process.
double memory_mib(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/smaps_rollup", process));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return std::stod(line.substr(4)) / 1024;
  }
  return 0.0;
}

std::string prompt_of(int characters) {
  std::string text;
  for (int i = 0; static_cast<int>(text.size()) < characters; ++i) {
    text += fmt::format("Line {}: the old man who lived there counted {} ships.\n", i, i * 7 % 101);
  }
  text.resize(static_cast<size_t>(std::max(characters, 1)));
  return text;
}

Result<Peak> measure(const Options& options, int ranks, int characters) {
  engine::GenerateOptions run;
  run.model_dir = options.model;
  run.parallel.sizes.cp = ranks;
  run.parallel.max_batch_size = 1;
  run.prompts = {prompt_of(characters)};
  run.max_tokens = 32;  // none of the ranks has ended while it is looked at
  Peak peak;
  const auto look = [&](int, const engine::IterationRecord& record) {
    if (record.prompt_tokens == 0) return;
    for (const pid_t rank : base::children()) peak.mib = std::max(peak.mib, memory_mib(rank));
  };
  WIDEEP_TRY_ASSIGN(const engine::GenerateReport report,
                    engine::generate(run, {.on_iteration = look}));
  WIDEEP_TRY(report.ended);
  peak.prompt_tokens = report.results[0].num_prompt_tokens;
  return peak;
}

Status run(const Options& options) {
  fmt::print("ranks   prompt   MiB of a rank   of it grown by   times ranks, over one rank's\n");
  double of_one_rank = 0.0;
  for (const int ranks : options.ranks) {
    WIDEEP_TRY_ASSIGN(const Peak least, measure(options, ranks, 1));
    WIDEEP_TRY_ASSIGN(const Peak peak, measure(options, ranks, options.characters));
    const double grown = peak.mib - least.mib;
    if (of_one_rank == 0.0) of_one_rank = grown * ranks;
    fmt::print("{:>5}{:>9}{:>16.1f}{:>17.1f}{:>19.3f}   goal 0.9 to 1.1\n", ranks,
               peak.prompt_tokens, peak.mib, grown, grown * ranks / of_one_rank);
  }
  return {};
}

}  // namespace
}  // namespace wideep

int main(int argc, char** argv) {
  wideep::Options options;
  CLI::App app("What a rank's memory grows by with a long prompt, on ranks that share it");
  app.add_option("--model", options.model, "Model directory")->capture_default_str();
  app.add_option("--characters", options.characters, "Of the prompt")->capture_default_str();
  app.add_option("--ranks", options.ranks, "That share the sequence, several numbers")
      ->delimiter(',')
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const wideep::Status status = wideep::run(options);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return status.exit_code();
}
