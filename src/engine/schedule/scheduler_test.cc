// SPDX-License-Identifier: Apache-2.0
//
// Sizes of iterations by hand, then random work under every policy. There each place in a page
// stands for a hash of all tokens up to it, and each state holds one of its tokens, so that a page
// of another text, or one that nobody has computed, is found when it is attended to. No request may
// stall, and in the end no page may be in use. A failure is an answer from another request's cache,
// or one that never comes.
#include "schedule/scheduler.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "schedule/layout_testing.h"

namespace wideep::engine {
namespace {

const model::KvLayout kKv = small_layout();

Request request(int index, int prompt_length, int max_tokens) {
  return {.index = index,
          .prompt = std::vector<int32_t>(prompt_length, index),
          .max_tokens = max_tokens};
}

// Every sampled token is 99. A copy of them, which finish() does not change.
void sample(Scheduler& scheduler, std::vector<Sequence*> sampled) {
  for (Sequence* sequence : sampled) {
    sequence->tokens.push_back(99);
    if (sequence->num_generated() == sequence->request.max_tokens) scheduler.finish(sequence);
  }
}

// Runs all work; returns the sizes of the iterations.
std::vector<int> drain(Scheduler& scheduler) {
  std::vector<int> sizes;
  while (scheduler.has_work()) {
    const auto& step = scheduler.schedule();
    sizes.push_back(step.batch.num_tokens());
    sample(scheduler, step.sampled);
  }
  return sizes;
}

TEST(Scheduler, CutsPromptsIntoChunks) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 16, .prefill_chunk = 5, .max_pages = 10});
  ASSERT_TRUE(scheduler.submit(request(1, 12, 2)).ok());
  EXPECT_EQ(drain(scheduler), (std::vector<int>{5, 5, 2, 1}));
}

// Of the two only the one that asks for it; not after a token of it has been generated before.
TEST(Scheduler, NamesTheChunksOfPromptsThatReportThem) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 16, .prefill_chunk = 5, .max_pages = 10});
  ASSERT_TRUE(scheduler.submit(request(1, 12, 3)).ok());
  Request reports = request(2, 9, 3), moved = request(3, 4, 3);
  reports.reports_progress = moved.reports_progress = true;
  moved.answered = {7};
  ASSERT_TRUE(scheduler.submit(reports).ok());
  ASSERT_TRUE(scheduler.submit(moved).ok());
  std::vector<std::pair<int, int>> chunks;  // computed before and after
  while (scheduler.has_work()) {
    const auto& step = scheduler.schedule();
    for (const Sequence* sequence : step.reporting) {
      EXPECT_EQ(sequence->request.index, 2);
      chunks.emplace_back(sequence->before_step->num_computed, sequence->num_computed);
    }
    sample(scheduler, step.sampled);
  }
  EXPECT_EQ(chunks, (std::vector<std::pair<int, int>>{{0, 5}, {5, 9}}));
}

TEST(Scheduler, CancelledRequestsGiveBackWhatTheyHave) {
  Scheduler scheduler(kKv, {.max_batch_size = 4, .max_num_tokens = 8, .max_pages = 2});
  ASSERT_TRUE(scheduler.submit(request(1, 6, 3)).ok());
  ASSERT_TRUE(scheduler.submit(request(2, 30, 10)).ok());
  ASSERT_TRUE(scheduler.submit(request(3, 5, 1)).ok());
  scheduler.cancel(2);  // waits
  scheduler.cancel(7);  // an unknown request
  Scheduler::Step& step = scheduler.schedule();
  ASSERT_EQ(step.sampled.size(), 1u);
  scheduler.cancel(1);  // its token is under way
  EXPECT_TRUE(step.sampled[0]->cancelled);
  step.sampled[0]->tokens.push_back(99);
  scheduler.cancel(1);                                 // which has come
  EXPECT_EQ(drain(scheduler), (std::vector<int>{3}));  // request 3, of whose prompt 2 were done
  EXPECT_FALSE(scheduler.has_work());
}

// Ranks that hear the role before the same iteration schedule the same.
TEST(Scheduler, ARankThatPrefersAnswersTakesFewPromptTokensBeside) {
  const SchedulerLimits limits{.max_batch_size = 4, .max_num_tokens = 1024, .max_pages = 100};
  const auto sizes = [&](Role role) {
    Scheduler scheduler(kKv, limits);
    std::vector<int> all;
    EXPECT_TRUE(scheduler.submit(request(1, 3, 12)).ok());
    for (int i = 0; scheduler.has_work(); ++i) {
      if (i == 1) {
        EXPECT_TRUE(scheduler.submit(request(2, 300, 1)).ok());
        scheduler.prefer(role);
      }
      const auto& step = scheduler.schedule();
      all.push_back(step.batch.num_tokens());
      sample(scheduler, step.sampled);
    }
    return all;
  };
  const std::vector<int> few = {3, 129, 129, 45, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(sizes(Role::kDecode), few);
  const std::vector<int> many = {3, 301, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(sizes(Role::kBoth), many);
  EXPECT_EQ(sizes(Role::kPrefill), many);
}

// Nobody waits for a next token.
TEST(Scheduler, PromptsAloneGetWholeChunksInAnyRole) {
  Scheduler scheduler(kKv, {.max_batch_size = 4, .max_num_tokens = 256, .max_pages = 10});
  scheduler.prefer(Role::kDecode);
  ASSERT_TRUE(scheduler.submit(request(1, 300, 1)).ok());
  EXPECT_EQ(drain(scheduler), (std::vector<int>{256, 44}));
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

// As a pipeline runs it: the tokens of an iteration come when `micro_batches` are under way.
std::vector<int> drain_late(Scheduler& scheduler, int micro_batches) {
  std::vector<int> sizes;
  std::deque<std::vector<Sequence*>> under_way;
  for (;;) {
    if (static_cast<int>(under_way.size()) == micro_batches) {
      sample(scheduler, under_way.front());
      under_way.pop_front();
    }
    if (!scheduler.has_work()) return sizes;
    const auto& step = scheduler.schedule();
    sizes.push_back(step.batch.num_tokens());
    under_way.push_back(step.sampled);
  }
}

TEST(Scheduler, MicroBatchesHaveAboutAsManyRequestsEach) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 2, .max_num_tokens = 64, .max_pages = 10, .micro_batches = 2});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(scheduler.submit(request(i, 10, 3)).ok());
  // Two prompts, then the two others while these are under way; and so on.
  EXPECT_EQ(drain_late(scheduler, 2), (std::vector<int>{20, 20, 2, 2, 2, 2, 0}));
}

TEST(Scheduler, ChunksOfOnePromptFollowEachOther) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 2, .max_num_tokens = 4, .max_pages = 10, .micro_batches = 3});
  ASSERT_TRUE(scheduler.submit(request(0, 14, 2)).ok());
  // Nothing to do while the first token is on its way, which is 3 iterations behind.
  EXPECT_EQ(drain_late(scheduler, 3), (std::vector<int>{4, 4, 4, 2, 0, 0, 1, 0, 0}));
}

// A request that is left out is not left out again before all micro-batches in flight had their
// turn.
TEST(Scheduler, NoRequestIsLeftOutForLong) {
  constexpr int kMicroBatches = 3;
  Scheduler scheduler(kKv, {.max_batch_size = 3,
                            .max_num_tokens = 200,
                            .max_pages = 100,
                            .micro_batches = kMicroBatches});
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(scheduler.submit(request(i, 1 + i, 12 + i % 3)).ok());
  const std::vector<int> sizes = drain_late(scheduler, kMicroBatches);
  // Every request has a token at least every third iteration, the prompts' included.
  EXPECT_LE(sizes.size(), static_cast<size_t>(kMicroBatches * (14 + 2)));
  EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), 0), 28 + 7 * 12 + 6 - 7);
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
      sample(scheduler, step.sampled);
    }
    EXPECT_EQ(next, left);
    scheduler.schedule();  // of nothing: it counts pages
    EXPECT_EQ(scheduler.record().cache_pages, 0);
    EXPECT_EQ(scheduler.record().kept_pages, 0);
  }
}

// A prompt of 32k tokens: the cache and the batch of each of n ranks are an n-th.
TEST(Scheduler, RanksThatShareSequencesNeedAnNthOfTheMemory) {
  constexpr int kTokens = 32768, kBatch = 2048;
  for (const int size : {2, 4, 8}) {
    const int pages = kTokens / kernels::kPageTokens / size + 1;  // and one for what is generated
    std::vector<std::byte> memory(kKv.page_bytes() * pages * size);
    ContextPlace place{.rank = size - 1, .size = size};
    for (int rank = 0; rank < size; ++rank) {
      place.caches.push_back(memory.data() + kKv.page_bytes() * pages * rank);
    }
    Scheduler scheduler(kKv,
                        {.max_batch_size = 1,
                         .max_num_tokens = kBatch,
                         .max_rank_tokens = kBatch / size,
                         .max_pages = pages},
                        place);
    ASSERT_TRUE(scheduler.submit(request(0, kTokens, 10)).ok());
    int max = 0, iterations = 0;
    while (scheduler.has_work()) {
      const auto& step = scheduler.schedule();
      max = std::max(max, step.batch.num_tokens());
      ++iterations;
      sample(scheduler, step.sampled);
    }
    EXPECT_EQ(max, kBatch / size);
    EXPECT_EQ(iterations, kTokens / kBatch + 9);
  }
}

// All ranks that share sequences schedule alike: between them they have every token once, in the
// rank's memory that has its page.
class SharedSequences : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(TurnPages, SharedSequences, testing::Values(1, 2, 3));

TEST_P(SharedSequences, RanksHaveTheirTurnsOfPages) {
  constexpr int kRanks = 3, kMaxPages = 12;
  std::vector<std::vector<std::byte>> memory(kRanks);
  ContextPlace place{.size = kRanks};
  for (auto& cache : memory) {
    cache.resize(kKv.page_bytes() * kMaxPages);
    place.caches.push_back(cache.data());
  }
  std::deque<Scheduler> ranks;
  for (place.rank = 0; place.rank < kRanks; ++place.rank) {
    ranks.emplace_back(kKv,
                       SchedulerLimits{.max_batch_size = 4,
                                       .max_num_tokens = 300,
                                       .turn_pages = GetParam(),
                                       .max_pages = kMaxPages},
                       place);
    EXPECT_FALSE(ranks.back().submit(request(9, 37 * 64, 1)).ok());
    for (int i = 0; i < 7; ++i) ASSERT_TRUE(ranks.back().submit(request(i, 30 + 250 * i, 70)).ok());
  }
  std::vector<int64_t> tokens_of_rank(kRanks);
  std::map<int, int> next;  // by request
  while (ranks[0].has_work()) {
    std::vector<Scheduler::Step*> steps;
    for (Scheduler& rank : ranks) steps.push_back(&rank.schedule());
    std::set<std::pair<int, int>> computed;  // request, position
    std::set<int32_t> places;
    int num_tokens = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Scheduler::Step& step = *steps[rank];
      ASSERT_EQ(step.num_tokens, steps[0]->num_tokens);
      ASSERT_EQ(step.sampled.size(), steps[0]->sampled.size());
      ASSERT_EQ(step.logit_places.size(), step.batch.logit_rows.size());
      num_tokens += step.batch.num_tokens();
      tokens_of_rank[rank] += step.batch.num_tokens();
      for (int t = 0; t < step.batch.num_tokens(); ++t) {
        const int position = step.batch.positions[t];
        computed.emplace(step.owners[t]->request.index, position);
        const std::byte* page = (*step.batch.pages[t])[position / kernels::kPageTokens];
        EXPECT_GE(page, memory[rank].data());
        EXPECT_LT(page, memory[rank].data() + memory[rank].size());
      }
      for (size_t i = 0; i < step.logit_places.size(); ++i) {
        EXPECT_TRUE(places.insert(step.logit_places[i]).second);
        EXPECT_EQ(step.owners[step.batch.logit_rows[i]], step.sampled[step.logit_places[i]]);
      }
    }
    ASSERT_LE(num_tokens, 300);
    ASSERT_EQ(num_tokens, steps[0]->num_tokens);
    ASSERT_EQ(places.size(), steps[0]->sampled.size());
    for (const auto& [index, position] : computed) ASSERT_EQ(position, next[index]++);
    for (int rank = 0; rank < kRanks; ++rank) sample(ranks[rank], steps[rank]->sampled);
  }
  for (int i = 0; i < 7; ++i) EXPECT_EQ(next[i], 30 + 250 * i + 69);
  const auto [min, max] = std::minmax_element(tokens_of_rank.begin(), tokens_of_rank.end());
  EXPECT_LT(*max - *min, 7 * 64 * GetParam());
}

// ---- pages that others have computed ----

Request request_of(int index, std::vector<int32_t> prompt, int max_tokens) {
  return {.index = index, .prompt = std::move(prompt), .max_tokens = max_tokens};
}

std::vector<int32_t> counted(int from, int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

TEST(Scheduler, SharesPagesThatOtherRequestsHaveComputed) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 400, .max_pages = 20, .reuse_pages = true});
  ASSERT_TRUE(scheduler.submit(request_of(0, counted(0, 150), 2)).ok());
  EXPECT_EQ(drain(scheduler), (std::vector<int>{150, 1}));
  std::vector<int32_t> longer = counted(0, 140);
  longer.resize(200, 7);
  ASSERT_TRUE(scheduler.submit(request_of(1, longer, 1)).ok());           // 2 pages alike
  ASSERT_TRUE(scheduler.submit(request_of(2, counted(0, 128), 1)).ok());  // all but one token
  ASSERT_TRUE(scheduler.submit(request_of(3, counted(1, 150), 1)).ok());
  EXPECT_EQ(drain(scheduler), (std::vector<int>{200 - 128 + 128 - 64 + 150}));
  EXPECT_EQ(scheduler.record().reused_tokens, 128 + 64);
}

TEST(Scheduler, PromptsThatComeTogetherAreComputedOnce) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 8, .max_num_tokens = 400, .max_pages = 40, .reuse_pages = true});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(scheduler.submit(request_of(i, counted(0, 70), 1)).ok());
  EXPECT_EQ(drain(scheduler), (std::vector<int>{70 + 3 * 6}));
}

TEST(Scheduler, AChatGoesOnFromItsAnswerWhereRolesAreAlike) {
  for (const bool differ : {false, true}) {
    Scheduler scheduler(kKv, {.max_batch_size = 4,
                              .max_num_tokens = 400,
                              .max_pages = 20,
                              .reuse_pages = true,
                              .roles_differ = differ});
    ASSERT_TRUE(scheduler.submit(request_of(0, counted(0, 100), 60)).ok());
    drain(scheduler);
    std::vector<int32_t> chat = counted(0, 100);
    chat.resize(159, 99);
    chat.resize(200, 5);
    ASSERT_TRUE(scheduler.submit(request_of(1, chat, 1)).ok());
    EXPECT_EQ(drain(scheduler), (std::vector<int>{differ ? 200 - 64 : 200 - 128}));
  }
}

TEST(Scheduler, SharedPagesCountOnceWhenRequestsAreAdmitted) {
  // Each needs 4 pages, of which 3 are alike: two fit into 5.
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 400, .max_pages = 5, .reuse_pages = true});
  ASSERT_TRUE(scheduler.submit(request_of(0, counted(0, 200), 2)).ok());
  ASSERT_TRUE(scheduler.submit(request_of(1, counted(0, 200), 2)).ok());
  scheduler.schedule();
  scheduler.schedule();
  EXPECT_EQ(scheduler.record().running, 2);
  EXPECT_EQ(scheduler.record().cache_pages, 5);
}

// Short prompts do not wait for a long one, which has half of every iteration at least.
TEST(Scheduler, LongAndShortPromptsDelayEachOtherOnlyALittle) {
  Scheduler scheduler(kKv, {.max_batch_size = 64, .max_num_tokens = 100, .max_pages = 1000});
  ASSERT_TRUE(scheduler.submit(request(1000, 2000, 1)).ok());
  std::map<int, int> came, done;
  int long_done = 0;
  for (int iteration = 0; long_done == 0; ++iteration) {
    ASSERT_TRUE(scheduler.submit(request(iteration, 40, 1)).ok());  // always more of them
    came[iteration] = iteration;
    for (Sequence* sequence : std::vector<Sequence*>(scheduler.schedule().sampled)) {
      const int index = sequence->request.index;
      (index == 1000 ? long_done : done[index]) = iteration;
      sequence->tokens.push_back(99);
      scheduler.finish(sequence);
    }
    ASSERT_LT(iteration, 100);
  }
  EXPECT_LE(long_done, 2 * 2000 / 100);
  for (const auto& [index, iteration] : done) EXPECT_LE(iteration - came[index], 1);
  EXPECT_GE(done.size(), static_cast<size_t>(long_done - 1));
}

// ---- max_utilization ----

TEST(Scheduler, TheYoungestPausesWhenPagesRunOut) {
  Scheduler scheduler(kKv, {.max_batch_size = 4,
                            .max_num_tokens = 400,
                            .max_pages = 4,
                            .policy = CapacityPolicy::kMaxUtilization});
  ASSERT_TRUE(scheduler.submit(request(0, 60, 100)).ok());  // 3 pages in the end
  ASSERT_TRUE(scheduler.submit(request(1, 60, 100)).ok());
  const std::vector<int> sizes = drain(scheduler);
  EXPECT_EQ(sizes[0], 120);  // where all may need 3 pages, one would wait for the other
  EXPECT_EQ(sizes[1], 2);
  EXPECT_GE(scheduler.record().pauses, 1);
  EXPECT_LT(sizes.size(), 160u);  // one after the other takes 200
}

// Chats without a limit of their own are computed together until the cache is full; none of them
// begins again and again.
TEST(Scheduler, ARequestPausesAFewTimesAndThenHasItsPages) {
  const SchedulerLimits limits{.max_batch_size = 8,
                               .max_num_tokens = 600,
                               .max_pages = 40,
                               .policy = CapacityPolicy::kMaxUtilization,
                               .max_evictions = 2};
  Scheduler scheduler(kKv, limits);
  constexpr int kChats = 8, kMax = 2000;  // 32 pages each in the end
  for (int i = 0; i < kChats; ++i) ASSERT_TRUE(scheduler.submit(request(i, 40, kMax)).ok());
  int together = 0, max_evictions = 0, computed = 0;
  for (int ended = 0; ended < kChats;) {
    Scheduler::Step& step = scheduler.schedule();
    together = std::max(together, step.num_requests);
    computed += step.num_tokens;
    for (Sequence* sequence : std::vector(step.sampled)) {
      max_evictions = std::max(max_evictions, sequence->evictions);
      scheduler.append(*sequence, std::vector<int32_t>{1}, {});
      if (sequence->num_generated() < kMax) continue;
      scheduler.finish(sequence);
      ++ended;
    }
    ASSERT_GT(step.num_tokens, 0);
  }
  EXPECT_EQ(together, kChats);
  EXPECT_EQ(max_evictions, limits.max_evictions);
  EXPECT_LT(computed, kChats * (kMax + 40) * 3 / 2) << "computed again";
}

// What a page has in each position: a hash of all tokens up to there, and of their roles where
// these make a difference.
class PageContents {
 public:
  explicit PageContents(bool roles_differ) : roles_differ_(roles_differ) {}

  // The step's tokens are written; what they attend to is as it was when it was computed.
  void follow(const Scheduler::Step& step) {
    for (int t = 0; t < step.batch.num_tokens(); ++t) {
      const Sequence& sequence = *step.owners[t];
      const int position = step.batch.positions[t];
      uint64_t content = 1;
      for (int p = 0; p <= position; ++p) {
        const bool generated = roles_differ_ && p >= sequence.prompt_length();
        content = content * 1099511628211u +
                  static_cast<uint64_t>(sequence.token_at(p) * 2 + (generated ? 1 : 0));
        const auto slot =
            std::pair((*step.batch.pages[t])[p / kernels::kPageTokens], p % kernels::kPageTokens);
        if (p == position) {
          slots_[slot] = content;
        } else {
          ASSERT_EQ(slots_.at(slot), content) << sequence.request.index << " at " << p;
        }
      }
    }
  }

 private:
  bool roles_differ_;
  std::map<std::pair<std::byte*, int>, uint64_t> slots_;
};

// What the forward pass makes of states: here a hash of all tokens up to there, and their number.
constexpr size_t kStateBytes = 64;

struct StateContents {
  static void follow(const Scheduler::Step& step) {
    ASSERT_EQ(step.batch.states.size(), step.batch.ids.size());
    for (int t = 0; t < step.batch.num_tokens(); ++t) {
      const Sequence& sequence = *step.owners[t];
      auto* state = reinterpret_cast<uint64_t*>(step.batch.states[t]);
      ASSERT_EQ(state[1], static_cast<uint64_t>(step.batch.positions[t]));
      uint64_t content = 0;
      for (int p = 0; p < step.batch.positions[t]; ++p) {
        content = next(content, sequence.token_at(p));
      }
      ASSERT_EQ(state[0], content) << sequence.request.index << " at " << state[1];
      state[0] = next(content, step.batch.ids[t]);
      ++state[1];
      if (step.batch.saved_states[t] != nullptr) {
        std::memcpy(step.batch.saved_states[t], state, kStateBytes);
      }
    }
  }
  static uint64_t next(uint64_t content, int32_t token) {
    return content * 1099511628211u + static_cast<uint64_t>(token) + 1;
  }
};

// What a request's next token is, `ahead` tokens after its last one.
int32_t next_token(const Sequence& sequence, int ahead = 0) {
  return (sequence.tokens[0] + (sequence.num_generated() + ahead) * 3) % 5;
}

// Appends what the sequence's step yields: the right ones of its drafts and one token more. Then it
// gets up to `most` drafts, of which a quarter is wrong.
void append_next(Scheduler& scheduler, Sequence& sequence, int max, std::mt19937& rng) {
  std::vector<int32_t> tokens;
  for (int i = 0; i <= sequence.num_verifying; ++i) {
    tokens.push_back(next_token(sequence, i));
    const bool ends = sequence.num_generated() + i + 1 == sequence.request.max_tokens;
    if (ends || sequence.cancelled || i == sequence.num_verifying ||
        tokens.back() != sequence.drafts[static_cast<size_t>(i)]) {
      break;
    }
  }
  const auto count = static_cast<int>(tokens.size());
  const int left = sequence.request.max_tokens - sequence.num_generated() - count - 1;
  std::vector<int32_t> drafts;
  for (int i = 0; max > 0 && i < std::min(left, static_cast<int>(rng() % (max + 1))); ++i) {
    drafts.push_back(next_token(sequence, count + i) + (rng() % 4 == 0 ? 1 : 0));
  }
  scheduler.append(sequence, tokens, drafts);
}

struct Random {
  const char* name = "";
  bool reuse = false;
  bool roles_differ = false;
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  int micro_batches = 1;
  int state_slots = 0;
  int max_drafts = 0;
  int pages = 0;  // 0: a few
};

class RandomWork : public testing::TestWithParam<Random> {};
INSTANTIATE_TEST_SUITE_P(
    Policies, RandomWork,
    testing::Values(
        Random{.name = "reuse", .reuse = true},
        Random{.name = "roles", .reuse = true, .roles_differ = true},
        Random{.name = "pauses", .policy = CapacityPolicy::kMaxUtilization},
        Random{.name = "both", .reuse = true, .policy = CapacityPolicy::kMaxUtilization},
        Random{.name = "all",
               .reuse = true,
               .roles_differ = true,
               .policy = CapacityPolicy::kMaxUtilization,
               .micro_batches = 3},
        Random{.name = "states", .reuse = true, .state_slots = 8},
        Random{.name = "few_states",
               .reuse = true,
               .policy = CapacityPolicy::kMaxUtilization,
               .micro_batches = 3,
               .state_slots = 3},
        Random{.name = "states_alone", .policy = CapacityPolicy::kMaxUtilization, .state_slots = 4},
        Random{.name = "drafts", .reuse = true, .max_drafts = 5},
        Random{.name = "long_drafts",
               .reuse = true,
               .roles_differ = true,
               .policy = CapacityPolicy::kMaxUtilization,
               .micro_batches = 3,
               .max_drafts = 60},
        Random{.name = "drafts_and_states", .reuse = true, .state_slots = 8, .max_drafts = 5},
        Random{.name = "drafts_in_flight_and_many_states",
               .reuse = true,
               .micro_batches = 3,
               .state_slots = 16,
               .max_drafts = 5,
               .pages = 200},
        Random{.name = "long_drafts_and_few_states",
               .reuse = true,
               .policy = CapacityPolicy::kMaxUtilization,
               .micro_batches = 2,
               .state_slots = 4,
               .max_drafts = 60}),
    [](const auto& each) { return each.param.name; });

// Prompts with the same prefix, chats that go on, cancelled requests: pages always hold the tokens
// of their sequences, every request gets its tokens, and all pages are released.
TEST_P(RandomWork, PagesContainTheTokensOfTheirSequences) {
  const Random& param = GetParam();
  std::mt19937 rng(7);
  int64_t reused = 0, evicted = 0, pauses = 0;
  for (int round = 0; round < 6; ++round) {
    SchedulerLimits limits{.max_batch_size = int(2 + rng() % 5),
                           .max_num_tokens = int(6 + rng() % 120),
                           .prefill_chunk = int(rng() % 70),
                           .max_pages = param.pages > 0 ? param.pages : int(8 + rng() % 6),
                           .state_slots = param.state_slots,
                           .draft_slots = param.state_slots * std::min(param.max_drafts, 30),
                           .micro_batches = param.micro_batches,
                           .policy = param.policy,
                           .reuse_pages = param.reuse,
                           .roles_differ = param.roles_differ};
    Scheduler scheduler(kKv, limits, {}, kStateBytes);
    PageContents contents(param.roles_differ);
    std::vector<std::vector<int32_t>> texts(1);
    std::deque<std::vector<Sequence*>> under_way;
    int submitted = 0, left = 0;
    std::map<int, int> generated;
    int64_t idle = 0;
    while (submitted < 16 || left > 0) {
      if (submitted < 16 && rng() % 2 == 0) {
        std::vector<int32_t> prompt = texts[rng() % texts.size()];
        prompt.resize(std::min<size_t>(prompt.size(), 250));
        const size_t more = 1 + rng() % 90;
        for (size_t i = 0; i < more; ++i) prompt.push_back(static_cast<int32_t>(rng() % 3));
        texts.push_back(prompt);
        ASSERT_TRUE(scheduler.submit(request_of(submitted, prompt, int(1 + rng() % 200))).ok());
        ++submitted;
        ++left;
      }
      if (rng() % 60 == 0 && submitted > 0) {  // where a token is awaited it ends with that
        const int index = int(rng() % submitted);
        const int before = scheduler.num_requests();
        scheduler.cancel(index);
        left -= before - scheduler.num_requests();
      }
      if (static_cast<int>(under_way.size()) == param.micro_batches) {
        for (Sequence* sequence : under_way.front()) {
          append_next(scheduler, *sequence, param.max_drafts, rng);
          const bool done = sequence->num_generated() == sequence->request.max_tokens;
          ASSERT_LE(sequence->num_generated(), sequence->request.max_tokens);
          ASSERT_LE(sequence->evictions, limits.max_evictions);
          if (!done && !sequence->cancelled) continue;
          texts.push_back(sequence->tokens);
          scheduler.finish(sequence);
          --left;
        }
        under_way.pop_front();
      }
      const Scheduler::Step& step = scheduler.schedule();
      ASSERT_LE(step.num_tokens, limits.max_num_tokens);
      ASSERT_LE(step.num_requests, limits.max_batch_size);
      ASSERT_LE(scheduler.record().cache_pages + scheduler.record().kept_pages, limits.max_pages);
      contents.follow(step);
      if (param.state_slots > 0) {
        StateContents::follow(step);
        ASSERT_LE(scheduler.record().running, param.state_slots);
      }
      if (HasFatalFailure()) return;
      idle = step.num_tokens == 0 && left > 0 ? idle + 1 : 0;
      ASSERT_LE(idle, param.micro_batches);  // the oldest always goes on
      under_way.push_back(step.sampled);
    }
    EXPECT_EQ(scheduler.record().cache_pages, 0);
    reused += scheduler.record().reused_tokens;
    evicted += scheduler.record().evicted_pages;
    pauses += scheduler.record().pauses;
  }
  EXPECT_EQ(reused > 0, param.reuse);
  EXPECT_EQ(evicted > 0, param.reuse && param.pages == 0);
  EXPECT_EQ(pauses > 0, param.policy == CapacityPolicy::kMaxUtilization);
}

// ---- states ----

SchedulerLimits limits_with_states(int slots) {
  return {.max_batch_size = 4,
          .max_num_tokens = 400,
          .max_pages = 30,
          .state_slots = slots,
          .reuse_pages = true};
}

// The tokens of each iteration while the scheduler works.
std::vector<int> drain_with_states(Scheduler& scheduler) {
  std::vector<int> sizes;
  while (scheduler.has_work()) {
    const auto& step = scheduler.schedule();
    StateContents::follow(step);
    if (testing::Test::HasFatalFailure()) return {};
    sizes.push_back(step.num_tokens);
    sample(scheduler, step.sampled);
  }
  return sizes;
}

TEST(SchedulerStates, ChunksEndWhereASnapshotIsMade) {
  Scheduler scheduler(kKv, limits_with_states(4), {}, kStateBytes);
  ASSERT_TRUE(scheduler.submit(request_of(0, counted(0, 150), 2)).ok());
  EXPECT_EQ(drain_with_states(scheduler), (std::vector<int>{128, 22, 1}));
  ASSERT_TRUE(scheduler.submit(request_of(1, counted(0, 150), 1)).ok());
  EXPECT_EQ(drain_with_states(scheduler), (std::vector<int>{22}));
  EXPECT_EQ(scheduler.record().reused_tokens, 128);
}

TEST(SchedulerStates, WithoutReuseChunksAreWhole) {
  SchedulerLimits limits = limits_with_states(4);
  limits.reuse_pages = false;
  Scheduler scheduler(kKv, limits, {}, kStateBytes);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(scheduler.submit(request_of(i, counted(0, 150), 2)).ok());
    EXPECT_EQ(drain_with_states(scheduler), (std::vector<int>{150, 1}));
  }
}

TEST(SchedulerStates, AChatGoesOnFromItsAnswer) {
  Scheduler scheduler(kKv, limits_with_states(4), {}, kStateBytes);
  ASSERT_TRUE(scheduler.submit(request_of(0, counted(0, 100), 100)).ok());
  drain_with_states(scheduler);
  std::vector<int32_t> chat = counted(0, 100);
  chat.resize(199, 99);
  chat.resize(300, 5);
  ASSERT_TRUE(scheduler.submit(request_of(1, chat, 1)).ok());
  EXPECT_EQ(drain_with_states(scheduler), (std::vector<int>{256 - 192, 300 - 256}));
}

// The first to branch off computes what both have alike once more; the next one shares it.
TEST(SchedulerStates, SnapshotsAreMadeWherePromptsBranchOff) {
  Scheduler scheduler(kKv, limits_with_states(8), {}, kStateBytes);
  std::vector<std::vector<int>> sizes;
  for (int i = 0; i < 3; ++i) {
    std::vector<int32_t> prompt = counted(0, 130);
    prompt.resize(200, 1000 + i);
    ASSERT_TRUE(scheduler.submit(request_of(i, prompt, 1)).ok());
    sizes.push_back(drain_with_states(scheduler));
  }
  EXPECT_EQ(sizes, (std::vector<std::vector<int>>{{192, 8}, {128, 64, 8}, {64, 8}}));
}

TEST(SchedulerStates, RequestsWaitForASlot) {
  Scheduler scheduler(kKv, limits_with_states(2), {}, kStateBytes);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(scheduler.submit(request(i, 10, 2)).ok());
  EXPECT_EQ(drain_with_states(scheduler), (std::vector<int>{20, 2, 10, 1}));
}

TEST(SchedulerStates, APausedRequestGoesOnFromItsSnapshot) {
  SchedulerLimits limits = limits_with_states(8);
  limits.max_pages = 6;
  limits.policy = CapacityPolicy::kMaxUtilization;
  Scheduler scheduler(kKv, limits, {}, kStateBytes);
  ASSERT_TRUE(scheduler.submit(request(0, 120, 150)).ok());  // 5 pages in the end
  ASSERT_TRUE(scheduler.submit(request(1, 120, 150)).ok());
  drain_with_states(scheduler);
  EXPECT_GE(scheduler.record().pauses, 1);
  EXPECT_GT(scheduler.record().reused_tokens, 0);
}

// Ranks that share sequences keep the same books, and find each other's pages.
TEST(Scheduler, RanksThatShareSequencesShareTheirPagesToo) {
  constexpr int kRanks = 3, kMaxPages = 7;
  std::vector<std::vector<std::byte>> memory(kRanks);
  ContextPlace place{.size = kRanks};
  for (auto& cache : memory) {
    cache.resize(kKv.page_bytes() * kMaxPages);
    place.caches.push_back(cache.data());
  }
  for (const auto policy : {CapacityPolicy::kGuaranteedNoEvict, CapacityPolicy::kMaxUtilization}) {
    std::deque<Scheduler> ranks;
    for (place.rank = 0; place.rank < kRanks; ++place.rank) {
      ranks.emplace_back(kKv,
                         SchedulerLimits{.max_batch_size = 4,
                                         .max_num_tokens = 300,
                                         .max_rank_tokens = 128,
                                         .turn_pages = 2,
                                         .max_pages = kMaxPages,
                                         .policy = policy,
                                         .reuse_pages = true},
                         place);
    }
    std::mt19937 rng(5);
    for (int i = 0; i < 20; ++i) {
      std::vector<int32_t> prompt = counted(int(rng() % 3), int(1 + rng() % 700));
      for (Scheduler& rank : ranks) {
        ASSERT_TRUE(rank.submit(request_of(i, prompt, 1 + i % 100)).ok());
      }
    }
    for (int iteration = 0; ranks[0].has_work(); ++iteration) {
      ASSERT_LT(iteration, 2000);
      std::vector<Scheduler::Step*> steps;
      for (Scheduler& rank : ranks) steps.push_back(&rank.schedule());
      for (int rank = 0; rank < kRanks; ++rank) {
        ASSERT_EQ(ranks[rank].record(), ranks[0].record());
        ASSERT_LE(steps[rank]->batch.num_tokens(), 128);
        for (const auto* page : steps[rank]->batch.pages) {
          for (size_t i = 0; i < page->size(); ++i) ASSERT_NE((*page)[i], nullptr);
        }
        for (Sequence* sequence : std::vector<Sequence*>(steps[rank]->sampled)) {
          sequence->tokens.push_back(next_token(*sequence));
          const bool done = sequence->num_generated() == sequence->request.max_tokens;
          if (done) ranks[rank].finish(sequence);
        }
      }
    }
    EXPECT_GT(ranks[0].record().reused_tokens, 20 * 64);
  }
}

// ---- steps that are given up ----

// What the steps compute until all work is done: (request, position) in order.
std::vector<std::pair<int, int>> computed(Scheduler& scheduler) {
  std::vector<std::pair<int, int>> all;
  while (scheduler.has_work()) {
    const auto& step = scheduler.schedule();
    for (size_t i = 0; i < step.owners.size(); ++i) {
      all.emplace_back(step.owners[i]->request.index, step.batch.positions[i]);
    }
    for (Sequence* sequence : std::vector<Sequence*>(step.sampled)) {
      const int32_t token = 99;
      scheduler.append(*sequence, std::span(&token, 1), {});
      if (sequence->num_generated() == sequence->request.max_tokens) scheduler.finish(sequence);
    }
  }
  return all;
}

TEST(GivenUpStep, IsComputedAgainFromWhereItBegan) {
  const SchedulerLimits limits{
      .max_batch_size = 4, .max_num_tokens = 80, .max_pages = 20, .reuse_pages = true};
  Scheduler undisturbed(kKv, limits), disturbed(kKv, limits);
  for (Scheduler* each : {&undisturbed, &disturbed}) {
    ASSERT_TRUE(each->submit(request(1, 100, 3)).ok());
    ASSERT_TRUE(each->submit(request(2, 30, 2)).ok());
  }
  disturbed.schedule();
  EXPECT_TRUE(disturbed.give_up_step().empty());
  EXPECT_EQ(computed(disturbed), computed(undisturbed));
}

// Nobody has computed the page that the step entered: others must not find it.
TEST(GivenUpStep, LeavesNoPageThatNobodyHasComputed) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 64, .max_pages = 20, .reuse_pages = true});
  ASSERT_TRUE(scheduler.submit(request(1, 130, 1)).ok());
  EXPECT_EQ(scheduler.schedule().batch.num_tokens(), 64);  // its first page
  scheduler.give_up_step();
  EXPECT_TRUE(scheduler.cancel(1));
  Request same = request(2, 130, 1);
  same.prompt = std::vector<int32_t>(130, 1);
  ASSERT_TRUE(scheduler.submit(same).ok());
  const auto all = computed(scheduler);
  EXPECT_EQ(all.size(), 130u);
  EXPECT_EQ(all.front(), (std::pair{2, 0}));
}

// What a step has spoiled is computed again, and what was spoiled before it stays so.
TEST(GivenUpStep, TakesBackWhatItHasSpoiled) {
  Scheduler scheduler(kKv, {.max_batch_size = 4, .max_num_tokens = 64, .max_pages = 20});
  ASSERT_TRUE(scheduler.submit(request(1, 200, 1)).ok());
  scheduler.schedule().owners.front()->is_spoiled = true;
  scheduler.give_up_step();
  EXPECT_FALSE(scheduler.schedule().owners.front()->is_spoiled);
  scheduler.schedule().owners.front()->is_spoiled = true;
  scheduler.schedule();
  scheduler.give_up_step();
  EXPECT_TRUE(scheduler.schedule().owners.front()->is_spoiled);
}

// Pages of steps before stay, in place.
TEST(GivenUpStep, KeepsWhatWasComputedBefore) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 64, .max_pages = 20, .reuse_pages = true});
  ASSERT_TRUE(scheduler.submit(request(1, 130, 1)).ok());
  scheduler.schedule();
  scheduler.schedule();
  scheduler.give_up_step();
  EXPECT_EQ(scheduler.record().pauses, 0);
  const auto all = computed(scheduler);
  EXPECT_EQ(all.front(), (std::pair{1, 64}));
  EXPECT_EQ(all.size(), 66u);
}

// Two requests with the same prompt: the second shares the page that the first one enters in the
// very step that is given up. It begins anew.
TEST(GivenUpStep, PausesWhoSharesAPageOfTheStep) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 200, .max_pages = 20, .reuse_pages = true});
  for (const int index : {1, 2}) {
    Request each = request(index, 70, 2);
    each.prompt = std::vector<int32_t>(70, 5);
    ASSERT_TRUE(scheduler.submit(each).ok());
  }
  const int tokens = scheduler.schedule().batch.num_tokens();
  EXPECT_EQ(tokens, 70 + 6);
  scheduler.give_up_step();
  EXPECT_EQ(scheduler.schedule().batch.num_tokens(), tokens);
  scheduler.give_up_step();
  // Without the first one, the second has to compute the page itself.
  Scheduler other(
      kKv, {.max_batch_size = 4, .max_num_tokens = 200, .max_pages = 20, .reuse_pages = true});
  for (const int index : {1, 2}) {
    Request each = request(index, 70, 2);
    each.prompt = std::vector<int32_t>(70, 5);
    ASSERT_TRUE(other.submit(each).ok());
  }
  other.schedule();
  other.give_up_step();
  EXPECT_TRUE(other.cancel(1));
  EXPECT_EQ(other.schedule().batch.num_tokens(), 70);
  std::map<int, int> last;
  for (const auto& [index, position] : computed(scheduler)) last[index] = position;
  EXPECT_EQ(last, (std::map<int, int>{{1, 70}, {2, 70}}));
}

TEST(GivenUpStep, EndsRequestsThatWereCancelledInIt) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 64, .max_pages = 20, .reuse_pages = true});
  ASSERT_TRUE(scheduler.submit(request(1, 10, 5)).ok());
  scheduler.schedule();
  EXPECT_FALSE(scheduler.cancel(1));  // its token is in flight
  EXPECT_EQ(scheduler.give_up_step(), std::vector<int>{1});
  EXPECT_FALSE(scheduler.has_work());
}

// Runs all requests, with drafts, until they end, and gives up a fifth of the steps or none. Pages
// must always contain the tokens of their sequences. Returns the text of each.
std::map<int, std::vector<int32_t>> texts_of(const std::vector<Request>& requests,
                                             const SchedulerLimits& limits, bool gives_up,
                                             std::mt19937 rng) {
  Scheduler scheduler(kKv, limits);
  PageContents contents(false);
  for (const Request& each : requests) EXPECT_TRUE(scheduler.submit(each).ok());
  std::map<int, std::vector<int32_t>> texts;
  int given_up = 0;
  for (int steps = 0; scheduler.has_work() && steps < 5000; ++steps) {
    const auto& step = scheduler.schedule();
    if (gives_up && rng() % 5 == 0) {
      EXPECT_TRUE(scheduler.give_up_step().empty());  // none was cancelled
      ++given_up;
      continue;
    }
    contents.follow(step);
    if (testing::Test::HasFatalFailure()) return {};
    for (Sequence* sequence : std::vector<Sequence*>(step.sampled)) {
      append_next(scheduler, *sequence, 3, rng);
      if (sequence->num_generated() < sequence->request.max_tokens) continue;
      texts[sequence->request.index] = sequence->tokens;
      scheduler.finish(sequence);
    }
  }
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(given_up > 0, gives_up);
  scheduler.schedule();  // of nothing: it counts pages
  EXPECT_EQ(scheduler.record().cache_pages, 0);
  return texts;
}

// Random requests in a cache that is too small for all: after any number of steps given up each has
// the tokens that it has without, and all pages are free.
TEST(GivenUpStep, RandomRunsEndAsUndisturbedOnes) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto draw = [&](int max) { return std::uniform_int_distribution(0, max)(random); };
    SchedulerLimits limits{
        .max_batch_size = 5, .max_num_tokens = 70, .max_pages = 12, .reuse_pages = true};
    if (seed % 2 == 0) limits.policy = CapacityPolicy::kMaxUtilization;
    std::vector<Request> requests;
    for (int index = 0; index < 12; ++index) {
      Request each = request(index, 1 + draw(200), 1 + draw(60));
      each.prompt = std::vector<int32_t>(each.prompt.size(), draw(2));
      requests.push_back(std::move(each));
    }
    const auto undisturbed = texts_of(requests, limits, false, random);
    if (HasFatalFailure()) return;
    ASSERT_EQ(undisturbed.size(), requests.size());
    for (const Request& each : requests) {
      ASSERT_EQ(undisturbed.at(each.index).size(), each.prompt.size() + size_t(each.max_tokens));
    }
    EXPECT_EQ(texts_of(requests, limits, true, random), undisturbed);
    if (HasFatalFailure()) return;
  }
}

TEST(DroppedRequests, LeaveTheirPagesToTheSameRequests) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 200, .max_pages = 20, .reuse_pages = true});
  ASSERT_TRUE(scheduler.submit(request(1, 130, 2)).ok());
  scheduler.schedule();
  scheduler.schedule();
  EXPECT_EQ(scheduler.drop_requests(), std::vector<int>{1});
  EXPECT_FALSE(scheduler.has_work());
  ASSERT_TRUE(scheduler.submit(request(1, 130, 2)).ok());
  EXPECT_EQ(scheduler.schedule().batch.num_tokens(), 130 - 128);
}

// As where another rank has begun the answer.
TEST(Scheduler, GoesOnWithAnAnswerThatWasBegun) {
  Scheduler scheduler(
      kKv, {.max_batch_size = 4, .max_num_tokens = 64, .max_pages = 20, .reuse_pages = true});
  Request begun = request(1, 10, 4);
  begun.answered = {99, 99, 99};
  ASSERT_TRUE(scheduler.submit(begun).ok());
  const auto& step = scheduler.schedule();
  EXPECT_EQ(step.batch.num_tokens(), 13);
  ASSERT_EQ(step.sampled.size(), 1u);
  EXPECT_EQ(step.sampled[0]->num_generated(), 3);
  EXPECT_EQ(step.sampled[0]->prompt_length(), 10);
}

}  // namespace
}  // namespace wideep::engine
