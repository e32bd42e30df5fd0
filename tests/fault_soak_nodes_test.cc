// SPDX-License-Identifier: Apache-2.0
//
// As fault_soak_test.cc for services over several nodes: ranks and the front are killed or stopped,
// nodes lose their power or are silent for a while, at random instants. WIDEEP_FAULT_KILLS and
// WIDEEP_FAULT_MODEL as there.
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
#include "fault_load.h"
#include "service_nodes.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;

constexpr int kRanks = 8;

struct Nodes {
  std::string name;
  int count = 2;
  std::string balancer;  // moe_load_balancer.yaml; "": none
};
void PrintTo(const Nodes& nodes, std::ostream* out) { *out << nodes.name; }

int num_kills() {
  const char* value = std::getenv("WIDEEP_FAULT_KILLS");
  if (value != nullptr) return std::atoi(value);
  return base::is_command_sanitized() ? 6 : 25;
}

class FaultSoakOverNodes : public ::testing::TestWithParam<Nodes> {};

TEST_P(FaultSoakOverNodes, NoRequestFailsAndNoByteDiffers) {
  const Nodes& nodes = GetParam();
  const base::ScratchDirectory files;
  std::ofstream config(files.file("config.yaml"));
  config << "tensor_parallel_size: 8\nmoe_expert_parallel_size: 8\nenable_attention_dp: true\n";
  if (!nodes.balancer.empty()) {
    std::ofstream(files.file("balancer.yaml")) << nodes.balancer;
    config << "moe_config:\n  load_balancer: " << files.file("balancer.yaml") << "\n";
  }
  config.close();
  const std::vector<std::string> shared_memory = list_shared_memory();
  const MixedModel model;
  FaultLoad load(model.load());
  ServiceNodes service(nodes.count, model.path(),
                       {"--config", files.file("config.yaml"), "--threads-per-rank", "1",
                        "--tool-call-parser", "hermes"});
  ASSERT_GT(service.port(), 0) << service.server().command().err();
  load.learn(service.port());
  ASSERT_THAT(load.problems(), IsEmpty());
  load.start(service.port());

  std::mt19937 random(13);
  const auto draw = [&](int max) { return std::uniform_int_distribution(0, max)(random); };
  const auto pause = [&](int min, int more) {
    std::this_thread::sleep_for(std::chrono::milliseconds(min + draw(more)) * kSlowdown);
  };
  int processes = 0, lost_nodes = 0, silent_nodes = 0;
  while (processes + lost_nodes + silent_nodes < num_kills() && load.problems().empty()) {
    pause(80, 500);
    const int what = draw(9);
    const int node = 1 + draw(nodes.count - 2);
    if (what == 0) {
      load.note_fault();
      service.kill(node);
      ++lost_nodes;
      pause(0, 800);
      service.start(node);
    } else if (what == 1) {
      load.note_fault();
      service.signal(node, SIGSTOP);
      ++silent_nodes;
      pause(100, 1'500);  // also less than it takes to be missed
      service.signal(node, SIGCONT);
    } else {
      const std::vector<pid_t> victims =
          service.processes(what < 4 ? "wideep-front" : "wideep-rank");
      if (victims.empty()) continue;
      const pid_t victim = victims[static_cast<size_t>(draw(static_cast<int>(victims.size()) - 1))];
      load.note_fault();
      if (::kill(victim, draw(9) == 0 ? SIGSTOP : SIGKILL) == 0) ++processes;
    }
  }
  EXPECT_TRUE(wait_until(
      [&] { return service.server().metric("wideep_ep_active_ranks") == kRanks; }, 60s * kSlowdown))
      << service.server().command().err();
  load.stop();
  EXPECT_THAT(load.problems(), IsEmpty()) << service.server().command().err();
  EXPECT_THAT(own_deaths(service.server().command().err()), IsEmpty());
  service.end();
  EXPECT_THAT(abandoned_shared_memory(shared_memory), IsEmpty());

  const std::vector<double> gaps = load.gaps();
  ASSERT_FALSE(gaps.empty());
  if (HasFailure()) return;  // the problems were printed
  fmt::print(
      "{}: {} processes killed or stopped, {} nodes lost, {} silent; {} replies, 0 failed, 0 "
      "differing; longest silence of a stream over a fault: {}\n",
      nodes.name, processes, lost_nodes, silent_nodes, load.num_replies(), gaps_text(gaps));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, FaultSoakOverNodes,
    ::testing::Values(Nodes{.name = "TwoNodes", .count = 2, .balancer = ""},
                      Nodes{.name = "ThreeNodesOnline",
                            .count = 3,
                            .balancer = "num_slots: 48\nlayer_updates_per_iter: 2\n"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace wideep::tests
