// SPDX-License-Identifier: Apache-2.0
//
// Hit rates on recorded routing, which is what the policy is for: experts that one half of the
// requests taught, judged on the other half, decoded one at a time and eight side by side; then
// with kinds of text that were not learned from. Prints the tables.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "online/request_stream.h"
#include "residency/hit_rates.h"

namespace wideep::residency {
namespace {

using online::RequestStream;
using online::RequestTrace;

struct TraceCase {
  const char* folder;
  recordings::TraceShape shape;
};

class HitRatesOnTraces : public ::testing::TestWithParam<TraceCase> {
 protected:
  void SetUp() override {
    const char* data = std::getenv("WIDEEP_DATA_DIR");
    if (data == nullptr) GTEST_SKIP() << "WIDEEP_DATA_DIR is not set: no recorded traces to read";
    const std::string folder = std::string(data) + "/" + GetParam().folder;
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << "WIDEEP_DATA_DIR has no such trace";
    auto read = online::read_request_trace(folder, GetParam().shape);
    ASSERT_TRUE(read.ok()) << read.status().message();
    trace_ = std::move(read).value();
  }

  static RequestStream stream(const RequestTrace& trace, int batch, std::vector<int> domains = {}) {
    return RequestStream(
        &trace, {.domains = std::move(domains), .in_flight = batch, .iteration_tokens = batch});
  }

  void judge(const char* text, int batch, RequestStream learned, RequestStream judged) const {
    const RecordedIterations recorded{
        .num_layers = trace_.shape.num_layers,
        .num_experts = trace_.shape.num_experts,
        .learned = [&](online::Iteration* iteration) { return learned.next(iteration); },
        .judged = [&](online::Iteration* iteration) { return judged.next(iteration); }};
    const int all = trace_.shape.num_layers * trace_.shape.num_experts;
    const std::vector<int> budgets = {all / 4, all / 2, all * 3 / 4};
    for (const BudgetHits& at : judge_iterations(recorded, budgets, {})) {
      const double wideep = at.wideep->rate(), oracle = at.oracle.rate(), lru = at.lru->rate();
      std::printf(
          "  %s, batch %d, %.0f %% in memory: wideep %.4f oracle %.4f fixed %.4f lru %.4f\n", text,
          batch, 100.0 * at.num_records / all, wideep, oracle, at.fixed.rate(), lru);
      EXPECT_GE(wideep, 0.95 * oracle);
      EXPECT_GE(wideep, 0.99 * lru);
    }
  }

  RequestTrace trace_;
};

TEST_P(HitRatesOnTraces, OnHeldOutRequests) {
  auto divided = online::hold_out_requests(trace_, 0.5);
  ASSERT_TRUE(divided.ok());
  for (const int batch : {1, 8}) {
    judge("held-out requests", batch, stream(divided->earlier, batch),
          stream(divided->later, batch));
  }
}

TEST_P(HitRatesOnTraces, OnOtherKindsOfText) {
  std::vector<int> learned, others;
  for (int domain = 0; domain < static_cast<int>(trace_.domains.size()); ++domain) {
    (domain % 2 == 0 ? learned : others).push_back(domain);
  }
  for (const int batch : {1, 8}) {
    judge("other kinds of text", batch, stream(trace_, batch, learned),
          stream(trace_, batch, others));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, HitRatesOnTraces,
    ::testing::Values(
        TraceCase{"routing_trace_deepseek_v2lite",
                  {.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1}},
        TraceCase{"routing_trace_gptoss20b", {.num_layers = 24, .top_k = 4, .num_experts = 32}}),
    [](const auto& info) { return std::string(info.param.folder).substr(14); });

}  // namespace
}  // namespace wideep::residency
