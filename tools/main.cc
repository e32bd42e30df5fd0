// SPDX-License-Identifier: Apache-2.0
//
// All commands are added before the command line is parsed, each with a callback that sets
// `status`; the one that was named runs within parse(). Errors come back as a Status and are
// printed here only.
//
// Ranks of a launcher are connected first, as the process must know whether it is the one that
// prints. Memory or threads that run out are caught here: they may be thrown anywhere.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench_arguments.h"
#include "command_line/options_file.h"
#include "commands.h"
#include "environment.h"
#include "group/mpi_ranks.h"
#include "mpi_worker.h"
#include "peer_options.h"
#include "process_setup.h"
#include "started.h"
#include "version.h"

namespace {

namespace tools = wideep::tools;
using AddCommand = void (*)(wideep::command_line::Command parent, wideep::Status* status);

// In the order of the help. Before them come those that need the connected ranks.
constexpr AddCommand kFirstCommands[] = {tools::add_chat_command, tools::add_route_command,
                                         tools::add_disaggregated_command,
                                         tools::add_mpi_worker_command, tools::add_advise_command};
constexpr AddCommand kBalance[] = {
    tools::add_balance_report_command,  tools::add_balance_plan_command,
    tools::add_balance_resplit_command, tools::add_balance_compare_command,
    tools::add_balance_picture_command, tools::add_balance_replay_command,
    tools::add_balance_check_command,   tools::add_balance_cache_command};
constexpr AddCommand kBench[] = {
    tools::add_bench_accuracy_command, tools::add_bench_compare_routing_command,
    tools::add_bench_dataset_command,  tools::add_bench_ep_command,
    tools::add_bench_latency_command,  tools::add_bench_iterations_command,
    tools::add_bench_load_command,     tools::add_bench_model_command,
    tools::add_bench_rows_command,     tools::add_bench_speculation_command,
    tools::add_bench_serving_command,  tools::add_bench_throughput_command};
constexpr AddCommand kSimulate[] = {
    tools::add_simulate_imbalance_command, tools::add_simulate_moves_command,
    tools::add_simulate_rebalance_command, tools::add_simulate_tpot_command};
constexpr AddCommand kParallel[] = {tools::add_parallel_explain_command};
constexpr AddCommand kFigures[] = {
    tools::add_figure_expert_time_command,     tools::add_figure_kernels_command,
    tools::add_figure_movable_experts_command, tools::add_figure_ngram_command,
    tools::add_figure_optimizations_command,   tools::add_figure_pareto_command,
    tools::add_figure_sent_tokens_command};
constexpr AddCommand kLastCommands[] = {tools::add_doctor_command, tools::add_quantize_command,
                                        tools::add_pack_command};

// Commands whose first word they share.
struct Group {
  const char* name;
  const char* purpose;
  std::span<const AddCommand> commands;
};
constexpr Group kGroups[] = {
    {"balance", "Measure and plan the placement of experts", kBalance},
    {"bench", "Measure speed, next to this machine's limits", kBench},
    {"simulate", "Predict what a machine and a load would do", kSimulate},
    {"parallel", "Show how a model is spread over ranks", kParallel},
    {"figures", "Draw figures of TensorRT-LLM's texts again, with numbers of this program",
     kFigures},
};

// Users may write '_' for '-' in option names, as TensorRT-LLM does; the parser only sees '-'. The
// value after '=' must stay as it is.
std::string normalize_option(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  const size_t end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return argument;
}

// The options of the file that --options-file names. It may say over how many nodes a service is
// spread, which is asked before anything else: the table of options is made for that alone.
wideep::Result<wideep::command_line::OptionsFile> read_options_file(
    std::vector<std::string> arguments) {
  wideep::command_line::Program program("", "wideep");
  const tools::Started started;
  wideep::Status status;
  tools::add_serve_command(program, started, &status);
  tools::add_route_command(program, &status);
  tools::add_disaggregated_command(program, &status);
  tools::add_chat_command(program, &status);
  return wideep::command_line::OptionsFile::expand(program.facts(), std::move(arguments));
}

// A full disk loses output without an exception: without this check the command would exit with 0.
// Where an earlier line could not be written, another one tells why.
wideep::Status check_printed() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  if (errno == 0) [[maybe_unused]]
    const ssize_t written = ::write(STDOUT_FILENO, "\n", 1);
  return wideep::failed(
      fmt::format("stdout: cannot be written: {}", std::strerror(errno != 0 ? errno : EIO)));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace wideep;
  if (const Status prepared = tools::prepare_process(); !prepared.ok()) {
    log::error("{}", prepared.message());
    return prepared.exit_code();
  }
  command_line::Program program(
      "Serves Mixture-of-Experts language models with wide expert parallelism", "wideep");
  program.require_command();
  program.set_version(tools::version_line());
  program.set_hint(tools::peer_hint);

  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.push_back(normalize_option(argv[i]));
  arguments = tools::move_group_options(std::move(arguments));
  std::optional<transport::Launch> launch = transport::find_launch();
  if (const Status worker = tools::become_mpi_worker(&arguments, &launch); !worker.ok()) {
    if (!launch || launch->rank == 0) log::error("{}", worker.message());
    return worker.exit_code();
  }
  const auto expanded = read_options_file(std::move(arguments));
  if (!expanded.ok()) {
    log::error("{}", expanded.status().message());
    return expanded.status().exit_code();
  }
  arguments = expanded->arguments();
  // Under mpirun or srun this connects the ranks; before it the process does not know whether it is
  // the one that prints.
  tools::Started started = tools::Started::find(arguments, launch);
  Status status = started.status();
  if (!status.ok()) started.end(status);
  if (started.prints()) tools::log_unused_variables(tools::command_of(arguments));
  tools::add_generate_command(program, started, &status);
  tools::add_serve_command(program, started, &status);
  for (const AddCommand add : kFirstCommands) add(program, &status);
  for (const Group& group : kGroups) {
    const command_line::Command commands = program.add_command(group.name, group.purpose);
    commands.require_command();
    for (const AddCommand add : group.commands) add(commands, &status);
  }
  for (const AddCommand add : kLastCommands) add(program, &status);
  tools::add_describe_commands(program, &status);

  try {
    const Result<bool> parsed = program.parse(arguments);
    if (!parsed.ok()) {
      status = Status(parsed.status().code(), expanded->explain(parsed.status().message()));
    }
    if (parsed.ok() && !*parsed) return 0;
  } catch (const std::bad_alloc&) {
    status = failed(
        "out of memory; wideep doctor --model DIR --ranks N shows how much memory a run needs");
  } catch (const std::system_error& error) {  // no more threads
    status = failed(error.what());
  }
  if (status.ok()) status = check_printed();
  if (started.ranks() != nullptr) started.end(status);
  if (!status.ok()) log::error("{}", status.message());
  return status.exit_code();
}
