// SPDX-License-Identifier: Apache-2.0
//
// What was kept changes no answer: prompts whose pages, latents, indexer's keys and states one run
// has written into a directory, and another one, in another layout, reads back. The logits of every
// generated step have the same bits as in a run that keeps nothing. With drafts, in other formats
// of the cache, with context parallelism, pipelines, tensor parallelism and attention data
// parallelism. WIDEEP_RESTORES: how many prompts of each model are restored.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "family_layouts.h"
#include "model/config/config.h"
#include "model/model_division.h"
#include "random_model.h"
#include "run/generate.h"

namespace wideep::tests {
namespace {

using run::GenerateOptions;

constexpr const char* kPredicts = "deepseek_v3";  // has a prediction layer

int restores_wanted() {
  const char* value = std::getenv("WIDEEP_RESTORES");
  if (value != nullptr) return std::atoi(value);
  return base::kSanitized ? 4 : 50;
}

std::vector<Layout> layouts() {
  return {
      {"one rank", sizes_of(1, 1, 1)},
      {"chunks of 50", sizes_of(1, 1, 1), false, false, 50},
      {"attention dp 2", sizes_of(2, 1, 1), true},
      {"tp 2", sizes_of(2, 1, 1)},
      {"pp 2", sizes_of(1, 2, 1)},
      {"pp 2, attention dp 2", sizes_of(2, 2, 1), true, false, 70},
      {"cp 2", sizes_of(1, 1, 2)},
  };
}

// Of the cache, and what drafts.
struct Setting {
  std::string cache_dtype = "AUTO";
  std::optional<parallel::SpeculativeConfig::Type> drafts = {};
};

class Restores : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == kPredicts) {
      write_random_model(directory_.path(), {.family = kPredicts, .num_predicting = 1});
    } else {
      write_random_model_like(directory_.path(), GetParam());
    }
    auto config = model::read_model_config(directory_.path());
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = std::move(*config);
  }

  std::string text(size_t length) {
    std::string text;
    while (text.size() < length) text += static_cast<char>('a' + random_() % 26);
    return text;
  }
  // Each begins like none of the others: what is found of one was kept by another run.
  std::vector<std::string> prompts() {
    std::vector<std::string> texts;
    for (int i = 0; i < 6; ++i) texts.push_back(text(70 + random_() % 260));
    return texts;
  }
  // The same prompts, longer ones, and such with another end.
  std::vector<std::string> later(std::vector<std::string> prompts) {
    for (std::string& each : prompts) {
      if (random_() % 3 == 0) each.resize(65 + random_() % (each.size() - 64));
      if (random_() % 3 != 0) each += text(1 + random_() % 100);
    }
    return prompts;
  }

  GenerateOptions options(const Setting& setting, const std::vector<std::string>& prompts) const {
    GenerateOptions options;
    options.model_dir = directory_.path();
    options.max_tokens = 4;
    options.logits_digest = true;
    options.prompts = prompts;
    options.parallel = parallel::parallel_config_for_ranks(1).value();
    options.parallel.kv_cache_config.dtype = setting.cache_dtype;
    options.timeout = std::chrono::milliseconds(60'000);
    return options;
  }
  GenerateOptions keeping(GenerateOptions options, const Setting& setting,
                          const Layout& layout) const {
    set_layout(layout, &options);
    options.prompt_cache_dir = kept_.path();
    options.prompt_cache_bytes = uint64_t{256} << 20;
    if (setting.drafts) {
      options.parallel.speculative_config = {
          .type = *setting.drafts,
          .max_draft_len = *setting.drafts == parallel::SpeculativeConfig::Type::kMtp ? 1 : 3};
    }
    return options;
  }

  std::vector<Layout> layouts_of(const Setting& setting) const {
    const bool predicts = setting.drafts == parallel::SpeculativeConfig::Type::kMtp;
    std::vector<Layout> possible;
    for (const Layout& each : layouts()) {
      const GenerateOptions spread = keeping(options(setting, {}), setting, each);
      if (predicts && each.sizes.cp > 1) continue;
      if (model::check_parts(spread.parallel, config_).ok()) possible.push_back(each);
    }
    return possible;
  }

  struct Answers {
    std::vector<std::string> digests;
    int restored = 0;  // prompts of which something was found
  };
  static Answers answers(const GenerateOptions& options) {
    std::map<int, int> cached;  // of the first token of each
    const auto report = run::generate(options, [&](const run::Event& event) {
      if (const auto* token = std::get_if<run::Token>(&event))
        cached.try_emplace(token->request_index, token->cached_tokens);
    });
    EXPECT_TRUE(report.ok()) << report.status().message();
    Answers answers;
    if (!report.ok()) return answers;
    EXPECT_TRUE(report->ended.ok()) << report->ended.message();
    for (const auto& result : report->results) answers.digests.push_back(result.digest);
    answers.restored = static_cast<int>(
        std::ranges::count_if(cached, [](const auto& each) { return each.second > 0; }));
    return answers;
  }

  template <typename T>
  const T& any_of(const std::vector<T>& all) {
    return all[random_() % all.size()];
  }

  const base::ScratchDirectory directory_, kept_;
  model::ModelConfig config_;
  std::mt19937 random_{23};
};

TEST_P(Restores, GiveTheSameBits) {
  using Drafts = parallel::SpeculativeConfig::Type;
  std::vector<Setting> settings = {{}, {.cache_dtype = "FP8"}, {.drafts = Drafts::kNgram}};
  if (config_.names_mtp_layers && config_.num_mtp_layers > 0 && !config_.has_state()) {
    settings.push_back({.drafts = Drafts::kMtp});
  }
  int restored = 0, runs = 0;
  const int wanted = restores_wanted();
  while (restored < wanted) {
    ASSERT_LT(runs, 3 * wanted + 20) << "hardly any prompt is restored";
    const Setting& setting = any_of(settings);
    const std::vector<Layout> possible = layouts_of(setting);
    const Layout &writes = any_of(possible), &reads = any_of(possible);
    const std::vector<std::string> written = prompts(), wanted_now = later(written);
    const std::string what = fmt::format("cache {}{}: {} → {}", setting.cache_dtype,
                                         !setting.drafts                   ? ""
                                         : *setting.drafts == Drafts::kMtp ? ", MTP"
                                                                           : ", NGram",
                                         writes.name, reads.name);
    answers(keeping(options(setting, written), setting, writes));
    const GenerateOptions plain = options(setting, wanted_now);
    const Answers read = answers(keeping(plain, setting, reads));
    ASSERT_EQ(read.digests, answers(plain).digests) << what;
    EXPECT_GT(read.restored, 0) << what;
    restored += read.restored;
    ++runs;
  }
  fmt::print("  {}: {} prompts restored in {} runs, 0 bits differ\n", GetParam(), restored, runs);
}

INSTANTIATE_TEST_SUITE_P(Families, Restores,
                         testing::Values(kPredicts, "qwen3_plain", "deepseek_v32_plain",
                                         "deepseek_v4_plain", "granitemoehybrid_plain",
                                         "nemotron_h_plain", "lfm2_moe_plain", "qwen3_next_plain",
                                         "gpt_oss_plain", "kimi_linear_plain", "glm5_next_plain"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace wideep::tests
