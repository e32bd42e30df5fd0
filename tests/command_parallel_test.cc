// SPDX-License-Identifier: Apache-2.0
// wideep parallel explain: the parts of the ranks, memory and bytes sent; wrong configurations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CommandParallel : public testing::Test {
 protected:
  CommandEnd explain(const std::string& config, const std::vector<std::string>& more) {
    EXPECT_TRUE(formats::write_file(path_, config).ok());
    std::vector<std::string> arguments = {"parallel",    "explain",  "--model",
                                          small_model(), "--config", path_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command({.arguments = arguments});
  }

  json explain_json(const std::string& config) {
    const CommandEnd end = explain(config, {"--json"});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(end.out, nullptr, false);
  }

  const base::ScratchDirectory scratch_;
  const std::string path_ = scratch_.file("config.yaml");
};

constexpr const char* kShared = "tensor_parallel_size: 4\nmoe_expert_parallel_size: 4\n";
constexpr const char* kOwn =
    "tensor_parallel_size: 4\nmoe_expert_parallel_size: 4\nenable_attention_dp: true\n";

constexpr const char* kStages = "pipeline_parallel_size: 2\n";

// The small model has 4 heads and 16 experts.
TEST_F(CommandParallel, RanksThatShareBatchesShareHeadsAndCache) {
  const json shared = explain_json(kShared), own = explain_json(kOwn);
  ASSERT_EQ(shared.at("ranks").size(), 4u);
  int next_head = 0, next_slot = 0;
  for (const json& rank : shared.at("ranks")) {
    EXPECT_EQ(rank.at("first_head"), next_head);
    EXPECT_EQ(rank.at("first_slot"), next_slot);
    next_head += rank.at("num_heads").get<int>();
    next_slot += rank.at("num_slots").get<int>();
  }
  EXPECT_EQ(next_head, 4);
  EXPECT_EQ(next_slot, 16);
  EXPECT_GT(shared.at("bytes_once").at("shared_rows"), 0);
  EXPECT_GT(shared.at("bytes_sent_per_token").at("heads_per_layer"), 0.0);
  EXPECT_EQ(own.at("bytes_once").at("shared_rows"), 0);
  EXPECT_EQ(own.at("bytes_sent_per_token").at("heads_per_layer"), 0.0);
  for (const json& rank : own.at("ranks")) EXPECT_EQ(rank.at("num_heads"), 4);
  EXPECT_EQ(own.at("bytes_per_rank").at("slots"), shared.at("bytes_per_rank").at("slots"));
}

// Two owners of 8 slots each, on two ranks that have half of every expert.
TEST_F(CommandParallel, RanksThatShareExpertsHaveTheSameSlots) {
  const char* const kSharded =
      "tensor_parallel_size: 4\nmoe_expert_parallel_size: 2\nmoe_tensor_parallel_size: 2\n"
      "enable_attention_dp: true\n";
  const json sharded = explain_json(kSharded), own = explain_json(kOwn);
  std::vector<int> first_slots;
  for (const json& rank : sharded.at("ranks")) {
    EXPECT_EQ(rank.at("num_slots"), 8);
    first_slots.push_back(rank.at("first_slot").get<int>());
  }
  EXPECT_EQ(first_slots, (std::vector<int>{0, 8, 0, 8}));
  EXPECT_GT(sharded.at("bytes_once").at("sharded_expert_rows"), 0);
  EXPECT_EQ(own.at("bytes_once").at("sharded_expert_rows"), 0);
  EXPECT_GT(sharded.at("bytes_sent_per_token").at("between_per_moe_layer"), 0.0);
}

TEST_F(CommandParallel, RanksThatShareSequencesDivideTheCache) {
  const auto bytes = [&](int ranks) {
    const json all = explain_json(
        fmt::format("max_num_tokens: 2048\ntensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n"
                    "enable_attention_dp: true\ncontext_parallel_size: {}\n",
                    ranks));
    EXPECT_EQ(all.at("ranks").size(), 2u * ranks);
    return all.at("bytes_per_rank");
  };
  const json one = bytes(1);
  for (const int ranks : {2, 4}) {
    const json part = bytes(ranks);
    EXPECT_EQ(part.at("slots"), one.at("slots"));
    for (const char* item :
         {"kv_cache_per_1024_tokens", "intermediate_results", "dispatch_and_combine"}) {
      EXPECT_NEAR(part.at(item).get<double>() * ranks / one.at(item).get<double>(), 1.0, 0.1)
          << item << ", " << ranks;
    }
  }
}

TEST_F(CommandParallel, OnlineBalancingHoldsAllExpertsOnceMore) {
  const std::string balancer = "moe_config:\n  load_balancer:\n    num_slots: 24\n";
  const json fixed = explain_json(kOwn + balancer);
  const json online = explain_json(kOwn + balancer + "    layer_updates_per_iter: 1\n");
  EXPECT_EQ(fixed.at("bytes_once").at("host_pool"), 0);
  // 24 slots of 16 experts on 4 ranks: as many experts again as two thirds of all ranks' slots.
  EXPECT_EQ(online.at("bytes_once").at("host_pool").get<int64_t>() * 24,
            online.at("bytes_per_rank").at("slots").get<int64_t>() * 4 * 16);
  EXPECT_GT(online.at("bytes_per_rank").at("spares"), 0);
}

// The small model has 3 layers, of which the last two have experts.
TEST_F(CommandParallel, StagesOfAPipelineShareLayers) {
  const json one = explain_json(kOwn), two = explain_json(std::string(kOwn) + kStages);
  ASSERT_EQ(two.at("ranks").size(), 8u);
  EXPECT_EQ(two.at("ranks")[3].at("last_layer"), 1);
  EXPECT_EQ(two.at("ranks")[4].at("first_layer"), 2);
  EXPECT_EQ(one.at("ranks")[3].at("last_layer"), 2);
  const json& stages = two.at("bytes_per_rank_of_stages");
  ASSERT_EQ(stages.size(), 2u);
  const auto sum = [&](const char* key) {
    return stages[0].at(key).get<int64_t>() + stages[1].at(key).get<int64_t>();
  };
  EXPECT_EQ(sum("dense_weights"), one.at("bytes_once").at("dense_weights"));
  for (const char* key : {"slots", "kv_cache_per_1024_tokens"}) {
    EXPECT_EQ(sum(key), one.at("bytes_per_rank").at(key)) << key;
  }
  EXPECT_GT(two.at("bytes_sent_per_token").at("to_next_stage"), 0);
  const CommandEnd end = explain(std::string(kOwn) + kStages, {"--world", "8"});
  EXPECT_THAT(end.out, HasSubstr("to the next stage"));
  const CommandEnd many = explain("pipeline_parallel_size: 4\n", {});
  EXPECT_EQ(many.exit_code, 2);
  EXPECT_THAT(many.err, HasSubstr("pipeline_parallel_size: expected at most the model's 3 layers"));
}

TEST_F(CommandParallel, PrintsATable) {
  const CommandEnd end = explain(kShared, {"--world", "4"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const char* part : {"4 ranks = tp 4", "query heads", "holds", "sends", "12-15"}) {
    EXPECT_THAT(end.out, HasSubstr(part));
  }
}

TEST_F(CommandParallel, RefusesWrongConfigurations) {
  const CommandEnd world = explain(kShared, {"--world", "8"});
  EXPECT_EQ(world.exit_code, 2);
  EXPECT_THAT(world.err, HasSubstr("--world: expected 4 ranks"));
  EXPECT_THAT(world.err, HasSubstr("found 8"));
  const CommandEnd heads = explain("tensor_parallel_size: 8\nmoe_expert_parallel_size: 8\n", {});
  EXPECT_EQ(heads.exit_code, 2);
  EXPECT_THAT(heads.err, HasSubstr("divisor of the model's 4 attention heads"));
  const CommandEnd slices = explain("tensor_parallel_size: 4\nmoe_tensor_parallel_size: 4\n", {});
  EXPECT_EQ(slices.exit_code, 2);
  EXPECT_THAT(slices.err, HasSubstr("moe_tensor_parallel_size: expected at most 3"));
  const CommandEnd coded = explain(
      "tensor_parallel_size: 2\nmoe_tensor_parallel_size: 2\n"
      "moe_config: {use_low_precision_moe_combine: true}\n",
      {});
  EXPECT_EQ(coded.exit_code, 2);
  EXPECT_THAT(coded.err, HasSubstr("moe_config.combine_dtype: expected AUTO or BF16"));
}

}  // namespace
}  // namespace wideep::tests
