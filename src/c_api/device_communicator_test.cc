// SPDX-License-Identifier: Apache-2.0
// Dispatch and combine on GPUs through the C ABI, where there is no GPU: what is refused, and how.
// With one, bench/cuda/run_python.sh runs the same calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "wideep/c_api.h"

namespace {

using ::testing::HasSubstr;

constexpr wideep_device_options kOptions = {.group = "c_api test",
                                            .num_ranks = 1,
                                            .slots_per_rank = 2,
                                            .top_k = 2,
                                            .max_tokens = 3,
                                            .hidden = 8};

TEST(CApiDeviceTest, SaysWhatIsMissingBeforeTheFirstKernel) {
  if (wideep_device_available() == WIDEEP_OK) GTEST_SKIP() << "there is a GPU";
  const std::string missing = wideep_last_error();
  EXPECT_THAT(missing, HasSubstr("CUDA: "));
  wideep_device_communicator* communicator = nullptr;
  EXPECT_EQ(wideep_device_join(&kOptions, &communicator), WIDEEP_FAILED);
  EXPECT_EQ(wideep_last_error(), missing);
  EXPECT_EQ(communicator, nullptr);
}

TEST(CApiDeviceTest, BytesOfRows) {
  EXPECT_EQ(wideep_device_row_bytes(WIDEEP_ROWS_BF16, 7168), 14336);
  EXPECT_EQ(wideep_device_row_bytes(WIDEEP_ROWS_F32, 3), 12);
  EXPECT_EQ(wideep_device_row_bytes(WIDEEP_ROWS_FP8, 256), 272);  // 256 codes, 2 scales, padded
  EXPECT_EQ(wideep_device_row_bytes(WIDEEP_ROWS_NVFP4, 64), 48);  // 32 + 4 + 4, padded
  EXPECT_EQ(wideep_device_row_bytes(7, 64), 0);
  EXPECT_EQ(wideep_device_row_bytes(WIDEEP_ROWS_BF16, -1), 0);
}

TEST(CApiDeviceTest, WrongArgumentsAreExplained) {
  wideep_device_communicator* communicator = nullptr;
  const auto refused = [&](const wideep_device_options* options) {
    EXPECT_EQ(wideep_device_join(options, &communicator), WIDEEP_INVALID_INPUT);
    return std::string(wideep_last_error());
  };
  EXPECT_THAT(refused(nullptr), HasSubstr("options: expected a pointer, found NULL"));
  wideep_device_options options = kOptions;
  options.group = nullptr;
  EXPECT_THAT(refused(&options), HasSubstr("options.group: expected a pointer, found NULL"));
  options = kOptions;
  options.top_k = 3;
  EXPECT_THAT(refused(&options), HasSubstr("top_k 3, expected 1 to 2"));
  options = kOptions;
  options.result_format = 4;
  EXPECT_THAT(refused(&options), HasSubstr("expected 0 (bf16), 1 (f32), 2 (fp8) or 3 (nvfp4)"));
  options = kOptions;
  options.reserved[0] = 1;
  EXPECT_THAT(refused(&options), HasSubstr("expected zeros in the reserved members"));
  options = kOptions;
  options.num_layers = 2;
  EXPECT_THAT(refused(&options), HasSubstr("or 0 and 0, found 2 and 0"));
  options = kOptions;
  options.num_inactive_ranks = 1;
  EXPECT_THAT(refused(&options), HasSubstr("inactive_ranks: expected a pointer, found NULL"));
  options.num_inactive_ranks = -1;
  EXPECT_THAT(refused(&options), HasSubstr("num_inactive_ranks: expected at least 0, found -1"));
  options = kOptions;
  const int32_t inactive[] = {0};
  options.inactive_ranks = inactive;
  options.num_inactive_ranks = 1;
  EXPECT_THAT(refused(&options), HasSubstr("other than this one, 0, found 0"));
  EXPECT_EQ(wideep_device_join(&kOptions, nullptr), WIDEEP_INVALID_INPUT);

  const wideep_device_call call = {};
  EXPECT_EQ(wideep_device_dispatch(nullptr, &call, &call, 16), WIDEEP_INVALID_INPUT);
  EXPECT_STREQ(wideep_last_error(), "communicator: expected a pointer, found NULL");
  EXPECT_EQ(wideep_device_status(nullptr, nullptr), WIDEEP_INVALID_INPUT);
  EXPECT_EQ(wideep_device_restart(nullptr, nullptr, 0), WIDEEP_INVALID_INPUT);
  const int32_t numbers[2] = {};
  int32_t slots[2];
  uint64_t counts[2];
  int64_t number;
  EXPECT_EQ(wideep_device_set_placement(nullptr, 0, numbers, nullptr, nullptr),
            WIDEEP_INVALID_INPUT);
  EXPECT_EQ(wideep_device_choose(nullptr, &call, numbers, slots), WIDEEP_INVALID_INPUT);
  EXPECT_EQ(wideep_device_end_iteration(nullptr, nullptr), WIDEEP_INVALID_INPUT);
  EXPECT_EQ(wideep_device_take_loads(nullptr, nullptr, counts, counts, &number, &number),
            WIDEEP_INVALID_INPUT);
  EXPECT_EQ(wideep_device_bytes(nullptr), 0);
  wideep_device_destroy(nullptr);
}

}  // namespace
