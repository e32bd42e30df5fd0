// SPDX-License-Identifier: Apache-2.0
#include "store/process_mark.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace wideep::store {
namespace {

TEST(ProcessMark, ThisProcessIsAlive) {
  ProcessMark mark = mark_of_this_process();
  EXPECT_EQ(mark.process, ::getpid());
  EXPECT_GT(mark.start, 0u);
  EXPECT_FALSE(has_ended(mark));
  // Another one had the number.
  mark.start -= 1;
  EXPECT_TRUE(has_ended(mark));
}

TEST(ProcessMark, AKilledProcessHasEndedBeforeAnybodyWaitsForIt) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const ProcessMark mark{.process = child};
  EXPECT_FALSE(has_ended(mark));
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(has_ended(mark));
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(has_ended(mark));
}

}  // namespace
}  // namespace wideep::store
