// SPDX-License-Identifier: Apache-2.0
//
// What threads do is done here by hand, in orders that threads rarely come to. A failure means that
// a record is hashed wrongly, or that its memory is said to be free while a thread has it.
#include "weights/record_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace wideep::weights {
namespace {

using ::testing::Field;
using ::testing::Optional;

constexpr uint64_t kPiece = 4096;

class RecordOrdersTest : public ::testing::Test {
 protected:
  RecordOrder order(uint64_t ticket) {
    return {.ticket = ticket,
            .into = memory_.data(),
            .bytes = memory_.size(),
            .hash = base::content_hash(memory_.data(), memory_.size())};
  }
  void hash(RecordOrders::Job& job) {
    while (const auto piece = orders_.next_to_hash(job)) {
      job.hash.update(job.order.into + piece->begin, piece->bytes);
      orders_.end_hash(job);
    }
  }
  void finish(const RecordOrders::Piece& piece, int error = 0) {
    orders_.end_read(piece, error);
    hash(*piece.job);
    orders_.leave(*piece.job);
  }

  RecordOrders orders_{4, kPiece};
  std::vector<std::byte> memory_ = std::vector<std::byte>(2 * kPiece + 100, std::byte{7});
};

auto ended_as(RecordEnd end) { return Optional(Field(&Completion::end, end)); }

TEST_F(RecordOrdersTest, PiecesThatArriveInAnotherOrderAreHashedInTheirs) {
  orders_.add(order(1));
  const auto first = orders_.begin_read(), second = orders_.begin_read(),
             third = orders_.begin_read();
  EXPECT_EQ(third.bytes, 100u);
  EXPECT_FALSE(orders_.has_piece_to_read());
  finish(third);
  EXPECT_EQ(first.job->hashed, 0u);
  finish(first);
  EXPECT_EQ(first.job->hashed, 1u);
  EXPECT_EQ(orders_.next_end(), std::nullopt);
  finish(second);
  EXPECT_THAT(orders_.next_end(), ended_as(RecordEnd::kWhole));
  EXPECT_FALSE(orders_.is_any_open());
}

TEST_F(RecordOrdersTest, AnOrderEndsWithTheThreadThatHashes) {
  orders_.add(order(1));
  const auto first = orders_.begin_read(), second = orders_.begin_read(),
             third = orders_.begin_read();
  orders_.end_read(first, 0);
  const auto hashed = orders_.next_to_hash(*first.job);
  ASSERT_TRUE(hashed.has_value());
  finish(second);  // both leave what they have read to the thread that hashes
  finish(third);
  EXPECT_EQ(orders_.next_end(), std::nullopt);
  first.job->hash.update(first.job->order.into, hashed->bytes);
  orders_.end_hash(*first.job);
  hash(*first.job);
  orders_.leave(*first.job);
  EXPECT_THAT(orders_.next_end(), ended_as(RecordEnd::kWhole));
}

TEST_F(RecordOrdersTest, ALateOrderIsLentUntilItsLastThreadLeaves) {
  RecordOrder late = order(1);
  late.deadline_ns = 100;
  orders_.add(late);
  const auto first = orders_.begin_read(), second = orders_.begin_read();
  EXPECT_EQ(orders_.expire(99), 100);
  EXPECT_EQ(orders_.next_end(), std::nullopt);
  orders_.expire(100);
  const auto end = orders_.next_end();
  EXPECT_THAT(end, ended_as(RecordEnd::kLate));
  EXPECT_TRUE(end->is_lent);
  EXPECT_FALSE(orders_.has_piece_to_read());  // its third piece is left out
  finish(first);
  EXPECT_EQ(orders_.next_end(), std::nullopt);
  finish(second, EIO);
  EXPECT_THAT(orders_.next_end(), ended_as(RecordEnd::kReturned));
  EXPECT_FALSE(orders_.is_any_open());
  EXPECT_EQ(orders_.counters().late, 1u);
  EXPECT_EQ(orders_.counters().failed, 0u);
}

TEST_F(RecordOrdersTest, ALateOrderThatNoThreadHasIsNotLent) {
  RecordOrder late = order(1);
  late.deadline_ns = 100;
  orders_.add(late);
  finish(orders_.begin_read());
  orders_.expire(100);
  const auto end = orders_.next_end();
  EXPECT_THAT(end, ended_as(RecordEnd::kLate));
  EXPECT_FALSE(end->is_lent);
  EXPECT_FALSE(orders_.is_any_open());
}

TEST_F(RecordOrdersTest, AFailedOrderEndsOnceWithItsFirstError) {
  orders_.add(order(1));
  const auto first = orders_.begin_read(), second = orders_.begin_read();
  finish(second, EIO);
  EXPECT_EQ(orders_.next_end(), std::nullopt);  // its memory is written to
  finish(first, ENODATA);
  const auto end = orders_.next_end();
  EXPECT_THAT(end, ended_as(RecordEnd::kFailed));
  EXPECT_EQ(end->error, EIO);
  EXPECT_EQ(orders_.next_end(), std::nullopt);
}

TEST_F(RecordOrdersTest, BackgroundTakesHalfOfTheDepth) {
  RecordOrder ahead = order(1);
  ahead.is_urgent = false;
  orders_.add(ahead);
  const auto first = orders_.begin_read();
  orders_.begin_read();
  EXPECT_FALSE(orders_.has_piece_to_read());
  EXPECT_FALSE(orders_.cancel(1));
  orders_.add(order(2));
  EXPECT_EQ(orders_.begin_read().job->order.ticket, 2u);
  EXPECT_TRUE(orders_.make_urgent(1));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(orders_.begin_read().job->order.ticket, 2u);
  EXPECT_EQ(orders_.begin_read().job->order.ticket, 1u);
  finish(first);
  EXPECT_EQ(orders_.next_end(), std::nullopt);
}

}  // namespace
}  // namespace wideep::weights
