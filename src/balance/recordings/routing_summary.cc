// SPDX-License-Identifier: Apache-2.0
#include "recordings/routing_summary.h"

#include <algorithm>
#include <numeric>

namespace wideep::recordings {
namespace {

// The average of the added values; nullopt if there are none.
class Average {
 public:
  void add(double value) {
    sum_ += value;
    ++count_;
  }
  void add(std::optional<double> value) {
    if (value) add(*value);
  }
  std::optional<double> value() const {
    return count_ == 0 ? std::optional<double>() : sum_ / count_;
  }

 private:
  double sum_ = 0;
  int count_ = 0;
};

struct Load {
  double max = 0;
  double mean = 0;
};

Load load_of(const std::vector<int64_t>& received) {
  const int64_t total = std::accumulate(received.begin(), received.end(), int64_t{0});
  return {.max = static_cast<double>(*std::max_element(received.begin(), received.end())),
          .mean = static_cast<double>(total) / static_cast<double>(received.size())};
}

double ratio_of(const Load& load) { return load.mean > 0 ? load.max / load.mean - 1 : 0; }

RoutingImbalance layer_imbalance(const RoutingLog& log, size_t layer_idx) {
  Average all, prompt, generation;
  Load sum;
  for (const RoutingLog::Iteration& iteration : log.iterations) {
    const Load load = load_of(received_pairs(iteration, layer_idx));
    all.add(ratio_of(load));
    (iteration.prompt_tokens > 0 ? prompt : generation).add(ratio_of(load));
    sum.max += load.max;
    sum.mean += load.mean;
  }
  return {.average = all.value().value_or(0),
          .prompt = prompt.value(),
          .generation = generation.value(),
          .weighted = ratio_of(sum)};
}

RoutingImbalance mean_over(const std::vector<RoutingImbalance>& layers) {
  Average average, prompt, generation, weighted;
  for (const RoutingImbalance& layer : layers) {
    average.add(layer.average);
    prompt.add(layer.prompt);
    generation.add(layer.generation);
    weighted.add(layer.weighted);
  }
  return {.average = average.value().value_or(0),
          .prompt = prompt.value(),
          .generation = generation.value(),
          .weighted = weighted.value().value_or(0)};
}

}  // namespace

std::vector<int64_t> received_pairs(const RoutingLog::Iteration& iteration, size_t layer_idx) {
  const auto& sent = iteration.sent[layer_idx];
  std::vector<int64_t> received(sent.size(), 0);
  for (const std::vector<int32_t>& row : sent) {
    for (size_t rank = 0; rank < row.size(); ++rank) received[rank] += row[rank];
  }
  return received;
}

RoutingSummary summarize_routing(const RoutingLog& log) {
  RoutingSummary summary;
  for (size_t layer = 0; layer < log.layers.size(); ++layer) {
    summary.layers.push_back(layer_imbalance(log, layer));
    double us = 0;
    for (const auto& iteration : log.iterations) us += iteration.critical_path_us[layer];
    summary.critical_path_ms.push_back(us / 1000);
  }
  summary.mean = mean_over(summary.layers);
  for (const RoutingLog::Iteration& iteration : log.iterations) {
    summary.prompt_tokens += iteration.prompt_tokens;
    summary.generated_tokens += iteration.generated_tokens;
  }
  return summary;
}

}  // namespace wideep::recordings
