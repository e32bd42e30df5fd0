// SPDX-License-Identifier: Apache-2.0
//
// Blocks as trtllm-bench prints them, one function each for text and for JSON, in the same order,
// so that scripts for its output work. What it does not have, iterations and their balance, stands
// in blocks of its own.
#include "bench_throughput_output.h"

#include <fmt/format.h>

#include "base/byte_size.h"
#include "base/machine.h"

namespace wideep::tools {
namespace {

using base::Percentiles;
using measure::ThroughputReport;
using nlohmann::ordered_json;

constexpr const char* kRule = "===========================================================\n";
constexpr const char* kMeaningless =
    "perfect router: choices of experts went to all ranks in turn; outputs mean nothing";

std::string policy_of(const BenchedRun& benched) {
  const std::string& policy =
      benched.options.run.parallel.scheduler_config.capacity_scheduler_policy;
  return policy.empty() ? "GUARANTEED_NO_EVICT" : policy;
}

std::string heading(const char* title) { return fmt::format("{}= {}\n{}", kRule, title, kRule); }

std::string line(const char* name, double value, int width) {
  return fmt::format("{:<{}}{:.4f}\n", name, width, value);
}

std::string or_none(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "none";
}

std::string breakdown(const char* title, const char* tag, const base::Percentiles& of) {
  std::string text = fmt::format("\n{:-<60}\n\n", fmt::format("-- {} ", title));
  for (const auto& [name, value] :
       {std::pair{"P50", of.median}, std::pair{"P90", of.p90}, std::pair{"P95", of.p95},
        std::pair{"P99", of.p99}, std::pair{"MINIMUM", of.minimum},
        std::pair{"MAXIMUM", of.maximum}, std::pair{"AVERAGE", of.mean}}) {
    text += fmt::format("[{}] {:<7}: {:.4f}\n", tag, name, value);
  }
  return text;
}

std::string engine_block(const BenchedRun& benched) {
  const measure::RunFacts& facts = benched.run.facts;
  return heading("WIDEEP BACKEND") +
         fmt::format(
             "Model:                 {}\nwideep Version:        {}\nDtype:                 {}\n"
             "KV Cache Dtype:        {}\nKernels:               {}\n{}\n",
             benched.model, WIDEEP_VERSION, facts.weights, facts.cache, facts.isa,
             benched.options.run.perfect_router
                 ? fmt::format("Router:                {}\n", kMeaningless)
                 : "");
}

std::string machine_block(const measure::RunFacts& facts) {
  const base::Machine machine = base::read_machine();
  return heading("MACHINE DETAILS") +
         fmt::format("{}, {} cores, {} free; {} thread{} a rank\n\n",
                     machine.processor.empty() ? "processor unknown" : machine.processor,
                     machine.usable_cores(), base::byte_size(machine.usable_memory_bytes()),
                     facts.threads_per_rank, facts.threads_per_rank == 1 ? "" : "s");
}

std::string request_block(const ThroughputReport& report) {
  return heading("REQUEST DETAILS") +
         fmt::format("Number of requests:             {}\n", report.num_requests) +
         line("Number of concurrent requests:", report.avg_concurrent_requests, 32) +
         line("Average Input Length (tokens):",
              static_cast<double>(report.input_tokens) / report.num_requests, 32) +
         line("Average Output Length (tokens):",
              static_cast<double>(report.output_tokens) / report.num_requests, 32) +
         "\n";
}

std::string world_block(const BenchedRun& benched, const ThroughputReport& report) {
  const parallel::ParallelSizes& sizes = benched.options.run.parallel.sizes;
  return heading("WORLD + RUNTIME INFORMATION") +
         fmt::format(
             "TP Size:                {}\nPP Size:                {}\nEP Size:                {}\n"
             "Max Runtime Batch Size: {}\nMax Runtime Tokens:     {}\n"
             "Scheduling Policy:      {}\nKV Memory Percentage:   {:.2f}%\n"
             "Issue Rate (req/sec):   {}\n\n",
             sizes.tp, sizes.pp, sizes.moe_ep, benched.run.facts.max_batch_size,
             benched.run.facts.max_num_tokens, policy_of(benched),
             100 * benched.options.run.cache_share, or_none(report.issue_rate_req_s));
}

std::string performance_block(const BenchedRun& benched, const ThroughputReport& report) {
  constexpr int kWidth = 50;
  const auto output = static_cast<double>(report.output_tokens);
  const int ranks = benched.options.run.parallel.mapping().world_size();
  std::string text =
      heading("PERFORMANCE OVERVIEW") +
      line("Request Throughput (req/sec):", report.per_second(report.num_requests), kWidth) +
      line("Total Output Throughput (tokens/sec):", report.per_second(output), kWidth) +
      line("Total Token Throughput (tokens/sec):",
           report.per_second(output + static_cast<double>(report.input_tokens)), kWidth) +
      line("Total Latency (ms):", report.total_ms, kWidth) +
      line("Average request latency (ms):", report.latency_ms.mean, kWidth) +
      line("Per User Output Throughput [w/ ctx] (tps/user):", report.output_per_user, kWidth) +
      line("Per GPU Output Throughput (tps/gpu):", report.per_second(output) / ranks, kWidth);
  if (benched.streaming) {
    text +=
        line("Average time-to-first-token [TTFT] (ms):", report.ttft_ms.mean, kWidth) +
        line("Average time-per-output-token [TPOT] (ms):", report.tpot_ms.mean, kWidth) +
        line("Per User Output Speed (tps/user):", report.user_speed.mean, kWidth) +
        breakdown("Per-Request Time-per-Output-Token [TPOT] Breakdown (ms)", "TPOT",
                  report.tpot_ms) +
        breakdown("Per-Request Time-to-First-Token [TTFT] Breakdown (ms)", "TTFT", report.ttft_ms) +
        breakdown("Inter-Token Latency [ITL] Breakdown (ms)", "ITL", report.itl_ms) +
        breakdown("Per-Request Generation Throughput [GTPS] Breakdown (tps/user)", "GTPS",
                  report.user_speed);
  }
  return text + breakdown("Request Latency Breakdown (ms)", "Latency", report.latency_ms) + "\n";
}

// Tokens of the requests: inputs from the dataset, outputs as generated.
struct Lengths {
  base::Percentiles input, output, sequence;
};

Lengths lengths_of(const measure::ThroughputRun& run) {
  std::vector<double> input, output, sequence;
  for (const measure::RequestTimes& request : run.requests) {
    input.push_back(request.input_tokens);
    output.push_back(static_cast<double>(request.token_ns.size()));
    sequence.push_back(input.back() + output.back());
  }
  return {base::percentiles_of(input), base::percentiles_of(output),
          base::percentiles_of(sequence)};
}

std::string dataset_block(const BenchedRun& benched) {
  const Lengths lengths = lengths_of(benched.run);
  std::string text =
      heading("DATASET DETAILS") + fmt::format(
                                       "Dataset Path:         {}\nNumber of Sequences:  {}\n\n"
                                       "{:<9}{:>12}{:>12}{:>14}\n",
                                       benched.dataset, benched.run.requests.size(), "tokens",
                                       "Input", "Output", "Seq. Length");
  const auto row = [&](const char* name, double base::Percentiles::* of) {
    text += fmt::format("{:<9}{:>12.4f}{:>12.4f}{:>14.4f}\n", name, lengths.input.*of,
                        lengths.output.*of, lengths.sequence.*of);
  };
  row("MIN:", &base::Percentiles::minimum);
  row("MAX:", &base::Percentiles::maximum);
  row("AVG:", &base::Percentiles::mean);
  row("P50:", &base::Percentiles::median);
  row("P90:", &base::Percentiles::p90);
  row("P95:", &base::Percentiles::p95);
  row("P99:", &base::Percentiles::p99);
  return text + kRule;
}

// A block that TensorRT-LLM's report does not have.
std::string iterations_block(const measure::IterationTotals& totals) {
  return heading("ITERATIONS") +
         fmt::format(
             "Iterations:                {} (from {} of the iteration log)\n"
             "Critical path (ms):        {:.4f}\n  of it experts (ms):      {:.4f}\n"
             "Mean rank (ms):            {:.4f}\nImbalance ratio:           {:.4f}\n"
             "Expert moves:              {} ({})\n\n",
             totals.count, totals.first, totals.critical_path_ms, totals.critical_path_experts_ms,
             totals.mean_rank_ms, totals.imbalance_ratio, totals.expert_moves,
             base::byte_size(static_cast<uint64_t>(totals.moved_bytes)));
}

bool speculates(const BenchedRun& benched) {
  return benched.options.run.parallel.speculative_config.has_value();
}

std::string decoding_block(const BenchedRun& benched) {
  if (!speculates(benched)) return "";
  const run::SpeculationTotals& all = benched.run.iterations.speculation;
  return heading("DECODING STATISTICS") +
         fmt::format(
             "Draft tokens [DT]:             {}\nAccepted draft tokens [ADT]:   {}\n"
             "Draft acceptance rate [DAR]:   {:.4f}\nAcceptance length [AL]:        {:.4f}\n\n",
             all.drafted, all.accepted, all.acceptance_rate(), all.acceptance_length());
}

ordered_json decoding_json(const BenchedRun& benched) {
  if (!speculates(benched)) return nullptr;
  using Type = parallel::SpeculativeConfig::Type;
  const run::SpeculationTotals& all = benched.run.iterations.speculation;
  const Type type = benched.options.run.parallel.speculative_config->type;
  return {{"mode", type == Type::kNgram    ? "NGram"
                   : type == Type::kSuffix ? "SA"
                   : type == Type::kMtp    ? "MTP"
                                           : "auto"},
          {"num_draft_tokens", all.drafted},
          {"num_accepted_draft_tokens", all.accepted},
          {"draft_acceptance_rate", all.acceptance_rate()},
          {"acceptance_length", all.acceptance_length()}};
}

ordered_json json_of(const base::Percentiles& of) {
  return {{"minimum", of.minimum}, {"maximum", of.maximum}, {"average", of.mean},
          {"p50", of.median},      {"p90", of.p90},         {"p95", of.p95},
          {"p99", of.p99}};
}

ordered_json world_json(const BenchedRun& benched, const ThroughputReport& report) {
  const run::RunOptions& run = benched.options.run;
  ordered_json json = {{"tp_size", run.parallel.sizes.tp},
                       {"pp_size", run.parallel.sizes.pp},
                       {"ep_size", run.parallel.sizes.moe_ep},
                       {"world_size", run.parallel.mapping().world_size()},
                       {"max_batch_size", benched.run.facts.max_batch_size},
                       {"max_num_tokens", benched.run.facts.max_num_tokens},
                       {"scheduling_policy", policy_of(benched)},
                       {"kv_cache_percentage", 100 * run.cache_share}};
  json["issue_rate"] = report.issue_rate_req_s ? ordered_json(*report.issue_rate_req_s) : nullptr;
  return json;
}

ordered_json performance_json(const BenchedRun& benched, const ThroughputReport& report) {
  const auto output = static_cast<double>(report.output_tokens);
  const int ranks = benched.options.run.parallel.mapping().world_size();
  return {{"total_latency_ms", report.total_ms},
          {"avg_request_latency_ms", report.latency_ms.mean},
          {"request_throughput_req_s", report.per_second(report.num_requests)},
          {"system_output_throughput_tok_s", report.per_second(output)},
          {"system_total_throughput_tok_s",
           report.per_second(output + static_cast<double>(report.input_tokens))},
          {"output_throughput_per_user_tok_s", report.output_per_user},
          {"output_throughput_per_gpu_tok_s", report.per_second(output) / ranks},
          {"request_latency_percentiles_ms", json_of(report.latency_ms)}};
}

ordered_json streaming_json(const ThroughputReport& report) {
  return {{"token_output_speed_tok_s", report.user_speed.mean},
          {"avg_ttft_ms", report.ttft_ms.mean},
          {"avg_tpot_ms", report.tpot_ms.mean},
          {"ttft_percentiles", json_of(report.ttft_ms)},
          {"tpot_percentiles", json_of(report.tpot_ms)},
          {"itl_percentiles", json_of(report.itl_ms)},
          {"gen_tps_percentiles", json_of(report.user_speed)}};
}

ordered_json dataset_json(const BenchedRun& benched) {
  const Lengths lengths = lengths_of(benched.run);
  return {{"path", benched.dataset},
          {"num_sequences", benched.run.requests.size()},
          {"isl_stats", json_of(lengths.input)},
          {"osl_stats", json_of(lengths.output)},
          {"seq_len_stats", json_of(lengths.sequence)}};
}

ordered_json iterations_json(const measure::IterationTotals& totals) {
  return {{"first", totals.first},
          {"count", totals.count},
          {"critical_path_ms", totals.critical_path_ms},
          {"critical_path_experts_ms", totals.critical_path_experts_ms},
          {"mean_rank_ms", totals.mean_rank_ms},
          {"imbalance_ratio", totals.imbalance_ratio},
          {"expert_moves", totals.expert_moves},
          {"moved_bytes", totals.moved_bytes}};
}

ordered_json machine_json() {
  const base::Machine machine = base::read_machine();
  return {{"name", machine.processor},
          {"cores", machine.usable_cores()},
          {"memory_bytes", machine.usable_memory_bytes()}};
}

}  // namespace

std::string throughput_text(const BenchedRun& benched, const ThroughputReport& report) {
  return engine_block(benched) + machine_block(benched.run.facts) + request_block(report) +
         world_block(benched, report) + performance_block(benched, report) +
         iterations_block(benched.run.iterations) + decoding_block(benched) +
         dataset_block(benched);
}

ordered_json throughput_json(const BenchedRun& benched, const ThroughputReport& report) {
  const measure::RunFacts& facts = benched.run.facts;
  ordered_json json;
  json["engine"] = {{"model", benched.model}, {"model_path", benched.model_path},
                    {"backend", "wideep"},    {"version", WIDEEP_VERSION},
                    {"dtype", facts.weights}, {"kv_cache_dtype", facts.cache},
                    {"kernels", facts.isa},   {"threads_per_rank", facts.threads_per_rank}};
  if (benched.options.run.perfect_router) {
    json["perfect_router"] = true;
    json["meaningless"] = kMeaningless;
  }
  json["machine"] = machine_json();
  json["world_info"] = world_json(benched, report);
  json["request_info"] = {
      {"num_requests", report.num_requests},
      {"avg_num_concurrent_requests", report.avg_concurrent_requests},
      {"avg_input_length", static_cast<double>(report.input_tokens) / report.num_requests},
      {"avg_output_length", static_cast<double>(report.output_tokens) / report.num_requests}};
  json["performance"] = performance_json(benched, report);
  if (benched.streaming) json["streaming_metrics"] = streaming_json(report);
  json["decoding_stats"] = decoding_json(benched);
  json["dataset"] = dataset_json(benched);
  json["iterations"] = iterations_json(benched.run.iterations);
  return json;
}

ordered_json requests_json(const BenchedRun& benched) {
  ordered_json all = ordered_json::array();
  const auto& requests = benched.run.requests;
  int64_t first_ns = INT64_MAX;
  for (const measure::RequestTimes& each : requests) first_ns = std::min(first_ns, each.start_ns);
  for (size_t i = 0; i < requests.size(); ++i) {
    const measure::RequestTimes& each = requests[i];
    const auto ms_from = [&](int64_t from, int64_t to) {
      return static_cast<double>(to - from) * 1e-6;
    };
    ordered_json json = {{"request_id", i},
                         {"num_input_tokens", each.input_tokens},
                         {"num_generated_tokens", each.tokens.size()},
                         {"start_ms", ms_from(first_ns, each.start_ns)},
                         {"end_to_end_latency_ms", ms_from(each.start_ns, each.token_ns.back())}};
    if (benched.streaming) {
      json["time_to_first_token_ms"] = ms_from(each.start_ns, each.token_ns.front());
      json["generation_time_ms"] = ms_from(each.token_ns.front(), each.token_ns.back());
    }
    all.push_back(std::move(json));
  }
  return all;
}

ordered_json outputs_json(const BenchedRun& benched) {
  ordered_json all = ordered_json::array();
  for (size_t i = 0; i < benched.run.requests.size(); ++i) {
    ordered_json json = {{"request_id", i}, {"output_ids", benched.run.requests[i].tokens}};
    if (!benched.run.texts.empty()) json["text"] = benched.run.texts[i];
    if (benched.options.run.perfect_router) json["meaningless"] = true;
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace wideep::tools
