// SPDX-License-Identifier: Apache-2.0
//
// engine_scale STATISTICS OUTPUT.csv [MOST_RANKS]: what an iteration with experts costs a rank of
// the engine, from EP 2 to EP 64 on this machine, beside what is predicted from EP 8 and below.
// docs/scale.md explains the columns.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "measure/calibrate/calibrate.h"
#include "measure/calibrate/other_work.h"
#include "measure/predict/engine_scale.h"
#include "recordings/statistics_load.h"
#include "recordings/statistics_reader.h"

using namespace wideep;           // NOLINT(google-build-using-namespace): a program
using namespace wideep::measure;  // NOLINT(google-build-using-namespace)

namespace {

// The most ranks that constants come from, and the least that take turns as many ranks do.
constexpr int kFittedRanks = 8, kMinFitted = 4;
constexpr int kRanks[] = {2, 4, 6, 8, 16, 32, 64};

template <typename T>
T or_exit(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "error: {}\n", result.status().message());
  std::exit(2);
}

// What ranks do for each other: a straight line.
LinearCost fit(const std::vector<EngineCost>& found, double RankParts::* part) {
  std::vector<int> ranks;
  std::vector<double> costs;
  for (const EngineCost& each : found) {
    if (each.num_ranks < kMinFitted || each.num_ranks > kFittedRanks) continue;
    ranks.push_back(each.num_ranks);
    costs.push_back(each.mean.*part);
  }
  return ranks.size() < 2 ? LinearCost{} : fit_linear(ranks, costs);
}

class Table {
 public:
  explicit Table(std::ofstream& csv) : csv_(csv) {
    csv_ << "where,ranks,what,value,predicted\n";
    fmt::print("   EP slots");
    for (const char* name :
         {"attention", "dense", "experts", "busiest", "exchange", "agree", "all"}) {
      fmt::print(" {:>18}", name);
    }
    fmt::print("  busiest rank  wall ms  imbalance distance others\n");
  }

  void add(const EngineCost& cost, const PredictedCompute& predicted, double others) {
    fmt::print("{:5} {:5}", cost.num_ranks, cost.num_slots);
    const RankParts &mean = cost.mean, &expected = predicted.mean;
    cell(cost, "attention", mean.attention, expected.attention);
    cell(cost, "dense", mean.dense, expected.dense);
    cell(cost, "experts", mean.experts, expected.experts);
    cell(cost, "experts of the busiest", cost.busiest_experts, predicted.busiest_experts);
    cell(cost, "exchange", mean.exchange, expected.exchange);
    cell(cost, "agree", mean.agree, expected.agree);
    cell(cost, "all", mean.all(), expected.all());
    fmt::print(" {:13.0f} {:8.1f} {:10.3f} {:8.3f} {:6.2f}\n", cost.busiest * 1e6,
               cost.seconds * 1e3, cost.imbalance, cost.distance, others);
  }

 private:
  // Measured and predicted, in microseconds, and the error.
  void cell(const EngineCost& cost, const char* name, double measured, double predicted) {
    fmt::print(" {:5.0f} {:5.0f} {:+4.0f} %", measured * 1e6, predicted * 1e6,
               100.0 * (predicted / measured - 1.0));
    csv_ << fmt::format("engine,{},{},{},{}\n", cost.num_ranks, name, measured, predicted);
  }

  std::ofstream& csv_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: engine_scale STATISTICS OUTPUT.csv [MOST_RANKS]\n");
    return 2;
  }
  const model::ModelConfig config = scaled_model();
  const balance::ModelLoad recorded =
      recordings::model_load(or_exit(recordings::read_statistics(argv[1])));
  if (recorded.num_experts != config.routing.num_experts) {
    fmt::print(stderr, "error: {}: expected statistics of {} experts, found {}\n", argv[1],
               config.routing.num_experts, recorded.num_experts);
    return 2;
  }
  const balance::ModelLoad load = scaled_load(config, recorded);
  const int max_ranks = argc > 3 ? std::atoi(argv[3]) : 64;
  std::ofstream csv(argv[2]);

  CalibrationView view;
  const Calibration calibration =
      or_exit(calibrate({.formats = {kernels::WeightFormat::kBf16}}, view));
  fmt::print("calibrated: median errors of experts {:.1f} %, of dense {:.1f} %\n",
             100.0 * calibration.errors.experts, 100.0 * calibration.errors.dense);
  std::vector<EngineCost> found;
  std::vector<double> others;
  for (const int ranks : kRanks) {
    if (ranks > max_ranks) break;
    const OtherWork other_work;
    found.push_back(or_exit(run_engine_scale(config, load, {.num_ranks = ranks}, view)));
    others.push_back(other_work.share());
    fmt::print(stderr, "{} ranks, {} iterations\n", ranks, found.back().iterations);
  }
  const LinearCost exchange = fit(found, &RankParts::exchange);
  const LinearCost agree = fit(found, &RankParts::agree);
  fmt::print(
      "us of processor time of a rank in an iteration: measured, predicted from EP {} and "
      "below, error\n",
      kFittedRanks);
  Table table(csv);
  for (size_t i = 0; i < found.size(); ++i) {
    const int ranks = found[i].num_ranks;
    PredictedCompute predicted =
        or_exit(predict_compute(calibration.hardware, config, load, {.num_ranks = ranks}));
    predicted.mean.exchange = exchange.at(ranks);
    predicted.mean.agree = agree.at(ranks);
    table.add(found[i], predicted, others[i]);
  }
}
