// SPDX-License-Identifier: Apache-2.0
//
// Fits the constants of a GPU's kernels to tables of measured latencies, and says how far the
// formula is from them.
//
// Thread safety: pure functions; samples refer to their hardware, which must outlive them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cost/exchange_cost.h"
#include "cost/expert_cost.h"
#include "measure/calibrate/measured_latency.h"
#include "wideep/status.h"

namespace wideep::measure {

struct ExpertSample {
  const cost::Hardware* hardware = nullptr;
  cost::ExpertShape shape;
  LayerRouting routing;
  cost::ExpertWork work;
  double seconds = 0.0;
};

struct ExchangeSample {
  const cost::Hardware* hardware = nullptr;
  cost::ExchangeWork work;
  double seconds = 0.0;
};

// Rows of "wideep_moe" tables (TensorRT-LLM). packed: those with balanced experts, or the others.
// Errors (invalid input): one of another format than our weights have.
Result<std::vector<ExpertSample>> expert_samples(const cost::Hardware& hardware,
                                                 const LatencyTable& table, bool packed, int tile);

enum class Exchange { kDispatch, kCombine, kBulkDispatch, kBulkCombine };
// Rows of DeepEP tables: low-latency kernels; or bulk ("normal") ones, with as many
// multiprocessors as were tried at most. One node only.
std::vector<ExchangeSample> exchange_samples(const cost::Hardware& hardware,
                                             const LatencyTable& table, Exchange exchange);

cost::ProductKernel fit_expert_kernel(std::span<const ExpertSample> samples, int tile);
cost::ExchangeKernel fit_exchange_kernel(std::span<const ExchangeSample> samples, bool bulk);

// In ascending order, with these constants in place of the hardware's own.
std::vector<double> errors_of(const cost::ProductKernel& kernel,
                              std::span<const ExpertSample> samples);
std::vector<double> errors_of(const cost::ExchangeKernel& kernel,
                              std::span<const ExchangeSample> samples);

}  // namespace wideep::measure
