// SPDX-License-Identifier: Apache-2.0
// Dispatch and combine through the C ABI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "wideep/c_api.h"

namespace {

using ::testing::HasSubstr;

constexpr wideep_group_options kOptions = {.num_ranks = 2,
                                           .slots_per_rank = 2,
                                           .top_k = 2,
                                           .max_tokens = 3,
                                           .row_bytes = sizeof(int),
                                           .result_bytes = sizeof(int)};

wideep_group* make_group() {
  wideep_group* group = nullptr;
  EXPECT_EQ(wideep_group_create(&kOptions, &group), WIDEEP_OK) << wideep_last_error();
  return group;
}

// Slot s makes of x: 10 · x + s. Returns the first result that is wrong, or 0.
int run_rank(wideep_group* group, int32_t rank) {
  wideep_communicator* communicator = nullptr;
  if (wideep_communicator_join(group, rank, &communicator) != WIDEEP_OK) return -1;
  const std::vector<int> rows = {rank + 1, rank + 101, rank + 201};
  const std::vector<int32_t> slots = {0, 3, 1, 2, 3, 0};
  if (wideep_communicator_dispatch(communicator, rows.data(), sizeof(int), 3, slots.data()) != 0) {
    return -2;
  }
  for (int32_t slot = 0; slot < 2; ++slot) {
    const wideep_received_row* received = nullptr;
    int32_t num_rows = 0;
    if (wideep_communicator_received(communicator, slot, &received, &num_rows) != 0) return -3;
    for (int32_t i = 0; i < num_rows; ++i) {
      const int x = *static_cast<const int*>(received[i].row);
      *static_cast<int*>(received[i].result) = 10 * x + 2 * rank + slot;
    }
  }
  if (wideep_communicator_combine(communicator) != WIDEEP_OK) return -4;
  int wrong = 0;
  for (int32_t token = 0; token < 3; ++token) {
    const void* const* results = nullptr;
    if (wideep_communicator_results(communicator, token, &results) != WIDEEP_OK) return -5;
    for (int k = 0; k < 2; ++k) {
      const int expected = 10 * rows[token] + slots[token * 2 + k];
      const int found = *static_cast<const int*>(results[k]);
      if (found != expected && wrong == 0) wrong = found;
    }
    void* own = nullptr;
    if (wideep_communicator_own_result(communicator, token, &own) != WIDEEP_OK) return -6;
    if (own != results[slots[token * 2] / 2 == rank ? 0 : 1]) return -7;
  }
  wideep_communicator_destroy(communicator);
  return wrong;
}

TEST(CApiCommunicator, RowsGoThereAndBack) {
  wideep_group* group = make_group();
  std::vector<int> wrong(2, -9);
  std::thread other([&] { wrong[1] = run_rank(group, 1); });
  wrong[0] = run_rank(group, 0);
  other.join();
  EXPECT_EQ(wrong, (std::vector<int>{0, 0})) << wideep_last_error();
  wideep_group_destroy(group);
}

TEST(CApiCommunicator, ErrorsNameTheWrongArgument) {
  wideep_group_options options = kOptions;
  wideep_group* group = nullptr;
  EXPECT_EQ(wideep_group_create(nullptr, &group), WIDEEP_INVALID_INPUT);
  options.row_bytes = -4;
  EXPECT_EQ(wideep_group_create(&options, &group), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("row_bytes"));
  options = kOptions;
  options.reserved[4] = 1;
  EXPECT_EQ(wideep_group_create(&options, &group), WIDEEP_INVALID_INPUT);

  options = kOptions;
  options.num_ranks = 1;
  ASSERT_EQ(wideep_group_create(&options, &group), WIDEEP_OK) << wideep_last_error();
  wideep_communicator* communicator = nullptr;
  EXPECT_EQ(wideep_communicator_join(group, 1, &communicator), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("found 1"));
  EXPECT_EQ(wideep_communicator_combine(nullptr), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("communicator"));
  ASSERT_EQ(wideep_communicator_join(group, 0, &communicator), WIDEEP_OK) << wideep_last_error();
  const void* const* results = nullptr;
  EXPECT_EQ(wideep_communicator_results(communicator, 0, &results), WIDEEP_INVALID_INPUT);
  EXPECT_EQ(results, nullptr);
  void* own = nullptr;
  EXPECT_EQ(wideep_communicator_own_result(communicator, 0, &own), WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("after its combine, found 0"));
  const std::vector<int32_t> slots(8);
  EXPECT_EQ(wideep_communicator_dispatch(communicator, slots.data(), 4, 4, slots.data()),
            WIDEEP_INVALID_INPUT);
  EXPECT_THAT(wideep_last_error(), HasSubstr("max_tokens = 3, found 4"));
  wideep_communicator_destroy(communicator);
  wideep_group_destroy(group);
}

TEST(CApiCommunicator, ASupervisorMayEndTheGroup) {
  wideep_group* group = make_group();
  ASSERT_EQ(wideep_group_fail(group, "rank 1 has died"), WIDEEP_OK);
  wideep_communicator* communicator = nullptr;
  EXPECT_EQ(wideep_communicator_join(group, 0, &communicator), WIDEEP_FAILED);
  EXPECT_THAT(wideep_last_error(), HasSubstr("rank 1 has died"));
  wideep_group_destroy(group);
}

}  // namespace
