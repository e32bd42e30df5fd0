// SPDX-License-Identifier: Apache-2.0
#include "server/limits.h"

#include <gtest/gtest.h>

#include "formats/files.h"

namespace wideep::server {
namespace {

TEST(LimitsTest, TheGuideHasTheTable) {
  const std::string guide = formats::read_file(WIDEEP_SOURCE_DIR "/docs/serve.md").value();
  EXPECT_NE(guide.find(limits_markdown()), guide.npos) << "docs/serve.md should contain\n"
                                                       << limits_markdown();
}

}  // namespace
}  // namespace wideep::server
