// SPDX-License-Identifier: Apache-2.0
#include "formats/json_size.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <string>

#include "base/sanitized.h"
#include "formats/json_parse.h"

namespace wideep::formats {
namespace {

std::string many(const std::string& element, int count) {
  std::string text = "[" + element;
  for (int i = 1; i < count; ++i) text += "," + element;
  return text + "]";
}

TEST(JsonSizeTest, IsAboutWhatTheAllocatorGives) {
  if (base::kSanitized) return;  // another allocator
  const std::string long_text = "\"" + std::string(1'000'000, 'x') + "\"";
  for (const std::string& text :
       {long_text, many("0", 100'000), many("[]", 100'000), many("[[0]]", 100'000),
        many(R"({"a":{"b":0}})", 100'000), many(R"("sixteen letters.")", 100'000),
        many(R"({"a name that is long":"and a text that is long"})", 50'000),
        many("123456789012345678901234567890", 50'000)}) {
    const size_t before = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
    const auto value = parse_exact_json(text, "text");
    const size_t taken = ::mallinfo2().uordblks + ::mallinfo2().hblkhd - before;
    ASSERT_TRUE(value.ok());
    const auto counted = static_cast<double>(json_bytes(*value));
    EXPECT_NEAR(counted / static_cast<double>(taken), 1, 0.5) << text.substr(0, 60);
  }
}

}  // namespace
}  // namespace wideep::formats
