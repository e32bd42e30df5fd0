// SPDX-License-Identifier: Apache-2.0
//
// Processes of a server are killed, stopped or left without memory at random instants, while
// clients ask it for answers: no request fails, no byte differs from an undisturbed run, nothing is
// left behind. `make soak-faults` runs it for thousands of kills (WIDEEP_FAULT_KILLS, of each
// layout) and prints how long streams were silent.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
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
  return base::is_command_sanitized() ? 8 : 60;
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
  int pauses = 1;     // between two kills
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

// So seldom that hardly a request meets several such deaths: a rank that runs out of memory dies of
// itself, and a request that was on three of them is given up, because it may be the cause.
constexpr int kBetweenLimits = 25;

// A rank may have no more memory than it has, so the next allocation that needs a page of its own
// fails. That needs no privileges, unlike a control group. The sanitizers' own allocators would end
// the process elsewhere.
bool leave_without_memory(pid_t rank) {
  if (base::is_command_sanitized()) return false;
  unsigned long pages = 0;
  std::ifstream(fmt::format("/proc/{}/statm", rank)) >> pages;
  if (pages == 0) return false;
  const rlim_t bytes = pages * static_cast<unsigned long>(::getpagesize());
  const rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  return ::prlimit(rank, RLIMIT_AS, &limit, nullptr) == 0;
}

void give_memory_again(pid_t rank) {
  const rlimit none = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  ::prlimit(rank, RLIMIT_AS, &none, nullptr);
}

// Does something to a process of the server, of which it hopefully dies.
class Killer {
 public:
  Killer(Server& server, FaultLoad& load) : server_(server), load_(load) {}

  void strike() {
    const bool at_front = draw(4) == 0;
    const auto victim =
        any_of(at_front ? front_processes(server_.command()) : rank_processes(server_.command()));
    if (!victim) return;
    if (!at_front && ++since_limit_ >= kBetweenLimits) return limit_memory(*victim);
    const bool stops = draw(9) == 0;
    load_.note_fault();
    if (::kill(*victim, stops ? SIGSTOP : SIGKILL) == 0) ++(stops ? stopped_ : killed_);
  }
  int draw(int most) { return std::uniform_int_distribution(0, most)(random_); }
  int done() const { return killed_ + stopped_ + limited_; }
  int limited() const { return limited_; }
  std::string summary() const {
    return fmt::format("{} kills ({} stopped, {} out of memory)", done(), stopped_, limited_);
  }

 private:
  std::optional<pid_t> any_of(const std::vector<pid_t>& processes) {
    if (processes.empty()) return std::nullopt;
    return processes[static_cast<size_t>(draw(static_cast<int>(processes.size()) - 1))];
  }
  // A rank that needs no more memory lives on: then it does not count.
  void limit_memory(pid_t rank) {
    since_limit_ = 0;
    if (!leave_without_memory(rank)) return;
    const bool died = wait_until([&] { return ::kill(rank, 0) != 0; }, 5s);
    if (!died) return give_memory_again(rank);
    load_.note_fault();
    ++limited_;
  }

  Server& server_;
  FaultLoad& load_;
  std::mt19937 random_{11};
  int killed_ = 0, stopped_ = 0, limited_ = 0;
  int since_limit_ = 15;  // the first comes early, in short runs too
};

// What streams felt, for the report.
std::string gaps_text(const std::vector<double>& gaps) {
  const auto at = [&](double part) {
    return gaps[static_cast<size_t>(part * static_cast<double>(gaps.size() - 1))];
  };
  return fmt::format("median {:.3f} s, p99 {:.3f} s, most {:.3f} s", at(0.5), at(0.99),
                     gaps.back());
}

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

  Killer killer(server, load);
  const int kills = std::max(1, static_cast<int>(num_kills() * layout.part));
  while (killer.done() < kills && load.problems().empty()) {
    for (int i = 0; i < layout.pauses; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(80 + killer.draw(500)) * kSlowdown);
    }
    killer.strike();
  }
  EXPECT_TRUE(wait_until([&] { return server.metric("wideep_ep_active_ranks") == layout.ranks; },
                         30s * kSlowdown));
  load.stop();
  EXPECT_THAT(load.problems(), IsEmpty()) << server.command().err();

  EXPECT_LE(own_deaths(server.command().err()).size(), static_cast<size_t>(killer.limited()))
      << server.command().err();
  server.command().send(SIGTERM);
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(server.command().ranks(), IsEmpty()) << "processes that outlived wideep";
  EXPECT_THAT(abandoned_shared_memory(shared_memory), IsEmpty());

  const std::vector<double> gaps = load.gaps();
  ASSERT_FALSE(gaps.empty());
  if (HasFailure()) return;  // the problems were printed
  fmt::print(
      "{}: {}, {} replies, 0 failed, 0 differing; longest silence of a stream over a kill: {}\n",
      layout.name, killer.summary(), load.num_replies(), gaps_text(gaps));
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
               .part = 0.25,
               .pauses = 2},
        Layout{.name = "Pipeline",
               .config = "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n"
                         "enable_attention_dp: true\npipeline_parallel_size: 2\n",
               .ranks = 4,
               .part = 0.25,
               .pauses = 2}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace wideep::tests
