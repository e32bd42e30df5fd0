// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of `wideep`, one file each. Each function adds its subcommand to `app`; when the
// user chose it, CLI11 calls it back during parsing and it stores how the run ended in *status
// (main turns that into one line on stderr and the exit code).
//
// Results for people go to stdout, everything else to stderr (base/log.h); --json prints only JSON.
#pragma once

#include <CLI/CLI.hpp>

#include "wideep/status.h"

namespace wideep::tools {

class Started;
void add_generate_command(CLI::App& app, const Started& started, Status* status);
void add_serve_command(CLI::App& app, const Started& started, Status* status);
void add_route_command(CLI::App& app, Status* status);
void add_balance_report_command(CLI::App& balance, Status* status);   // wideep balance report
void add_balance_plan_command(CLI::App& balance, Status* status);     // wideep balance plan
void add_balance_resplit_command(CLI::App& balance, Status* status);  // wideep balance resplit
void add_balance_compare_command(CLI::App& balance, Status* status);  // wideep balance compare
void add_balance_picture_command(CLI::App& balance, Status* status);  // wideep balance picture
void add_balance_replay_command(CLI::App& balance, Status* status);   // wideep balance replay
// wideep bench compare-routing
void add_bench_compare_routing_command(CLI::App& bench, Status* status);
void add_bench_dataset_command(CLI::App& bench, Status* status);     // wideep bench prepare-dataset
void add_bench_ep_command(CLI::App& bench, Status* status);          // wideep bench ep
void add_bench_iterations_command(CLI::App& bench, Status* status);  // wideep bench iterations
void add_bench_load_command(CLI::App& bench, Status* status);        // wideep bench load
void add_bench_model_command(CLI::App& bench, Status* status);       // wideep bench model
void add_bench_rows_command(CLI::App& bench, Status* status);        // wideep bench rows
void add_bench_latency_command(CLI::App& bench, Status* status);     // wideep bench latency
void add_bench_throughput_command(CLI::App& bench, Status* status);  // wideep bench throughput
void add_bench_serving_command(CLI::App& bench, Status* status);     // wideep bench serving
void add_parallel_explain_command(CLI::App& parallel, Status* status);  // wideep parallel explain
void add_doctor_command(CLI::App& app, Status* status);
void add_quantize_command(CLI::App& app, Status* status);

}  // namespace wideep::tools
