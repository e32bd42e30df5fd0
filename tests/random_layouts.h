// SPDX-License-Identifier: Apache-2.0
//
// For tests: a model of random weights that answers in many layouts of ranks.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/scratch_directory.h"
#include "family_layouts.h"
#include "generated.h"
#include "model/config/config.h"
#include "parallel/parallel_config.h"
#include "random_model.h"

namespace wideep::tests {

// The tokens of each answer.
inline std::vector<std::vector<int32_t>> tokens_of(const run::GenerateReport& report) {
  std::vector<std::vector<int32_t>> all;
  for (const run::PromptResult& each : report.results) all.push_back(each.tokens);
  return all;
}

class RandomLayouts : public testing::Test {
 protected:
  void SetUp() override {
    write_random_model(directory_.path(), {});
    auto config = model::read_model_config(directory_.path());
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = std::move(*config);
  }

  // Three prompts, of which the second one has this many characters more; experts of an online
  // layout move all the time.
  run::GenerateOptions options_for(const Layout& layout, size_t longer) const {
    run::GenerateOptions options;
    options.model_dir = directory_.path();
    options.prompts = {"The captain", std::string(longer, 'x') + " looked", "x"};
    options.parallel = parallel::parallel_config_for_ranks(1).value();
    set_layout(layout, &options);
    if (layout.online) {
      options.parallel.moe_config.load_balancer = {.num_slots = 16, .layer_updates_per_iter = 1};
      move_all_the_time(config_, &options);
    }
    return options;
  }

  const base::ScratchDirectory directory_;
  model::ModelConfig config_;
};

}  // namespace wideep::tests
