// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace wideep::engine {
namespace {

model::ModelConfig small_config() {
  model::ModelConfig config;
  config.architecture = model::Architecture::kQwen3Moe;
  config.num_layers = 1;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  return config;
}

const model::ModelConfig kConfig = small_config();
const model::KvLayout kKv(kConfig, Dtype::kF32);

Request request(int index, int prompt_length, int max_tokens) {
  return {.index = index,
          .prompt = std::vector<int32_t>(prompt_length, index),
          .max_tokens = max_tokens};
}

// Runs all work, pretending that every sampled token is 99; returns the sizes of the iterations.
std::vector<int> drain(Scheduler& scheduler) {
  std::vector<int> sizes;
  while (scheduler.has_work()) {
    const auto& step = scheduler.schedule();
    sizes.push_back(step.batch.num_tokens());
    for (Sequence* sequence : std::vector<Sequence*>(step.sampled)) {
      sequence->tokens.push_back(99);
      if (sequence->num_generated() == sequence->request.max_tokens) scheduler.finish(sequence);
    }
  }
  return sizes;
}

TEST(Scheduler, CutsPromptsIntoChunks) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 16, .prefill_chunk = 5, .max_pages = 10});
  ASSERT_TRUE(scheduler.submit(request(1, 12, 2)).ok());
  EXPECT_EQ(drain(scheduler), (std::vector<int>{5, 5, 2, 1}));
}

TEST(Scheduler, DecodeTokensAndPromptChunksShareAnIteration) {
  Scheduler scheduler(kKv, {.max_batch_size = 4, .max_num_tokens = 8, .max_pages = 10});
  ASSERT_TRUE(scheduler.submit(request(1, 3, 3)).ok());
  ASSERT_TRUE(scheduler.submit(request(2, 10, 1)).ok());
  // 3 + 5 of request 2; 1 + 5; 1.
  EXPECT_EQ(drain(scheduler), (std::vector<int>{8, 6, 1}));
}

TEST(Scheduler, AdmitsOnlyWhatTheCacheCanHoldToTheEnd) {
  Scheduler scheduler(kKv, {.max_batch_size = 4, .max_num_tokens = 64, .max_pages = 2});
  EXPECT_FALSE(scheduler.submit(request(0, 100, 29)).ok());  // three pages
  ASSERT_TRUE(scheduler.submit(request(1, 60, 6)).ok());     // two pages
  ASSERT_TRUE(scheduler.submit(request(2, 7, 1)).ok());      // must wait until they are free
  EXPECT_EQ(drain(scheduler), (std::vector<int>{60, 1, 1, 1, 1, 1, 7}));
}

// Random work: positions of every request run 0, 1, 2, ... without gap; budgets hold; pages of live
// requests are never shared; all pages come back.
TEST(Scheduler, InvariantsUnderRandomWork) {
  std::mt19937 rng(1);
  for (int round = 0; round < 50; ++round) {
    const SchedulerLimits limits{.max_batch_size = int(1 + rng() % 6),
                                 .max_num_tokens = int(6 + rng() % 60),
                                 .prefill_chunk = int(rng() % 30),
                                 .max_pages = int(8 + rng() % 10)};
    Scheduler scheduler(kKv, limits);
    std::vector<int> next(20), left(20);
    for (int i = 0; i < 20; ++i) {
      Request r = request(i, 1 + rng() % 200, 1 + rng() % 50);
      left[i] = static_cast<int>(r.prompt.size()) + r.max_tokens - 1;
      ASSERT_TRUE(scheduler.submit(std::move(r)).ok());
    }
    while (scheduler.has_work()) {
      const auto& step = scheduler.schedule();
      ASSERT_GT(step.batch.num_tokens(), 0);
      ASSERT_LE(step.batch.num_tokens(), limits.max_num_tokens);
      std::set<const Sequence*> owners(step.owners.begin(), step.owners.end());
      ASSERT_LE(int(owners.size()), limits.max_batch_size);
      std::set<std::byte*> pages;
      for (const Sequence* owner : owners) {
        for (std::byte* page : owner->pages) ASSERT_TRUE(pages.insert(page).second);
      }
      for (int t = 0; t < step.batch.num_tokens(); ++t) {
        const int index = step.owners[t]->request.index;
        ASSERT_EQ(step.batch.positions[t], next[index]++);
      }
      for (Sequence* sequence : std::vector<Sequence*>(step.sampled)) {
        sequence->tokens.push_back(99);
        if (sequence->num_generated() == sequence->request.max_tokens) scheduler.finish(sequence);
      }
    }
    EXPECT_EQ(next, left);
  }
}

}  // namespace
}  // namespace wideep::engine
