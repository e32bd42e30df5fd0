// SPDX-License-Identifier: Apache-2.0
//
// What can be wrong is checked before anything is measured, because measuring takes minutes: the
// file can be written, and is not one of another machine or model that would be overwritten. A kept
// file that nobody asked for only helps: if it does not fit, a line says so and the run goes on.
#include "advise_measure.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>

#include "base/log.h"
#include "base/try.h"
#include "formats/files.h"
#include "output_file.h"

namespace wideep::tools {

using measure::AdviceCalibration;
using measure::CheckedCell;

std::string MeasureOptions::path() const {
  return calibration.empty() ? kDefaultCalibration : calibration;
}

void add_measure_options(command_line::Command command, MeasureOptions* options) {
  command.add_flag("--measure", options->measure,
                   "Also run the recommendation and its neighbours on this machine, and keep what "
                   "predictions lack (with --hardware this)");
  command
      .add_option("--calibration", options->calibration,
                  fmt::format("File with that: written by --measure, else read (default: {}, "
                              "if it is of this machine and model)",
                              kDefaultCalibration))
      .path();
}

Status check_measure_options(const MeasureOptions& options, const std::string& hardware) {
  if (hardware != "this") {
    const char* option = options.measure ? "--measure" : "--calibration";
    if (!options.measure && options.calibration.empty()) return {};
    return invalid_input(fmt::format(
        "{}: is about this machine, but --hardware is {}; give --hardware this", option, hardware));
  }
  return options.measure ? check_output_file(options.path(), "--calibration") : Status();
}

namespace {

Status check_file(const std::string& path, const model::ModelConfig& config,
                  AdviceCalibration* found) {
  WIDEEP_TRY_ASSIGN(*found, measure::read_advice_calibration(path));
  return measure::check_matches(*found, path, measure::machine_text(), measure::model_text(config));
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

void print(const MeasureInput& input, const std::string& line) {
  input.quiet ? log::info("{}", line) : fmt::print("{}\n", line);
}

std::string line_of(const std::string& name, double predicted, double measured, double noise) {
  return fmt::format("{:9.3f} {:9.3f} {:+7.1f} {:7.1f}  {}", predicted * 1e3, measured * 1e3,
                     100.0 * (predicted / measured - 1.0), 100.0 * noise, name);
}

}  // namespace

Status check_kept_calibration(const MeasureOptions& options, const model::ModelConfig& config) {
  if (options.calibration.empty() && !options.measure) return {};
  if (options.measure && !std::filesystem::exists(options.path())) return {};
  AdviceCalibration found;
  const Status status = check_file(options.path(), config, &found);
  if (status.ok() || !options.measure) return status;
  return invalid_input(status.message() + ", in another file (--calibration)");
}

Status use_kept_calibration(const MeasureOptions& options, const std::string& hardware_name,
                            const model::ModelConfig& config, cost::Hardware* hardware) {
  if (options.measure || hardware_name != "this") return {};
  const bool asked = !options.calibration.empty();
  if (!asked && !std::filesystem::exists(options.path())) return {};
  AdviceCalibration found;
  if (const Status status = check_file(options.path(), config, &found); !status.ok()) {
    if (asked) return status;
    log::warn("left aside: {}", status.message());
    return {};
  }
  hardware->factors = found.factors;
  hardware->device += fmt::format("; calibrated by {} of {}: {}", options.path(), found.date,
                                  measure::text_of(found.factors));
  return {};
}

Status measure_and_keep(const MeasureOptions& options, const MeasureInput& input) {
  const advise::Question& question = input.question;
  const std::vector<advise::Candidate> candidates =
      measure::to_measure(input.advice, question.workload, question.config.routing.num_experts);
  log::info("measuring the recommendation and {} layouts beside it", candidates.size() - 1);
  std::vector<std::string> left_out;
  run::RunView silent;
  WIDEEP_TRY_ASSIGN(const std::vector<CheckedCell> cells,
                    measure::measure_advice(question, candidates, silent, &left_out));
  print(input,
        "\nmeasured on this machine, with random weights: an iteration\n"
        "predicted  measured   error   noise\n"
        "       ms        ms       %       %  layout");
  AdviceCalibration calibration{.machine = measure::machine_text(),
                                .model = measure::model_text(question.config),
                                .version = WIDEEP_VERSION,
                                .date = today(),
                                .factors = measure::factors_of(cells)};
  for (const CheckedCell& cell : cells) {
    print(input, line_of(cell.name, cell.predicted, cell.measured, cell.noise));
    calibration.measured.push_back(
        {.name = cell.name, .predicted = cell.predicted, .measured = cell.measured});
  }
  for (const std::string& line : left_out) log::warn("not measured: {}", line);
  WIDEEP_TRY(formats::write_file(options.path(), measure::advice_calibration_text(calibration)));
  print(input, fmt::format("calibration  {} in {}: later `advise` on this machine predicts with it",
                           measure::text_of(calibration.factors), options.path()));
  return {};
}

}  // namespace wideep::tools
