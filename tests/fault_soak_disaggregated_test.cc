// SPDX-License-Identifier: Apache-2.0
//
// As fault_soak_test.cc for disaggregated serving: two servers compute prompts, two answer, and
// `wideep disaggregated` is in front. At random instants whole servers are killed or stopped, also
// the one that answers in the middle of streams, ranks and fronts of all of them die, and roles
// change. Of both kinds of servers one is always there. WIDEEP_FAULT_KILLS and WIDEEP_FAULT_MODEL as
// there.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "command.h"
#include "command_server.h"
#include "fault_load.h"
#include "http/http_client_testing.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;

int num_kills() {
  const char* value = std::getenv("WIDEEP_FAULT_KILLS");
  if (value != nullptr) return std::atoi(value);
  return base::is_command_sanitized() ? 4 : 50;
}

// Every server has another layout.
struct Division {
  std::string name;  // of its schedule_style
  std::string style;
  std::array<std::string, 2> computing, answering;  // parallel_config.yaml of each server
};
void PrintTo(const Division& division, std::ostream* out) { *out << division.name; }

// A server that comes back has its port again. So it is none that the kernel gives to others
// meanwhile: those for connections begin at 32768.
int lasting_port() {
  constexpr int kFirst = 20'000, kPerProcess = 10, kProcesses = 1'000;
  static int next = kFirst + ::getpid() % kProcesses * kPerProcess;
  for (;; ++next) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(next));
    const bool is_free =
        ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    ::close(socket);
    if (is_free) return next++;
  }
}

// One of the four, as a whole.
class WholeServer {
 public:
  WholeServer(CommandOptions options, int port) : options_(std::move(options)), port_(port) {
    start();
  }

  int port() const { return port_; }
  Command& command() { return *command_; }
  std::string log() const { return command_ ? command_->err() : "lost"; }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  // It answers, as far as the test knows: it has begun, and is not stopped.
  bool is_there() {
    if (!command_ || goes_on_at_) return false;
    // Which it says when it serves.
    has_begun_ = has_begun_ || command_->err().find(url()) != std::string::npos;
    return has_begun_;
  }

  // All its processes die at once; after a time it is started again.
  void lose(std::chrono::milliseconds pause) {
    ::kill(-command_->pid(), SIGKILL);
    // As long as one of them lives, the port is taken.
    EXPECT_TRUE(wait_until([&] { return command_->ranks().empty(); }, 10s * kSlowdown));
    note_own_deaths();
    command_.reset();
    starts_at_ = Clock::now() + pause;
  }
  void stop(std::chrono::milliseconds pause) {
    ::kill(-command_->pid(), SIGSTOP);
    goes_on_at_ = Clock::now() + pause;
  }
  // Does what is due.
  void tend() {
    const auto now = Clock::now();
    if (starts_at_ && *starts_at_ <= now) {
      starts_at_.reset();
      start();
    }
    if (goes_on_at_ && *goes_on_at_ <= now) {
      goes_on_at_.reset();
      ::kill(-command_->pid(), SIGCONT);
    }
  }

  // Ends it, and expects that it leaves nothing. Returns what its processes have died of, of
  // themselves, since the first start.
  std::vector<std::string> end() {
    command_->send(SIGTERM);
    const CommandEnd end = command_->wait(120s);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(command_->ranks(), IsEmpty()) << "processes that outlived wideep";
    note_own_deaths();
    return own_deaths_;
  }

 private:
  void start() {
    has_begun_ = false;
    command_ = std::make_unique<Command>(options_);
  }
  void note_own_deaths() {
    for (std::string& each : own_deaths(command_->err())) own_deaths_.push_back(std::move(each));
  }

  CommandOptions options_;
  int port_;
  std::unique_ptr<Command> command_;  // null: it is lost
  bool has_begun_ = false;
  std::optional<Clock::time_point> starts_at_, goes_on_at_;
  std::vector<std::string> own_deaths_;
};

// The proxy and its servers.
class Group {
 public:
  Group(const Division& division, const MixedModel& model) : model_(model) {
    for (size_t i = 0; i < 2; ++i) {
      computing_.push_back(make("prefill", division.computing[i]));
      answering_.push_back(make("decode", division.answering[i]));
    }
    const auto urls = [](const Servers& servers) {
      return fmt::format("['127.0.0.1:{}', '127.0.0.1:{}']", servers[0]->port(),
                         servers[1]->port());
    };
    // These servers are too quick for a division of prompts to be worth while: they are divided as
    // the file says, so that pages travel.
    std::ofstream(files_.file("d.yaml"))
        << "hostname: 127.0.0.1\nport: 0\nschedule_style: " << division.style
        << "\nconditional_disagg_config: {max_local_prefill_length: 64}\n"
        << "context_servers: {urls: " << urls(computing_) << "}\n"
        << "generation_servers: {urls: " << urls(answering_) << "}\n";
    proxy_ = std::make_unique<Server>(
        std::vector<std::string>{"disaggregated", "-c", files_.file("d.yaml")});
  }

  using Servers = std::vector<std::unique_ptr<WholeServer>>;
  const Servers& side(int number) const { return number == 0 ? computing_ : answering_; }
  const Servers& answering() const { return answering_; }
  int port() const { return proxy_->port(); }  // 0: the proxy does not serve

  void tend() {
    for (const int number : {0, 1}) {
      for (const auto& each : side(number)) each->tend();
    }
  }
  // Both servers of a side are there, and the proxy knows it.
  bool is_ready(int number) const {
    for (const auto& each : side(number)) {
      if (!each->is_there() || of_proxy("replica_up", *each) != 1) return false;
    }
    return true;
  }
  bool wait_until_all_are_ready() {
    return wait_until(
        [&] {
          tend();
          return is_ready(0) && is_ready(1) && proxy_has_begun();
        },
        60s * kSlowdown);
  }

  // Pages that the answering servers have got from others since they were started.
  double pages_taken() const {
    double sum = 0;
    for (const auto& each : answering_) {
      sum += metric_at(each->port(), "wideep_prompt_transfer_pages_total");
    }
    return sum;
  }
  double streams_resumed() const { return proxy_->metric("wideep_router_streams_resumed_total"); }
  double prompts_divided() const {
    double sum = 0;
    for (const auto& each : answering_) sum += of_proxy("prompts_divided_total", *each);
    return sum;
  }
  // The ends of all logs.
  std::string log() const {
    const auto end_of = [](const std::string& text) {
      constexpr size_t kMost = 3'000;
      return text.substr(text.size() - std::min(text.size(), kMost));
    };
    std::string all = fmt::format("proxy: {}\n", end_of(proxy_->command().err()));
    for (const int number : {0, 1}) {
      for (const auto& each : side(number)) {
        all += fmt::format("{}: {}\n", each->url(), end_of(each->log()));
      }
    }
    return all;
  }

  // Returns own_deaths of all.
  std::vector<std::string> end() {
    proxy_->command().send(SIGTERM);
    const CommandEnd end = proxy_->command().wait();
    EXPECT_EQ(end.exit_code, 0) << end.err;
    std::vector<std::string> deaths;
    for (const int number : {0, 1}) {
      for (const auto& server : side(number)) {
        for (std::string& each : server->end()) deaths.push_back(std::move(each));
      }
    }
    return deaths;
  }

 private:
  std::unique_ptr<WholeServer> make(const std::string& role, const std::string& layout) {
    const int port = lasting_port();
    const std::string config = files_.file(fmt::format("{}.yaml", port));
    // So few pages that prompts are computed, and travel, again and again.
    std::ofstream(config) << layout << "kv_cache_config: {max_tokens: 2048}\n";
    return std::make_unique<WholeServer>(
        CommandOptions{.arguments = {"serve", "--port", std::to_string(port), "--model",
                                     model_.path(), "--served-model-name", "m",
                                     "--tool-call-parser", "hermes", "--config", config,
                                     "--threads-per-rank", "1", "--role", role, "--host-cache-size",
                                     "16MiB"}},
        port);
  }
  // It does not wait for servers any longer.
  bool proxy_has_begun() const {
    constexpr const char* kSaid = "all servers that are needed are there";
    return proxy_->command().err().find(kSaid) != std::string::npos;
  }
  // Of one of its servers; −1: it says nothing of it.
  double of_proxy(const char* metric, const WholeServer& server) const {
    return proxy_->metric(fmt::format("wideep_router_{}{{replica=\"{}\"}}", metric, server.url()));
  }

  const MixedModel& model_;
  base::ScratchDirectory files_;
  Servers computing_, answering_;
  std::unique_ptr<Server> proxy_;
};

// Does something to a server, or to one of its processes.
class Killer {
 public:
  Killer(Group& group, FaultLoad& load) : group_(group), load_(load) {}

  // False: on neither side a server may be lost now.
  bool strike() {
    int side = draw(1);
    if (!group_.is_ready(side)) side = 1 - side;
    if (!group_.is_ready(side)) return false;
    WholeServer& server = *group_.side(side)[static_cast<size_t>(draw(1))];
    const int what = draw(19);
    if (what < 5) {
      load_.note_fault();
      server.lose(std::chrono::milliseconds(draw(600)) * kSlowdown);
      ++(side == 0 ? lost_computing_ : lost_answering_);
    } else if (what < 7) {
      load_.note_fault();
      // Also less than it takes to be missed.
      server.stop(std::chrono::milliseconds(100 + draw(2'900)));
      ++silent_;
    } else if (what == 7) {
      change_role(server);
    } else {
      hit_process(server);
    }
    return true;
  }
  int draw(int max) { return std::uniform_int_distribution(0, max)(random_); }
  int done() const { return processes_ + lost_computing_ + lost_answering_ + silent_; }
  int lost_answering() const { return lost_answering_; }
  std::string summary() const {
    return fmt::format(
        "{} processes killed or stopped, {} servers of prompts and {} that answer lost, {} silent, "
        "{} changes of roles",
        processes_, lost_computing_, lost_answering_, silent_, roles_);
  }

 private:
  void hit_process(WholeServer& server) {
    const std::vector<pid_t> all =
        draw(4) == 0 ? front_processes(server.command()) : rank_processes(server.command());
    if (all.empty()) return;
    const pid_t victim = all[static_cast<size_t>(draw(static_cast<int>(all.size()) - 1))];
    load_.note_fault();
    if (::kill(victim, draw(9) == 0 ? SIGSTOP : SIGKILL) == 0) ++processes_;
  }
  // The reply proves it: all ranks have seen this role. While ranks are replaced it may be late.
  void change_role(WholeServer& server) {
    constexpr std::array kRoles = {"prefill", "decode", "both"};
    const std::string role = kRoles[static_cast<size_t>(draw(2))];
    const server::Reply reply =
        server::ask(server.port(), "POST", "/pd_role_switch", json({{"new_role", role}}).dump());
    if (reply.status == 503) return;
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json state = reply.body_json();
    EXPECT_EQ(state["role"], role);
    EXPECT_EQ(state["seen_by"], state["ranks"]);
    ++roles_;
  }

  Group& group_;
  FaultLoad& load_;
  std::mt19937 random_{static_cast<unsigned>(num_kills())};  // another number: other faults
  int processes_ = 0, lost_computing_ = 0, lost_answering_ = 0, silent_ = 0, roles_ = 0;
};

class FaultSoakDisaggregated : public ::testing::TestWithParam<Division> {};

TEST_P(FaultSoakDisaggregated, NoRequestFailsAndNoByteDiffers) {
  const std::vector<std::string> shared_memory = list_shared_memory();
  const MixedModel model;
  FaultLoad::Options options = model.load();
  options.more_words = 160;
  options.leaves_one_in = 12;
  FaultLoad load(options);
  {
    Server undisturbed({"serve", "--port", "0", "--model", model.path(), "--served-model-name", "m",
                        "--tool-call-parser", "hermes", "--threads-per-rank", "1"});
    ASSERT_GT(undisturbed.port(), 0) << undisturbed.command().err();
    load.learn(undisturbed.port());
    ASSERT_THAT(load.problems(), IsEmpty());
  }
  Group group(GetParam(), model);
  ASSERT_GT(group.port(), 0) << group.log();
  ASSERT_TRUE(group.wait_until_all_are_ready()) << group.log();
  load.start(group.port());
  EXPECT_TRUE(wait_until([&] { return group.pages_taken() > 0; }, 60s * kSlowdown)) << group.log();

  Killer killer(group, load);
  constexpr auto kPatience = 60s;  // until a side is whole again
  auto struck = Clock::now();
  while (killer.done() < num_kills() && load.problems().empty() && !HasFailure()) {
    group.tend();
    if (killer.strike()) {
      struck = Clock::now();
    } else if (Clock::now() - struck > kPatience * kSlowdown) {
      ADD_FAILURE() << "servers do not come back: " << group.log();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(80 + killer.draw(300)) * kSlowdown);
  }
  EXPECT_TRUE(group.wait_until_all_are_ready()) << group.log();
  load.stop();
  EXPECT_THAT(load.problems(), IsEmpty()) << group.log();
  EXPECT_GT(group.prompts_divided(), 0);
  // Where that many die that answer, some die in the middle of a stream.
  constexpr int kMany = 5;
  const double resumed = group.streams_resumed();
  if (killer.lost_answering() >= kMany) EXPECT_GT(resumed, 0);
  EXPECT_THAT(group.end(), IsEmpty());
  EXPECT_THAT(abandoned_shared_memory(shared_memory), IsEmpty());

  const std::vector<double> gaps = load.gaps();
  ASSERT_FALSE(gaps.empty());
  if (HasFailure()) return;  // the problems were printed
  fmt::print(
      "{}: {}; {} streams went on elsewhere; {} replies, 0 failed, 0 differing; longest silence of "
      "a stream over a fault: {}\n",
      GetParam().name, killer.summary(), resumed, load.num_replies(), gaps_text(gaps));
}

constexpr const char* kOneRank = "tensor_parallel_size: 1\n";
constexpr const char* kTwoRanks = "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n";
constexpr const char* kPipeline =
    "tensor_parallel_size: 1\nmoe_expert_parallel_size: 1\npipeline_parallel_size: 2\n";
constexpr const char* kWide =
    "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\nenable_attention_dp: true\n";
constexpr const char* kDrafts =
    "tensor_parallel_size: 1\nspeculative_config: {decoding_type: NGram, max_draft_len: 3}\n";

INSTANTIATE_TEST_SUITE_P(Divisions, FaultSoakDisaggregated,
                         ::testing::Values(Division{.name = "GenerationFirst",
                                                    .style = "generation_first",
                                                    .computing = {kTwoRanks, kOneRank},
                                                    .answering = {kWide, kOneRank}},
                                           Division{.name = "ContextFirst",
                                                    .style = "context_first",
                                                    .computing = {kPipeline, kWide},
                                                    .answering = {kDrafts, kTwoRanks}}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace wideep::tests
