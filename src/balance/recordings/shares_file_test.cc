// SPDX-License-Identifier: Apache-2.0
#include "recordings/shares_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace wideep::recordings {
namespace {

using balance::Shares;

TEST(SharesText, IsJsonThatReadsBackExactly) {
  const std::map<int, Shares> shares = {{12, {1.0, 1.0 / 3.0, 2.0 / 3.0}}, {3, {0.0, 1e-17, 1.0}}};
  const nlohmann::json read = nlohmann::json::parse(shares_text(shares), nullptr, false);
  ASSERT_TRUE(read.is_object());
  EXPECT_EQ(read.size(), 2u);
  EXPECT_EQ(read["3"].get<Shares>(), shares.at(3));
  EXPECT_EQ(read["12"].get<Shares>(), shares.at(12));
}

TEST(SharesText, OneLineALayer) {
  EXPECT_EQ(shares_text({{3, {1.0, 0.5}}, {12, {0.25}}}), "{\"3\": [1, 0.5],\n \"12\": [0.25]}\n");
  EXPECT_EQ(shares_text({}), "{}\n");
}

}  // namespace
}  // namespace wideep::recordings
