// SPDX-License-Identifier: Apache-2.0
//
// Texts have one continuation, so that each draft is known. Machines whose steps take
// a + b · D(N) + c · N, with noise, must be learned by StepTime. A text that repeats itself runs on
// a machine where drafts pay, and on one where they do not. Machines with a part of the experts in
// memory, which ExpertResidency chooses, read the others from a disk: lengths must follow what that
// costs, also when memory changes. Answers do not depend on any of this,
// since drafts are verified: a failure is time, for drafts that bring less than they cost, or for
// want of those that would pay.
#include "engine/speculation/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "engine/speculation/draft_lengths.h"
#include "residency/expert_residency.h"

namespace wideep::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Tokens = std::vector<int32_t>;

Sequence sequence_of(int index, const Tokens& prompt, int max_tokens) {
  Sequence sequence;
  sequence.request = {.index = index, .prompt = prompt, .max_tokens = max_tokens};
  sequence.tokens = prompt;
  return sequence;
}

Tokens drafted(Speculation& speculation, const Sequence& sequence, const Tokens& tokens) {
  const Speculation::Continuation one{.sequence = &sequence, .tokens = tokens};
  return speculation.draft(std::span(&one, 1)).at(0);
}

const SpeculationOptions kNgrams = {.method = SpeculationOptions::Method::kNgram,
                                    .max_draft_len = 3,
                                    .ngram = {.max_matching_ngram_size = 2}};
const SpeculationOptions kSuffixes = {.method = SpeculationOptions::Method::kSuffix,
                                      .max_draft_len = 3};

TEST(Speculation, DraftsWhatFollowedTheSameTokens) {
  for (const SpeculationOptions& options : {kNgrams, kSuffixes}) {
    Speculation speculation(options, 4, 8, 2);
    const Sequence sequence = sequence_of(0, {1, 2, 3, 4, 5, 9}, 20);
    EXPECT_THAT(drafted(speculation, sequence, {1}), ElementsAre(2, 3, 4));
  }
}

TEST(Speculation, NeverBeyondTheEndOfTheAnswer) {
  Speculation speculation(kNgrams, 4, 8, 2);
  const Sequence sequence = sequence_of(0, {1, 2, 3, 4, 5}, 3);
  EXPECT_THAT(drafted(speculation, sequence, {1}), ElementsAre(2));  // and one token more
  Sequence later = sequence;
  later.tokens.push_back(1);
  EXPECT_THAT(drafted(speculation, later, {2}), IsEmpty());
}

TEST(Speculation, RequestsMayDoWithout) {
  Speculation speculation(kNgrams, 4, 8, 2);
  Sequence sequence = sequence_of(0, {1, 2, 3, 4, 5}, 20);
  sequence.request.speculates = false;
  EXPECT_THAT(drafted(speculation, sequence, {1}), IsEmpty());
}

TEST(Speculation, PoolsArePublicOrPrivate) {
  for (const bool is_public : {true, false}) {
    SpeculationOptions options = kNgrams;
    options.is_public_pool = is_public;
    Speculation speculation(options, 4, 8, 2);
    const Sequence first = sequence_of(0, {1, 2, 3, 4, 5}, 20);
    drafted(speculation, first, {6});
    speculation.end(0);
    const Sequence second = sequence_of(1, {7, 8, 2}, 20);
    EXPECT_THAT(drafted(speculation, second, {3}), SizeIs(is_public ? 3 : 0));
  }
}

TEST(Speculation, EarlierAnswersOfOthers) {
  Speculation speculation(kSuffixes, 4, 8, 2);
  const Sequence first = sequence_of(0, {1, 2, 3, 4, 5}, 20);
  drafted(speculation, first, {6});
  const Sequence second = sequence_of(1, {7, 8, 2}, 20);
  EXPECT_THAT(drafted(speculation, second, {3}), IsEmpty());  // not yet an answer
  speculation.end(0);
  const Sequence third = sequence_of(2, {7, 8, 2}, 20);
  EXPECT_THAT(drafted(speculation, third, {3}), ElementsAre(4, 5, 6));
}

// A repetition goes on beyond the end of the text.
TEST(Speculation, LongPromptsAreIndexedOverSeveralSteps) {
  for (const SpeculationOptions& options : {kNgrams, kSuffixes}) {
    Speculation speculation(options, 4, 8, 2);
    Tokens prompt;
    for (int i = 0; i < 10'000; ++i) prompt.push_back(i % 5000);
    Sequence sequence = sequence_of(0, prompt, 100);
    size_t longest = 0;
    for (int32_t token = 0; token < 8; ++token) {
      const Tokens draft = drafted(speculation, sequence, {token});
      if (!draft.empty()) {
        EXPECT_EQ(draft[0], token + 1);
      }
      EXPECT_TRUE(token > 0 || draft.empty());
      longest = std::max(longest, draft.size());
      sequence.tokens.push_back(token);
    }
    EXPECT_EQ(longest, 3u);
  }
}

TEST(Speculation, PeriodsGoOn) {
  Speculation speculation(kSuffixes, 4, 8, 2);
  const Sequence sequence = sequence_of(0, {1, 2, 1, 2}, 20);
  EXPECT_THAT(drafted(speculation, sequence, {1}), ElementsAre(2, 1, 2));
}

TEST(Speculation, LengthsFollowTheBatch) {
  SpeculationOptions options = kNgrams;
  options.draft_len_schedule = {{1, 3}, {2, 1}, {4, 0}};
  const Sequence a = sequence_of(0, {1, 2, 3, 4, 5}, 20);
  const Tokens next = {1};
  const auto lengths = [&](int batch, const SpeculationOptions& with) {
    Speculation speculation(with, 4, 8, 2);
    std::vector<Sequence> sequences(static_cast<size_t>(batch), a);
    std::vector<Speculation::Continuation> step;
    for (int i = 0; i < batch; ++i) {
      sequences[static_cast<size_t>(i)].request.index = i;
      step.push_back({.sequence = &sequences[static_cast<size_t>(i)], .tokens = next});
    }
    return speculation.draft(step).back().size();
  };
  EXPECT_EQ(lengths(1, options), 3u);
  EXPECT_EQ(lengths(3, options), 1u);
  EXPECT_EQ(lengths(5, options), 0u);
  SpeculationOptions few = kNgrams;
  few.max_concurrency = 2;
  EXPECT_EQ(lengths(2, few), 3u);
  EXPECT_EQ(lengths(3, few), 0u);
}

TEST(Speculation, GivesUpWhereDraftsAreWrong) {
  SpeculationOptions options = kNgrams;
  options.acceptance_window = 2;
  options.acceptance_length_threshold = 0.5;
  options.is_public_pool = false;
  Speculation speculation(options, 4, 8, 2);
  for (int i = 0; i < 3; ++i) {
    Sequence sequence = sequence_of(i, {1, 2, 3, 4, 5}, 20);
    EXPECT_THAT(drafted(speculation, sequence, {1}), SizeIs(i < 2 ? 3 : 0));
    EXPECT_EQ(speculation.has_given_up(), i >= 2);
    sequence.tokens.push_back(1);
    sequence.num_verifying = 3;  // all wrong
    drafted(speculation, sequence, {9});
    speculation.end(i);
  }
}

// Rates of steps, not of requests: one long request is enough.
TEST(Speculation, GivesUpWhereTheRateIsLow) {
  SpeculationOptions options = kNgrams;
  options.acceptance_rate_window = 2;
  options.acceptance_rate_threshold = 0.5;
  Speculation speculation(options, 4, 8, 2);
  Sequence sequence = sequence_of(0, {1, 2, 3, 4, 5}, 40);
  drafted(speculation, sequence, {1});
  sequence.tokens.push_back(1);
  // Shares of right drafts: 2/3, 1/3 (mean 1/2: not below), 0 (mean 1/6).
  const std::vector<Tokens> yields = {{2, 3, 9}, {2, 9}, {9}};
  for (size_t i = 0; i < yields.size(); ++i) {
    sequence.num_verifying = 3;
    drafted(speculation, sequence, yields[i]);
    sequence.tokens.insert(sequence.tokens.end(), yields[i].begin(), yields[i].end());
    EXPECT_EQ(speculation.has_given_up(), i == 2) << i;
  }
}

// ---- what a step costs ----

TEST(ExpertSpread, CountsDistinctExperts) {
  ExpertSpread spread(8, 2);
  EXPECT_NEAR(spread.distinct(1), 2.0, 1e-9);
  EXPECT_NEAR(spread.distinct(2), 8 * (1 - std::pow(0.75, 2)), 1e-9);
  EXPECT_NEAR(spread.distinct(64), 8.0, 1e-3);
  for (int n = 1; n < 300; ++n) EXPECT_LE(spread.distinct(n), spread.distinct(n + 1));
  spread.add(0, std::vector<int32_t>{100, 100, 0, 0, 0, 0, 0, 0});
  spread.update();
  EXPECT_NEAR(spread.distinct(50), 2.0, 1e-6);
}

// A machine whose steps take a + b · D(N) + c · N, with noise.
struct Machine {
  double a, b, c, noise;
  double seconds(const ExpertSpread& spread, int tokens, std::mt19937& rng) const {
    std::normal_distribution<double> random(1.0, noise);
    return (a + b * spread.distinct(tokens) + c * tokens) * std::max(0.2, random(rng));
  }
};

TEST(StepTime, LearnsTheMachine) {
  const ExpertSpread spread(64, 4);
  std::mt19937 rng(1);
  for (const Machine& machine : {Machine{2e-3, 1e-3, 1e-5, 0.05}, Machine{1e-4, 1e-5, 1e-3, 0.05},
                                 Machine{5e-3, 0, 0, 0.1}, Machine{0, 2e-3, 2e-4, 0.05}}) {
    StepTime time(spread, {});
    for (int i = 0; i < 300; ++i) {
      const int tokens = int(1 + rng() % 12);
      time.observe(tokens, machine.seconds(spread, tokens, rng));
    }
    for (const int tokens : {1, 4, 12}) {
      const double expected = machine.a + machine.b * spread.distinct(tokens) + machine.c * tokens;
      EXPECT_NEAR(time.predict(tokens), expected, 0.1 * expected) << tokens;
    }
  }
}

// Also after a long time in which all steps had the same size.
TEST(StepTime, FollowsAMachineThatBecomesSlower) {
  const ExpertSpread spread(64, 4);
  StepTime time(spread, {});
  for (int i = 0; i < 10'000; ++i) time.observe(1, 1e-3);
  for (int i = 0; i < 150; ++i) time.observe(1, 1.5e-3);
  EXPECT_NEAR(time.predict(1), 1.5e-3, 0.05e-3);
}

TEST(StepTime, SingleLongStepsMatterLittle) {
  const ExpertSpread spread(64, 4);
  StepTime time(spread, {});
  for (int i = 0; i < 100; ++i) time.observe(4, i % 25 == 24 ? 1.0 : 1e-3);
  EXPECT_LT(time.predict(4), 1.2e-3);
}

// ---- how much is verified ----

TEST(DraftLengths, VerifyWhatPays) {
  const std::vector<std::vector<double>> chances = {{0.9, 0.9, 0.9}, {0.1, 0.9}, {}};
  const auto free = choose_draft_lengths(chances, [](int) { return 1.0; });
  EXPECT_THAT(free.lengths, ElementsAre(3, 2, 0));
  EXPECT_NEAR(free.expected_tokens, 3 + 0.9 + 0.81 + 0.729 + 0.1 + 0.09, 1e-9);
  const auto dear = choose_draft_lengths(chances, [](int tokens) { return double(tokens); });
  EXPECT_THAT(dear.lengths, ElementsAre(0, 0, 0));
  // A token costs a quarter of what the first three cost together.
  const auto between =
      choose_draft_lengths(chances, [](int tokens) { return 3.0 + 0.75 * (tokens - 3); });
  EXPECT_THAT(between.lengths, ElementsAre(2, 0, 0));
}

TEST(DraftLengths, LargeBatchesGainInSmallSteps) {
  const std::vector<std::vector<double>> chances(1024, {0.9});
  const auto chosen =
      choose_draft_lengths(chances, [](int tokens) { return 1024 + 0.5 * (tokens - 1024); });
  EXPECT_NEAR(chosen.expected_tokens, 1024 * 1.9, 1);
}

// Times that were wrong at first make drafts look as dear as they bring; the right ones correct
// this because likely drafts are tried now and then.
TEST(Speculation, TriesDraftsThatLookTooDear) {
  SpeculationOptions options = kSuffixes;
  options.is_adaptive = true;
  options.max_draft_len = 6;
  Speculation speculation(options, 4, 8, 2);
  for (int i = 0; i < 20; ++i) {
    for (const int tokens : {1, 4, 7}) speculation.observe(tokens, 1.0 * tokens);
  }
  Sequence sequence = sequence_of(0, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3}, 1000);
  int32_t next = 4;
  int steps = 0;
  Tokens drafts;
  for (; sequence.num_generated() < 600; ++steps) {
    Tokens yield = {next};
    for (const int32_t draft : drafts) {
      if (draft != yield.back()) break;
      yield.push_back(yield.back() % 8 + 1);
    }
    next = yield.back() % 8 + 1;
    speculation.observe(1 + static_cast<int>(drafts.size()), 1.0);
    drafts = drafted(speculation, sequence, yield);
    sequence.tokens.insert(sequence.tokens.end(), yield.begin(), yield.end());
  }
  EXPECT_LT(steps, 200);
}

// A request whose text repeats itself, on machines where drafts pay and where they do not.
TEST(Speculation, AdaptiveLengthsFollowGainAndCost) {
  for (const auto& [fixed, price_of_token] : {std::pair(1.0, 0.02), std::pair(0.0, 1.0)}) {
    SpeculationOptions options = kSuffixes;
    options.is_adaptive = true;
    options.max_draft_len = 6;
    Speculation speculation(options, 4, 8, 2);
    Sequence sequence = sequence_of(0, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3}, 400);
    size_t verified = 0;
    int32_t next = 4;
    Tokens drafts;
    int steps = 0;
    while (sequence.num_generated() < 300) {
      Tokens yield;
      for (size_t i = 0;; ++i) {
        yield.push_back(next);
        next = next % 8 + 1;
        if (i == drafts.size() || drafts[i] != yield.back()) break;
      }
      const int tokens = 1 + static_cast<int>(drafts.size());
      if (++steps > 100) {
        verified += drafts.size();
      }
      speculation.observe(tokens, fixed + price_of_token * tokens);
      drafts = drafted(speculation, sequence, yield);
      sequence.tokens.insert(sequence.tokens.end(), yield.begin(), yield.end());
    }
    if (fixed > 0) {
      EXPECT_LT(steps, 80);
    } else {
      EXPECT_EQ(verified, 0u);
    }
  }
}

// ---- experts that are not in memory ----

// A machine with a part of its experts in memory. A token chooses again some of the experts of the
// one before it, the others by a popularity with a long tail. A layer computes what is in memory
// while the disk reads the rest.
class DiskMachine {
 public:
  static constexpr int kLayers = 4, kExperts = 32, kTopK = 4;

  // memory: the share of the experts that fits.
  DiskMachine(double read_seconds, double memory) : read_(read_seconds) {
    for (std::vector<double>& layer : popularity_) {
      for (int e = 0; e < kExperts; ++e) layer.push_back(1.0 / (1 + e));
      std::shuffle(layer.begin(), layer.end(), rng_);
    }
    set_memory(memory);
  }

  // All experts are absent at first.
  void set_memory(double share) {
    residency_.emplace(
        residency::ResidencyShape{kLayers, kExperts, static_cast<int>(share * kLayers * kExperts)},
        residency::ResidencyOptions{});
  }

  // Seconds of a step with so many tokens, of which the text keeps the first `kept`.
  double step(int tokens, int kept) {
    double seconds = 1e-3 + 5e-5 * tokens;
    misses_ = 0.0;
    residency_->begin_iteration(tokens);
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::span<const int32_t> counts = choose(static_cast<size_t>(layer), tokens, kept);
      const auto all = kExperts - static_cast<int>(std::ranges::count(counts, 0));
      const auto read = static_cast<int>(residency_->visit(layer, counts).size());
      seconds += std::max(kCompute * (all - read), read_ * read) + (read > 0 ? kCompute : 0.0);
      misses_ += read / double(kLayers);
    }
    return seconds * std::normal_distribution<double>(1.0, 0.05)(rng_);
  }
  // Of the last step, mean over layers; [experts] tokens of a layer.
  double misses() const { return misses_; }
  std::span<const int32_t> counts(int layer) const { return counts_[static_cast<size_t>(layer)]; }

 private:
  static constexpr double kCompute = 2e-5;  // an expert, in memory
  using Experts = std::vector<int>;

  std::span<const int32_t> choose(size_t layer, int tokens, int kept) {
    counts_[layer].assign(kExperts, 0);
    Experts before = last_[layer];
    for (int token = 0; token < tokens; ++token) {
      before = choose_after(before, popularity_[layer]);
      for (const int expert : before) ++counts_[layer][static_cast<size_t>(expert)];
      if (token < kept) last_[layer] = before;
    }
    return counts_[layer];
  }
  Experts choose_after(const Experts& before, std::vector<double> weights) {
    Experts chosen;
    const auto take = [&](int expert) {
      chosen.push_back(expert);
      weights[static_cast<size_t>(expert)] = 0.0;
    };
    for (const int expert : before) {
      if (rng_() % 5 < 2) take(expert);
    }
    while (std::ssize(chosen) < kTopK) {
      take(std::discrete_distribution<int>(weights.begin(), weights.end())(rng_));
    }
    return chosen;
  }

  double read_;
  std::mt19937 rng_{1};
  std::array<std::vector<double>, kLayers> popularity_;
  std::array<Experts, kLayers> last_;
  std::array<std::vector<int32_t>, kLayers> counts_;
  std::optional<residency::ExpertResidency> residency_;
  double misses_ = 0.0;
};

// Also at sizes that have not run since memory became larger.
TEST(StepTime, LearnsWhatAMissCosts) {
  for (const double memory : {0.25, 0.5, 0.75}) {
    DiskMachine machine(3e-4, memory);
    ExpertSpread spread(DiskMachine::kExperts, DiskMachine::kTopK);
    StepTime time(spread, {});
    std::mt19937 rng(1);
    const auto run = [&](int steps, int min, int max) {
      for (int step = 1; step <= steps; ++step) {
        const int tokens = min + static_cast<int>(rng() % unsigned(max - min + 1));
        time.observe(tokens, machine.step(tokens, tokens), machine.misses());
        for (int l = 0; l < DiskMachine::kLayers; ++l) spread.add(l, machine.counts(l));
        if (step % 32 == 0) spread.update();
      }
    };
    const auto mean = [&](int tokens) {
      double sum = 0;
      for (int i = 0; i < 200; ++i) sum += machine.step(tokens, tokens);
      return sum / 200;
    };
    run(400, 1, 8);
    for (int tokens = 1; tokens <= 8; ++tokens) {
      const double seconds = mean(tokens);
      EXPECT_NEAR(time.predict(tokens), seconds, 0.1 * seconds) << memory << " " << tokens;
    }
    machine.set_memory(1.0);
    mean(8);  // fills it
    run(100, 8, 8);
    for (int tokens = 1; tokens <= 8; ++tokens) {
      const double seconds = mean(tokens);
      EXPECT_NEAR(time.predict(tokens), seconds, 0.1 * seconds) << memory << " " << tokens;
    }
  }
}

// Half of the drafts follow long matches and are good, half short ones and are poor.
class KnownDrafts : public Drafter {
 public:
  static int32_t token(size_t place) { return static_cast<int32_t>(place * 7919 % 30'011); }

  Draft draft(int, std::span<const int32_t> more, int max) override {
    place_ += more.size();
    const bool is_good = rng_() % 2 == 0;
    Draft draft{.match = is_good ? 64 : 1};
    for (int i = 0; i < max; ++i) {
      const bool is_right = rng_() % 100 < (is_good ? 93u : 40u);
      draft.tokens.push_back(is_right ? token(place_ + static_cast<size_t>(i)) : -1);
    }
    return draft;
  }
  void end(int) override {}
  size_t bytes() const override { return 0; }

 private:
  std::mt19937 rng_{3};
  size_t place_ = 0;
};

struct Speed {
  double tokens_per_second = 0;
  double drafts_per_step = 0;
};

// A text on a machine whose memory changes in the middle. Speeds of both halves, each without its
// first quarter. draft_len: fixed; nullopt: adaptive.
std::vector<Speed> run_text(double read_seconds, std::pair<double, double> memory,
                            std::optional<int> draft_len) {
  DiskMachine machine(read_seconds, memory.first);
  SpeculationOptions options{.method = SpeculationOptions::Method::kSuffix,
                             .max_draft_len = draft_len.value_or(8),
                             .is_adaptive = !draft_len,
                             .make_drafter = [] { return std::make_unique<KnownDrafts>(); }};
  Speculation speculation(options, 1, DiskMachine::kExperts, DiskMachine::kTopK);
  Sequence sequence = sequence_of(0, {KnownDrafts::token(0)}, 1 << 20);
  Tokens drafts;
  std::vector<Speed> speeds;
  for (const double share : {memory.first, memory.second}) {
    if (share != memory.first) machine.set_memory(share);
    constexpr int kTokens = 1200;
    int tokens = 0, steps = 0, verified = 0, all = 0;
    double seconds = 0;
    while (all < kTokens) {
      Tokens yield;
      for (size_t i = 0;; ++i) {
        yield.push_back(KnownDrafts::token(sequence.tokens.size() + i));
        if (i == drafts.size() || drafts[i] != yield.back()) break;
      }
      const int size = 1 + static_cast<int>(drafts.size());
      const double step = machine.step(size, static_cast<int>(yield.size()));
      all += static_cast<int>(yield.size());
      if (all > kTokens / 4) {
        ++steps;
        seconds += step;
        tokens += static_cast<int>(yield.size());
        verified += size - 1;
      }
      speculation.observe(size, step, machine.misses());
      for (int l = 0; l < DiskMachine::kLayers; ++l) speculation.add_counts(l, machine.counts(l));
      drafts = drafted(speculation, sequence, yield);
      sequence.tokens.insert(sequence.tokens.end(), yield.begin(), yield.end());
    }
    speeds.push_back({tokens / seconds, verified / double(steps)});
  }
  return speeds;
}

// At least as fast as the best fixed length, with any memory. Without misses in the model of a
// step's time, drafts still look dear long after memory has grown, and half of the speed is lost.
TEST(Speculation, AdaptiveLengthsCountThePriceOfMisses) {
  using Memory = std::pair<double, double>;
  for (const double read_seconds : {3e-4, 1e-3}) {
    std::map<double, double> lengths;  // by memory
    for (const Memory memory : {Memory{0.25, 1.0}, {1.0, 0.25}, {0.5, 0.75}, {0.75, 0.25}}) {
      std::array<double, 2> best = {};
      for (const int fixed : {0, 1, 2, 3, 4, 6, 8}) {
        const std::vector<Speed> speeds = run_text(read_seconds, memory, fixed);
        for (size_t i = 0; i < 2; ++i) best[i] = std::max(best[i], speeds[i].tokens_per_second);
      }
      const std::vector<Speed> adaptive = run_text(read_seconds, memory, {});
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_GE(adaptive[i].tokens_per_second, best[i])
            << memory.first << " to " << memory.second << ", part " << i;
      }
      lengths[memory.first] = adaptive[0].drafts_per_step;
    }
    EXPECT_LT(lengths[0.25], lengths[1.0]);
  }
}

}  // namespace
}  // namespace wideep::engine
