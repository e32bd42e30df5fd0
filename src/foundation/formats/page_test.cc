// SPDX-License-Identifier: Apache-2.0
#include "formats/page.h"

#include <gtest/gtest.h>

namespace wideep::formats {
namespace {

TEST(FillMarks, ReplacesKnownMarksOnceOnly) {
  EXPECT_EQ(fill_marks("<p>@A@ and @B@, a@b.c @ @C@</p>", {{"A", "@B@"}, {"B", "2"}}),
            "<p>@B@ and 2, a@b.c @ @C@</p>");
  EXPECT_EQ(fill_marks("@A@@A@", {{"A", "x"}}), "xx");
  EXPECT_EQ(fill_marks("", {{"A", "x"}}), "");
}

TEST(EscapeHtml, LeavesNoMarkup) {
  EXPECT_EQ(escape_html("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
}

TEST(ScriptJson, CannotEndTheScript) {
  const nlohmann::ordered_json value = {{"name", "</script><!--"}};
  const std::string text = script_json(value);
  EXPECT_EQ(text.find('<'), std::string::npos);
  EXPECT_EQ(nlohmann::ordered_json::parse(text, nullptr, false), value);
}

}  // namespace
}  // namespace wideep::formats
