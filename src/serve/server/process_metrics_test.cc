// SPDX-License-Identifier: Apache-2.0
//
// A line of /proc by hand, then this process, which must be as it says.
#include "server/process_metrics.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ctime>
#include <thread>

namespace wideep::server {
namespace {

using testing::HasSubstr;

TEST(ProcessMetrics, FieldsAreCountedBehindTheName) {
  const std::string stat =
      "4242 (a (b) 1 2 3) S 1 4242 4242 0 -1 4194560 100 0 0 0 "
      "250 50 0 0 20 0 7 0 3000 1048576 12 18446744073709551615 1 1\n";
  const auto use = read_stat(stat, 1000.0);
  ASSERT_TRUE(use);
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(use->cpu_seconds, 300 / ticks);
  EXPECT_DOUBLE_EQ(use->start_seconds, 1000.0 + 3000 / ticks);
  EXPECT_EQ(use->threads, 7);
  EXPECT_EQ(use->virtual_bytes, 1048576u);
  EXPECT_EQ(use->resident_bytes, 12u * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_FALSE(read_stat("4242 (a) S 1 2 3\n", 0.0));
  EXPECT_FALSE(read_stat("nothing", 0.0));
}

TEST(ProcessMetrics, AreThoseOfThisProcess) {
  const auto before = this_process();
  ASSERT_TRUE(before);
  // Other tests of this process have run before, under a sanitizer for minutes.
  EXPECT_NEAR(before->start_seconds, static_cast<double>(std::time(nullptr)), 3600.0);
  const int fds[] = {::open("/dev/null", O_RDONLY), ::open("/dev/null", O_RDONLY)};
  std::thread other([] { ::usleep(200'000); });
  const auto after = this_process();
  other.join();
  for (const int fd : fds) ::close(fd);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->open_fds, before->open_fds + 2);
  EXPECT_EQ(after->threads, before->threads + 1);
  EXPECT_EQ(after->start_seconds, before->start_seconds);
}

// The kernel may take pages of the program meanwhile, where memory is short. Memory of malloc could
// be what another test has left.
TEST(ProcessMetrics, MemoryThatIsUsedIsResident) {
  bool grew = false;
  for (int attempt = 0; attempt < 20 && !grew; ++attempt) {
    const auto before = this_process();
    ASSERT_TRUE(before);
    constexpr size_t kBytes = 64 << 20;
    void* touched = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    ASSERT_NE(touched, MAP_FAILED);
    const auto after = this_process();
    ::munmap(touched, kBytes);
    ASSERT_TRUE(after);
    grew = after->resident_bytes >= before->resident_bytes + kBytes * 3 / 4;
  }
  EXPECT_TRUE(grew);
}

TEST(ProcessMetrics, NamesOfModelsAreQuoted) {
  EXPECT_THAT(build_info({.version = "1.2", .commit = "ab", .isa = "avx2", .model = "a\"b\\c\nd"}),
              HasSubstr("\nwideep_build_info{version=\"1.2\",commit=\"ab\",isa=\"avx2\","
                        "model=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

}  // namespace
}  // namespace wideep::server
