// SPDX-License-Identifier: Apache-2.0
#include "traces/trace_context.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random_hex.h"

namespace wideep::traces {
namespace {

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kSpan = "00f067aa0ba902b7";

TEST(TraceContext, Valid) {
  const struct {
    const char* header;
    bool is_sampled;
  } kValid[] = {
      {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true},
      {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", false},
      {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03", true},   // random
      {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe", false},  // flags of later times
      {"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true},   // a later version
      {"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-ever", true},
      {"fe-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-", true},
  };
  for (const auto& [header, is_sampled] : kValid) {
    const auto found = parse_traceparent(header);
    ASSERT_TRUE(found.has_value()) << header;
    EXPECT_EQ(*found, (TraceContext{kTrace, kSpan, is_sampled})) << header;
  }
}

TEST(TraceContext, Invalid) {
  const char* const kInvalid[] = {
      "",
      "00",
      "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
      "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
      "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
      "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01",
      "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A",
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-010",
      "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what",
      "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
      "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
      " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
      "00-4bf92f3577b34da6a3ce929d0e0e47360-0f067aa0ba902b7-01",
  };
  for (const char* header : kInvalid) EXPECT_FALSE(parse_traceparent(header)) << header;
  const std::string valid = traceparent_of({kTrace, kSpan, true});
  EXPECT_FALSE(parse_traceparent(valid + ", " + valid)) << "two headers, as the reader joins them";
}

TEST(TraceContext, ThereAndBack) {
  const TraceContext context{kTrace, kSpan, true};
  EXPECT_EQ(traceparent_of(context), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  EXPECT_EQ(parse_traceparent(traceparent_of(context)), context);
}

TEST(TraceContext, State) {
  EXPECT_TRUE(is_tracestate("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"));
  EXPECT_FALSE(is_tracestate(""));
  EXPECT_FALSE(is_tracestate("a=\xc3\xa9"));
  EXPECT_FALSE(is_tracestate("a=" + std::string(511, 'x')));
  std::string members = "a=1";
  for (int i = 0; i < 31; ++i) members += ",b=2";
  EXPECT_TRUE(is_tracestate(members));
  EXPECT_FALSE(is_tracestate(members + ",c=3"));
}

TEST(TraceContext, RandomIdsAreValid) {
  const TraceContext made{base::random_hex(16), base::random_hex(8), false};
  EXPECT_EQ(parse_traceparent(traceparent_of(made)), made);
}

}  // namespace
}  // namespace wideep::traces
