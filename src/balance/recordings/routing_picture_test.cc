// SPDX-License-Identifier: Apache-2.0
//
// The page's script is not run. Held is the JSON that it draws, of logs whose sums are obvious, and
// how it gets into the page. Labels come from users' prompts, so what would end the script or be
// markup must be escaped. Windows must grow with the run and with ranks, and requests are limited,
// or a browser could not open the page of a long run.
#include "recordings/routing_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace wideep::recordings {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// One layer, two ranks, two experts; `iterations` iterations of one token each.
PictureRun small_run(int iterations = 2) {
  RoutingLog log;
  log.model = "tiny";
  log.ep_size = 2;
  log.num_experts = 2;
  log.num_slots = 2;
  log.top_k = 1;
  log.layers = {3};
  for (int i = 0; i < iterations; ++i) {
    log.iterations.push_back({.iteration = i,
                              .prompt_tokens = 0,
                              .generated_tokens = 1,
                              .sent = {{{1, 0}, {0, 0}}},
                              .counts = {{{1, 0}, {0, 0}}},
                              .critical_path_us = {10}});
  }
  log.requests = {"</script><b>"};
  log.request_counts = {{{iterations, 0}}};
  return {.file = "run.json", .log = log};
}

Picture picture_of(PictureRun run) { return {.title = "", .before = std::move(run), .after = {}}; }

TEST(RoutingPicture, DataCannotEndItsScript) {
  const std::string data = picture_data(picture_of(small_run()));
  EXPECT_THAT(data, Not(HasSubstr("<")));
  const json root = json::parse(data);
  EXPECT_EQ(root["runs"][0]["requests"][0]["label"], "</script><b>");
}

TEST(RoutingPicture, DataHoldsSumsOfTheLog) {
  const json root = json::parse(picture_data(picture_of(small_run(3))));
  EXPECT_EQ(root["title"], "Expert load of tiny");
  EXPECT_EQ(root["window"], 1);
  const json& run = root["runs"][0];
  EXPECT_EQ(root["sent_window"], 1);
  ASSERT_EQ(run["sent"].size(), 3u);
  EXPECT_EQ(run["sent"][2], json::parse(R"({"start":2,"sent":[[[1,0],[0,0]]]})"));
  EXPECT_EQ(run["iterations"][2]["received"], json::parse("[[1,0]]"));
  EXPECT_EQ(run["windows"].size(), 3u);
  EXPECT_EQ(run["summary"]["layers"][0]["average"], 1.0);
  EXPECT_EQ(run["summary"]["layers"][0]["prompt"], nullptr);
}

TEST(RoutingPicture, WindowsGrowWithTheRun) {
  const auto windows = [](int iterations) {
    return json::parse(picture_data(picture_of(small_run(iterations))));
  };
  EXPECT_EQ(windows(32)["window"], 1);
  EXPECT_EQ(windows(33)["window"], 2);
  const json root = windows(70);
  EXPECT_EQ(root["window"], 5);
  EXPECT_EQ(root["runs"][0]["windows"].size(), 14u);
  EXPECT_EQ(root["runs"][0]["windows"][1], json::parse(R"({"start":5,"experts":[[5,0]]})"));
  EXPECT_EQ(windows(330)["window"], 20);
}

// The page must not grow with the square of the ranks and with the layers.
TEST(RoutingPicture, ManyRanksHaveFewerWindowsOfWhatTheySent) {
  PictureRun run = small_run(40);
  run.log.ep_size = 512;
  run.log.num_slots = 512;
  for (RoutingLog::Iteration& each : run.log.iterations) {
    each.sent = {std::vector<std::vector<int32_t>>(512, std::vector<int32_t>(512))};
    each.sent[0][0][1] = 1;
    each.counts = {std::vector<std::vector<int32_t>>(512, std::vector<int32_t>(2))};
    each.counts[0][0][0] = 1;
  }
  ASSERT_TRUE(check_routing_log(run.log).ok());
  const json root = json::parse(picture_data(picture_of(std::move(run))));
  EXPECT_EQ(root["window"], 2);
  EXPECT_EQ(root["sent_window"], 10);
  EXPECT_EQ(root["runs"][0]["sent"].size(), 4u);
  EXPECT_EQ(root["runs"][0]["sent"][3]["sent"][0][0][1], 10);
}

TEST(RoutingPicture, MovesHaveWhatWasSentBeforeDuringAndAfter) {
  PictureRun run = small_run(9);
  run.log.layer_updates = {{3, 2, 4, 1}};
  const json moves = json::parse(picture_data(picture_of(std::move(run))))["runs"][0]["moves"];
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0]["layer"], 0);
  EXPECT_EQ(moves[0]["decided"], 2);
  EXPECT_EQ(moves[0]["switched"], 4);
  EXPECT_EQ(moves[0]["phases"][0]["sent"], json({{3, 0}, {0, 0}}));
  EXPECT_EQ(moves[0]["phases"][1]["sent"], json({{1, 0}, {0, 0}}));
  EXPECT_EQ(moves[0]["phases"][2]["iterations"], 5);
}

TEST(RoutingPicture, OffersALimitedNumberOfRequests) {
  PictureRun run = small_run();
  run.log.requests.assign(kMaxPictureRequests + 5, "again");
  run.log.request_counts.assign(kMaxPictureRequests + 5, {{1, 0}});
  const json root = json::parse(picture_data(picture_of(run)));
  EXPECT_EQ(root["runs"][0]["requests"].size(), kMaxPictureRequests);
  EXPECT_EQ(root["runs"][0]["num_requests"], kMaxPictureRequests + 5);
}

TEST(RoutingPicture, FillsMarksOfThePageOnlyAndEscapes) {
  Picture picture = picture_of(small_run());
  picture.title = "<b> & @DATA@ @SUMMARY@";
  const std::string page = fill_page("t=@TITLE@ s=@SUMMARY@ d=@DATA@ @media @TITLE@@", picture);
  EXPECT_THAT(page, HasSubstr("t=&lt;b> &amp; @DATA@ @SUMMARY@ s= "));
  EXPECT_THAT(page, EndsWith(" @media &lt;b> &amp; @DATA@ @SUMMARY@@"));
  EXPECT_THAT(page, HasSubstr("\"title\":\"\\u003cb> & @DATA@ @SUMMARY@\""));
  EXPECT_THAT(page, HasSubstr("imbalance ratio, mean                      1.000\n"));
}

TEST(RoutingPicture, TwoRunsHaveTheirNames) {
  Picture picture = picture_of(small_run());
  picture.before.name = "static";
  EXPECT_THAT(picture_summary(picture), HasSubstr("           run\n"));
  picture.after = small_run();
  picture.after->name = "online";
  EXPECT_THAT(picture_summary(picture), HasSubstr("        static        online\n"));
  const json root = json::parse(picture_data(picture));
  EXPECT_EQ(root["runs"][0]["name"], "static");
  EXPECT_EQ(root["runs"][1]["name"], "online");
}

TEST(RoutingPicture, ComparesOnlyWhatSharesItsAxes) {
  const PictureRun before = small_run();
  PictureRun after = small_run();
  after.file = "after.json";
  after.log.num_slots = 4;
  EXPECT_TRUE(check_comparable(before, after).ok());
  after.log.layers = {4};
  EXPECT_EQ(check_comparable(before, after).message(),
            "after.json: layers: expected [3] as in run.json, found [4]; compare runs of one model "
            "with one number of ranks");
  after.log.ep_size = 4;
  EXPECT_THAT(check_comparable(before, after).message(), HasSubstr("ep_size: expected 2"));
}

}  // namespace
}  // namespace wideep::recordings
