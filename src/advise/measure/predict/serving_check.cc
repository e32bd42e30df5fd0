// SPDX-License-Identifier: Apache-2.0
//
// Everything that a prediction is made of is measured in the same round as the service. Lengths and
// arrivals have one seed, in all rounds and in the simulation; tokens differ with the turn, or the
// server would have the pages of the turn before. Open loops get a share of what the first closed
// loop has carried in the first round, and keep that rate: other rounds measure the same load.
#include "measure/predict/serving_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/try.h"
#include "measure/calibrate/iteration_parts.h"
#include "measure/predict/measured_advice.h"
#include "measure/predict/served_model.h"
#include "measure/serving/serving_run.h"
#include "run/layouts.h"

namespace wideep::measure {
namespace {

constexpr uint64_t kSeed = 7;  // of lengths and arrivals: the same in all rounds
constexpr int kPages = 4096;   // of the simulated cache: more than the requests need
constexpr int kMinId = 100, kNumIds = 1000, kIdsOfTurn = 50;

// The same lengths in every turn of a server, but other tokens: else it would have the pages of
// the turn before.
std::vector<DatasetRequest> requests_of(const CheckedService& service, int turn) {
  return random_dataset({.count = service.requests,
                         .input = service.input,
                         .output = service.output,
                         .min_id = kMinId + kIdsOfTurn * turn,
                         .num_ids = kNumIds,
                         .seed = kSeed});
}

advise::Arrivals arrivals_of(double rate) {
  if (rate == 0.0) return {};
  return {.request_rate = rate, .seed = kSeed};
}

std::string name_of(const CheckedService& service, const ServingLoad& load) {
  return fmt::format("{}, {}", service.layout.name,
                     load.share ? fmt::format("Poisson at {:.0f} %", 100.0 * *load.share)
                                : fmt::format("{} at once", load.concurrency));
}

ServedTime judged(double predicted, const std::vector<double>& rounds) {
  ServedTime time{.predicted = predicted, .measured = median(rounds)};
  std::vector<double> distances;
  for (const double round : rounds) distances.push_back(std::abs(round / time.measured - 1.0));
  time.noise = median(std::move(distances));
  return time;
}

std::string text_of(const ServedTime& time) {
  return fmt::format("{:8.2f} {:8.2f} {:+6.1f} {:5.1f}", time.predicted * 1e3, time.measured * 1e3,
                     100.0 * time.error(), 100.0 * time.noise);
}

}  // namespace

Result<ServingCheck> ServingCheck::make(const std::string& program, const std::string& tokenizer,
                                        std::vector<CheckedService> services) {
  std::set<kernels::WeightFormat> formats = {kernels::WeightFormat::kBf16};  // of the probe
  for (const CheckedService& service : services) formats.insert(service.layout.format);
  ServingCheck check(program, {formats.begin(), formats.end()});
  for (CheckedService& service : services) {
    if (!check.probes_.contains(service.ranks)) {
      WIDEEP_TRY_ASSIGN(auto probe, OverheadProbe::make(program, service.ranks, tokenizer));
      check.probes_.emplace(service.ranks, std::move(probe));
    }
    std::vector<Measured> loads = {{.load = {.concurrency = kCapacityRequests}}};
    for (const ServingLoad& load : service.loads) loads.push_back({.load = load});
    LayoutCheck engine(service.layout);
    check.services_.push_back({std::move(service), std::move(engine), std::move(loads)});
  }
  return check;
}

Status ServingCheck::measure_load(const client::HttpAddress& address, Service& service, int turn,
                                  Measured& measured) const {
  const ServingLoad& load = measured.load;
  const ServingOptions options{
      .address = address,
      .model = ServedModel::kName,
      .requests = requests_of(service.what, turn),
      .max_concurrency = load.share ? service.what.requests : load.concurrency,
      .arrivals = arrivals_of(measured.rate)};
  WIDEEP_TRY_ASSIGN(const auto report, run_serving_bench(options, {}));
  if (!report.failures.empty()) {
    return failed(name_of(service.what, load) + ": " + report.failures.front());
  }
  measured.ttft.push_back(report.ttft.median);
  measured.ttft_p99.push_back(report.ttft.p99);
  measured.tpot.push_back(report.tpot.median);
  measured.tpot_p99.push_back(report.tpot.p99);
  if (&measured != &service.loads.front() || rounds_ > 0) return {};
  for (Measured& each : service.loads) {
    if (each.load.share) each.rate = *each.load.share * report.requests_per_second();
  }
  return {};
}

Status ServingCheck::measure_service(Service& service) {
  std::vector<std::string> arguments = service.what.arguments;
  arguments.insert(arguments.end(), {"--ranks", std::to_string(service.what.ranks)});
  WIDEEP_TRY_ASSIGN(const auto served, ServedModel::start(program_, arguments));
  Service warm{.what = service.what, .engine = service.engine, .loads = {service.loads.front()}};
  warm.what.requests = kCapacityRequests;
  WIDEEP_TRY(measure_load(served->address(), warm, 0, warm.loads.front()));
  int turn = 0;
  for (Measured& load : service.loads) {
    WIDEEP_TRY(measure_load(served->address(), service, ++turn, load));
  }
  return {};
}

Status ServingCheck::measure_round(run::RunView& view) {
  for (int step = 0; step < calibrator_.num_steps(); ++step) {
    WIDEEP_TRY(calibrator_.measure_step(step));
  }
  for (auto& [ranks, probe] : probes_) WIDEEP_TRY(probe.measure(view));
  for (Service& service : services_) {
    WIDEEP_TRY(service.engine.measure(1, view));
    WIDEEP_TRY(measure_service(service));
  }
  ++rounds_;
  return {};
}

std::vector<ServingCheck::Factors> ServingCheck::factors(const cost::Hardware& hardware) const {
  std::vector<Factors> factors;
  for (const Service& service : services_) {
    factors.push_back({.layout = service.what.layout.name,
                       .factors = factors_of(service.engine.judge(hardware))});
  }
  return factors;
}

Result<std::vector<ServedCell>> ServingCheck::judge(const cost::Hardware& hardware) const {
  std::vector<ServedCell> cells;
  for (const Service& service : services_) {
    cost::Hardware corrected = hardware;
    corrected.factors = factors_of(service.engine.judge(hardware));
    const cost::StepCost cost = service.engine.cost(corrected);
    std::vector<advise::SimulatedRequest> requests;
    for (const DatasetRequest& request : requests_of(service.what, 0)) {
      const auto& prompt = std::get<std::vector<int32_t>>(request.prompt);
      requests.push_back({.isl = static_cast<int>(prompt.size()), .osl = request.output_tokens});
    }
    for (const Measured& load : service.loads) {
      const std::vector<double> times =
          advise::arrival_times(arrivals_of(load.rate), service.what.requests);
      for (size_t i = 0; i < times.size(); ++i) requests[i].arrival = times[i];
      advise::SimulationOptions options{.num_batches = cost.layout().num_batches(),
                                        .limits = {.max_batch_size = run::kDefaultMaxBatchSize,
                                                   .max_num_tokens = run::kDefaultMaxNumTokens,
                                                   .max_pages = kPages},
                                        .overhead = overhead(hardware, service.what.ranks)};
      if (!load.load.share) options.concurrency = load.load.concurrency;
      WIDEEP_TRY_ASSIGN(const advise::SimulatedServing served,
                        advise::simulate_serving(requests, options,
                                                 [&](std::span<const model::StepShape> batches) {
                                                   return cost.step(batches).seconds();
                                                 }));
      cells.push_back({.name = name_of(service.what, load.load),
                       .ttft = judged(served.ttft.median, load.ttft),
                       .ttft_p99 = judged(served.ttft.p99, load.ttft_p99),
                       .tpot = judged(served.tpot.median, load.tpot),
                       .tpot_p99 = judged(served.tpot.p99, load.tpot_p99)});
    }
  }
  return cells;
}

std::string text_of(const ServedCell& cell) {
  return fmt::format("{:40} {} {} {} {}", cell.name, text_of(cell.ttft), text_of(cell.ttft_p99),
                     text_of(cell.tpot), text_of(cell.tpot_p99));
}

ServedSummary summarize(const std::vector<ServedCell>& cells) {
  std::vector<double> errors, errors_p99, noise, noise_p99;
  for (const ServedCell& cell : cells) {
    for (const ServedTime& time : {cell.ttft, cell.tpot}) {
      errors.push_back(std::abs(time.error()));
      noise.push_back(time.noise);
    }
    for (const ServedTime& time : {cell.ttft_p99, cell.tpot_p99}) {
      errors_p99.push_back(std::abs(time.error()));
      noise_p99.push_back(time.noise);
    }
  }
  return {.median = median(errors),
          .worst = std::ranges::max(errors),
          .median_p99 = median(errors_p99),
          .worst_p99 = std::ranges::max(errors_p99),
          .noise = median(noise),
          .noise_p99 = median(noise_p99)};
}

}  // namespace wideep::measure
