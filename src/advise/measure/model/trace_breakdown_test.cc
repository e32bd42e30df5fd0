// SPDX-License-Identifier: Apache-2.0
#include "measure/model/trace_breakdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/scratch_directory.h"
#include "base/trace.h"
#include "formats/chrome_trace.h"
#include "formats/files.h"

namespace wideep::measure {
namespace {

using base::Lane;
using base::Span;
using testing::HasSubstr;

// A span from start to end, in µs.
base::TraceEvent trace_event(Span span, int64_t start, int64_t end, Lane lane = Lane::kForward) {
  return {.start_ns = 1'000'000 + start * 1000,
          .end_ns = 1'000'000 + end * 1000,
          .span = span,
          .lane = lane};
}

std::map<std::string, SpanTime> by_name(const std::vector<SpanTime>& times) {
  std::map<std::string, SpanTime> found;
  for (const SpanTime& each : times) EXPECT_TRUE(found.emplace(each.name, each).second);
  return found;
}

class Breakdown : public testing::Test {
 protected:
  Result<TraceBreakdown> of(const std::string& text) {
    EXPECT_TRUE(formats::write_file(path_, text).ok());
    return break_down_trace(path_);
  }
  const base::ScratchDirectory directory_;
  const std::string path_ = directory_.file("trace.json");
};

TEST_F(Breakdown, GivesEachPartItsOwnTime) {
  auto trace = base::TraceBuffer::create(2, 64);
  ASSERT_TRUE(trace.ok());
  // Rank 0: two iterations; sampling has drafting inside. In the order of their ends, as recorded.
  trace->add(0, trace_event(Span::kAgree, 0, 5));
  trace->add(0, trace_event(Span::kAttention, 10, 40));
  trace->add(0, trace_event(Span::kExperts, 40, 90));
  trace->add(0, trace_event(Span::kDrafting, 95, 97));
  trace->add(0, trace_event(Span::kSampling, 92, 100));
  trace->add(0, trace_event(Span::kIteration, 10, 100));
  trace->add(0, trace_event(Span::kAttention, 100, 120));
  trace->add(0, trace_event(Span::kIteration, 100, 130));
  trace->add(0, trace_event(Span::kRowsTravel, 35, 45, Lane::kRowsEven));
  trace->add(0, trace_event(Span::kRowsTravel, 38, 50, Lane::kRowsOdd));
  // Rank 1: one iteration.
  trace->add(1, trace_event(Span::kAttention, 10, 80));
  trace->add(1, trace_event(Span::kIteration, 10, 90));
  ASSERT_TRUE(formats::write_chrome_trace(path_, *trace).ok());

  const auto found = break_down_trace(path_);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->num_ranks, 2);
  EXPECT_EQ(found->num_iterations, 2);
  EXPECT_EQ(found->num_dropped, 0);
  auto parts = by_name(found->parts);
  // Means over the ranks of µs an iteration: rank 0 has two.
  EXPECT_NEAR(parts.at("attention").us, (25.0 + 70.0) / 2, 1e-6);
  EXPECT_NEAR(parts.at("attention").us_low, 25.0, 1e-6);
  EXPECT_NEAR(parts.at("attention").us_high, 70.0, 1e-6);
  EXPECT_EQ(parts.at("attention").count, 3);
  EXPECT_NEAR(parts.at("experts").us, 12.5, 1e-6);
  EXPECT_NEAR(parts.at("drafting").us, 0.5, 1e-6);
  EXPECT_NEAR(parts.at("sampling").us, (8.0 - 2.0) / 4, 1e-6);
  EXPECT_NEAR(parts.at("iteration").us, ((90.0 - 30 - 50 - 8 + 30 - 20) / 2 + 10.0) / 2, 1e-6);
  EXPECT_NEAR(parts.at("start of iteration").us, 1.25, 1e-6);
  // The outermost spans: 5 + 90 + 30 of two iterations, and 80 of one.
  EXPECT_NEAR(found->us(), (125.0 / 2 + 80.0) / 2, 1e-6);
  ASSERT_EQ(found->beside.size(), 1u);  // both lanes
  EXPECT_EQ(found->beside[0].name, "rows travel");
  EXPECT_NEAR(found->beside[0].us, (10.0 + 12.0) / 4, 1e-6);
}

TEST_F(Breakdown, RefusesWhatIsNoTrace) {
  const auto expect = [&](const std::string& text, const std::string& part) {
    const auto found = of(text);
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_THAT(found.status().message(), HasSubstr("trace.json"));
    EXPECT_THAT(found.status().message(), HasSubstr(part));
  };
  expect("{}", "traceEvents");
  expect("[]", "traceEvents");
  expect(R"({"traceEvents":[]})", "\"iteration\"");
  expect(R"({"traceEvents":[{"ph":3}]})", "\"iteration\"");
  expect(R"({"traceEvents":[{"ph":"X","name":"iteration","pid":0,"tid":0,"ts":1}]})", "dur");
  const auto two = [](int end) {
    return R"({"traceEvents":[{"ph":"X","name":"iteration","pid":0,"tid":0,"ts":0,"dur":10},)"
           R"({"ph":"X","name":"reduce","pid":0,"tid":0,"ts":5,"dur":)" +
           std::to_string(end - 5) + "}]}";
  };
  expect(two(11), "must nest");
  EXPECT_TRUE(of(two(10)).ok());
  EXPECT_FALSE(break_down_trace("/nowhere/trace.json").ok());
}

}  // namespace
}  // namespace wideep::measure
