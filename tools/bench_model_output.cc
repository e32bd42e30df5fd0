// SPDX-License-Identifier: Apache-2.0
//
// A speed alone says little of a program on an unknown machine. So each line has what was achieved
// next to the limit that binds it, memory or products, and below is the work from which that
// follows, for readers who want to check it.
#include "bench_model_output.h"

#include <fmt/format.h>

#include "base/byte_size.h"

namespace wideep::tools {
namespace {

using measure::Figure;
using measure::TestReport;
using nlohmann::ordered_json;

// A flag's one-way time above which the output calls two cores "far": half way between the slowest
// pair on one die and the fastest pair on two dies, as measured on an EPYC.
constexpr double kFarNs = 120.0;

std::string_view cache_name(Dtype dtype) {
  if (dtype == Dtype::kF8E4M3) return "fp8";
  return dtype == Dtype::kBf16 ? "bf16" : "f32";
}

std::string giga(double count) { return fmt::format("{:.3f} G", count * 1e-9); }

std::string counted(int count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string gops_text(double gops) { return gops > 0 ? fmt::format("{:.0f}", gops) : "none"; }

std::string flag_text(double ns) {
  if (ns <= 0) return "";
  return fmt::format("; flag one way {:.0f} ns (cores {})", ns, ns < kFarNs ? "near" : "far");
}

// At least three significant digits.
std::string speed(double value) {
  return value < 100 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

std::string unit_of(const TestReport& test) {
  return test.bound == measure::Bound::kRead ? "GB/s" : "GOP/s";
}

std::string limit_name(const TestReport& test, const measure::ModelBenchReport& report) {
  return test.bound == measure::Bound::kRead
             ? "read"
             : std::string(measure::limits::operation_name(report.operation));
}

std::string row(const TestReport& test, const measure::ModelBenchReport& report) {
  const Figure& tokens = test.tokens_per_second;
  return fmt::format("{:<14} {:>9} {:>9} {:>9} {:>10.2f}  {:>9} of {:>6} {:<5} {:<4} {:>7.1f} %\n",
                     test.test.name(), speed(tokens.median), speed(tokens.low), speed(tokens.high),
                     test.milliseconds.median, speed(test.achieved.median),
                     speed(test.limit.median), unit_of(test), limit_name(test, report),
                     100 * test.share.median);
}

// The work of each test, from which its limit follows.
std::string work_lines(const measure::ModelBenchReport& report, bool has_experts) {
  std::string lines;
  for (const TestReport& test : report.tests) {
    lines += fmt::format(
        "{:<14} {:.1f} MOP per token, {:.1f} MB per step{}\n", test.test.name(),
        test.operations_per_token * 1e-6, test.bytes_per_step * 1e-6,
        has_experts ? fmt::format(", {:.1f} experts of a layer", test.experts_hit_per_layer) : "");
  }
  return lines;
}

// A dense model's parameters are all active.
std::string parameters_text(const model::ModelConfig& config,
                            const measure::ModelBenchReport& report) {
  const std::string all = giga(static_cast<double>(report.parameters.all));
  if (!config.has_experts()) return fmt::format("all dense; {} parameters", all);
  return fmt::format("{} experts top {}; {} parameters, {} active", config.routing.num_experts,
                     config.routing.top_k, all,
                     giga(static_cast<double>(report.parameters.active)));
}

ordered_json figure_json(const Figure& figure) {
  return {{"median", figure.median}, {"low", figure.low}, {"high", figure.high}};
}

ordered_json test_json(const TestReport& test, const measure::ModelBenchReport& report) {
  const bool is_prefill = test.test.kind == measure::BenchTest::Kind::kPrefill;
  return {{"name", test.test.name()},
          {"kind", is_prefill ? "prefill" : "decode"},
          {"sequences", test.test.sequences},
          {is_prefill ? "prompt" : "depth", test.test.prompt},
          {"steps", test.test.steps},
          {"tokens_per_second", figure_json(test.tokens_per_second)},
          {is_prefill ? "milliseconds" : "milliseconds_per_step", figure_json(test.milliseconds)},
          {"operations_per_token", test.operations_per_token},
          {"bytes_per_step", test.bytes_per_step},
          {"experts_hit_per_layer", test.experts_hit_per_layer},
          {"bound", limit_name(test, report)},
          {"unit", unit_of(test)},
          {"achieved", figure_json(test.achieved)},
          {"limit", figure_json(test.limit)},
          {"share", figure_json(test.share)}};
}

}  // namespace

std::string bench_text(const BenchedModel& model, const measure::ModelBenchReport& report) {
  const model::ModelConfig& config = model.options.config;
  const measure::limits::Limits& limits = report.limits;
  std::string text = fmt::format(
      "model   {}{}: {}, {}\n"
      "weights {}, {} packed, loaded in {:.1f} s; KV cache {}\n"
      "run     {} × {}, kernels {}; {} after one to warm up, {} ahead of each decode step\n{}"
      "limits  memory: read {:.1f}, copy {:.1f} GB/s; f32 {}, bf16 {}, int8 {} GOP/s{}\n\n",
      model.name, model.random_weights ? " (random weights)" : "",
      counted(config.num_layers, "layer"), parameters_text(config, report), model.precision,
      base::byte_size(report.weight_bytes), report.load_seconds,
      cache_name(model.options.precision.cache), counted(model.options.num_ranks, "rank"),
      counted(report.threads_per_rank, "thread"), report.isa,
      counted(model.options.bench.repeats, "run"), counted(model.options.bench.depth, "token"),
      model.options.perfect_router ? "router  perfect: all ranks are chosen equally often\n" : "",
      limits.read_gbps, limits.copy_gbps, gops_text(limits.f32_gops), gops_text(limits.bf16_gops),
      gops_text(limits.int8_gops), flag_text(limits.flag_one_way_ns));
  text += fmt::format("{:<14} {:>9} {:>9} {:>9} {:>10}  {}\n", "test", "tok/s", "low", "high", "ms",
                      " achieved of  limit                 share");
  for (const TestReport& test : report.tests) text += row(test, report);
  return text + "\n" + work_lines(report, config.has_experts());
}

ordered_json bench_json(const BenchedModel& model, const measure::ModelBenchReport& report) {
  const measure::ModelBenchOptions& options = model.options;
  const measure::limits::Limits& limits = report.limits;
  ordered_json json = {{"model", model.name},
                       {"random_weights", model.random_weights},
                       {"dtype", model.precision},
                       {"kv_cache_dtype", cache_name(options.precision.cache)},
                       {"parameters", report.parameters.all},
                       {"active_parameters", report.parameters.active},
                       {"weight_bytes", report.weight_bytes},
                       {"ranks", options.num_ranks},
                       {"threads_per_rank", report.threads_per_rank},
                       {"isa", report.isa},
                       {"seed", options.bench.seed},
                       {"repeats", options.bench.repeats},
                       {"load_seconds", report.load_seconds}};
  if (options.perfect_router) json["perfect_router"] = true;
  json["limits"] = {{"read_gbps", limits.read_gbps}, {"copy_gbps", limits.copy_gbps},
                    {"f32_gops", limits.f32_gops},   {"bf16_gops", limits.bf16_gops},
                    {"int8_gops", limits.int8_gops}, {"flag_one_way_ns", limits.flag_one_way_ns}};
  for (const TestReport& test : report.tests) json["tests"].push_back(test_json(test, report));
  return json;
}

}  // namespace wideep::tools
