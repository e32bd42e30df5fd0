// SPDX-License-Identifier: Apache-2.0
#include "api/request_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "api/nested_fields.h"
#include "api/responses_fields.h"
#include "formats/files.h"

namespace wideep::server {
namespace {

TEST(RequestFieldsTest, TheGuideHasTheTable) {
  const std::string guide = formats::read_file(WIDEEP_SOURCE_DIR "/docs/serve.md").value();
  for (const std::string& table : {request_fields_markdown(), responses_fields_markdown()}) {
    EXPECT_NE(guide.find(table), guide.npos) << "docs/serve.md should contain\n" << table;
  }
}

TEST(NestedFieldsTest, TheGuideHasTheTable) {
  const std::string guide = formats::read_file(WIDEEP_SOURCE_DIR "/docs/serve.md").value();
  const std::string table = nested_fields_markdown();
  EXPECT_NE(guide.find(table), guide.npos) << "docs/serve.md should contain\n" << table;
}

TEST(RequestFieldsTest, EachFieldIsThereOnceForABody) {
  for (const auto fields : {request_fields(), responses_fields()}) {
    std::set<std::string_view> names;
    for (const RequestField& each : fields) {
      EXPECT_TRUE(names.insert(each.name).second) << each.name;
      EXPECT_NE(each.bodies, 0u) << each.name;
    }
  }
  EXPECT_NE(find_request_field("input", kResponsesBody), nullptr);
  EXPECT_EQ(find_request_field("messages", kResponsesBody), nullptr);
  EXPECT_NE(find_request_field("tools", kChatBody), nullptr);
  EXPECT_EQ(find_request_field("tools", kCompletionBody), nullptr);
  EXPECT_EQ(find_request_field("nothing", kChatBody), nullptr);
}

}  // namespace
}  // namespace wideep::server
