// SPDX-License-Identifier: Apache-2.0
//
// Hit rates on recorded routing, which is what the policy is for: experts that one half of the
// requests taught, judged on the other half, decoded one at a time and eight side by side; then
// with kinds of text that were not learned from, and soon after the text has changed. Prints the
// tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

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
    judge(
        text, batch, [&](online::Iteration* iteration) { return learned.next(iteration); },
        [&](online::Iteration* iteration) { return judged.next(iteration); });
  }

  void judge(const char* text, int batch, online::NextIteration learned,
             online::NextIteration judged) const {
    const RecordedIterations recorded{.num_layers = trace_.shape.num_layers,
                                      .num_experts = trace_.shape.num_experts,
                                      .learned = std::move(learned),
                                      .judged = std::move(judged)};
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

  // Every second kind of text, and the others.
  std::pair<std::vector<int>, std::vector<int>> kinds_of_text() const {
    std::vector<int> these, others;
    for (int domain = 0; domain < static_cast<int>(trace_.domains.size()); ++domain) {
      (domain % 2 == 0 ? these : others).push_back(domain);
    }
    return {these, others};
  }

  // Learns one text and two windows of the next; the window after these is judged. The oracle knows
  // that window, which is more than the text. turn: experts of the next text are called by other
  // numbers, as if it were that of another model: nothing that was learned is of use.
  void judge_after_change(const char* text, int batch, int turn) const {
    const auto [learned, others] = kinds_of_text();
    RequestStream before = stream(trace_, batch, learned), after = stream(trace_, batch, others);
    const int64_t window = ResidencyOptions().window_tokens;
    int64_t tokens = 0;
    const auto next_of_text = [&](online::Iteration* iteration) {
      if (!after.next(iteration)) return false;
      tokens += iteration->num_tokens;
      for (int layer = 0; layer < trace_.shape.num_layers; ++layer) {
        const auto first = iteration->counts.begin() + layer * trace_.shape.num_experts;
        std::rotate(first, first + turn, first + trace_.shape.num_experts);
      }
      return true;
    };
    judge(
        text, batch,
        [&](online::Iteration* iteration) {
          return before.next(iteration) || (tokens < 2 * window && next_of_text(iteration));
        },
        [&](online::Iteration* iteration) {
          return tokens < 3 * window && next_of_text(iteration);
        });
    EXPECT_GE(tokens, 3 * window);
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
  const auto [learned, others] = kinds_of_text();
  for (const int batch : {1, 8}) {
    judge("other kinds of text", batch, stream(trace_, batch, learned),
          stream(trace_, batch, others));
  }
}

TEST_P(HitRatesOnTraces, TwoWindowsAfterTheTextHasChanged) {
  for (const int batch : {1, 8}) {
    judge_after_change("another kind of text", batch, 0);
    judge_after_change("text of other experts", batch, trace_.shape.num_experts / 2);
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
