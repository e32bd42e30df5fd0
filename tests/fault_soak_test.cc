// SPDX-License-Identifier: Apache-2.0
//
// Processes of a server are killed, stopped or left without memory at random instants and at named
// steps, ranks come and go, experts are recorded, while clients ask it for answers of every kind;
// at last it gets SIGTERM, and processes die in the drain, too: no request fails, no byte differs
// from an undisturbed run, nothing is left behind. `make soak-faults` runs it for thousands of
// kills (WIDEEP_FAULT_KILLS, of each layout) and prints how long streams were silent.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
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
using nlohmann::json;
using ::testing::IsEmpty;

int num_kills() {
  const char* value = std::getenv("WIDEEP_FAULT_KILLS");
  if (value != nullptr) return std::atoi(value);
  return base::is_command_sanitized() ? 3 : 16;
}

struct Layout {
  std::string name;
  std::string config;    // parallel_config.yaml
  std::string balancer;  // moe_load_balancer.yaml; "": none
  int ranks = 0;
  bool is_elastic = true;  // the number of ranks may change
  int pauses = 1;          // between two kills
  std::vector<std::string> options = {};
  bool routed_experts = false;
  bool keeps_prompts = false;  // in the node's memory and a directory, with a small own cache
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

// So seldom that hardly a request meets several such deaths: a rank that runs out of memory dies of
// itself, and a request that was on three of them is given up, because it may be the cause.
constexpr int kBetweenLimits = 25;

// A rank may have hardly more memory than it has, so one of its next allocations fails: at once, or
// when it joins others. That needs no privileges, unlike a control group. The sanitizers' own
// allocators would end the process elsewhere.
bool leave_without_memory(pid_t rank, int slack_kib) {
  if (base::is_command_sanitized()) return false;
  unsigned long pages = 0;
  std::ifstream(fmt::format("/proc/{}/statm", rank)) >> pages;
  if (pages == 0) return false;
  const rlim_t bytes =
      pages * static_cast<unsigned long>(::getpagesize()) + static_cast<rlim_t>(slack_kib) * 1024;
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
  int draw(int max) { return std::uniform_int_distribution(0, max)(random_); }
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
  // Another one dies, so that all join anew. A rank that needs no more memory lives on: then it
  // does not count.
  void limit_memory(pid_t rank) {
    constexpr std::array kSlack = {0, 64, 200, 500, 900, 1'500};  // KiB
    since_limit_ = 0;
    if (!leave_without_memory(rank, kSlack[static_cast<size_t>(draw(kSlack.size() - 1))])) return;
    const auto other = any_of(rank_processes(server_.command()));
    if (other && *other != rank && ::kill(*other, SIGKILL) == 0) ++killed_;
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

// What an administrator does meanwhile: changes the number of ranks, and records experts.
class Administrator {
 public:
  Administrator(Server& server, const Layout& layout, std::string recordings)
      : server_(server),
        layout_(layout),
        recordings_(std::move(recordings)),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  // Ends, with all ranks wanted.
  void finish() {
    thread_.request_stop();
    thread_.join();
    if (layout_.is_elastic) {
      EXPECT_TRUE(wait_until([&] { return scale_to(layout_.ranks) == 200; }, 60s * kSlowdown));
    }
  }
  int scaled() const { return scaled_; }
  int recorded() const { return recorded_; }

 private:
  void run(const std::stop_token& stop) {
    std::mt19937 random(17);
    while (!stop.stop_requested()) {
      if (layout_.is_elastic) {
        const int wanted = 1 + static_cast<int>(random() % static_cast<unsigned>(layout_.ranks));
        if (scale_to(wanted) == 200) ++scaled_;
      }
      record("start");
      std::this_thread::sleep_for(300ms);
      record("stop");
      read_back(record("dump"));
    }
  }
  // A serving process may die before it answers; then the call may have had its effect or not.
  int scale_to(int ranks) {
    const json body = {{"new_data_parallel_size", ranks}, {"drain_timeout", 20 * kSlowdown}};
    return server::ask(server_.port(), "POST", "/scale_elastic_ep", body.dump()).status;
  }
  server::Reply record(const std::string& what) {
    return server::ask(server_.port(), "POST", "/" + what + "_expert_distribution_record");
  }
  void read_back(const server::Reply& dumped) {
    const json reply = json::parse(dumped.body, nullptr, false);
    if (dumped.status != 200 || !reply.is_object()) return;
    const std::string directory = reply.value("directory", "");
    const CommandEnd read =
        run_command({.arguments = {"balance", "report", "--stats", directory, "--ep-size", "2"}});
    EXPECT_EQ(read.exit_code, 0) << read.err;
    std::filesystem::remove_all(directory);
    ++recorded_;
  }

  Server& server_;
  const Layout& layout_;
  std::string recordings_;
  int scaled_ = 0, recorded_ = 0;
  std::jthread thread_;
};

// Deaths at, and shortly after, named steps: each is passed again and again.
std::string drills(int count) {
  constexpr std::array kOften = {"agreed", "read", "recording", "recorded", "writing", "replied"};
  constexpr std::array kSeldom = {"loaded", "joined", "holding", "regrouped", "filled", "leaving"};
  std::mt19937 random(19);
  std::vector<std::string> all;
  for (int i = 1; i <= count; ++i) {
    const bool is_often = i % 2 == 0;
    const char* const step = is_often ? kOften[random() % 6] : kSeldom[random() % 6];
    // Not before all ranks have begun.
    const unsigned passage = is_often ? 1'500U * static_cast<unsigned>(i) + random() % 500
                                      : 20U + 12U * static_cast<unsigned>(i) + random() % 8;
    all.push_back(fmt::format("{}:{}+{}", step, passage, random() % 3 == 0 ? 0 : random() % 12));
  }
  return fmt::format("{}", fmt::join(all, ","));
}

class FaultSoak : public ::testing::TestWithParam<Layout> {
 protected:
  CommandOptions options_for(const Layout& layout, bool disturbed) {
    std::ofstream config(files_.file("config.yaml"));
    config << layout.config;
    if (!layout.balancer.empty()) {
      std::ofstream(files_.file("balancer.yaml")) << layout.balancer;
      config << "moe_config:\n  load_balancer: " << files_.file("balancer.yaml") << "\n";
    }
    CommandOptions options{.arguments = {"serve", "--port", "0", "--model", model_.path(),
                                         "--served-model-name", "m", "--tool-call-parser", "hermes",
                                         "--config", files_.file("config.yaml"),
                                         "--threads-per-rank", "1", "--expert-statistic-path",
                                         files_.file("statistics")}};
    options.arguments.insert(options.arguments.end(), layout.options.begin(), layout.options.end());
    if (layout.keeps_prompts) {
      const std::vector<std::string> places = {"--host-cache-size",    "16MiB",
                                               "--prompt-cache-dir",   files_.file("prompts"),
                                               "--prompt-cache-bytes", "64MiB"};
      options.arguments.insert(options.arguments.end(), places.begin(), places.end());
    }
    if (disturbed) options.environment = {{"WIDEEP_FAULT_DRILL", drills(num_kills() / 4)}};
    return options;
  }

  base::ScratchDirectory files_;
  const MixedModel model_;
};

TEST_P(FaultSoak, NoRequestFailsAndNoByteDiffers) {
  const Layout& layout = GetParam();
  const std::vector<std::string> shared_memory = list_shared_memory();
  FaultLoad load(model_.load(layout.routed_experts));
  {
    Server undisturbed(options_for(layout, false));
    ASSERT_GT(undisturbed.port(), 0) << undisturbed.command().err();
    load.learn(undisturbed.port());
    ASSERT_THAT(load.problems(), IsEmpty());
  }
  Server server(options_for(layout, true));
  ASSERT_GT(server.port(), 0) << server.command().err();
  load.start(server.port());

  Killer killer(server, load);
  Administrator administrator(server, layout, files_.file("statistics"));
  const auto pause = [&](int min, int max) {
    std::this_thread::sleep_for(std::chrono::milliseconds(min + killer.draw(max)) * kSlowdown);
  };
  while (killer.done() < num_kills() && load.problems().empty()) {
    for (int i = 0; i < layout.pauses; ++i) pause(80, 500);
    killer.strike();
  }
  administrator.finish();
  EXPECT_TRUE(wait_until([&] { return server.metric("wideep_ep_active_ranks") == layout.ranks; },
                         30s * kSlowdown))
      << server.command().err();

  // The drain is served as any other time.
  load.end_is_near();
  server.command().send(SIGTERM);
  for (int i = 0; i < 3; ++i) {
    pause(0, 60);
    killer.strike();
  }
  const CommandEnd end = server.command().wait(120s);
  load.stop();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(load.problems(), IsEmpty()) << end.err;
  EXPECT_LE(own_deaths(end.err).size(), static_cast<size_t>(killer.limited())) << end.err;
  EXPECT_THAT(server.command().ranks(), IsEmpty()) << "processes that outlived wideep";
  EXPECT_THAT(abandoned_shared_memory(shared_memory), IsEmpty());

  const std::vector<double> gaps = load.gaps();
  ASSERT_FALSE(gaps.empty());
  if (HasFailure()) return;  // the problems were printed
  fmt::print(
      "{}: {}, {} changes of the number of ranks, {} recordings; {} replies, 0 failed, 0 "
      "differing; longest silence of a stream over a kill: {}\n",
      layout.name, killer.summary(), administrator.scaled(), administrator.recorded(),
      load.num_replies(), gaps_text(gaps));
}

std::string wide(int ranks, const std::string& more = "") {
  return fmt::format(
      "tensor_parallel_size: {0}\nmoe_expert_parallel_size: {0}\nenable_attention_dp: true\n{1}",
      ranks, more);
}
std::string drafts(const std::string& more) { return "speculative_config: {" + more + "}\n"; }
constexpr const char* kOnline = "num_slots: 48\nlayer_updates_per_iter: 2\n";
constexpr const char* kExact = "num_slots: 48\nlayer_updates_per_iter: 2\nexact_load: node\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, FaultSoak,
    ::testing::Values(
        Layout{.name = "WideEp", .config = wide(8), .ranks = 8},
        Layout{.name = "Online",
               .config = wide(8, drafts("decoding_type: NGram, max_draft_len: 3")),
               .balancer = kOnline,
               .ranks = 8},
        Layout{.name = "ExactLoad", .config = wide(4), .balancer = kExact, .ranks = 4},
        Layout{.name = "ExactLoadWithNGrams",
               .config = wide(4, drafts("decoding_type: NGram, max_draft_len: 3")),
               .balancer = kExact,
               .ranks = 4},
        Layout{.name = "PredictionLayers",
               .config = wide(4, drafts("decoding_type: MTP, num_nextn_predict_layers: 2")),
               .balancer = kOnline,
               .ranks = 4},
        Layout{.name = "SuffixAutomata",
               .config = wide(4, drafts("decoding_type: SA, max_draft_len: 6")),
               .balancer = kOnline,
               .ranks = 4},
        Layout{.name = "AnyDrafts",
               .config = wide(4, drafts("decoding_type: auto")),
               .balancer = kOnline,
               .ranks = 4},
        Layout{.name = "RoutedExperts",
               .config = wide(4),
               .balancer = kOnline,
               .ranks = 4,
               .options = {"--enable-return-routed-experts"},
               .routed_experts = true},
        Layout{.name = "FewPages",
               .config = wide(4, "kv_cache_config: {max_tokens: 1024}\n"),
               .balancer = kOnline,
               .ranks = 4},
        Layout{.name = "TensorParallel",
               .config = "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n",
               .ranks = 2,
               .is_elastic = false,
               .pauses = 2},
        Layout{.name = "TensorParallelWithPredictionLayers",
               .config = "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n" +
                         drafts("decoding_type: MTP, num_nextn_predict_layers: 2"),
               .ranks = 2,
               .is_elastic = false,
               .pauses = 2},
        Layout{.name = "Pipeline",
               .config = wide(2, "pipeline_parallel_size: 2\n"),
               .ranks = 4,
               .is_elastic = false,
               .pauses = 2},
        Layout{.name = "SlicedExperts",
               .config = "tensor_parallel_size: 4\nmoe_tensor_parallel_size: 2\n"
                         "moe_expert_parallel_size: 2\nenable_attention_dp: true\n",
               .ranks = 4,
               .is_elastic = false,
               .pauses = 2},
        Layout{.name = "ContextParallel",
               .config = "context_parallel_size: 2\ntensor_parallel_size: 1\n"
                         "moe_expert_parallel_size: 1\n",
               .ranks = 2,
               .is_elastic = false,
               .pauses = 2},
        Layout{.name = "KeptPrompts",
               .config = wide(4, "kv_cache_config: {max_tokens: 1024}\n"),
               .balancer = kOnline,
               .ranks = 4,
               .keeps_prompts = true},
        Layout{.name = "KeptPromptsOfAPipeline",
               .config = wide(2,
                              "pipeline_parallel_size: 2\n"
                              "kv_cache_config: {max_tokens: 1024}\n"),
               .ranks = 4,
               .is_elastic = false,
               .pauses = 2,
               .keeps_prompts = true},
        Layout{.name = "OneRank",
               .config = "tensor_parallel_size: 1\n",
               .ranks = 1,
               .is_elastic = false,
               .pauses = 2}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace wideep::tests
