// SPDX-License-Identifier: Apache-2.0
//
// Every family gives the same bits for every parallelism, placement and chunk of a prompt, and
// while experts move. What a part cannot do is refused before loading.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "family_layouts.h"
#include "generated.h"
#include "model/config/config.h"
#include "model/model_division.h"
#include "parallel/parallel_config.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using run::GenerateOptions;
using run::GenerateReport;

constexpr int kSlots = 16;

std::vector<Layout> layouts() {
  return {
      {"chunks of 19", sizes_of(1, 1, 1), false, false, 19},
      {"ep 2, online", sizes_of(2, 1, 1), true, true},
      {"ep 4", sizes_of(4, 1, 1), true},
      {"ep 2, etp 2", sizes_of(4, 1, 1, 2), true},
      {"tp 2", sizes_of(2, 1, 1)},
      {"tp 2, etp 2, online", sizes_of(2, 1, 1, 2), false, true},
      {"pp 2", sizes_of(1, 2, 1)},
      {"pp 2, ep 2, chunks of 33", sizes_of(2, 2, 1), true, false, 33},
      {"cp 2", sizes_of(1, 1, 2)},
      {"cp 2, tp 2", sizes_of(2, 1, 2)},
  };
}

// Of dense models, whose feed-forward layers are divided by tensor parallelism alone.
std::vector<Layout> dense_layouts() {
  return {
      {"tp 4", sizes_of(4, 1, 1)},
      {"tp 2, pp 2", sizes_of(2, 2, 1)},
      {"attention dp 2, cp 2", sizes_of(2, 1, 2), true},
  };
}

// Of models with states, whose units are divided by tensor and context parallelism: also among more
// ranks than there are units.
std::vector<Layout> state_layouts() {
  return {
      {"tp 4, online", sizes_of(4, 1, 1), false, true},
      {"tp 4, etp 2, chunks of 19", sizes_of(4, 1, 1, 2), false, false, 19},
      {"tp 2, pp 2, chunks of 33", sizes_of(2, 2, 1), false, false, 33},
      {"cp 3, chunks of 70", sizes_of(1, 1, 3), false, false, 70},
      {"cp 2, pp 2", sizes_of(1, 2, 2)},
      {"attention dp 2, cp 2, online", sizes_of(2, 1, 2), true, true},
      {"cp 2, tp 2, pp 2", sizes_of(2, 2, 2)},
  };
}

class FamilyAnswers : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    write_random_model_like(directory_.path(), GetParam());
    auto config = model::read_model_config(directory_.path());
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = std::move(*config);
  }

  GenerateOptions options() const {
    GenerateOptions options;
    options.model_dir = directory_.path();
    options.max_tokens = 10;
    options.logits_digest = true;
    options.prompts = {"The captain looked at the sea", std::string(150, 'x') + " two pages", "x"};
    options.parallel = parallel::parallel_config_for_ranks(1).value();
    return options;
  }

  GenerateOptions options(const Layout& each) const {
    GenerateOptions options = this->options();
    set_layout(each, &options);
    const bool shared = each.sizes.moe_ep == 1;  // one owner of experts has nothing to balance
    if (shared || !config_.has_experts()) return options;
    options.parallel.moe_config.load_balancer = {.num_slots = kSlots,
                                                 .layer_updates_per_iter = each.online ? 1 : 0};
    if (!each.online) return options;
    options.parallel.max_batch_size = 2;  // more iterations
    move_all_the_time(config_, &options);
    return options;
  }

  const base::ScratchDirectory directory_;
  model::ModelConfig config_;
};

TEST_P(FamilyAnswers, AreTheSameBitsForEveryParallelism) {
  const auto expected = digests(run(options()));
  ASSERT_EQ(expected.size(), 3u);
  EXPECT_NE(expected[0], expected[1]);
  std::vector<Layout> all = layouts();
  if (!config_.has_experts()) std::ranges::copy(dense_layouts(), std::back_inserter(all));
  if (config_.has_state()) std::ranges::copy(state_layouts(), std::back_inserter(all));
  size_t number = 0;
  for (const Layout& each : all) {
    if (base::kSanitized && ++number % 3 != 0) continue;
    GenerateOptions spread = options(each);
    const Status possible = model::check_parts(spread.parallel, config_);
    if (!possible.ok()) {
      const auto refused = run::generate(spread);
      ASSERT_FALSE(refused.ok()) << each.name;
      EXPECT_EQ(refused.status().message(), possible.message());
      EXPECT_EQ(refused.status().exit_code(), 2);
      continue;
    }
    EXPECT_EQ(digests(run(spread)), expected) << each.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, FamilyAnswers,
    testing::Values("cohere2_moe_published", "cohere2_moe_rms", "dbrx_norm", "phimoe_published",
                    "deepseek_v2_groups", "deepseek_v32_plain", "dots1_window",
                    "ernie4_5_moe_plain", "exaone_moe_published", "glm4_moe_lite_plain",
                    "glm4_moe_norm_bias", "glm_moe_dsa_shared", "gpt_oss_plain", "granitemoe_plain",
                    "granitemoeshared_plain", "hunyuan_v1_moe_lists", "hy_v3_published",
                    "kimi_k25_plain", "kimi_k2_plain", "lfm2_moe_plain", "llama4_maverick",
                    "llama4_scout", "llama_bias", "llama_tied", "minimax_m2_plain",
                    "mistral4_groups", "mistral_plain", "mixtral_window", "olmoe_clip",
                    "mellum_yarn", "qwen2_moe_dense", "qwen2_window", "qwen3_5_moe_plain",
                    "qwen3_next_plain", "qwen3_plain", "solar_open_tied", "granitemoehybrid_groups",
                    "granitemoehybrid_plain", "nemotron_h_dense", "nemotron_h_latent",
                    "nemotron_h_plain", "nemotron_h_twice", "afmoe_plain", "laguna_heads",
                    "mimo_v2_flash_plain", "step3p7_published", "gemma4_plain", "gemma4_text_dense",
                    "kimi_linear_plain", "bailing_hybrid_minimal", "deepseek_v4_heavy",
                    "deepseek_v4_plain", "deepseek_v4_published", "minimax_m3_plain",
                    "glm5_next_published", "glm5_next_shared", "glm5_next_wide"),
    [](const auto& test) { return test.param; });

}  // namespace
}  // namespace wideep::tests
