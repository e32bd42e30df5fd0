// SPDX-License-Identifier: Apache-2.0
//
// The smallest model is loaded while a timer interrupts this process; its figures are no matter
// here (tests/command_bench_model_test.cc).
#include "measure/model/bench_load.h"

#include <gtest/gtest.h>
#include <sys/time.h>

#include <csignal>

namespace wideep::measure {
namespace {

volatile std::sig_atomic_t interruptions = 0;

// A signal every two milliseconds, whose handler interrupts system calls. Children have no timer.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action = {};
    action.sa_handler = [](int) { interruptions = interruptions + 1; };
    ::sigaction(SIGALRM, &action, &before_);
    set_timer(2000);
  }
  ~Interruptions() {
    set_timer(0);
    ::sigaction(SIGALRM, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  static void set_timer(suseconds_t us) {
    const itimerval every{.it_interval = {.tv_sec = 0, .tv_usec = us},
                          .it_value = {.tv_sec = 0, .tv_usec = us}};
    EXPECT_EQ(::setitimer(ITIMER_REAL, &every, nullptr), 0);
  }

  struct sigaction before_ = {};
};

TEST(LoadBench, SignalsDoNotEndIt) {
  const std::string directory = WIDEEP_SOURCE_DIR "/models/reference";
  LoadBenchOptions options{.model_dir = directory, .threads = 1, .rounds = 2};
  options.config = model::read_model_config(directory).value();
  const Interruptions timer;
  const auto report = run_load_bench(options, [] {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GT(interruptions, 0);
  ASSERT_EQ(report->rounds.size(), 2u);
  for (const LoadRound& round : report->rounds) {
    EXPECT_GT(round.read, 0.0);
    EXPECT_GT(round.touch, 0.0);
    EXPECT_GT(round.load, 0.0);
  }
}

}  // namespace
}  // namespace wideep::measure
