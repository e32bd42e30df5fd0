// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of `wideep`, one file each. Each function adds its subcommand to `app`; when the
// user chose it, the program calls it back while it parses, and it stores how the run ended in
// *status (main turns that into one line on stderr and the exit code).
//
// Results for people go to stdout, everything else to stderr (base/log.h); --json prints only JSON.
#pragma once

#include "command_line/command_line.h"
#include "wideep/status.h"

namespace wideep::tools {

class Started;
void add_generate_command(command_line::Command app, const Started& started, Status* status);
void add_serve_command(command_line::Command app, const Started& started, Status* status);
void add_chat_command(command_line::Command app, Status* status);
void add_route_command(command_line::Command app, Status* status);
void add_disaggregated_command(command_line::Command app, Status* status);
void add_mpi_worker_command(command_line::Command app, Status* status);
void add_balance_report_command(command_line::Command balance,
                                Status* status);  // wideep balance report
void add_balance_check_command(command_line::Command balance,
                               Status* status);  // wideep balance check
void add_balance_plan_command(command_line::Command balance,
                              Status* status);  // wideep balance plan
void add_balance_resplit_command(command_line::Command balance,
                                 Status* status);  // wideep balance resplit
void add_balance_compare_command(command_line::Command balance,
                                 Status* status);  // wideep balance compare
void add_balance_picture_command(command_line::Command balance,
                                 Status* status);  // wideep balance picture
void add_balance_replay_command(command_line::Command balance,
                                Status* status);  // wideep balance replay
void add_balance_cache_command(command_line::Command balance,
                               Status* status);  // wideep balance cache
void add_bench_accuracy_command(command_line::Command bench,
                                Status* status);  // wideep bench accuracy
// wideep bench compare-routing
void add_bench_compare_routing_command(command_line::Command bench, Status* status);
void add_bench_dataset_command(command_line::Command bench,
                               Status* status);  // wideep bench prepare-dataset
void add_bench_ep_command(command_line::Command bench, Status* status);  // wideep bench ep
void add_bench_iterations_command(command_line::Command bench,
                                  Status* status);  // wideep bench iterations
void add_bench_load_command(command_line::Command bench, Status* status);   // wideep bench load
void add_bench_model_command(command_line::Command bench, Status* status);  // wideep bench model
void add_bench_rows_command(command_line::Command bench, Status* status);   // wideep bench rows
// wideep bench speculation
void add_bench_speculation_command(command_line::Command bench, Status* status);
void add_bench_latency_command(command_line::Command bench,
                               Status* status);  // wideep bench latency
void add_bench_throughput_command(command_line::Command bench,
                                  Status* status);  // wideep bench throughput
void add_bench_serving_command(command_line::Command bench,
                               Status* status);  // wideep bench serving
void add_parallel_explain_command(command_line::Command parallel,
                                  Status* status);  // wideep parallel explain
void add_doctor_command(command_line::Command app, Status* status);
void add_advise_command(command_line::Command app, Status* status);
// wideep simulate imbalance, moves, rebalance, tpot
void add_simulate_imbalance_command(command_line::Command simulate, Status* status);
void add_simulate_moves_command(command_line::Command simulate, Status* status);
void add_simulate_rebalance_command(command_line::Command simulate, Status* status);
void add_simulate_tpot_command(command_line::Command simulate, Status* status);
// wideep figures NAME, in figures/
void add_figure_expert_time_command(command_line::Command figures, Status* status);
void add_figure_kernels_command(command_line::Command figures, Status* status);
void add_figure_movable_experts_command(command_line::Command figures, Status* status);
void add_figure_ngram_command(command_line::Command figures, Status* status);
void add_figure_optimizations_command(command_line::Command figures, Status* status);
void add_figure_pareto_command(command_line::Command figures, Status* status);
void add_figure_sent_tokens_command(command_line::Command figures, Status* status);
void add_quantize_command(command_line::Command app, Status* status);
void add_pack_command(command_line::Command app, Status* status);
// wideep man, wideep completions: of all commands of the program, which must outlive the run
void add_describe_commands(const command_line::Program& program, Status* status);

}  // namespace wideep::tools
