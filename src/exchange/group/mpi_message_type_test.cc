// SPDX-License-Identifier: Apache-2.0
#ifdef WIDEEP_WITH_MPI
#include "group/mpi_message_type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

namespace wideep::transport {
namespace {

class MpiMessageTypeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Otherwise Open MPI starts a daemon for a process that no launcher has started, and other
    // tests look whether they leave a child behind.
    ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    int provided = 0;
    ASSERT_EQ(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), MPI_SUCCESS);
  }
  static void TearDownTestSuite() { MPI_Finalize(); }
};

// To itself and back, as links send and receive.
std::vector<unsigned char> sent_to_itself(const std::vector<unsigned char>& message, size_t block) {
  MPI_Request sending = MPI_REQUEST_NULL, receiving = MPI_REQUEST_NULL;
  {
    const MpiMessageType out(message.size(), block);
    MPI_Isend(message.data(), out.count(), out.type(), 0, 0, MPI_COMM_SELF, &sending);
  }
  MPI_Message probed = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Mprobe(0, 0, MPI_COMM_SELF, &probed, &status);
  std::vector<unsigned char> received(MpiMessageType::length(status), 0xee);
  {
    const MpiMessageType in(received.size(), block);
    MPI_Imrecv(received.data(), in.count(), in.type(), &probed, &receiving);
  }
  MPI_Wait(&receiving, MPI_STATUS_IGNORE);
  MPI_Wait(&sending, MPI_STATUS_IGNORE);
  return received;
}

TEST_F(MpiMessageTypeTest, MessagesLongerThanABlockComeWhole) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const size_t block = 1 + random() % 1000;
    std::vector<unsigned char> message(i == 0 ? 0 : random() % (8 * block));
    if (i % 4 == 0) message.resize(message.size() / block * block);
    std::generate(message.begin(), message.end(), [&] { return random() & 0xff; });
    ASSERT_EQ(sent_to_itself(message, block), message) << message.size() << " of " << block;
  }
}

TEST_F(MpiMessageTypeTest, MoreBytesThanAnIntCounts) {
  constexpr size_t kBytes = (size_t{1} << 31) + 5;
  const MpiMessageType type(kBytes);
  MPI_Count bytes = 0;
  MPI_Type_size_x(type.type(), &bytes);
  EXPECT_EQ(type.count(), 1);
  EXPECT_EQ(static_cast<size_t>(bytes), kBytes);
}

}  // namespace
}  // namespace wideep::transport
#endif  // WIDEEP_WITH_MPI
