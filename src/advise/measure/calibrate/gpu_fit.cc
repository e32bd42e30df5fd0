// SPDX-License-Identifier: Apache-2.0
//
// Rows of the tables become the work that expert_cost.h and exchange_cost.h take: constants are
// fitted to the very code that predicts with them. The exchange of few tokens follows the link's
// latency and waits for the processor that sends an expert's rows; the bulk one has handshakes of
// its own, longer than that latency, and shares all bytes among the processors it is given.
// Exchanges over several nodes are left out: the constants are those of one node's link.
#include "measure/calibrate/gpu_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/printable.h"
#include "base/try.h"
#include "cost/fit.h"

namespace wideep::measure {
namespace {

using kernels::WeightFormat;

// By the names that the tables have. Constants of another format would be fitted to times that are
// none of it.
Result<WeightFormat> format_of(const LatencyTable& table, int row) {
  const std::string& name = table.text(row, "moe_dtype");
  if (name == "nvfp4") return WeightFormat::kNvfp4;
  if (name == "fp8_block") return WeightFormat::kFp8;
  if (name == "bfloat16" || name == "float16") return WeightFormat::kBf16;
  return invalid_input(
      fmt::format("{}: moe_dtype: expected bfloat16, float16, fp8_block or nvfp4, "
                  "found '{}'; leave such rows out",
                  table.place(row), base::printable(name, 60)));
}

double seconds_of(const cost::ProductKernel& kernel, const ExpertSample& sample) {
  return cost::expert_time(*sample.hardware, kernel, sample.shape, sample.work).seconds();
}

double seconds_of(const cost::ExchangeKernel& kernel, const ExchangeSample& sample) {
  return cost::exchange_seconds(*sample.hardware, kernel, sample.work);
}

template <typename Kernel, typename Sample>
std::vector<double> predict(const Kernel& kernel, std::span<const Sample> samples) {
  std::vector<double> predicted(samples.size());
  std::ranges::transform(samples, predicted.begin(),
                         [&](const Sample& sample) { return seconds_of(kernel, sample); });
  return predicted;
}

template <typename Sample>
std::vector<double> measured(std::span<const Sample> samples) {
  std::vector<double> seconds(samples.size());
  std::ranges::transform(samples, seconds.begin(), &Sample::seconds);
  return seconds;
}

cost::ProductKernel expert_kernel(std::span<const double> constants, int tile) {
  return {.overhead = constants[0],
          .memory = constants[1],
          .compute = constants[2],
          .row_traffic = constants[3],
          .tile = tile};
}

// In bulk the kernels' own handshakes are longer than a link's latency, and do not follow it.
cost::ExchangeKernel exchange_kernel(std::span<const double> constants, bool bulk) {
  return {.overhead = bulk ? constants[0] : 0.0,
          .latency = bulk ? 0.0 : constants[0],
          .link = constants[1],
          .serial = constants[2]};
}

// The number of other ranks that a token has experts on, if it chooses them evenly.
double ranks_of_token(int num_ranks, int num_experts, int top_k) {
  const double each = static_cast<double>(num_experts) / num_ranks;
  double none = 1.0;  // of a token's experts is on a given rank
  for (int k = 0; k < top_k; ++k) none *= std::max(0.0, num_experts - each - k) / (num_experts - k);
  return num_ranks * (1.0 - none);
}

// A tenth of what the longest takes, so that the fit begins with a part of every kind.
double start_of_serial(std::span<const ExchangeSample> samples) {
  const auto longest = std::ranges::max_element(samples, {}, &ExchangeSample::seconds);
  return 0.1 * longest->seconds / longest->work.serial;
}

constexpr double kScaleBytes = 4.0 / 128;  // of an fp8 element
constexpr double kIndexBytes = 16.0;       // beside a row

}  // namespace

Result<std::vector<ExpertSample>> expert_samples(const cost::Hardware& hardware,
                                                 const LatencyTable& table, bool packed, int tile) {
  std::vector<ExpertSample> samples;
  using Key = std::tuple<int, int, int, int, int, std::string>;
  std::map<Key, cost::ExpertWork> known;
  for (int row = 0; row < table.num_rows(); ++row) {
    const std::string& distribution = table.text(row, "distribution");
    const PowerLaw law = parse_power_law(distribution);
    if (law.packed != packed) continue;
    WIDEEP_TRY_ASSIGN(const WeightFormat format, format_of(table, row));
    const auto integer = [&](const char* column) {
      return static_cast<int>(table.number(row, column));
    };
    ExpertSample sample{
        .hardware = &hardware,
        .shape = {.hidden = integer("hidden_size"),
                  .intermediate = integer("inter_size"),
                  .format = format},
        .routing = {.num_tokens = integer("num_tokens"),
                    .top_k = integer("topk"),
                    .num_experts = integer("num_experts"),
                    .num_slots = integer("num_slots"),
                    .num_ranks = integer("moe_ep_size")},
        .seconds = table.number(row, "latency") * 1e-3,
    };
    const LayerRouting& routing = sample.routing;
    const Key key{routing.num_tokens, routing.top_k,     routing.num_experts,
                  routing.num_slots,  routing.num_ranks, distribution};
    auto found = known.find(key);
    if (found == known.end()) found = known.emplace(key, busiest_rank(routing, law, tile)).first;
    sample.work = found->second;
    samples.push_back(sample);
  }
  return samples;
}

std::vector<ExchangeSample> exchange_samples(const cost::Hardware& hardware,
                                             const LatencyTable& table, Exchange exchange) {
  const bool bulk = exchange == Exchange::kBulkDispatch || exchange == Exchange::kBulkCombine;
  const bool dispatch = exchange == Exchange::kDispatch || exchange == Exchange::kBulkDispatch;
  const std::string name = dispatch ? "dispatch" : "combine";
  const std::string time = name + (bulk ? "_transmit_us" : "_avg_t_us");
  double max_processors = 0.0;
  for (int row = 0; bulk && row < table.num_rows(); ++row) {
    max_processors = std::max(max_processors, table.number(row, name + "_sms"));
  }
  std::vector<ExchangeSample> samples;
  for (int row = 0; row < table.num_rows(); ++row) {
    if (table.number(row, "node_num") != 1) continue;
    if (bulk && table.number(row, name + "_sms") != max_processors) continue;
    const double tokens = table.number(row, "num_token");
    const auto top_k = static_cast<int>(table.number(row, "num_topk"));
    const auto experts = static_cast<int>(table.number(row, "num_experts"));
    const double hidden = table.number(row, "hidden_size");
    const int ranks = hardware.devices_per_node;
    const double rows = tokens * (bulk ? ranks_of_token(ranks, experts, top_k) : top_k);
    // The dispatch sends fp8, the combine bf16.
    const double row_bytes = dispatch ? hidden * (1.0 + kScaleBytes) + kIndexBytes : hidden * 2.0;
    // One processor sends the rows of an expert; in bulk, all of the given ones share all bytes.
    const double rows_of_expert =
        (dispatch ? tokens : tokens * top_k) / std::min(experts, hardware.processors);
    samples.push_back({
        .hardware = &hardware,
        .work = {.num_ranks = ranks,
                 .rows = rows,
                 .row_bytes = row_bytes,
                 .serial = bulk ? rows * row_bytes / max_processors : rows_of_expert},
        .seconds = table.number(row, time) * 1e-6,
    });
  }
  return samples;
}

cost::ProductKernel fit_expert_kernel(std::span<const ExpertSample> samples, int tile) {
  const std::vector<double> seconds = measured(samples);
  return expert_kernel(cost::fit_constants({5e-5, 0.85, 0.25, 1.0},
                                           [&](std::span<const double> constants) {
                                             return cost::mean_log_error(
                                                 predict(expert_kernel(constants, tile), samples),
                                                 seconds);
                                           }),
                       tile);
}

cost::ExchangeKernel fit_exchange_kernel(std::span<const ExchangeSample> samples, bool bulk) {
  const std::vector<double> seconds = measured(samples);
  return exchange_kernel(
      cost::fit_constants({bulk ? 3e-5 : 1.0, 0.7, start_of_serial(samples)},
                          [&](std::span<const double> constants) {
                            return cost::mean_log_error(
                                predict(exchange_kernel(constants, bulk), samples), seconds);
                          }),
      bulk);
}

std::vector<double> errors_of(const cost::ProductKernel& kernel,
                              std::span<const ExpertSample> samples) {
  return cost::relative_errors(predict(kernel, samples), measured(samples));
}

std::vector<double> errors_of(const cost::ExchangeKernel& kernel,
                              std::span<const ExchangeSample> samples) {
  return cost::relative_errors(predict(kernel, samples), measured(samples));
}

}  // namespace wideep::measure
