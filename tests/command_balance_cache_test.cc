// SPDX-License-Identifier: Apache-2.0
//
// wideep balance cache, as a user runs it: on requests, on a file of ids, on counts; wrong input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command_balance.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;

class CommandBalanceCache : public CommandBalance {
 protected:
  // Half of the choices are among the first four experts of the kind.
  std::string requests() const { return CommandBalance::requests(2, 4); }

  static Arguments cache(Arguments more, const Arguments& rest = {}) {
    more.insert(more.begin(), "cache");
    more.insert(more.end(), rest.begin(), rest.end());
    return more;
  }
  Arguments on_requests(const Arguments& more = {}) const {
    return cache(
        {"--trace", requests(), "--trace-layers", "2", "--trace-top-k", "2", "--num-experts", "16"},
        more);
  }
  Arguments on_ids(const Arguments& more = {}) const {
    Arguments all = {"--stats", trace()};
    for (const std::string& word : trace_shape()) all.push_back(word);
    return cache(all, more);
  }
};

double rate(const json& budget, const char* policy) {
  return budget["hit_rate"][policy].get<double>();
}

TEST_F(CommandBalanceCache, OfRequests) {
  const json result = balance_json(on_requests({"--batch", "1,4"}));
  EXPECT_EQ(result["num_records"], 32);
  ASSERT_EQ(result["budgets"].size(), 6u);
  for (const json& budget : result["budgets"]) {
    EXPECT_GE(rate(budget, "wideep"), 0.95 * rate(budget, "oracle"));
    EXPECT_GE(rate(budget, "oracle"), rate(budget, "fixed"));
    EXPECT_GE(rate(budget, "oracle"), rate(budget, "uniform"));
    EXPECT_GE(rate(budget, "lru"), 0.0);
  }
  EXPECT_EQ(result["budgets"][0]["batch"], 1);
  EXPECT_EQ(result["budgets"][0]["num_records"], 8);
  EXPECT_EQ(result["budgets"][5]["batch"], 4);
  EXPECT_EQ(rate(result["budgets"][5], "uniform"), 0.75);
}

// Of one kind of text a quarter of the experts is half of the reads of first choices.
TEST_F(CommandBalanceCache, OfOneKindOfText) {
  const auto oracle = [&](const Arguments& domains) {
    Arguments more = {"--experts-in-memory", "0.25"};
    more.insert(more.end(), domains.begin(), domains.end());
    return rate(balance_json(on_requests(more))["budgets"][0], "oracle");
  };
  EXPECT_GT(oracle({"--domains", "code"}), oracle({}));
}

TEST_F(CommandBalanceCache, Gigabytes) {
  const json budgets = balance_json(on_requests({"--gb", "0.01,1000", "--model-bytes-per-expert",
                                                 "1000000", "--holdout", "0.25"}))["budgets"];
  ASSERT_EQ(budgets.size(), 2u);
  EXPECT_EQ(budgets[0]["num_records"], 10);
  EXPECT_EQ(budgets[0]["gb"], 0.01);
  EXPECT_EQ(budgets[1]["experts_in_memory"], 1.0);
  EXPECT_EQ(rate(budgets[1], "oracle"), 1.0);
}

TEST_F(CommandBalanceCache, Tables) {
  const CommandEnd table = balance(on_requests());
  EXPECT_EQ(table.exit_code, 0) << table.err;
  for (const char* part :
       {"2 layers of 16 experts, 32 records; learned from 20 requests, judged on "
        "20 later ones",
        "batch  in memory  records  wideep  oracle   fixed     lru  uniform\n",
        "    1      0.250        8  0."}) {
    EXPECT_THAT(table.out, HasSubstr(part));
  }
  EXPECT_THAT(table.out, Not(HasSubstr("give a trace")));
  const CommandEnd layers =
      balance(on_ids({"--by-layer", "--experts-in-memory", "0.5", "--batch", "8"}));
  EXPECT_EQ(layers.exit_code, 0) << layers.err;
  for (const char* part :
       {"layer  records  wideep", "    8      0.500      1 ", "    8      0.500      2 "}) {
    EXPECT_THAT(layers.out, HasSubstr(part));
  }
}

TEST_F(CommandBalanceCache, ASecondFileOfIdsIsJudged) {
  const json result = balance_json(on_ids({"--holdout", trace(), "--by-layer"}));
  const json& budget = result["budgets"][0];
  EXPECT_EQ(rate(budget, "fixed"), rate(budget, "oracle"));  // it is the same
  EXPECT_EQ(budget["layers"][0]["layer"], 1);
  EXPECT_EQ(budget["layers"][0]["reads"], 8000);
  EXPECT_EQ(budget["layers"][0]["oracle"]["num_records"].get<int>() +
                budget["layers"][1]["oracle"]["num_records"].get<int>(),
            8);
}

TEST_F(CommandBalanceCache, OfCounts) {
  for (const std::string& stats : {csv(), recorded()}) {
    const json result = balance_json(cache({"--stats", stats}));
    ASSERT_EQ(result["budgets"].size(), 3u);
    for (const json& budget : result["budgets"]) {
      EXPECT_FALSE(budget["hit_rate"].contains("wideep"));
      EXPECT_FALSE(budget["hit_rate"].contains("lru"));
      EXPECT_FALSE(budget.contains("batch"));
      EXPECT_GT(rate(budget, "fixed"), rate(budget, "uniform"));
      EXPECT_GE(rate(budget, "oracle"), rate(budget, "fixed"));
    }
  }
  const CommandEnd table = balance(cache({"--stats", logical_count()}));
  EXPECT_THAT(table.out, HasSubstr("fixed is the oracle"));
  EXPECT_THAT(table.out, HasSubstr("give a trace"));
  const CommandEnd held = balance(cache({"--stats", logical_count(), "--holdout", csv()}));
  EXPECT_THAT(held.out, HasSubstr("judged on the held-out ones"));
}

TEST_F(CommandBalanceCache, BadInput) {
  expect_refused(balance({"cache"}), {"either --stats", "--trace"});
  expect_refused(balance(on_requests({"--stats", csv()})), {"either --stats", "--trace"});
  expect_refused(balance(cache({"--trace", requests()})), {"--trace-layers, --trace-top-k"});
  expect_refused(balance(on_requests({"--ep-size", "4"})), {"--ep-size", "no effect"});
  expect_refused(balance(on_requests({"--trace-window", "4"})), {"--trace-window", "no effect"});
  expect_refused(balance(on_requests({"--domains", "law"})), {"--domains", "prose, code", "law"});
  expect_refused(balance(on_requests({"--batch", "21"})), {"--batch", "1 to 20", "found 21"});
  expect_refused(balance(on_requests({"--batch", "0"})), {"--batch"});
  expect_refused(balance(on_requests({"--holdout", "1.5"})),
                 {"--holdout", "between 0 and 1", "1.5"});
  expect_refused(balance(on_requests({"--holdout", "later.u8"})), {"--holdout", "later.u8"});
  expect_refused(balance(on_requests({"--experts-in-memory", "0.5,2"})),
                 {"--experts-in-memory", "0 to 1", "found 2"});
  expect_refused(balance(on_requests({"--experts-in-memory", "half"})), {"found half"});
  expect_refused(balance(on_requests({"--gb", "4"})), {"--gb", "--model-bytes-per-expert"});
  expect_refused(balance(on_requests({"--gb", "-1", "--model-bytes-per-expert", "9"})),
                 {"--gb", "found -1"});
  expect_refused(balance(on_requests({"--model-bytes-per-expert", "0"})),
                 {"--model-bytes-per-expert", "more than 0"});
  expect_refused(balance(on_ids({"--holdout", csv()})), {"--holdout", "stats.csv", "a trace"});
  expect_refused(balance(on_ids({"--holdout", file("absent.u8")})), {"--holdout", "absent.u8"});
  expect_refused(balance(cache({"--stats", csv(), "--batch", "2"})), {"--batch", "no order"});
  expect_refused(balance(cache({"--stats", csv(), "--domains", "a"})), {"--domains", "--trace"});
  expect_refused(balance(cache({"--stats", file("absent.csv")})), {"absent.csv"});
}

}  // namespace
}  // namespace wideep::tests
