// SPDX-License-Identifier: Apache-2.0
//
// Traces by hand have ids that say which request and token they are, so the counts of an iteration
// are known. A random trace with two kinds of text has a known order of the modes: online has less
// than half the imbalance of static, static less than off, and none is better than perfect. Time
// for copies and for planning must make online worse. A failure means that `wideep balance replay`
// promises a balance that no engine reaches.
#include "online/replay.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::online {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RequestTraceTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) const {
    ASSERT_TRUE(formats::write_file(directory_.file(name), content).ok());
  }
  Result<RequestTrace> read() const { return read_request_trace(directory_.path(), shape_); }
  std::string error() const {
    const auto trace = read();
    return trace.ok() ? std::string() : trace.status().message();
  }

  base::ScratchDirectory directory_;
  recordings::TraceShape shape_{.num_layers = 1, .top_k = 1, .num_experts = 4};
};

TEST_F(RequestTraceTest, OneFileForEachDomain) {
  write("trace_index.csv", "domain,sample,token_offset,n_tokens\nb,0,0,2\na,0,0,1\nb,1,2,1\n");
  write("a.ids.u8", std::string("\0", 1));
  write("b.ids.u8", "\1\2\3");
  const RequestTrace trace = read().value();
  EXPECT_THAT(trace.domains, ElementsAre("b", "a"));
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_EQ(trace.requests[2].domain, 0);
  EXPECT_EQ(trace.requests[2].token_offset, 2);
  EXPECT_EQ(trace.num_tokens(), 4);
  EXPECT_THAT(trace.experts(trace.requests[0].file, 1, 0), ElementsAre(2));
}

TEST_F(RequestTraceTest, OneFileForAll) {
  write("trace_index.csv", "dataset,token_offset,n_tokens,w\r\nx,0,1,\r\ny,1,1,7\r\n");
  write("trace_ids.u16", std::string("\3\0\1\0", 4));
  const RequestTrace trace = read().value();
  EXPECT_THAT(trace.domains, ElementsAre("x", "y"));
  EXPECT_THAT(trace.experts(0, 0, 0), ElementsAre(3));
}

TEST_F(RequestTraceTest, BadIndex) {
  EXPECT_THAT(error(), HasSubstr("trace_index.csv"));
  write("trace_ids.u8", "\1\2");
  const auto with = [&](const std::string& content) {
    write("trace_index.csv", content);
    return error();
  };
  EXPECT_THAT(with("token_offset,tokens\n0,1\n"), HasSubstr("line 1: expected a column n_tokens"));
  EXPECT_THAT(with("token_offset,n_tokens\n"), HasSubstr("found none"));
  EXPECT_THAT(with("token_offset,n_tokens\n0,1\n0,x\n"),
              HasSubstr("line 3: column n_tokens: expected a whole number of at least 1, found"));
  EXPECT_THAT(with("token_offset,n_tokens\n-1,1\n"), HasSubstr("token_offset"));
  EXPECT_THAT(with("token_offset,n_tokens\n0,0\n"), HasSubstr("n_tokens"));
  EXPECT_THAT(with("token_offset,n_tokens\n0\n"), HasSubstr("expected 2 fields, found 1"));
  EXPECT_THAT(with("token_offset,n_tokens\n1,2\n"), HasSubstr("has 2 tokens"));
  EXPECT_THAT(with("token_offset,n_tokens\n\"0,1\n"), HasSubstr("quote"));
  EXPECT_THAT(with("domain,token_offset,n_tokens\n../x,0,1\n"), HasSubstr("column domain"));
  EXPECT_THAT(with("domain,token_offset,n_tokens\nlaw,0,1\n"), HasSubstr("law.ids.u8"));
}

// Requests of 3 and 2 tokens, all of whose ids say which request and token they are.
RequestTrace two_requests() {
  return {.shape = {.num_layers = 1, .top_k = 1, .num_experts = 8},
          .domains = {"a", "b"},
          .requests = {{0, 0, 0, 3}, {1, 0, 3, 2}},
          .ids = {{0, 1, 2, 3, 4}}};
}

TEST(RequestTraceParts, TheLastRequestsOfEachDomainAreHeldOut) {
  RequestTrace trace = two_requests();
  trace.requests = {{0, 0, 0, 1}, {0, 0, 1, 1}, {1, 0, 3, 1}, {0, 0, 2, 1}, {0, 0, 4, 1}};
  const DividedTrace parts = hold_out_requests(trace, 0.5).value();
  const auto offsets = [](const RequestTrace& part) {
    std::vector<int64_t> all;
    for (const Request& request : part.requests) all.push_back(request.token_offset);
    return all;
  };
  EXPECT_THAT(offsets(parts.earlier), ElementsAre(0, 1, 3));
  EXPECT_THAT(offsets(parts.later), ElementsAre(2, 4));
  EXPECT_EQ(parts.later.ids, trace.ids);
  EXPECT_THAT(offsets(hold_out_requests(trace, 0.01)->later), ElementsAre(4));
  EXPECT_THAT(offsets(hold_out_requests(trace, 0.99)->earlier), ElementsAre(0, 3));
  EXPECT_THAT(hold_out_requests(trace, 1.0).status().message(), HasSubstr("between 0 and 1"));
  EXPECT_THAT(hold_out_requests(two_requests(), 0.5).status().message(),
              HasSubstr("at least 2 requests"));
}

std::vector<std::vector<int64_t>> counts_of(const RequestTrace& trace,
                                            const StreamOptions& options) {
  RequestStream stream(&trace, options);
  std::vector<std::vector<int64_t>> counts;
  for (Iteration iteration; stream.next(&iteration);) counts.push_back(iteration.counts);
  return counts;
}

TEST(RequestStream, RequestsInFlightTakeTurns) {
  const RequestTrace trace = two_requests();
  const auto alone = counts_of(trace, {.in_flight = 1, .iteration_tokens = 2});
  ASSERT_EQ(alone.size(), 3u);
  EXPECT_THAT(alone[0], ElementsAre(1, 1, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(alone[1], ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
  const auto together = counts_of(trace, {.in_flight = 2, .iteration_tokens = 2});
  EXPECT_THAT(together[0], ElementsAre(1, 0, 0, 1, 0, 0, 0, 0));
  EXPECT_THAT(together[1], ElementsAre(0, 1, 0, 0, 1, 0, 0, 0));
}

TEST(RequestStream, DomainsInTheOrderAskedFor) {
  const RequestTrace trace = two_requests();
  RequestStream stream(&trace,
                       {.domains = {1, 0}, .cycles = 2, .in_flight = 1, .iteration_tokens = 5});
  Iteration iteration;
  ASSERT_TRUE(stream.next(&iteration));
  EXPECT_EQ(iteration.domain, 0);
  EXPECT_THAT(iteration.counts, ElementsAre(1, 1, 1, 1, 1, 0, 0, 0));
  ASSERT_TRUE(stream.next(&iteration));
  EXPECT_FALSE(stream.next(&iteration));
}

TEST(RequestStream, LessThanHalfAnIterationIsDropped) {
  const RequestTrace trace = two_requests();
  EXPECT_EQ(counts_of(trace, {.iteration_tokens = 4}).size(), 1u);
  EXPECT_EQ(counts_of(trace, {.iteration_tokens = 3}).size(), 2u);
}

// Two kinds of text with other hot experts, 40 requests of 100 tokens each, 2 layers.
RequestTrace made_up_trace() {
  RequestTrace trace{.shape = {.num_layers = 2, .top_k = 2, .num_experts = 16},
                     .domains = {"prose", "code"},
                     .requests = {},
                     .ids = {{}}};
  std::mt19937 random(3);
  for (int request = 0; request < 80; ++request) {
    const int domain = request / 40;
    trace.requests.push_back({domain, 0, request * 100, 100});
    for (int row = 0; row < 200; ++row) {
      const bool hot = random() % 3 == 0;
      const auto first = static_cast<uint16_t>(
          hot ? random() % 3 + static_cast<unsigned>(domain) * 8 : random() % 16);
      trace.ids[0].push_back(first);
      trace.ids[0].push_back(static_cast<uint16_t>((first + 1 + random() % 15) % 16));
    }
  }
  return trace;
}

ReplayOptions small_replay() {
  ReplayOptions options{.shape = {.num_experts = 16, .ep_size = 4, .num_slots = 20},
                        .policy = {},
                        .stream = {.cycles = 4, .in_flight = 8, .iteration_tokens = 500},
                        .window_tokens = 2000};
  options.policy.layer_updates_per_iter = 2;
  options.policy.bytes_per_expert = 100;
  options.policy.window.sample_tokens = 500;
  return options;
}

TEST(Replay, OnlineFollowsTheKindOfText) {
  const ReplayResult result = replay(made_up_trace(), small_replay()).value();
  ASSERT_EQ(result.windows.size(), 16u);
  EXPECT_EQ(result.num_iterations, 64);
  EXPECT_EQ(result.num_tokens, 32000);
  EXPECT_EQ(result.windows[0].moves, 0);
  EXPECT_THAT(result.windows[0].domains, ElementsAre(0));
  EXPECT_LT(result.mean.online, result.mean.planned / 2);
  EXPECT_LT(result.mean.planned, result.mean.off);
  EXPECT_LE(result.mean.perfect, result.mean.online);
  EXPECT_GT(result.moves, 0);
  EXPECT_EQ(result.bytes, 100 * result.moves);
  EXPECT_NEAR(result.moves_per_layer_and_window, static_cast<double>(result.moves) / 2 / 15, 1e-9);
}

TEST(Replay, WindowSharesBalanceLessThanIterationShares) {
  ReplayOptions options = small_replay();
  const double iteration = replay(made_up_trace(), options)->mean.online;
  options.policy.share_update = ShareUpdate::kWindow;
  const ReplayResult window = replay(made_up_trace(), options).value();
  EXPECT_GT(window.mean.online, iteration);
  EXPECT_LT(window.mean.online, window.mean.planned);
}

TEST(Replay, TrtMovesMost) {
  ReplayOptions options = small_replay();
  const int64_t moves = replay(made_up_trace(), options)->moves;
  options.policy.policy = PolicyKind::kTrt;
  options.planner = "trt";
  EXPECT_GT(replay(made_up_trace(), options)->moves, 5 * moves);
}

TEST(Replay, StartsInOrderWhereAskedTo) {
  ReplayOptions options = small_replay();
  options.start_in_order = true;
  const ReplayResult result = replay(made_up_trace(), options).value();
  EXPECT_GT(result.windows[0].moves, 0);
  EXPECT_LT(result.mean.online, result.mean.off / 2);
}

// Copies that take longer than iterations are in service later.
TEST(Replay, CopyingTimeCounts) {
  ReplayOptions options = small_replay();
  const ReplayResult at_once = replay(made_up_trace(), options).value();
  EXPECT_EQ(at_once.longest_delay, 2);
  // One move takes 3 iterations of 1 s; planning takes none of them.
  options.iteration_ms = 1000;
  options.policy.bytes_per_expert = 29;
  options.copy_bytes_per_second = 10;
  const ReplayResult late = replay(made_up_trace(), options).value();
  EXPECT_GE(late.longest_delay, 1 + 3);
  EXPECT_GT(late.mean.online, at_once.mean.online);
  EXPECT_LT(late.mean.online, late.mean.planned);
}

// A balancer that is slower than the iterations gets the counts of several as one.
TEST(Replay, PlanningTimeCounts) {
  ReplayOptions options = small_replay();
  options.iteration_ms = 1e-6;  // its first look takes thousands of them
  const ReplayResult late = replay(made_up_trace(), options).value();
  EXPECT_EQ(late.moves, 0);
  EXPECT_DOUBLE_EQ(late.mean.online, late.mean.planned);
}

TEST(Replay, ByTokensWeighsLargeIterations) {
  // A large iteration out of balance and small ones in balance, 4 experts on 2 ranks.
  int next = 0;
  const NextIteration iterations = [&next](Iteration* iteration) {
    if (next == 6) return false;
    const int64_t each = next == 3 ? 600 : 1;
    iteration->num_experts = 4;
    iteration->counts = next++ == 3 ? std::vector<int64_t>{each, each, 0, 0}
                                    : std::vector<int64_t>{each, each, each, each};
    iteration->num_tokens = 4 * each;
    return true;
  };
  ReplayOptions options{.shape = {.num_experts = 4, .ep_size = 2, .num_slots = 4},
                        .policy = {},
                        .stream = {.iteration_tokens = 4},
                        .window_tokens = 4,
                        .start_in_order = true};
  options.policy.rows_per_move = 1e9;
  const ReplayResult result = replay(iterations, 1, 1, options).value();
  EXPECT_NEAR(result.mean.online, 1.0 / 5, 1e-9);
  EXPECT_NEAR(result.online_by_tokens, 1200.0 / (1200 + 5 * 4), 1e-9);
}

TEST(Replay, BadOptions) {
  const auto error = [](void (*change)(ReplayOptions&)) {
    ReplayOptions options = small_replay();
    change(options);
    const auto result = replay(made_up_trace(), options);
    return result.ok() ? std::string() : result.status().message();
  };
  EXPECT_THAT(error([](ReplayOptions& o) { o.window_tokens = 0; }), HasSubstr("window_tokens"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.window_tokens = 64000; }),
              HasSubstr("more than one window"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.stream.cycles = 0; }), HasSubstr("cycles"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.stream.in_flight = 0; }), HasSubstr("in_flight"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.copy_iterations = -1; }),
              HasSubstr("copy_iterations"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.iteration_ms = -1; }), HasSubstr("iteration_ms"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.copy_bytes_per_second = 0; }),
              HasSubstr("copy_bytes_per_second"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.planner = "cooccurrence"; }), HasSubstr("pairs"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.planner = "best"; }), HasSubstr("best"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.policy.layer_updates_per_iter = 3; }),
              HasSubstr("layer_updates_per_iter"));
  EXPECT_THAT(error([](ReplayOptions& o) { o.shape.num_slots = 18; }), HasSubstr("18"));
}

}  // namespace
}  // namespace wideep::online
