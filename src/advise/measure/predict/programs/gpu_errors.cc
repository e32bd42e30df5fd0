// SPDX-License-Identifier: Apache-2.0
//
// gpu_errors <directory with tables of measured latencies>
//
// Fits the constants of the GPUs' kernels and prints them, with the errors of the formula on the
// same measurements, and those on measurements of a GPU that the fit has not seen. The constants
// are those of shipped_hardware.yaml, the errors those of docs/advisor.md.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "measure/calibrate/gpu_fit.h"

namespace {

using namespace wideep;           // NOLINT(google-build-using-namespace): a program
using namespace wideep::measure;  // NOLINT(google-build-using-namespace)

constexpr std::array kGpus = {"h100_sxm", "b200_sxm", "gb200"};

template <typename T>
T or_exit(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "error: {}\n", result.status().message());
    std::exit(2);
  }
  return std::move(result).value();
}

LatencyTable table(const std::string& directory, const std::string& gpu, const std::string& end) {
  return or_exit(LatencyTable::read(fmt::format("{}/{}__{}", directory, gpu, end)));
}

std::string text(const std::vector<double>& errors) {
  return fmt::format("median {:5.1f} %, nine of ten within {:5.1f} %, worst {:6.1f} % of {}",
                     100 * errors[errors.size() / 2], 100 * errors[errors.size() * 9 / 10],
                     100 * errors.back(), errors.size());
}

std::string constants(const cost::ProductKernel& kernel) {
  return fmt::format(
      "{{overhead: {:.3g}, memory: {:.3g}, compute: {:.3g}, row_traffic: {:.3g}, tile: {}}}",
      kernel.overhead, kernel.memory, kernel.compute, kernel.row_traffic, kernel.tile);
}

std::string constants(const cost::ExchangeKernel& kernel) {
  return fmt::format("{{overhead: {:.3g}, latency: {:.3g}, link: {:.3g}, serial: {:.3g}}}",
                     kernel.overhead, kernel.latency, kernel.link, kernel.serial);
}

template <typename Sample, typename Fit>
void report(const char* what, const std::array<std::vector<Sample>, kGpus.size()>& samples,
            const Fit& fit) {
  fmt::print("\n{}\n", what);
  for (size_t gpu = 0; gpu < kGpus.size(); ++gpu) {
    std::vector<Sample> others;
    for (size_t other = 0; other < kGpus.size(); ++other) {
      if (other != gpu) others.insert(others.end(), samples[other].begin(), samples[other].end());
    }
    const auto own = fit(samples[gpu]);
    fmt::print("  {:9} {}\n            its own: {}\n            not its: {}\n", kGpus[gpu],
               constants(own), text(errors_of(own, samples[gpu])),
               text(errors_of(fit(others), samples[gpu])));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: gpu_errors <directory>\n");
    return 2;
  }
  const std::string directory = argv[1];
  std::array<cost::Hardware, kGpus.size()> gpus;
  for (size_t i = 0; i < kGpus.size(); ++i) gpus[i] = or_exit(cost::shipped_hardware(kGpus[i]));

  for (const int tile : {64}) {
    for (const bool packed : {true, false}) {
      std::array<std::vector<ExpertSample>, kGpus.size()> samples;
      for (size_t i = 0; i < kGpus.size(); ++i) {
        samples[i] = or_exit(expert_samples(
            gpus[i], table(directory, kGpus[i], "moe__trtllm__1.3.0rc10__wideep_moe_perf.csv"),
            packed, tile));
      }
      report(fmt::format("experts, {}, tile {}", packed ? "packed" : "in order", tile).c_str(),
             samples,
             [&](const std::vector<ExpertSample>& each) { return fit_expert_kernel(each, tile); });
    }
  }
  const std::array<std::pair<Exchange, const char*>, 4> exchanges = {{
      {Exchange::kDispatch, "dispatch"},
      {Exchange::kCombine, "combine"},
      {Exchange::kBulkDispatch, "bulk_dispatch"},
      {Exchange::kBulkCombine, "bulk_combine"},
  }};
  for (const auto& [exchange, name] : exchanges) {
    const bool bulk = exchange == Exchange::kBulkDispatch || exchange == Exchange::kBulkCombine;
    std::array<std::vector<ExchangeSample>, kGpus.size()> samples;
    for (size_t i = 0; i < kGpus.size(); ++i) {
      samples[i] =
          exchange_samples(gpus[i],
                           table(directory, kGpus[i],
                                 fmt::format("comm__sglang__0.5.12__wideep_deepep_{}_perf.csv",
                                             bulk ? "normal" : "ll")),
                           exchange);
    }
    report(name, samples, [&](const std::vector<ExchangeSample>& each) {
      return fit_exchange_kernel(each, bulk);
    });
  }
  return 0;
}
