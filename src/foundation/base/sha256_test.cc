// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <gtest/gtest.h>

namespace wideep::base {
namespace {

// FIPS 180-2, appendix B.1 and B.2.
TEST(Sha256, MatchesPublishedVectors) {
  Sha256 sha;
  EXPECT_EQ(sha.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  sha.update("abc", 3);
  EXPECT_EQ(sha.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, DigestDoesNotDependOnThePieces) {
  Sha256 pieces;
  pieces.update("a", 1);
  EXPECT_FALSE(pieces.hex().empty());  // Reading in between disturbs nothing.
  pieces.update("bc", 2);
  EXPECT_EQ(pieces.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace wideep::base
