// SPDX-License-Identifier: Apache-2.0
#include "transport/cluster_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/scratch_directory.h"

namespace wideep::transport {
namespace {

using testing::HasSubstr;

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += {kDigits[byte / 16], kDigits[byte % 16]};
  }
  return text;
}

// printf 'of what\0bytes' | openssl dgst -sha256 -hmac 'a key of sixteen'
TEST(ClusterKeyTest, ProvesWithHmacSha256) {
  const ClusterKey key("a key of sixteen");
  EXPECT_EQ(hex(key.prove("of what", "bytes")),
            "9bb9eb101eaec489e0b385316ae4834b6971bff17be8f26217a62e97e14a61da");
  EXPECT_EQ(hex(ClusterKey().prove("of what", "bytes")),
            "684c68ce26e4fe2244aa70c49179a6410e2eca6d53d3bbfb0e630b3f853f0bbd");
}

TEST(ClusterKeyTest, AProofIsOfOnePurposeAndOneText) {
  const ClusterKey key("a key of sixteen");
  const Digest proof = key.prove("a", "b");
  EXPECT_TRUE(is_same(proof, key.prove("a", "b")));
  EXPECT_FALSE(is_same(proof, key.prove("b", "b")));
  EXPECT_FALSE(is_same(proof, key.prove("a", "c")));
  EXPECT_FALSE(is_same(proof, ClusterKey("another of sixteen").prove("a", "b")));
  EXPECT_FALSE(is_same(key.for_links(1).prove("a", "b"), key.for_links(2).prove("a", "b")));
  EXPECT_FALSE(is_same(fresh_nonce(), fresh_nonce()));
}

TEST(ClusterKeyTest, IsReadFromAFile) {
  const base::ScratchDirectory directory;
  const auto read = [&](const std::string& text) {
    std::ofstream(directory.file("key"), std::ios::binary) << text;
    return ClusterKey::read(directory.file("key"));
  };
  const Digest proof = ClusterKey("a key of sixteen").prove("a", "b");
  for (const char* text : {"a key of sixteen", "a key of sixteen\n", "a key of sixteen \r\n\n"}) {
    const auto key = read(text);
    ASSERT_TRUE(key.ok()) << key.status().message();
    EXPECT_TRUE(is_same(key->prove("a", "b"), proof));
  }
  EXPECT_TRUE(read(std::string(ClusterKey::kMaxBytes, 'x')).ok());
  for (const std::string& text : {std::string(), std::string("\n\n"), std::string(15, 'x') + "\n",
                                  std::string(ClusterKey::kMaxBytes + 1, 'x')}) {
    const auto key = read(text);
    ASSERT_FALSE(key.ok());
    EXPECT_EQ(key.status().code(), StatusCode::kInvalidInput);
    EXPECT_THAT(key.status().message(), HasSubstr("expected a key of 16 to 4096 bytes"));
  }
  EXPECT_THAT(ClusterKey::read(directory.path()).status().message(), HasSubstr("no regular file"));
  EXPECT_THAT(ClusterKey::read(directory.file("none")).status().message(),
              HasSubstr("cannot read"));
}

}  // namespace
}  // namespace wideep::transport
