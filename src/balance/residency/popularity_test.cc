// SPDX-License-Identifier: Apache-2.0
#include "residency/popularity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "residency/expert_residency.h"

namespace wideep::residency {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Popularity, RanksWriteAndAnyNumberOfRanksReads) {
  const base::ScratchDirectory scratch;
  const std::string directory = scratch.file("");
  std::vector<std::string> wrong;
  ASSERT_TRUE(read_popularity(directory, &wrong).empty());
  const Popularity first{.shares = {{3, {{0, 0.5}, {1, 0.25}}}, {4, {{0, 0.125}}}}};
  const Popularity second{.shares = {{3, {{1, 0.5}, {2, 1.0}}}}};
  ASSERT_TRUE(write_popularity(popularity_path(directory, 0), second).ok());
  ASSERT_TRUE(write_popularity(popularity_path(directory, 0), first).ok());
  ASSERT_TRUE(write_popularity(popularity_path(directory, 1), second).ok());
  const Popularity all = read_popularity(directory, &wrong);
  EXPECT_THAT(all.of(std::vector<int>{3, 5, 4}, 2), ElementsAre(0.5, 0.5, 0, 0, 0.125, 0));
  EXPECT_THAT(all.of(std::vector<int>{3}, 4), ElementsAre(0.5, 0.5, 1.0, 0));
  EXPECT_THAT(wrong, IsEmpty());
}

// Of a run with more ranks, whose experts other ranks have now; or of one that was cut short.
TEST(Popularity, TheLastFileKnowsBestAndOthersDoNotSufferFromAWrongOne) {
  const base::ScratchDirectory scratch;
  const std::string directory = scratch.file("");
  const Popularity old{.shares = {{3, {{0, 0.75}, {1, 0.25}}}}};
  const Popularity now{.shares = {{3, {{0, 0.5}}}}};
  ASSERT_TRUE(write_popularity(popularity_path(directory, 2), old).ok());
  ASSERT_TRUE(write_popularity(popularity_path(directory, 0), now).ok());
  std::filesystem::last_write_time(
      popularity_path(directory, 2),
      std::filesystem::last_write_time(popularity_path(directory, 0)) - std::chrono::hours(1));
  ASSERT_TRUE(formats::write_file(popularity_path(directory, 1), "{").ok());
  std::vector<std::string> wrong;
  const Popularity all = read_popularity(directory, &wrong);
  EXPECT_THAT(all.of(std::vector<int>{3}, 2), ElementsAre(0.5, 0.25));
  EXPECT_THAT(wrong, ElementsAre(HasSubstr("rank1.load")));
}

TEST(Popularity, ALayerThatIsVisitedAgainIsChosenByAllTokensAtMost) {
  ExpertResidency residency({.num_layers = 1, .num_experts = 2, .num_records = 1, .owned = {}}, {});
  residency.begin_iteration(3);
  const std::vector<int32_t> counts = {3, 1};
  for (int visit = 0; visit < 2; ++visit) residency.visit(0, std::span<const int32_t>(counts));
  EXPECT_EQ(residency.popularity({0, 0}), 1.0);
  EXPECT_NEAR(residency.popularity({0, 1}), 2.0 / 3.0, 1e-12);
}

TEST(Popularity, SaysWhatIsWrong) {
  const base::ScratchDirectory scratch;
  const auto message = [&](const std::string& text) {
    EXPECT_TRUE(formats::write_file(scratch.file("rank0.load"), text).ok());
    std::vector<std::string> wrong;
    read_popularity(scratch.file(""), &wrong);
    return wrong.empty() ? std::string() : wrong.front();
  };
  EXPECT_THAT(message("[]"), HasSubstr("expected {\"wideep_popularity\": 1"));
  EXPECT_THAT(message(R"({"wideep_popularity": 2, "layers": {}})"), HasSubstr("remove the file"));
  const auto with = [](const std::string& layers) {
    return R"({"wideep_popularity": 1, "layers": )" + layers + "}";
  };
  EXPECT_THAT(message(with(R"({"x": {}})")), HasSubstr("layer 'x': expected a number"));
  EXPECT_THAT(message(with(R"({"1": {"0": 1.5}})")), HasSubstr("shares from 0 to 1"));
  EXPECT_THAT(message(with(R"({"1": {"-1": 0.5}})")), HasSubstr("shares from 0 to 1"));
  EXPECT_EQ(message(with(R"({"1": {"0": 0.5}})")), "");
}

}  // namespace
}  // namespace wideep::residency
