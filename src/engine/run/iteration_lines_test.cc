// SPDX-License-Identifier: Apache-2.0
//
// The line of a rank against one that was written by hand after TensorRT-LLM's format string. A
// failure is a log that users' scripts, which look for these words, cannot read.
#include "run/iteration_lines.h"

#include <gtest/gtest.h>

namespace wideep::run {
namespace {

engine::IterationRecord record(int scheduled, int prompts) {
  engine::IterationRecord record;
  record.iteration = 7;
  record.prompt_tokens = 20;
  record.wall_ns = 1'500'000;
  record.queue = {.running = 4,
                  .waiting = 1,
                  .scheduled = scheduled,
                  .prompts = prompts,
                  .cache_pages = 5,
                  .max_pages = 8};
  return record;
}

TEST(IterationLines, AreTensorRtLlms) {
  const auto mapping = parallel::Mapping::create({.tp = 2, .pp = 2, .cp = 1, .moe_ep = 2});
  ASSERT_TRUE(mapping.ok());
  Iteration iteration;
  iteration.ranks = {record(3, 1), record(2, 0)};
  iteration.ranks[1].verified = {{.request = 1, .drafted = 3, .accepted = 1}};
  EXPECT_EQ(iteration_line(iteration, 0, *mapping, "2026-11-29 00:30:12"),
            "iter = 7, global_rank = 0, rank = 0, num_scheduled_requests = 3, "
            "adp_dummy_ctx_tokens = 0, adp_dummy_gen_tokens = 0, kv_cache_util = 0.625, "
            "currank_total_requests = 5/10, host_step_time = 1.5ms, prev_device_step_time = N/A, "
            "timestamp = 2026-11-29 00:30:12, states = {'num_ctx_requests': 1, 'num_ctx_tokens': "
            "20, 'num_generation_tokens': 2}");
  // Two requests generate, one of which verifies three drafts; rank 3 is the second of its stage.
  iteration.members = {0, 3};
  const std::string line = iteration_line(iteration, 1, *mapping, "t");
  EXPECT_NE(line.find("global_rank = 3, rank = 1, num_scheduled_requests = 2"), line.npos) << line;
  EXPECT_NE(line.find("'num_generation_tokens': 5}"), line.npos) << line;
}

TEST(IterationLines, AreOnlyThereWhereTheyAreWanted) {
  RunOptions options;
  EXPECT_FALSE(IterationLines::create(options).has_value());
  options.parallel = parallel::parse_parallel_config("print_iter_log: true\n", "f").value();
  EXPECT_TRUE(IterationLines::create(options).has_value());
}

}  // namespace
}  // namespace wideep::run
