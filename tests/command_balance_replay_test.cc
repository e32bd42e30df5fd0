// SPDX-License-Identifier: Apache-2.0
// wideep balance replay, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "command_balance.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class CommandBalanceReplay : public CommandBalance {
 protected:
  CommandBalanceReplay() { requests(3, 3); }

  Arguments replay(const Arguments& more = {}) const {
    Arguments all = {"replay", "--trace",
                     file(""), "--trace-layers",
                     "2",      "--trace-top-k",
                     "2",      "--num-experts",
                     "16",     "--ep-size",
                     "4",      "--num-slots",
                     "20",     "--iteration-tokens",
                     "250",    "--window-tokens",
                     "1000",   "--in-flight",
                     "4",      "--cycles",
                     "4"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(CommandBalanceReplay, FollowsTheText) {
  const json result = balance_json(replay({"--model-bytes-per-expert", "1000"}));
  ASSERT_EQ(result["windows"].size(), 16u);
  EXPECT_EQ(result["windows"][0]["domains"], json({"prose"}));
  EXPECT_FALSE(result["windows"][0].contains("imbalance_online"));
  const json& mean = result["mean"];
  EXPECT_LT(mean["imbalance_online"].get<double>(), mean["imbalance_static"].get<double>());
  EXPECT_LT(mean["imbalance_static"].get<double>(), mean["imbalance_off"].get<double>());
  EXPECT_LE(mean["imbalance_perfect"].get<double>(), mean["imbalance_online"].get<double>());
  EXPECT_GT(result["moves"], 0);
  EXPECT_EQ(result["bytes"].get<int64_t>(), 1000 * result["moves"].get<int64_t>());
  EXPECT_EQ(result["layer_updates_per_iter"], 2);
  EXPECT_EQ(result["share_update"], "iteration");
}

TEST_F(CommandBalanceReplay, Table) {
  const CommandEnd end = balance(replay({"--share-update", "window", "--domains", "code,prose"}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const char* part :
       {"static", "online", "past", "perfect", "planned on", "shares of the window",
        "per layer and 1000 tokens", "  code\n", "  prose\n"}) {
    EXPECT_THAT(end.out, HasSubstr(part));
  }
}

TEST_F(CommandBalanceReplay, TrtForComparison) {
  const json trt = balance_json(replay({"--policy", "trt", "--planner", "trt"}));
  const json wideep = balance_json(replay());
  EXPECT_GT(trt["moves"].get<int>(), 5 * wideep["moves"].get<int>());
  EXPECT_FALSE(trt.contains("share_update"));
}

TEST_F(CommandBalanceReplay, PlansMayBeLate) {
  const Arguments slow = {"--model-bytes-per-expert", "40000000", "--iteration-ms", "1",
                          "--copy-gb-per-second",     "1"};
  const json late = balance_json(replay(slow));
  EXPECT_EQ(late["iteration_ms"], 1.0);
  EXPECT_GE(late["longest_delay_iterations"], 41);  // a copy takes 40 ms
  EXPECT_THAT(balance(replay(slow)).out, HasSubstr("longer than 1 ms"));
}

TEST_F(CommandBalanceReplay, BadInput) {
  expect_refused(balance(replay({"--domains", "code,law"})), {"--domains", "prose, code", "law"});
  expect_refused(balance(replay({"--policy", "best"})), {"policy", "wideep or trt", "best"});
  expect_refused(balance(replay({"--share-update", "never"})), {"share_update", "never"});
  expect_refused(balance(replay({"--policy", "trt", "--tolerance", "0.1"})),
                 {"--tolerance", "no effect"});
  expect_refused(balance(replay({"--layer-updates-per-iter", "3"})),
                 {"layer_updates_per_iter", "1 to 2", "3"});
  expect_refused(balance(replay({"--layer-updates-per-iter", "-1"})),
                 {"layer_updates_per_iter", "1 to 2"});
  expect_refused(balance(replay({"--model-bytes-per-expert", "0"})), {"--model-bytes-per-expert"});
  expect_refused(balance(replay({"--iteration-ms", "0"})), {"--iteration-ms", "more than 0"});
  expect_refused(balance(replay({"--copy-gb-per-second", "5"})),
                 {"--copy-gb-per-second", "no effect", "--iteration-ms"});
  expect_refused(balance(replay({"--iteration-ms", "5", "--model-bytes-per-expert", "9",
                                 "--copy-gb-per-second", "0"})),
                 {"--copy-gb-per-second", "more than 0"});
  Arguments endless = replay();
  *std::find(endless.begin(), endless.end(), "1000") = "9223372036854775807";
  expect_refused(balance(endless), {"more than one window"});
  expect_refused(balance(replay({"--planner", "cooccurrence"})), {"planner", "cooccurrence"});
  write("trace_index.csv", "domain,token_offset,n_tokens\nprose,0,2001\n");
  expect_refused(balance(replay()), {"trace_index.csv", "line 2", "2000 tokens"});
  write("trace_index.csv", "domain,token_offset,n_tokens\nprose,0,250\n");
  expect_refused(balance(replay()), {"more than one window"});
}

}  // namespace
}  // namespace wideep::tests
