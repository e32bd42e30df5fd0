// SPDX-License-Identifier: Apache-2.0
#include "weights/read_bandwidth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::weights {
namespace {

using ::testing::HasSubstr;

TEST(ReadBandwidth, ReadsWholeRecordsWithAnyDepth) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.file("records");
  ASSERT_TRUE(formats::write_file(path, std::string(size_t{5} << 18, 'a')).ok());
  for (const int depth : {1, 8}) {
    const auto found = measure_read_bandwidth(
        path,
        {.record_bytes = 3 << 16, .num_bytes = 4 << 20, .depth = depth, .piece_bytes = 1 << 16});
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_GT(*found, 1e6);
    EXPECT_LT(*found, 1e13);
  }
}

TEST(ReadBandwidth, RefusesAFileThatHasNoRecord) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.file("records");
  EXPECT_THAT(
      measure_read_bandwidth(path, {.record_bytes = 8192, .num_bytes = 1}).status().message(),
      HasSubstr("No such file"));
  ASSERT_TRUE(formats::write_file(path, std::string(4096, 'a')).ok());
  EXPECT_THAT(
      measure_read_bandwidth(path, {.record_bytes = 8192, .num_bytes = 1}).status().message(),
      HasSubstr("records: has 4096 bytes, fewer than a record of 8192"));
}

}  // namespace
}  // namespace wideep::weights
