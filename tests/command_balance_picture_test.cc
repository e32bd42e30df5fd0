// SPDX-License-Identifier: Apache-2.0
// wideep balance picture: the page draws all of its pictures.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "command_balance.h"
#include "recordings/routing_log.h"

namespace wideep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Three ranks, six experts, layers 1 and 2; in layer 2 ranks are even from iteration 30 on.
recordings::RoutingLog log_of(bool moves) {
  std::mt19937 random(3);
  recordings::RoutingLog log;
  log.model = "tiny";
  log.ep_size = 3;
  log.num_experts = log.num_slots = 6;
  log.top_k = 1;
  log.layers = {1, 2};
  for (int i = 0; i < 60; ++i) {
    recordings::RoutingLog::Iteration each{.iteration = i,
                                           .generated_tokens = 18,
                                           .sent = {},
                                           .counts = {},
                                           .critical_path_us = {5, 5}};
    for (const int layer : log.layers) {
      const bool even = layer == 2 && i >= 30;
      auto& sent = each.sent.emplace_back();
      auto& counts = each.counts.emplace_back();
      for (int rank = 0; rank < 3; ++rank) {
        const auto more = static_cast<int32_t>(even ? 0 : 1 + random() % 2);
        sent.push_back({2 + 2 * more, 2 - more, 2 - more});
        counts.push_back({6, 0, 0, 0, 0, 0});
      }
    }
    log.iterations.push_back(std::move(each));
  }
  if (moves) log.layer_updates = {{2, 26, 30, 4}};
  log.requests = {"one"};
  log.request_counts = {{{9, 0, 1, 0, 0, 0}, {4, 6, 0, 0, 0, 0}}};
  return log;
}

class CommandBalancePicture : public CommandBalance {
 protected:
  // The page as a browser has drawn it.
  std::string drawn(bool moves) const {
    const std::string log = file("log.json"), page = file("page.html"), dom = file("drawn.html");
    EXPECT_TRUE(recordings::write_routing_log(log, log_of(moves)).ok());
    EXPECT_EQ(balance({"picture", "--before", log, "--output", page}).exit_code, 0);
    const std::string command = fmt::format(
        "chromium --headless --no-sandbox --disable-gpu --user-data-dir={} --dump-dom file://{} "
        ">{} 2>/dev/null",
        file("profile"), page, dom);
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read("drawn.html");
  }
};

TEST_F(CommandBalancePicture, DrawsAllPictures) {
  if (std::system("command -v chromium >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "chromium is not installed: the page's script is not run";
  }
  const std::string page = drawn(true);
  for (const char* part :
       {"Pairs received by each rank in each layer, one iteration", "Pairs from each rank to each",
        "Pairs from a rank to each rank over time", "One move of experts: before, during and after",
        "Layer 2, 4 experts moved", ">decided</text>", ">switched</text>", "after 0.00",
        "3 iterations, imbalance", "Pairs of each expert over time", "One request alone",
        "Drawn by wideep balance picture"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("NaN")));
  const std::string without = drawn(false);
  EXPECT_THAT(without, HasSubstr("Drawn by wideep balance picture"));
  EXPECT_THAT(without, Not(HasSubstr("<h2>One move of experts")));
}

}  // namespace
}  // namespace wideep::tests
