// SPDX-License-Identifier: Apache-2.0
#include "server/transfer_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using testing::HasSubstr;

TEST(TransferLogTest, HasALineForEachServerAndMinute) {
  TransferLog log;
  run::PromptTransfer transfer;
  const auto line_of = [&](const std::string& host, double now) {
    return log.line_of(transfer, "1;" + host + ";token;ab;7;", now);
  };
  EXPECT_EQ(line_of("10.0.0.1:7", 0.0), "");
  transfer.from_peer.trouble = "refused\nby it";
  const std::string line = line_of("10.0.0.1:7", 1.0);
  EXPECT_THAT(line, HasSubstr("did not come from 10.0.0.1:7, "));
  EXPECT_THAT(line, HasSubstr("refused\\nby it"));
  EXPECT_THAT(line, testing::Not(HasSubstr("token")));
  EXPECT_EQ(line_of("10.0.0.1:7", 60.0), "");
  EXPECT_THAT(line_of("10.0.0.1:8", 60.0), HasSubstr("10.0.0.1:8"));
  EXPECT_EQ(line_of("10.0.0.1:7", 61.0), line);
  EXPECT_EQ(log.line_of(transfer, "", 500.0), "");
}

TEST(TransferLogTest, HasNotMoreLinesThanFit) {
  TransferLog log;
  run::PromptTransfer transfer;
  transfer.from_peer.trouble = "refused";
  size_t lines = 0;
  for (int port = 1; port <= 1000; ++port) {
    const std::string peer = "1;h:" + std::to_string(port) + ";t;ab;7;";
    lines += log.line_of(transfer, peer, 1.0).empty() ? 0 : 1;
  }
  EXPECT_EQ(lines, TransferLog::kMaxPeers);
}

}  // namespace
}  // namespace wideep::server
