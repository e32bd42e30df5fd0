// SPDX-License-Identifier: Apache-2.0
//
// Predicted against measured: requests over time. Clients of `wideep serve` on this machine measure
// times to the first token and between tokens; the simulation serves requests of the same lengths
// at the same times.
//
// What is predicted of a service is put together from what was measured beside it, never of it: the
// machine (calibrate.h), iterations of its model in its layout (check_cells.h, as factors of
// parts), and what serving takes beside them (serving_overhead.h).
//
// Thread safety: one call at a time in a process.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/event_stream.h"
#include "measure/calibrate/calibrate.h"
#include "measure/predict/check_cells.h"
#include "measure/predict/serving_overhead.h"
#include "measure/serving/dataset.h"

namespace wideep::measure {

// When requests begin: a closed loop of so many at the same time; or at random times (a Poisson
// process), this share of what the service has carried with kCapacityRequests in a closed loop.
struct ServingLoad {
  int concurrency = 0;
  std::optional<double> share;
};
inline constexpr int kCapacityRequests = 16;

// A model in a layout, and the requests that it gets with each load.
struct CheckedService {
  CheckedLayout layout;
  int ranks = 1;
  std::vector<std::string> arguments;  // of `wideep serve`, for model and precision
  std::vector<ServingLoad> loads;      // besides the closed loop that tells the capacity
  int requests = 0;                    // of each load
  UniformLength input, output;
};

// Seconds.
struct ServedTime {
  double predicted = 0.0;
  double measured = 0.0;  // median of the rounds
  double noise = 0.0;     // their median distance from it, as a share

  double error() const { return predicted / measured - 1.0; }
};

// A service with a load: medians and 99th percentiles over its requests.
struct ServedCell {
  std::string name;
  ServedTime ttft, ttft_p99, tpot, tpot_p99;
};

class ServingCheck {
 public:
  // program: `wideep`. tokenizer: a tokenizer.json, for services of a probe. REQUIRES: layouts have
  // bf16 or int8 weights. Errors: the tokenizer cannot be read.
  static Result<ServingCheck> make(const std::string& program, const std::string& tokenizer,
                                   std::vector<CheckedService> services);

  // Calibrates, and measures every service once. REQUIRES: the caller has started no other thread.
  // Errors: a rank, server or request failed; interrupted.
  Status measure_round(run::RunView& view);

  // REQUIRES: there was a round.
  cost::Hardware hardware() const { return calibrator_.result().hardware; }
  advise::ServingOverhead overhead(const cost::Hardware& hardware, int ranks) const {
    return probes_.at(ranks).result(hardware);
  }
  struct Factors {
    std::string layout;
    cost::IterationFactors factors;
  };
  std::vector<Factors> factors(const cost::Hardware& hardware) const;  // of the services
  Result<std::vector<ServedCell>> judge(const cost::Hardware& hardware) const;

 private:
  struct Measured {
    ServingLoad load;
    double rate = 0.0;                                   // requests per second; 0: a closed loop
    std::vector<double> ttft, ttft_p99, tpot, tpot_p99;  // of rounds
  };
  struct Service {
    CheckedService what;
    LayoutCheck engine;
    std::vector<Measured> loads;  // first the closed loop that tells the capacity
  };

  explicit ServingCheck(std::string program, std::vector<kernels::WeightFormat> formats)
      : program_(std::move(program)), calibrator_({.formats = std::move(formats)}) {}
  Status measure_service(Service& service);
  // turn: of the server, from 0.
  Status measure_load(const client::HttpAddress& address, Service& service, int turn,
                      Measured& load) const;

  std::string program_;
  Calibrator calibrator_;
  std::map<int, OverheadProbe> probes_;  // by number of ranks
  std::vector<Service> services_;
  int rounds_ = 0;
};

// A line for people.
std::string text_of(const ServedCell& cell);

// Over all cells: of the errors of medians, and of those of 99th percentiles, the median and the
// largest, times to the first token and between tokens together.
struct ServedSummary {
  double median = 0.0, worst = 0.0;          // of medians over requests
  double median_p99 = 0.0, worst_p99 = 0.0;  // of 99th percentiles
  double noise = 0.0, noise_p99 = 0.0;       // medians
};
ServedSummary summarize(const std::vector<ServedCell>& cells);

}  // namespace wideep::measure
