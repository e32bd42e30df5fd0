// SPDX-License-Identifier: Apache-2.0
//
// Tests take turns, so that a change of the machine touches all of them. Prompts of a decode test
// may take several iterations, in which the first sequences generate already: each sequence
// generates as many tokens more, so that all still run in the last measured step. Limits follow
// from the tests: every generating sequence and prompt has room, so nothing waits for pages.
#include "measure/model/bench_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/try.h"
#include "run/layouts.h"
#include "schedule/page_pool.h"

namespace wideep::measure {
namespace {

using Kind = BenchTest::Kind;

constexpr int kWarmUpSteps = 2;

int divide_up(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

int sequences_per_rank(const BenchPlan& plan, const BenchTest& test) {
  return divide_up(test.sequences, plan.num_ranks);
}

// If the prompts of a rank do not fit into one iteration, its first sequences generate while the
// last prompts are still computed. Each sequence generates that many tokens more, so that all still
// run in the last measured step.
int tokens_to_generate(const BenchPlan& plan, const BenchTest& test, bool is_warm_up) {
  if (test.kind == Kind::kPrefill) return 1;
  const int sequences = sequences_per_rank(plan, test);
  const int prompt_iterations =
      divide_up(int64_t{sequences} * test.prompt, plan.limits.max_num_tokens - sequences);
  return (is_warm_up ? std::min(kWarmUpSteps, test.steps) : test.steps) + prompt_iterations;
}

std::vector<BenchTest> make_tests(const BenchOptions& options, int num_ranks) {
  std::vector<BenchTest> tests;
  if (options.prompt > 0) tests.push_back({Kind::kPrefill, num_ranks, options.prompt, 1});
  if (options.generate > 0) {
    for (const int batch : options.batches) {
      tests.push_back({Kind::kDecode, batch, options.depth, options.generate});
    }
  }
  return tests;
}

Status check_context(const BenchPlan& plan, const model::ModelConfig& config) {
  for (const BenchTest& test : plan.tests) {
    const int length = test.prompt + tokens_to_generate(plan, test, false);
    if (length <= config.max_position_embeddings) continue;
    return invalid_input(fmt::format(
        "{}: sequences of {} tokens exceed the model's context (max_position_embeddings {}); lower "
        "{}",
        test.name(), length, config.max_position_embeddings,
        test.kind == Kind::kPrefill ? "--prompt" : "--generate or --depth"));
  }
  return {};
}

engine::SchedulerLimits make_limits(const BenchPlan& plan) {
  engine::SchedulerLimits limits{.max_batch_size = 1, .max_num_tokens = run::kDefaultMaxNumTokens};
  for (const BenchTest& test : plan.tests) {
    limits.max_batch_size = std::max(limits.max_batch_size, sequences_per_rank(plan, test));
  }
  // Room for one token of every generating sequence and as many prompt tokens, so that prompts
  // always advance.
  limits.max_num_tokens = std::max(limits.max_num_tokens, 2 * limits.max_batch_size);
  return limits;
}

int pages_needed(const BenchPlan& plan) {
  int pages = 0;
  for (const BenchTest& test : plan.tests) {
    const int each = engine::pages_for(test.prompt + tokens_to_generate(plan, test, false));
    pages = std::max(pages, sequences_per_rank(plan, test) * each);
  }
  return pages;
}

}  // namespace

std::string BenchTest::name() const {
  return kind == Kind::kPrefill ? fmt::format("prefill {}", prompt)
                                : fmt::format("decode x{}", sequences);
}

Result<BenchPlan> make_plan(const BenchOptions& options, const model::ModelConfig& config,
                            int num_ranks) {
  BenchPlan plan{.tests = make_tests(options, num_ranks), .num_ranks = num_ranks};
  if (plan.tests.empty()) {
    return invalid_input("nothing to measure: --prompt 0 and --generate 0 leave no test");
  }
  plan.seed = options.seed;
  plan.limits = make_limits(plan);
  WIDEEP_TRY(check_context(plan, config));
  plan.limits.max_pages = pages_needed(plan);
  for (int repeat = 0; repeat <= options.repeats; ++repeat) {
    for (size_t test = 0; test < plan.tests.size(); ++test) {
      plan.runs.push_back({.test = static_cast<int>(test), .is_warm_up = repeat == 0});
    }
  }
  return plan;
}

std::vector<engine::Request> make_requests(const BenchPlan& plan, const model::ModelConfig& config,
                                           size_t run) {
  const BenchTest& test = plan.tests[plan.runs[run].test];
  std::vector<engine::Request> requests(test.sequences);
  for (int index = 0; index < test.sequences; ++index) {
    std::seed_seq seed{static_cast<uint32_t>(plan.seed), static_cast<uint32_t>(plan.seed >> 32),
                       static_cast<uint32_t>(run), static_cast<uint32_t>(index)};
    std::mt19937 rng(seed);
    engine::Request& request = requests[index];
    request.index = index;
    request.max_tokens = tokens_to_generate(plan, test, plan.runs[run].is_warm_up);
    std::vector<int32_t> prompt(test.prompt);
    for (int32_t& token : prompt) {
      token = static_cast<int32_t>(rng() % static_cast<uint32_t>(config.vocab_size));
    }
    request.prompt = std::move(prompt);
  }
  return requests;
}

}  // namespace wideep::measure
