// SPDX-License-Identifier: Apache-2.0
//
// Members get values of their own and are read back, because one that its list in event.cc leaves
// out arrives as its default, without an error. A failure is a token without its log probability,
// or moves and traffic that a report does not show.
#include "run/event.h"

#include <gtest/gtest.h>

namespace wideep::run {
namespace {

template <typename T>
T over_the_pipe(const T& event) {
  return std::get<T>(decode(encode(event)));
}

TEST(RankEvent, TokensSurviveThePipe) {
  const Token token{.request_index = 3,
                    .rank = 6,
                    .sampled = {17, -0.5f},
                    .finish_reason = engine::FinishReason::kLength,
                    .cached_tokens = 64,
                    .step_drafts = -1,
                    .digest = "abc",
                    .likely = {{17, -0.5f}, {4, -2.0f}}};
  const Token read = over_the_pipe(token);
  EXPECT_EQ(read.request_index, 3);
  EXPECT_EQ(read.rank, 6);
  EXPECT_EQ(read.sampled.token, 17);
  EXPECT_EQ(read.sampled.log_probability, -0.5f);
  EXPECT_EQ(read.finish_reason, engine::FinishReason::kLength);
  EXPECT_EQ(read.cached_tokens, 64);
  EXPECT_EQ(read.step_drafts, -1);
  EXPECT_EQ(read.digest, "abc");
  ASSERT_EQ(read.likely.size(), 2u);
  EXPECT_EQ(read.likely[1].token, 4);
  EXPECT_EQ(read.likely[1].log_probability, -2.0f);
}

TEST(RankEvent, ProgressSurvivesThePipe) {
  const PromptProgress progress = over_the_pipe(PromptProgress{
      .request_index = 3, .processed = 48, .total = 90, .cached = 16, .is_first = true});
  EXPECT_EQ(progress.request_index, 3);
  EXPECT_EQ(progress.processed, 48);
  EXPECT_EQ(progress.total, 90);
  EXPECT_EQ(progress.cached, 16);
  EXPECT_TRUE(progress.is_first);
}

TEST(RankEvent, MemorySurvivesThePipe) {
  const RankMemory memory = over_the_pipe(RankMemory{.rank = 2, .resident_bytes = 1ull << 40});
  EXPECT_EQ(memory.rank, 2);
  EXPECT_EQ(memory.resident_bytes, 1ull << 40);
}

// MembersChanged::replayed is not sent: the process that submits requests again counts them.
TEST(RankEvent, MembersAndTrustSurviveThePipe) {
  const MembersChanged members =
      over_the_pipe(MembersChanged{.epoch = 4, .ranks = {0, 2, 3}, .reloaded = 5});
  EXPECT_EQ(members.epoch, 4u);
  EXPECT_EQ(members.ranks, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(members.reloaded, 5);
  const TrustChange change = over_the_pipe(TrustChange{.iteration = int64_t{1} << 40,
                                                       .verdict = {.rests = true,
                                                                   .sums = {.moves = 3,
                                                                            .expected_seconds = 4.0,
                                                                            .saved_seconds = 0.5,
                                                                            .lost_seconds = 1.5,
                                                                            .paid_seconds = 0.25},
                                                                   .rest_tokens = 7}});
  EXPECT_EQ(change.iteration, int64_t{1} << 40);
  EXPECT_TRUE(change.verdict.rests);
  EXPECT_EQ(change.verdict.sums.moves, 3);
  EXPECT_EQ(change.verdict.sums.expected_seconds, 4.0);
  EXPECT_EQ(change.verdict.sums.saved_seconds, 0.5);
  EXPECT_EQ(change.verdict.sums.lost_seconds, 1.5);
  EXPECT_EQ(change.verdict.sums.paid_seconds, 0.25);
  EXPECT_EQ(change.verdict.rest_tokens, 7);
}

TEST(RankEvent, ExpertPlacesSurviveThePipe) {
  const ExpertPlaces places = over_the_pipe(ExpertPlaces{
      .rank = 3,
      .num_owned = 64,
      .num_records = 20,
      .record_bytes = 4096,
      .read_bytes = uint64_t{1} << 40,
      .read_seconds = 0.25,
      .layers = {1, 5},
      .counts = {{.chosen = 9, .hits = 8}, {.waited_ns = 7, .came = 5, .num_resident = 6}}});
  EXPECT_EQ(places.rank, 3);
  EXPECT_EQ(places.num_owned, 64);
  EXPECT_EQ(places.num_records, 20);
  EXPECT_EQ(places.record_bytes, 4096u);
  EXPECT_EQ(places.read_bytes, uint64_t{1} << 40);
  EXPECT_EQ(places.read_seconds, 0.25);
  EXPECT_EQ(places.layers, (std::vector<int>{1, 5}));
  ASSERT_EQ(places.counts.size(), 2u);
  EXPECT_EQ(places.counts[0].hits, 8);
  EXPECT_EQ(places.counts[1].waited_ns, 7);
  EXPECT_EQ(places.counts[1].came, 5);
  EXPECT_EQ(places.counts[1].num_resident, 6);
}

TEST(RankEvent, EveryAlternativeSurvivesThePipe) {
  engine::IterationRecord record;
  record.iteration = 7;
  record.end_ns = 11;
  record.agree_cpu_ns = 13;
  record.layers.push_back({.experts_cpu_ns = 5,
                           .shared_cpu_ns = 6,
                           .exchange_cpu_ns = 7,
                           .sent = {1, 2},
                           .counts = {3},
                           .slot_counts = {4, 5}});
  record.records_experts = true;
  EXPECT_EQ(over_the_pipe(RankIteration{record}).record, record);
  EXPECT_EQ(over_the_pipe(WeightsRead{123}).bytes, 123u);
  EXPECT_TRUE(over_the_pipe(ExpertRecording{true}).records);
  EXPECT_FALSE(over_the_pipe(ExpertRecording{false}).records);
  EXPECT_EQ(over_the_pipe(ExpertRecording{.number = 3}).number, 3);
  EXPECT_TRUE(std::holds_alternative<RanksReady>(decode(encode(RanksReady()))));
  EXPECT_TRUE(std::holds_alternative<RanksIdle>(decode(encode(RanksIdle()))));
  const RequestCounts counts = over_the_pipe(RequestCounts{2, {4, 5, 6}});
  EXPECT_EQ(counts.request_index, 2);
  EXPECT_EQ(counts.counts, (std::vector<int64_t>{4, 5, 6}));
  const Rebalance rebalance = over_the_pipe(Rebalance{.iteration = 12,
                                                      .decided = 8,
                                                      .layers = 2,
                                                      .cancelled = 1,
                                                      .moves = 9,
                                                      .bytes = 99,
                                                      .imbalance_before = 0.5,
                                                      .imbalance_after = 0.25,
                                                      .seconds = 1.5,
                                                      .copy_seconds = 0.75,
                                                      .lent_copies = 4,
                                                      .refused_loans = 3,
                                                      .expected_seconds = 2.5,
                                                      .ledger = {.moves = 3, .paid_seconds = 0.5},
                                                      .switches = {{3, 10, 4}, {5, 12, 5}}});
  EXPECT_EQ(rebalance.iteration, 12);
  EXPECT_EQ(rebalance.decided, 8);
  EXPECT_EQ(rebalance.layers, 2);
  EXPECT_EQ(rebalance.cancelled, 1);
  EXPECT_EQ(rebalance.moves, 9);
  EXPECT_EQ(rebalance.bytes, 99);
  EXPECT_EQ(rebalance.imbalance_before, 0.5);
  EXPECT_EQ(rebalance.imbalance_after, 0.25);
  EXPECT_EQ(rebalance.seconds, 1.5);
  EXPECT_EQ(rebalance.copy_seconds, 0.75);
  EXPECT_EQ(rebalance.lent_copies, 4);
  EXPECT_EQ(rebalance.refused_loans, 3);
  EXPECT_EQ(rebalance.expected_seconds, 2.5);
  EXPECT_EQ(rebalance.ledger.moves, 3);
  EXPECT_EQ(rebalance.ledger.paid_seconds, 0.5);
  ASSERT_EQ(rebalance.switches.size(), 2u);
  EXPECT_EQ(rebalance.switches[0].layer, 3);
  EXPECT_EQ(rebalance.switches[1].layer, 5);
  EXPECT_EQ(rebalance.switches[1].iteration, 12);
  EXPECT_EQ(rebalance.switches[1].moves, 5);
  const ExpertLoad load = over_the_pipe(ExpertLoad{2, {7, 8}});
  EXPECT_EQ(load.first_layer, 2);
  EXPECT_EQ(load.counts, (std::vector<int64_t>{7, 8}));
  const RoutedPart part = over_the_pipe(RoutedPart{.request_index = 5,
                                                   .first_layer = 1,
                                                   .num_layers = 2,
                                                   .positions = {3},
                                                   .iterations = {int64_t{1} << 40},
                                                   .experts = {6, 7}});
  EXPECT_EQ(part.request_index, 5);
  EXPECT_EQ(part.first_layer, 1);
  EXPECT_EQ(part.num_layers, 2);
  EXPECT_EQ(part.positions, (std::vector<int32_t>{3}));
  EXPECT_EQ(part.iterations, (std::vector<int64_t>{int64_t{1} << 40}));
  EXPECT_EQ(part.experts, (std::vector<int32_t>{6, 7}));
  const PagesFound found = over_the_pipe(PagesFound{.ticket = uint64_t{1} << 40,
                                                    .rank = 1,
                                                    .known = 2,
                                                    .found = 5,
                                                    .states = {3, 5},
                                                    .is_stateless = false,
                                                    .seconds = 0.5,
                                                    .peer_kind = PeerTrouble::kGone,
                                                    .peer_trouble = "silent"});
  EXPECT_EQ(found.ticket, uint64_t{1} << 40);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.known, 2);
  EXPECT_EQ(found.found, 5);
  EXPECT_EQ(found.states, (std::vector<int32_t>{3, 5}));
  EXPECT_FALSE(found.is_stateless);
  EXPECT_EQ(found.peer_kind, PeerTrouble::kGone);
  EXPECT_EQ(found.peer_trouble, "silent");
  EXPECT_EQ(found.seconds, 0.5);
  const PagesFetched fetched = over_the_pipe(PagesFetched{.ticket = 4,
                                                          .pages = 3,
                                                          .bytes = 9,
                                                          .from_peer = {.pages = 2,
                                                                        .bytes = 8,
                                                                        .seconds = 0.25,
                                                                        .transfer_seconds = 0.125,
                                                                        .exposed_seconds = 0.0625,
                                                                        .trouble = "gone"}});
  EXPECT_EQ(fetched.ticket, 4u);
  EXPECT_EQ(fetched.pages, 3);
  EXPECT_EQ(fetched.bytes, 9u);
  EXPECT_EQ(fetched.from_peer.pages, 2);
  EXPECT_EQ(fetched.from_peer.bytes, 8u);
  EXPECT_EQ(fetched.from_peer.seconds, 0.25);
  EXPECT_EQ(fetched.from_peer.transfer_seconds, 0.125);
  EXPECT_EQ(fetched.from_peer.exposed_seconds, 0.0625);
  EXPECT_EQ(fetched.from_peer.trouble, "gone");
  engine::PageChange change{.page = 7};
  change.tokens[63] = 8;
  const PagesChanged changed =
      over_the_pipe(PagesChanged{.rank = 1, .is_cleared = true, .changes = {change}});
  EXPECT_EQ(changed.rank, 1);
  EXPECT_TRUE(changed.is_cleared);
  ASSERT_EQ(changed.changes.size(), 1u);
  EXPECT_EQ(changed.changes[0].page, 7);
  EXPECT_EQ(changed.changes[0].tokens[63], 8);
  const StoreState stores = over_the_pipe(
      StoreState{.rank = 1, .not_offered = 2, .tiers = {{.label = {'d'}, .is_out = true}}});
  EXPECT_EQ(stores.rank, 1);
  EXPECT_EQ(stores.not_offered, 2u);
  ASSERT_EQ(stores.tiers.size(), 1u);
  EXPECT_EQ(stores.tiers[0].name(), "d");
  EXPECT_TRUE(stores.tiers[0].is_out);
  const RankEnded ended = over_the_pipe(RankEnded{.rank = 1,
                                                  .times = {.wall_ns = 8, .stage_wait_ns = 9},
                                                  .traffic = {.dispatched_rows = 10,
                                                              .dispatched_bytes = 11,
                                                              .returned_rows = 12,
                                                              .returned_bytes = 13,
                                                              .other_bytes = 14}});
  EXPECT_EQ(ended.rank, 1);
  EXPECT_EQ(ended.times.wall_ns, 8);
  EXPECT_EQ(ended.times.stage_wait_ns, 9);
  EXPECT_EQ(ended.traffic.dispatched_rows, 10);
  EXPECT_EQ(ended.traffic.dispatched_bytes, 11);
  EXPECT_EQ(ended.traffic.returned_rows, 12);
  EXPECT_EQ(ended.traffic.returned_bytes, 13);
  EXPECT_EQ(ended.traffic.other_bytes, 14);
}

}  // namespace
}  // namespace wideep::run
