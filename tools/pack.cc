// SPDX-License-Identifier: Apache-2.0
//
// wideep pack: writes the packed file of a model (packed/packed_file.h), which --packed-cache takes
// weights from.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/byte_size.h"
#include "base/machine.h"
#include "base/try.h"
#include "base/work_progress.h"
#include "commands.h"
#include "model/tensor_list.h"
#include "run/packed_weights.h"
#include "run/run_options.h"
#include "run/thread_plan.h"

namespace wideep::tools {
namespace {

struct Options {
  std::string model_dir, format, output;
  int num_slices = 1;
};

// Drafts take them, and the file of a run that does not draft may have them, too.
Status add_stored_predictions(run::RunInputs& inputs) {
  model::ModelConfig config = inputs.model.config;
  if (config.num_mtp_layers == 0 || !inputs.files) return {};
  if (!model::add_prediction_layers(config.num_mtp_layers, &config).ok()) return {};
  const auto tensors = model::layer_tensors(config, config.num_layers);
  if (tensors.empty() || inputs.files->bytes_of(tensors.front()) == 0) return {};
  inputs.model.config = std::move(config);
  return {};
}

Status run_pack(const Options& options) {
  run::RunOptions run;
  run.model_dir = options.model_dir;
  run.needs_tokenizer = false;
  if (!options.format.empty()) run.format = kernels::weight_format_from_name(options.format);
  WIDEEP_TRY_ASSIGN(run::RunInputs inputs, run::read_run_inputs(run));
  WIDEEP_TRY(add_stored_predictions(inputs));
  const run::ThreadPlan threads = run::plan_threads(base::read_machine(), 1, 0);
  base::ThreadPool pool(threads.of_rank(0));
  const uint64_t stored = run::bytes_to_load(inputs, true);
  base::WorkProgress progress("packing", "");
  uint64_t read = 0;
  const model::PackOrder order{.config = inputs.model.config,
                               .tensors = inputs.tensors(),
                               .format = run.format,
                               .num_slices = options.num_slices,
                               .threads = &pool,
                               .progress = [&](uint64_t bytes) {
                                 read += bytes;
                                 progress.show(std::min(read, stored), stored);
                               }};
  const run::PackedPlace place = run::packed_place(options.output, run, inputs);
  WIDEEP_TRY_ASSIGN(auto file, run::open_packed(place, order));
  if (file) {
    fmt::print("{}: is there already, {}\n", place.directory, base::byte_size(file->total_bytes()));
    return {};
  }
  const auto begin = std::chrono::steady_clock::now();
  const Status written = run::write_packed(place, order);
  progress.clear();
  WIDEEP_TRY(written);
  WIDEEP_TRY_ASSIGN(file, run::open_packed(place, order));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const auto bytes = static_cast<double>(file->total_bytes());
  fmt::print("{}: {} in {:.1f} s ({:.2f} GB/s)\n", place.directory,
             base::byte_size(file->total_bytes()), seconds.count(), bytes / seconds.count() / 1e9);
  return {};
}

}  // namespace

void add_pack_command(command_line::Command app, Status* status) {
  const command_line::Command command = app.add_command(
      "pack", "Write a model's weights as kernels read them, for starts in seconds");
  auto options = std::make_shared<Options>();
  command.add_option("--model", options->model_dir, "Directory of a checkpoint, or a GGUF file")
      .model()
      .required();
  command
      .add_option("--to", options->format,
                  "Precision of the matrices, as --dtype (default: as they are stored)")
      .one_of({"f32", "bf16", "int8", "int4", "fp8", "mxfp4", "nvfp4"});
  command
      .add_option("--output", options->output,
                  "Directory for --packed-cache; the model's own is made in it")
      .path()
      .required();
  command
      .add_option("--slices", options->num_slices,
                  "Slices of each expert, as --moe-tp of the runs (records of others stay beside)")
      .range(1, 1024)
      .show_default();
  command.on_run([options, status] { *status = run_pack(*options); });
}

}  // namespace wideep::tools
