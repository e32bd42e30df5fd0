// SPDX-License-Identifier: Apache-2.0
//
// Processes of a server are killed or stopped at random instants, while clients ask it for answers:
// no request fails, no byte differs from an undisturbed run, nothing is left behind. `make
// soak-faults` runs it for thousands of kills (WIDEEP_FAULT_KILLS, of each layout) and prints how
// long streams were silent.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "command_model.h"
#include "command_server.h"
#include "fault_load.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;

int num_kills() {
  const char* value = std::getenv("WIDEEP_FAULT_KILLS");
  if (value != nullptr) return std::atoi(value);
  return base::kSanitized ? 8 : 60;
}

// models/reference with WIDEEP_FAULT_MODEL, for figures; by default a small one.
std::string model() {
  const char* value = std::getenv("WIDEEP_FAULT_MODEL");
  return value == nullptr ? small_model() : value;
}

struct Layout {
  std::string name;
  std::string config;    // parallel_config.yaml
  std::string balancer;  // moe_load_balancer.yaml; "": none
  int ranks = 0;
  double part = 1.0;  // of the kills
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class FaultSoak : public ::testing::TestWithParam<Layout> {};

TEST_P(FaultSoak, NoRequestFailsAndNoByteDiffers) {
  const Layout& layout = GetParam();
  const base::ScratchDirectory files;
  std::ofstream config(files.file("config.yaml"));
  config << layout.config;
  if (!layout.balancer.empty()) {
    std::ofstream(files.file("balancer.yaml")) << layout.balancer;
    config << "moe_config:\n  load_balancer: " << files.file("balancer.yaml") << "\n";
  }
  config.close();
  const std::vector<std::string> shared_memory = list_shared_memory();
  const bool for_figures = std::getenv("WIDEEP_FAULT_MODEL") != nullptr;
  FaultLoad load({.num_requests = for_figures ? 96 : 24,
                  .num_clients = for_figures ? 32 : 8,
                  .max_tokens = for_figures ? 160 : 48,
                  .chats = for_figures});
  Server server(model(), {"--config", files.file("config.yaml"), "--threads-per-rank", "1"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  load.learn(server.port());
  ASSERT_THAT(load.problems(), IsEmpty());
  load.start(server.port());

  std::mt19937 random(11);
  const auto draw = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
  const int kills = std::max(1, static_cast<int>(num_kills() * layout.part));
  int done = 0;
  while (done < kills && load.problems().empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(80 + draw(500)) * kSlowdown);
    const bool at_front = draw(4) == 0;
    const std::vector<pid_t> victims =
        at_front ? front_processes(server.command()) : rank_processes(server.command());
    if (victims.empty()) continue;
    const pid_t victim = victims[static_cast<size_t>(draw(static_cast<int>(victims.size()) - 1))];
    load.note_fault();
    if (::kill(victim, draw(9) == 0 ? SIGSTOP : SIGKILL) == 0) ++done;
  }
  EXPECT_TRUE(wait_until([&] { return server.metric("wideep_ep_active_ranks") == layout.ranks; },
                         30s * kSlowdown));
  load.stop();
  EXPECT_THAT(load.problems(), IsEmpty()) << server.command().err();

  server.command().send(SIGTERM);
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(server.command().ranks(), IsEmpty()) << "processes that outlived wideep";
  EXPECT_THAT(abandoned_shared_memory(shared_memory), IsEmpty());

  const std::vector<double> gaps = load.gaps();
  ASSERT_FALSE(gaps.empty());
  const auto at = [&](double part) {
    return gaps[static_cast<size_t>(part * static_cast<double>(gaps.size() - 1))];
  };
  fmt::print(
      "{}: {} kills, {} replies, 0 failed, 0 differing; longest silence of a stream over a "
      "kill: median {:.3f} s, p99 {:.3f} s, most {:.3f} s\n",
      layout.name, done, load.num_replies(), at(0.5), at(0.99), gaps.back());
}

constexpr const char* kEightRanks =
    "tensor_parallel_size: 8\nmoe_expert_parallel_size: 8\nenable_attention_dp: true\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, FaultSoak,
    ::testing::Values(
        Layout{.name = "WideEp", .config = kEightRanks, .ranks = 8},
        Layout{.name = "Online",
               .config = std::string(kEightRanks) +
                         "speculative_config:\n  decoding_type: NGram\n  max_draft_len: 3\n",
               .balancer = "num_slots: 48\nlayer_updates_per_iter: 2\n",
               .ranks = 8},
        Layout{.name = "TensorParallel",
               .config = "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n",
               .ranks = 2,
               .part = 0.25},
        Layout{.name = "Pipeline",
               .config = "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n"
                         "enable_attention_dp: true\npipeline_parallel_size: 2\n",
               .ranks = 4,
               .part = 0.25}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace wideep::tests
