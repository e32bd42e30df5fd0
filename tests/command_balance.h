// SPDX-License-Identifier: Apache-2.0
//
// For tests of `wideep balance ...`: synthetic statistics in every format that it reads, and
// helpers that run the command on them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "command.h"

namespace wideep::tests {

// Statistics of 16 experts in MoE layers 1 and 2, skewed as those of real routers.
class CommandBalance : public ::testing::Test {
 protected:
  static constexpr int kExperts = 16;

  std::string file(const std::string& name) const { return directory_.file(name); }
  std::string write(const std::string& name, const std::string& content) const;  // returns the path
  std::string read(const std::string& name) const;

  // Tokens of each expert in a layer and iteration.
  static std::vector<int64_t> load(int layer, int iteration);

  // Each returns the path to give to --stats.
  std::string logical_count(int iteration = 0) const;  // one iteration
  std::string csv(int num_iterations = 8) const;
  std::string recorded(int num_iterations = 4) const;  // a directory, recorded by 2 ranks
  std::string trace() const;                           // 4,000 tokens, 2 layers, top 2: TraceArgs
  static std::vector<std::string> trace_shape();
  // The directory of a trace of 2 layers of 16 experts, top 2; 20 requests of 100 tokens for each of
  // two kinds of text. One in `one_in` choices is among the first `num_hot` experts of the kind.
  std::string requests(unsigned one_in, unsigned num_hot) const;

  // Runs wideep balance `arguments`.
  static CommandEnd balance(const std::vector<std::string>& arguments);
  // The same; the command must succeed, write nothing to stderr, and print JSON.
  static nlohmann::json balance_json(std::vector<std::string> arguments);

  // wideep balance plan on 4 ranks with `slots` slots, writing plan.yaml.
  std::vector<std::string> plan(const std::string& stats, int slots,
                                const std::vector<std::string>& more = {}) const;

 private:
  base::ScratchDirectory directory_;
};

}  // namespace wideep::tests
