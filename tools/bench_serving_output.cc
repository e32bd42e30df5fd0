// SPDX-License-Identifier: Apache-2.0
//
// Names, widths and keys are benchmark_serving's, so that scripts for its output work.
#include "bench_serving_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <sstream>

#include "base/try.h"
#include "formats/json.h"

namespace wideep::tools {
namespace {

using measure::ServedRequest;
using measure::ServingReport;
using nlohmann::ordered_json;

// All values of one figure, sorted.
class Values {
 public:
  explicit Values(std::vector<double> values) : values_(std::move(values)) {
    std::sort(values_.begin(), values_.end());
  }
  double mean() const {
    if (values_.empty()) return 0.0;
    return std::accumulate(values_.begin(), values_.end(), 0.0) /
           static_cast<double>(values_.size());
  }
  double deviation() const {  // of all, as numpy's std
    if (values_.empty()) return 0.0;
    double squares = 0.0;
    for (const double value : values_) squares += (value - mean()) * (value - mean());
    return std::sqrt(squares / static_cast<double>(values_.size()));
  }
  // Interpolated linearly between the two nearest values, as numpy's.
  double percentile(double percent) const {
    if (values_.empty()) return 0.0;
    const double place = percent / 100 * static_cast<double>(values_.size() - 1);
    const auto low = static_cast<size_t>(place);
    const size_t high = std::min(low + 1, values_.size() - 1);
    return values_[low] + (place - static_cast<double>(low)) * (values_[high] - values_[low]);
  }

 private:
  std::vector<double> values_;
};

struct Metric {
  const char* key;
  const char* name;
  const char* title;
  void (*add)(const ServedRequest& request, std::vector<double>* to);  // seconds
};
constexpr Metric kMetrics[] = {
    {"ttft", "TTFT", "Time to First Token",
     [](const ServedRequest& request, std::vector<double>* to) { to->push_back(request.ttft); }},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)",
     [](const ServedRequest& request, std::vector<double>* to) {
       if (request.output_tokens > 1) to->push_back(request.tpot());
     }},
    {"itl", "ITL", "Inter-token Latency",
     [](const ServedRequest& request, std::vector<double>* to) {
       to->insert(to->end(), request.itl.begin(), request.itl.end());
     }},
    {"e2el", "E2EL", "End-to-end Latency",
     [](const ServedRequest& request, std::vector<double>* to) { to->push_back(request.e2el); }},
};

// Of requests that succeeded, in ms.
Values values_of(const ServingReport& report, const Metric& metric) {
  std::vector<double> values;
  for (const ServedRequest& request : report.requests) {
    if (request.status.ok()) metric.add(request, &values);
  }
  for (double& value : values) value *= 1e3;
  return Values(std::move(values));
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

std::optional<double> number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

// "99" or "99.9", as Python prints it.
std::string percent_text(double percent) { return fmt::format("{}", percent); }

double goodput(const ServingReport& report, const ServingFigures& figures) {
  const auto keeps = [&](const char* metric, double seconds) {
    const auto goal = figures.goals.find(metric);
    return goal == figures.goals.end() || seconds * 1e3 <= goal->second;
  };
  const auto good = std::count_if(
      report.requests.begin(), report.requests.end(), [&](const ServedRequest& request) {
        return request.status.ok() && keeps("ttft", request.ttft) &&
               keeps("tpot", request.tpot()) && keeps("e2el", request.e2el);
      });
  return report.seconds > 0 ? static_cast<double>(good) / report.seconds : 0.0;
}

// Tokens per second of a request, mean over requests.
double user_throughput(const ServingReport& report) {
  std::vector<double> speeds;
  for (const ServedRequest& request : report.requests) {
    if (request.status.ok() && request.e2el > 0) {
      speeds.push_back(static_cast<double>(request.output_tokens) / request.e2el);
    }
  }
  return Values(std::move(speeds)).mean();
}

std::string line(const std::string& name, double value) {
  return fmt::format("{:<40} {:<10.2f}\n", name, value);
}
std::string line(const std::string& name, int64_t value) {
  return fmt::format("{:<40} {:<10}\n", name, value);
}

bool is_wanted(const ServingFigures& figures, const Metric& metric) {
  return std::find(figures.metrics.begin(), figures.metrics.end(), metric.key) !=
         figures.metrics.end();
}

ordered_json json_of(const base::Percentiles& of) {
  return {{"mean", of.mean}, {"median", of.median}, {"p90", of.p90}, {"p99", of.p99}};
}

void add_lists(const ServingReport& report, ordered_json* json) {
  for (const char* key :
       {"input_lens", "output_lens", "ttfts", "itls", "e2els", "generated_texts", "errors"}) {
    (*json)[key] = ordered_json::array();
  }
  for (const ServedRequest& request : report.requests) {
    (*json)["input_lens"].push_back(request.input_tokens);
    (*json)["output_lens"].push_back(request.status.ok() ? request.output_tokens : 0);
    (*json)["ttfts"].push_back(request.ttft);
    (*json)["itls"].push_back(request.itl);
    (*json)["e2els"].push_back(request.e2el);
    (*json)["generated_texts"].push_back(request.text);
    (*json)["errors"].push_back(request.status.message());
  }
}

struct PredictedValue {
  const char* key;
  const char* name;
  double predicted = 0.0, measured = 0.0;

  double ratio() const { return measured / predicted; }
};

std::vector<PredictedValue> predicted_values(const ServingReport& report,
                                             const ServingPrediction& prediction) {
  return {{.key = "output_tokens_per_second",
           .name = "tok/s",
           .predicted = prediction.output_tokens_per_second,
           .measured = report.output_tokens_per_second()},
          {.key = "ttft_ms",
           .name = "TTFT (ms)",
           .predicted = prediction.ttft_ms,
           .measured = report.ttft.mean * 1e3},
          {.key = "tpot_ms",
           .name = "TPOT (ms)",
           .predicted = prediction.tpot_ms,
           .measured = report.tpot.mean * 1e3}};
}

std::string prediction_text(const ServingReport& report, const ServingPrediction& prediction) {
  std::string text = fmt::format("{:-^50}\n{}\n{:<20} {:>10} {:>10} {:>7}\n", "Prediction",
                                 prediction.of, "", "predicted", "measured", "ratio");
  for (const PredictedValue& each : predicted_values(report, prediction)) {
    text += fmt::format("{:<20} {:10.2f} {:10.2f} {:7.2f}\n", each.name, each.predicted,
                        each.measured, each.ratio());
  }
  return text;
}

ordered_json json_of(const ServingReport& report, const ServingPrediction& prediction) {
  ordered_json json = {{"of", prediction.of}};
  for (const PredictedValue& each : predicted_values(report, prediction)) {
    json[each.key] = {{"predicted", each.predicted}, {"ratio", each.ratio()}};
  }
  return json;
}

}  // namespace

Result<ServingPrediction> read_serving_prediction(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const formats::JsonDocument document, formats::JsonDocument::read(path));
  formats::JsonObject root = document.root();
  const bool is_disaggregated = root.has("disaggregated");
  if (is_disaggregated) root = root.object("disaggregated");
  if (!root.has("recommended")) {
    root.complain("recommended", "expected what `wideep advise --json` recommends, found nothing");
    return document.status();
  }
  const formats::JsonObject best = root.object("recommended");
  constexpr formats::NumberRange kPositive{.min = 1e-9};
  const ServingPrediction prediction{
      .of = is_disaggregated ? best.string("name")
                             : fmt::format("{} ranks, aggregated", best.integer("ranks")),
      .output_tokens_per_second = best.number("tokens_per_second_per_rank", kPositive) *
                                  static_cast<double>(best.integer("ranks", {.min = 1})),
      .ttft_ms = best.number("ttft_ms", kPositive),
      .tpot_ms = best.number("tpot_ms", kPositive)};
  WIDEEP_TRY(document.status());
  return prediction;
}

Result<ServingFigures> read_serving_figures(const std::string& metrics,
                                            const std::string& percentiles,
                                            const std::vector<std::string>& goals) {
  ServingFigures figures;
  figures.metrics = split(metrics, ',');
  for (const std::string& key : figures.metrics) {
    const bool is_known = std::any_of(std::begin(kMetrics), std::end(kMetrics),
                                      [&](const Metric& metric) { return metric.key == key; });
    if (!is_known) {
      return invalid_input(
          fmt::format("--percentile-metrics: expected some of ttft,tpot,itl,e2el, found {}", key));
    }
  }
  for (const std::string& text : split(percentiles, ',')) {
    const auto percent = number_of(text);
    if (!percent || *percent < 0 || *percent > 100) {
      return invalid_input(
          fmt::format("--metric-percentiles: expected numbers from 0 to 100, found {}", text));
    }
    figures.percentiles.push_back(*percent);
  }
  for (const std::string& goal : goals) {
    const size_t colon = goal.find(':');
    const std::string key = goal.substr(0, colon);
    const auto ms = colon == goal.npos ? std::nullopt : number_of(goal.substr(colon + 1));
    if ((key != "ttft" && key != "tpot" && key != "e2el") || !ms || *ms < 0) {
      return invalid_input(fmt::format(
          "--goodput: expected ttft:MS, tpot:MS or e2el:MS, milliseconds from 0 on, found {}",
          goal));
    }
    figures.goals[key] = *ms;
  }
  return figures;
}

std::string serving_text(const ServingReport& report, const ServingFigures& figures) {
  const auto failed = static_cast<int64_t>(report.failures.size());
  std::string text = fmt::format("{:=^50}\n", " Serving Benchmark Result ") +
                     line("Total requests:", static_cast<int64_t>(report.requests.size())) +
                     line("Successful requests:", int64_t{report.completed}) +
                     line("Failed requests:", failed) +
                     line("Benchmark duration (s):", report.seconds) +
                     line("Total input tokens:", report.input_tokens) +
                     line("Total generated tokens:", report.output_tokens) +
                     line("Request throughput (req/s):", report.requests_per_second());
  if (!figures.goals.empty()) {
    text += line("Request goodput (req/s):", goodput(report, figures));
  }
  text += line("Output token throughput (tok/s):", report.output_tokens_per_second()) +
          line("Total Token throughput (tok/s):", report.all_tokens_per_second()) +
          line("User throughput (tok/s):", user_throughput(report));
  if (failed > 0) {
    text += fmt::format("{0:=^63}\nTotal failed requests: {1}\n{2:=^63}\n", "!FAILED REQUESTS!",
                        failed, "!CHECK LOG FOR ERRORS!");
  }
  for (const Metric& metric : kMetrics) {
    if (!is_wanted(figures, metric)) continue;
    const Values values = values_of(report, metric);
    text += fmt::format("{:-^50}\n", metric.title) +
            line(fmt::format("Mean {} (ms):", metric.name), values.mean()) +
            line(fmt::format("Median {} (ms):", metric.name), values.percentile(50)) +
            line(fmt::format("Std Dev {} (ms):", metric.name), values.deviation());
    for (const double percent : figures.percentiles) {
      text += line(fmt::format("P{} {} (ms):", percent_text(percent), metric.name),
                   values.percentile(percent));
    }
  }
  if (figures.prediction) text += prediction_text(report, *figures.prediction);
  return text + std::string(50, '=') + "\n";
}

ordered_json serving_json(const ServingReport& report, const ServingFigures& figures) {
  ordered_json json = {{"completed", report.completed},
                       {"failed", report.failures.size()},
                       {"duration_seconds", report.seconds},
                       {"input_tokens", report.input_tokens},
                       {"output_tokens", report.output_tokens},
                       {"requests_per_second", report.requests_per_second()},
                       {"output_tokens_per_second", report.output_tokens_per_second()},
                       {"all_tokens_per_second", report.all_tokens_per_second()},
                       {"output_tokens_per_second_per_user", user_throughput(report)},
                       {"ttft_seconds", json_of(report.ttft)},
                       {"tpot_seconds", json_of(report.tpot)},
                       {"itl_seconds", json_of(report.itl)},
                       {"e2el_seconds", json_of(report.e2el)}};
  if (!figures.goals.empty()) json["good_requests_per_second"] = goodput(report, figures);
  if (figures.prediction) json["prediction"] = json_of(report, *figures.prediction);
  return json;
}

std::string result_file_name(const ServingRun& run, const std::string& date) {
  // Python prints floats that are whole with ".0".
  const bool is_whole =
      std::isfinite(run.request_rate) && std::floor(run.request_rate) == run.request_rate;
  return fmt::format("{}-{}{}qps-concurrency{}-{}-{}.json", run.backend, run.request_rate,
                     is_whole ? ".0" : "", run.max_concurrency,
                     run.model.substr(run.model.rfind('/') + 1), date);
}

ordered_json result_json(const ServingRun& run, const std::string& date,
                         const ServingReport& report, const ServingFigures& figures) {
  ordered_json json = {{"date", date},
                       {"backend", run.backend},
                       {"model_id", run.model},
                       {"tokenizer_id", run.tokenizer.empty() ? run.model : run.tokenizer},
                       {"num_prompts", run.num_prompts}};
  for (const auto& [key, value] : run.metadata) json[key] = value;
  json["duration"] = report.seconds;
  json["completed"] = report.completed;
  json["total_input_tokens"] = report.input_tokens;
  json["total_output_tokens"] = report.output_tokens;
  json["request_throughput"] = report.requests_per_second();
  // The colon is in benchmark_serving's key, too.
  json["request_goodput:"] =
      figures.goals.empty() ? ordered_json() : ordered_json(goodput(report, figures));
  json["output_throughput"] = report.output_tokens_per_second();
  json["total_token_throughput"] = report.all_tokens_per_second();
  json["user_throughput"] = user_throughput(report);
  if (run.is_detailed) add_lists(report, &json);
  for (const Metric& metric : kMetrics) {
    if (!is_wanted(figures, metric)) continue;
    const Values values = values_of(report, metric);
    json[fmt::format("std_{}_ms", metric.key)] = values.deviation();
    json[fmt::format("mean_{}_ms", metric.key)] = values.mean();
    json[fmt::format("median_{}_ms", metric.key)] = values.percentile(50);
    for (const double percent : figures.percentiles) {
      json[fmt::format("p{}_{}_ms", percent_text(percent), metric.key)] =
          values.percentile(percent);
    }
  }
  json["request_rate"] =
      std::isinf(run.request_rate) ? ordered_json("inf") : ordered_json(run.request_rate);
  json["burstiness"] = run.burstiness;
  json["max_concurrency"] = run.max_concurrency;
  return json;
}

}  // namespace wideep::tools
