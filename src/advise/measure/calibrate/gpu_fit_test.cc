// SPDX-License-Identifier: Apache-2.0
//
// Predictions of GPUs against latencies that others measured: with the shipped constants, and of a
// GPU with constants that were fitted to the others.
#include "measure/calibrate/gpu_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/scratch_directory.h"

namespace wideep::measure {
namespace {

constexpr std::array kGpus = {"h100_sxm", "b200_sxm", "gb200"};
constexpr int kTile = 64;

class MeasuredGpus : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("WIDEEP_DATA_DIR");
    if (data == nullptr) GTEST_SKIP() << "WIDEEP_DATA_DIR is not set";
    directory_ = std::string(data) + "/measured_latency/";
    for (size_t i = 0; i < kGpus.size(); ++i) gpus_[i] = cost::shipped_hardware(kGpus[i]).value();
  }

  LatencyTable table(size_t gpu, const std::string& end) {
    const auto table = LatencyTable::read(directory_ + kGpus[gpu] + "__" + end);
    EXPECT_TRUE(table.ok()) << table.status().message();
    return *table;
  }
  std::vector<ExpertSample> experts(size_t gpu) {
    auto samples = expert_samples(
        gpus_[gpu], table(gpu, "moe__trtllm__1.3.0rc10__wideep_moe_perf.csv"), true, kTile);
    EXPECT_TRUE(samples.ok()) << samples.status().message();
    return std::move(samples).value();
  }
  std::vector<ExchangeSample> exchanges(size_t gpu, Exchange exchange, bool bulk) {
    const std::string kind = bulk ? "normal" : "ll";
    return exchange_samples(gpus_[gpu],
                            table(gpu, "comm__sglang__0.5.12__wideep_deepep_" + kind + "_perf.csv"),
                            exchange);
  }

  std::array<cost::Hardware, kGpus.size()> gpus_;
  std::string directory_;
};

double median(const std::vector<double>& errors) { return errors[errors.size() / 2]; }

template <typename Sample>
std::vector<Sample> all_but(const std::array<std::vector<Sample>, kGpus.size()>& samples,
                            size_t left_out) {
  std::vector<Sample> others;
  for (size_t gpu = 0; gpu < samples.size(); ++gpu) {
    if (gpu != left_out) others.insert(others.end(), samples[gpu].begin(), samples[gpu].end());
  }
  return others;
}

TEST_F(MeasuredGpus, ExpertsOfAGpuFollowFromTheOthers) {
  std::array<std::vector<ExpertSample>, kGpus.size()> samples;
  for (size_t gpu = 0; gpu < kGpus.size(); ++gpu) samples[gpu] = experts(gpu);
  for (size_t gpu = 0; gpu < kGpus.size(); ++gpu) {
    SCOPED_TRACE(kGpus[gpu]);
    EXPECT_GT(samples[gpu].size(), 2000u);
    EXPECT_LT(median(errors_of(gpus_[gpu].experts, samples[gpu])), 0.08);
    EXPECT_LT(median(errors_of(fit_expert_kernel(all_but(samples, gpu), kTile), samples[gpu])),
              0.15);
  }
}

TEST_F(MeasuredGpus, DispatchAndCombineOfAGpuFollowFromTheOthers) {
  for (const Exchange exchange : {Exchange::kDispatch, Exchange::kCombine}) {
    std::array<std::vector<ExchangeSample>, kGpus.size()> samples;
    for (size_t gpu = 0; gpu < kGpus.size(); ++gpu) samples[gpu] = exchanges(gpu, exchange, false);
    for (size_t gpu = 0; gpu < kGpus.size(); ++gpu) {
      SCOPED_TRACE(kGpus[gpu]);
      const cost::ExchangeKernel& own =
          exchange == Exchange::kDispatch ? gpus_[gpu].dispatch : gpus_[gpu].combine;
      EXPECT_LT(median(errors_of(own, samples[gpu])), 0.12);
      EXPECT_LT(median(errors_of(fit_exchange_kernel(all_but(samples, gpu), false), samples[gpu])),
                0.16);
    }
  }
}

TEST_F(MeasuredGpus, ShippedConstantsOfBulkExchangesFitTheirOwn) {
  for (size_t gpu = 0; gpu < kGpus.size(); ++gpu) {
    SCOPED_TRACE(kGpus[gpu]);
    EXPECT_LT(
        median(errors_of(gpus_[gpu].bulk_dispatch, exchanges(gpu, Exchange::kBulkDispatch, true))),
        0.08);
    EXPECT_LT(
        median(errors_of(gpus_[gpu].bulk_combine, exchanges(gpu, Exchange::kBulkCombine, true))),
        0.12);
  }
}

TEST(LatencyTable, SaysWhichLineIsWrong) {
  const auto missing = LatencyTable::read("/nowhere/table.csv");
  EXPECT_FALSE(missing.ok());
}

TEST(ExpertSamples, AreOfFormatsThatAreKnown) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("table.csv");
  const cost::Hardware hardware = cost::shipped_hardware("b200_sxm").value();
  const auto samples = [&](const std::string& format) {
    const std::string row = ",8,6144,2048,8,256,256,2,uniform,0.25\n";
    std::ofstream(path) << "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,"
                           "num_slots,moe_ep_size,distribution,latency\n"
                        << "nvfp4" << row << format << row;
    return expert_samples(hardware, LatencyTable::read(path).value(), false, kTile);
  };
  using kernels::WeightFormat;
  for (const auto& [name, format] :
       {std::pair("nvfp4", WeightFormat::kNvfp4), std::pair("fp8_block", WeightFormat::kFp8),
        std::pair("bfloat16", WeightFormat::kBf16), std::pair("float16", WeightFormat::kBf16)}) {
    const auto found = samples(name);
    ASSERT_TRUE(found.ok()) << found.status().message();
    ASSERT_EQ(found->size(), 2u);
    EXPECT_EQ((*found)[1].shape.format, format) << name;
    EXPECT_DOUBLE_EQ((*found)[1].seconds, 0.25e-3);
  }
  EXPECT_THAT(samples("w4afp8").status().message(),
              testing::EndsWith("table.csv:3: moe_dtype: expected bfloat16, float16, fp8_block or "
                                "nvfp4, found 'w4afp8'; leave such rows out"));
}

TEST(PowerLaw, IsReadFromItsName) {
  EXPECT_EQ(parse_power_law("power_law_1.2").exponent, 1.2);
  EXPECT_FALSE(parse_power_law("power_law_1.2").packed);
  EXPECT_TRUE(parse_power_law("power_law_1.01_eplb").packed);
  EXPECT_EQ(parse_power_law("power_law_1.01_eplb").exponent, 1.01);
  EXPECT_EQ(parse_power_law("uniform").exponent, 0.0);
}

TEST(PowerLaw, PackedRanksHaveEqualWork) {
  const LayerRouting routing{
      .num_tokens = 4096, .top_k = 8, .num_experts = 256, .num_slots = 288, .num_ranks = 32};
  const cost::ExpertWork packed = busiest_rank(routing, {.exponent = 1.2, .packed = true}, 1);
  const cost::ExpertWork in_order = busiest_rank(routing, {.exponent = 1.2, .packed = false}, 1);
  EXPECT_NEAR(packed.rows, 1024, 0.05 * 1024);
  EXPECT_GT(in_order.rows, 1.5 * packed.rows);
  EXPECT_LE(packed.experts, 9.0);
  const cost::ExpertWork even = busiest_rank(routing, {.exponent = 0.0}, 1);
  EXPECT_DOUBLE_EQ(even.rows, 1024.0);
}

}  // namespace
}  // namespace wideep::measure
