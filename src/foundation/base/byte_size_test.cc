// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace wideep::base {
namespace {

TEST(ByteSize, UsesTheLargestUnitThatFits) {
  EXPECT_EQ(byte_size(0), "0 B");
  EXPECT_EQ(byte_size(1023), "1023 B");
  EXPECT_EQ(byte_size(1024), "1.0 KiB");
  EXPECT_EQ(byte_size(1536), "1.5 KiB");
  EXPECT_EQ(byte_size(uint64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(byte_size(UINT64_MAX), "16.0 EiB");
}

TEST(ByteSize, NeverPrints1024OfAUnit) {
  EXPECT_EQ(byte_size((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(byte_size((1 << 30) - 1), "1.0 GiB");
}

TEST(ByteSize, ReadsWhatPeopleWrite) {
  const auto bytes = [](const char* text) {
    const Result<uint64_t> parsed = parse_byte_size(text);
    EXPECT_TRUE(parsed.ok()) << text;
    return parsed.value();
  };
  EXPECT_EQ(bytes("0"), 0u);
  EXPECT_EQ(bytes("4096"), 4096u);
  EXPECT_EQ(bytes("4096B"), 4096u);
  EXPECT_EQ(bytes("8G"), uint64_t{8} << 30);
  EXPECT_EQ(bytes("8g"), uint64_t{8} << 30);
  EXPECT_EQ(bytes("8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(bytes("8 gib"), uint64_t{8} << 30);
  EXPECT_EQ(bytes("8GB"), 8'000'000'000u);
  EXPECT_EQ(bytes("1.5K"), 1536u);
  EXPECT_EQ(bytes("512Mi"), 512u << 20);
  EXPECT_EQ(bytes("2T"), uint64_t{2} << 40);
}

TEST(ByteSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "G", "-1", "-1G", "8X", "8GG", "8 G B", "0x10", "nan", "inf", "1e3",
                           "all", "16E", "8G more", "٣G"}) {
    EXPECT_FALSE(parse_byte_size(text).ok()) << text;
  }
  EXPECT_EQ(parse_byte_size("8X").status().message(),
            "expected bytes, as 8G, 512M or 1.5GiB, found 8X");
}

}  // namespace
}  // namespace wideep::base
