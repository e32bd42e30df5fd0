// SPDX-License-Identifier: Apache-2.0
//
// The command is turned into another one before ranks are connected, because which ranks these are
// depends on it. Its own options are parsed by a program that has nothing else.
#include "mpi_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/log.h"
#include "base/try.h"
#include "command_line/command_line.h"
#include "commands.h"
#include "disaggregated/mpi_instances.h"
#include "foreign_options.h"

namespace wideep::tools {
namespace {

constexpr const char* kName = "disaggregated_mpi_worker";

struct Options {
  std::string file;
  std::string model_dir;
  std::string worker_options;
  ForeignOptions foreign;
};

constexpr ForeignOption kForeign[] = {
    {"--log-level,-l", ForeignOption::Takes::kText, nullptr,
     "all lines are written; log-format in --worker-options sets their form"},
};

std::shared_ptr<Options> add_options(command_line::Command command) {
  auto options = std::make_shared<Options>();
  command
      .add_option("--config,-c,--config-file", options->file,
                  "YAML file with the servers, TensorRT-LLM's disagg_config.yaml; ranks are dealt "
                  "out in its order, as many as tp, pp and cp of each server multiply to")
      .required()
      .path();
  command
      .add_option("--model", options->model_dir,
                  "Directory or file of the model; wins over the file's model")
      .model();
  command
      .add_option("--worker-options", options->worker_options,
                  "YAML file with further options of wideep serve, for all servers")
      .path();
  options->foreign.add_to(command, kForeign);
  return options;
}

command_line::Command add_command(command_line::Command app) {
  return app.add_command(
      kName, "Start all servers of a disagg_config.yaml, as ranks of one mpirun or srun");
}

// The arguments of `serve` for this rank's server.
Result<std::vector<std::string>> serve_arguments(const Options& options,
                                                 std::optional<transport::Launch>* launch) {
  WIDEEP_TRY_ASSIGN(const disaggregated::DisaggConfig config,
                    disaggregated::read_disagg_config(options.file));
  const int rank = *launch ? (*launch)->rank : 0;
  WIDEEP_TRY(options.foreign.take());
  WIDEEP_TRY_ASSIGN(
      const disaggregated::MpiInstance instance,
      disaggregated::instance_of_rank(config, rank, *launch ? (*launch)->num_ranks : 1));
  const std::string model = options.model_dir.empty() ? config.model : options.model_dir;
  if (model.empty()) {
    return invalid_input(fmt::format(
        "--model: missing; expected a model's directory here, or as model in {}", options.file));
  }
  if (*launch) {
    const auto all = disaggregated::mpi_instances(config);
    const bool are_single =
        std::ranges::all_of(all, [](const auto& each) { return each.num_ranks == 1; });
    if (are_single) {
      launch->reset();  // there is nobody to connect to
    } else {
      (*launch)->group = instance.index;
    }
  }
  const server::ReplicaAddress& address = instance.server.address;
  std::vector<std::string> arguments = {"serve",
                                        "--model",
                                        model,
                                        "--config",
                                        fmt::format("{}:{}", options.file, instance.part),
                                        "--host",
                                        address.host,
                                        "--port",
                                        std::to_string(address.port),
                                        "--role",
                                        std::string(engine::name_of(instance.server.role))};
  if (!options.worker_options.empty()) {
    arguments.insert(arguments.end(), {"--options-file", options.worker_options});
  }
  return arguments;
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& each) { return each == "--help" || each == "-h"; });
}

}  // namespace

Status become_mpi_worker(std::vector<std::string>* arguments,
                         std::optional<transport::Launch>* launch) {
  if (arguments->empty() || arguments->front() != kName || asks_for_help(*arguments)) return {};
  command_line::Program program("", "wideep");
  const command_line::Command command = add_command(program);
  const std::shared_ptr<Options> options = add_options(command);
  Result<std::vector<std::string>> serve = failed("not run");
  command.on_run([&] { serve = serve_arguments(*options, launch); });
  WIDEEP_TRY(program.parse(*arguments).status());
  WIDEEP_TRY(serve.status());
  *arguments = *std::move(serve);
  return {};
}

// For --help and the manual pages: main.cc has made it another command before it would run.
void add_mpi_worker_command(command_line::Command app, Status*) { add_options(add_command(app)); }

}  // namespace wideep::tools
