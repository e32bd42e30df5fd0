// SPDX-License-Identifier: Apache-2.0
#include "run/expert_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::run {
namespace {

TEST(ExpertMemory, BytesOrAShare) {
  EXPECT_EQ(parse_expert_memory("12G")->of(100), uint64_t{12} << 30);
  EXPECT_EQ(parse_expert_memory("4096")->of(100), 4096u);
  EXPECT_EQ(parse_expert_memory("50%")->of(100), 50u);
  EXPECT_EQ(parse_expert_memory("12.5%")->of(800), 100u);
  EXPECT_EQ(parse_expert_memory("0%")->of(800), 0u);
}

TEST(ExpertMemory, WhatCannotBeRead) {
  for (const char* text : {"%", "101%", "-1%", "half", "5%5", "nan%", ""}) {
    const auto memory = parse_expert_memory(text);
    ASSERT_FALSE(memory.ok()) << text;
    EXPECT_THAT(memory.status().message(), testing::HasSubstr("found"));
  }
}

}  // namespace
}  // namespace wideep::run
