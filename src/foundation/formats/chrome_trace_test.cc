// SPDX-License-Identifier: Apache-2.0
#include "formats/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::formats {
namespace {

using base::Lane;
using base::Span;
using base::TraceBuffer;
using nlohmann::json;

json written(const TraceBuffer& trace) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("trace.json");
  const Status status = write_chrome_trace(path, trace);
  EXPECT_TRUE(status.ok()) << status.message();
  return json::parse(read_file(path).value());
}

TEST(ChromeTrace, EventsOfAllRanksOnOneClock) {
  const TraceBuffer trace = TraceBuffer::create(2).value();
  trace.add(1, {.start_ns = 5'000, .end_ns = 7'500, .iteration = 3, .span = Span::kHead});
  trace.add(0, {.start_ns = 4'000,
                .end_ns = 6'250,
                .iteration = 3,
                .layer = 2,
                .span = Span::kRowsTravel,
                .lane = Lane::kRowsOdd});
  std::vector<json> spans;
  const json events = written(trace).at("traceEvents");
  for (const json& event : events) {
    if (event.at("ph") == "X") spans.push_back(event);
  }
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0], json::parse(R"({"ph": "X", "name": "rows travel", "pid": 0, "tid": 2,
      "ts": 0.0, "dur": 2.25, "args": {"iteration": 3, "layer": 2}})"));
  EXPECT_EQ(spans[1], json::parse(R"({"ph": "X", "name": "LM head", "pid": 1, "tid": 0,
      "ts": 1.0, "dur": 2.5, "args": {"iteration": 3}})"));
}

TEST(ChromeTrace, CountsDroppedEvents) {
  const TraceBuffer trace = TraceBuffer::create(1, 3).value();
  base::TraceSwitch rank_switch;
  {
    const base::TraceSpan none(Span::kRouter);
  }  // the thread has no recorder
  base::trace_of_thread = {.rank_switch = &rank_switch, .buffer = &trace};
  {
    const base::TraceSpan none(Span::kRouter);
  }  // the switch is off
  rank_switch.set({.iteration = 1, .on = true});
  for (int i = 0; i < 5; ++i) const base::TraceSpan span(Span::kRouter, i);
  base::trace_of_thread = {};
  EXPECT_EQ(trace.events(0).size(), 3u);
  EXPECT_EQ(trace.events(0)[2].layer, 2);
  EXPECT_EQ(written(trace).at("otherData").at("droppedEvents"), 2);
}

}  // namespace
}  // namespace wideep::formats
