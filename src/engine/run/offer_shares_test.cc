// SPDX-License-Identifier: Apache-2.0
//
// Layouts in which all ranks, some or none have the same part of a page: each byte of every page and
// state that the ranks of a node have must be offered there, and once. A failure is a prompt that is
// not kept, or one that is written by each rank.
#include "run/offer_shares.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "model/config/config_testing.h"
#include "run/page_geometry.h"

namespace wideep::run {
namespace {

struct OfferLayout {
  std::string family;
  int num_kv_heads = 1;
  parallel::ParallelSizes sizes;
  bool is_joint = true;
  int ranks_per_node = 64;
};

RunPlan plan_of(const OfferLayout& layout) {
  RunPlan plan{.model = {.config = model::parse(model::small_json(layout.family)).value()},
               .mapping = parallel::Mapping::create(layout.sizes).value()};
  if (!plan.model.config.is_mla()) {
    plan.model.config.num_kv_heads = layout.num_kv_heads;
    plan.model.config.num_heads = 8;
  }
  if (layout.is_joint) plan.joint.emplace();
  return plan;
}

// [bytes of the canonical form] how many of the parts have it.
using Cover = std::vector<int>;

void add(const store::Part& part, Cover& cover) {
  for (uint64_t piece = 0; piece < part.count; ++piece) {
    for (uint64_t i = 0; i < part.length; ++i) ++cover[part.first + piece * part.stride + i];
  }
}

// Of the ranks of a node that have the same requests and the same pages of them.
struct Offers {
  Cover had, offered;

  void count(const store::Part& part, bool is_offered) {
    add(part, had);
    if (is_offered) add(part, offered);
  }
  void expect_each_once() const {
    for (size_t i = 0; i < had.size(); ++i) {
      ASSERT_EQ(offered[i], had[i] > 0 ? 1 : 0) << "byte " << i << " of " << had.size();
    }
  }
};

void expect_each_page_once(const OfferLayout& layout, uint32_t page) {
  const RunPlan plan = plan_of(layout);
  const PageGeometry any = page_geometry(plan, 0, "").value();
  std::map<std::vector<int>, Offers> pages, states;
  for (int rank = 0; rank < plan.mapping.world_size(); ++rank) {
    const int node = rank / layout.ranks_per_node;
    const auto shares =
        share_offers(plan, rank, [&](int other) { return other / layout.ranks_per_node == node; });
    ASSERT_TRUE(shares.ok()) << shares.status().message();
    const PageGeometry own = page_geometry(plan, rank, "").value();
    const parallel::Coordinates at = plan.mapping.coordinates(rank);
    const std::vector<int> group = {node, at.cp_rank, layout.is_joint ? 0 : at.tp_rank};
    const auto offers = [&](std::map<std::vector<int>, Offers>& all, uint64_t bytes) -> Offers& {
      return all.try_emplace(group, Offers{Cover(bytes), Cover(bytes)}).first->second;
    };
    offers(pages, any.page_bytes).count(own.page, shares->of_pages.has(page));
    offers(states, any.state_bytes).count(own.state, shares->of_states.has(page));
  }
  for (const auto& [group, each] : pages) each.expect_each_once();
  for (const auto& [group, each] : states) each.expect_each_once();
}

TEST(OfferShares, EachPageIsOfferedOnce) {
  const parallel::ParallelSizes four = {.tp = 4}, stages = {.tp = 4, .pp = 2},
                                contexts = {.tp = 2, .cp = 2}, eight = {.tp = 8, .pp = 2};
  const OfferLayout layouts[] = {
      {.family = "deepseek_v2", .sizes = four},  // all four have all latents
      {.family = "deepseek_v2", .sizes = four, .ranks_per_node = 2},
      {.family = "deepseek_v2", .sizes = four, .ranks_per_node = 3},  // the fourth is alone
      {.family = "deepseek_v2", .sizes = four, .is_joint = false},
      {.family = "deepseek_v2", .sizes = stages},
      {.family = "deepseek_v2", .sizes = contexts},
      {.family = "mixtral", .num_kv_heads = 1, .sizes = four},
      {.family = "mixtral", .num_kv_heads = 2, .sizes = four},  // two have each head
      {.family = "mixtral", .num_kv_heads = 2, .sizes = four, .ranks_per_node = 3},
      {.family = "mixtral", .num_kv_heads = 2, .sizes = stages},
      {.family = "mixtral", .num_kv_heads = 4, .sizes = four},  // none has what another has
      {.family = "mixtral", .num_kv_heads = 8, .sizes = four, .is_joint = false},
      {.family = "lfm2_moe", .num_kv_heads = 2, .sizes = four},
      {.family = "lfm2_moe", .num_kv_heads = 4, .sizes = stages},
      {.family = "lfm2_moe", .num_kv_heads = 2, .sizes = eight, .ranks_per_node = 5}};
  for (const OfferLayout& layout : layouts) {
    SCOPED_TRACE(testing::Message() << layout.family << ", " << layout.num_kv_heads << " heads, tp "
                                    << layout.sizes.tp << ", pp " << layout.sizes.pp << ", "
                                    << layout.ranks_per_node << " ranks per node");
    for (uint32_t row = 0; row < 9; ++row) {
      expect_each_page_once(layout, row * PromptStore::kPagesInRow + row);
    }
  }
}

// Ranks of the first node are the front's.
void expect_all_at_front(const OfferLayout& layout, uint32_t page) {
  const RunPlan plan = plan_of(layout);
  const PageGeometry any = page_geometry(plan, 0, "").value();
  const auto node_of = [&](int rank) { return rank / layout.ranks_per_node; };
  std::map<std::vector<int>, Offers> pages, states;
  for (int rank = 0; rank < plan.mapping.world_size(); ++rank) {
    const int node = node_of(rank);
    const auto shares = share_offers(plan, rank, [&](int other) { return node_of(other) == node; });
    const auto sent = offers_to_front(plan, rank, [&](int other) { return node_of(other) == 0; });
    ASSERT_TRUE(shares.ok() && sent.ok());
    if (node == 0) {
      EXPECT_FALSE(sent->pages || sent->states);
    }
    const PageGeometry own = page_geometry(plan, rank, "").value();
    const parallel::Coordinates at = plan.mapping.coordinates(rank);
    const std::vector<int> group = {at.cp_rank, layout.is_joint ? 0 : at.tp_rank};
    const auto offers = [&](std::map<std::vector<int>, Offers>& all, uint64_t bytes) -> Offers& {
      return all.try_emplace(group, Offers{Cover(bytes), Cover(bytes)}).first->second;
    };
    offers(pages, any.page_bytes)
        .count(own.page, shares->of_pages.has(page) && (node == 0 || sent->pages));
    offers(states, any.state_bytes)
        .count(own.state, shares->of_states.has(page) && (node == 0 || sent->states));
  }
  for (const auto* all : {&pages, &states}) {
    for (const auto& [group, each] : *all) {
      for (size_t i = 0; i < each.had.size(); ++i) {
        ASSERT_GE(each.offered[i], each.had[i] > 0 ? 1 : 0) << "byte " << i;
      }
    }
  }
}

TEST(OfferShares, AllIsAtTheFrontsNode) {
  const parallel::ParallelSizes four = {.tp = 4}, stages = {.tp = 4, .pp = 2},
                                contexts = {.tp = 2, .cp = 2};
  const OfferLayout layouts[] = {
      {.family = "deepseek_v2", .sizes = four, .ranks_per_node = 2},
      {.family = "deepseek_v2", .sizes = four, .is_joint = false, .ranks_per_node = 2},
      {.family = "deepseek_v2", .sizes = stages, .ranks_per_node = 4},
      {.family = "deepseek_v2", .sizes = contexts, .ranks_per_node = 2},
      {.family = "mixtral", .num_kv_heads = 2, .sizes = four, .ranks_per_node = 2},
      {.family = "mixtral", .num_kv_heads = 2, .sizes = four, .ranks_per_node = 3},
      {.family = "mixtral", .num_kv_heads = 4, .sizes = four, .ranks_per_node = 1},
      {.family = "lfm2_moe", .num_kv_heads = 4, .sizes = stages, .ranks_per_node = 2}};
  for (const OfferLayout& layout : layouts) {
    SCOPED_TRACE(testing::Message() << layout.family << ", " << layout.num_kv_heads << " heads, tp "
                                    << layout.sizes.tp << ", pp " << layout.sizes.pp << ", "
                                    << layout.ranks_per_node << " ranks per node");
    for (const uint32_t page : {0u, PromptStore::kPagesInRow, 3 * PromptStore::kPagesInRow + 1}) {
      expect_all_at_front(layout, page);
    }
  }
}

// Latents of a tensor group are alike on all of its ranks, and cross the network for nobody.
TEST(OfferShares, WhatTheFrontsNodeHasIsNotSent) {
  const auto is_of_first = [](int rank) { return rank < 2; };
  OfferLayout layout{.family = "deepseek_v2", .sizes = {.tp = 4}};
  EXPECT_FALSE(offers_to_front(plan_of(layout), 3, is_of_first)->pages);
  layout.is_joint = false;
  EXPECT_TRUE(offers_to_front(plan_of(layout), 3, is_of_first)->pages);
  layout = {.family = "mixtral", .num_kv_heads = 4, .sizes = {.tp = 4}};
  EXPECT_TRUE(offers_to_front(plan_of(layout), 3, is_of_first)->pages);
}

// Else one would write all, and the others wait.
TEST(OfferShares, AreAsLargeAsThoseOfTheOthers) {
  const OfferLayout layout{.family = "deepseek_v2", .sizes = {.tp = 4}};
  const RunPlan plan = plan_of(layout);
  for (int rank = 0; rank < 4; ++rank) {
    const OfferShares shares = share_offers(plan, rank, [](int) { return true; }).value();
    EXPECT_EQ(shares.of_pages.index, rank);
    EXPECT_EQ(shares.of_pages.count, 4);
  }
}

}  // namespace
}  // namespace wideep::run
