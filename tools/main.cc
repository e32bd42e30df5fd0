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
#include <string>
#include <system_error>
#include <vector>

#include "base/log.h"
#include "commands.h"
#include "process_setup.h"
#include "started.h"
#include "version.h"

namespace {

// Users may write '_' for '-' in option names, as TensorRT-LLM does; the parser only sees '-'. The
// value after '=' must stay as it is.
std::string normalize_option(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  const size_t end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return argument;
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

  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.push_back(normalize_option(argv[i]));
  // Under mpirun or srun this connects the ranks; before it the process does not know whether it is
  // the one that prints.
  tools::Started started = tools::Started::find(arguments);
  Status status = started.status();
  if (!status.ok()) started.end(status);
  tools::add_generate_command(program, started, &status);
  tools::add_serve_command(program, started, &status);
  tools::add_route_command(program, &status);
  tools::add_advise_command(program, &status);
  const command_line::Command balance =
      program.add_command("balance", "Measure and plan the placement of experts");
  balance.require_command();
  tools::add_balance_report_command(balance, &status);
  tools::add_balance_plan_command(balance, &status);
  tools::add_balance_resplit_command(balance, &status);
  tools::add_balance_compare_command(balance, &status);
  tools::add_balance_picture_command(balance, &status);
  tools::add_balance_replay_command(balance, &status);
  tools::add_balance_check_command(balance, &status);
  const command_line::Command bench =
      program.add_command("bench", "Measure speed, next to this machine's limits");
  bench.require_command();
  tools::add_bench_compare_routing_command(bench, &status);
  tools::add_bench_dataset_command(bench, &status);
  tools::add_bench_ep_command(bench, &status);
  tools::add_bench_latency_command(bench, &status);
  tools::add_bench_iterations_command(bench, &status);
  tools::add_bench_load_command(bench, &status);
  tools::add_bench_model_command(bench, &status);
  tools::add_bench_rows_command(bench, &status);
  tools::add_bench_speculation_command(bench, &status);
  tools::add_bench_serving_command(bench, &status);
  tools::add_bench_throughput_command(bench, &status);
  const command_line::Command simulate =
      program.add_command("simulate", "Predict what a machine and a load would do");
  simulate.require_command();
  tools::add_simulate_imbalance_command(simulate, &status);
  tools::add_simulate_moves_command(simulate, &status);
  tools::add_simulate_rebalance_command(simulate, &status);
  tools::add_simulate_tpot_command(simulate, &status);
  const command_line::Command parallel =
      program.add_command("parallel", "Show how a model is spread over ranks");
  parallel.require_command();
  tools::add_parallel_explain_command(parallel, &status);
  tools::add_doctor_command(program, &status);
  tools::add_quantize_command(program, &status);

  try {
    const Result<bool> parsed = program.parse(arguments);
    if (!parsed.ok()) status = parsed.status();
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
