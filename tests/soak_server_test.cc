// SPDX-License-Identifier: Apache-2.0
//
// Clients of every kind at two servers and a router before them, for WIDEEP_SOAK_SECONDS (by
// default a few seconds), while experts move all the time: each request gets its answer or its
// error, the same answer as before; memory, descriptors and processes stay as they were; and the
// end is clean.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitized.h"
#include "command_model.h"
#include "command_server.h"
#include "soak.h"
#include "soak_client.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using nlohmann::json;
namespace fs = std::filesystem;
using ::testing::IsEmpty;

constexpr int kClients = 6;
constexpr int kCacheTokens = 1024;  // of a rank, and so the longest sequence
constexpr uint64_t kMiB = uint64_t{1} << 20;

// ---- what a command uses ----

// Memory of its own, without what it shares with others.
uint64_t private_bytes(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib << 10;
  }
  return 0;
}

int64_t open_files(pid_t process) {
  std::error_code gone;
  const fs::directory_iterator all(fmt::format("/proc/{}/fd", process), gone);
  return gone ? -1 : std::distance(begin(all), end(all));
}

struct Use {
  std::vector<pid_t> processes;     // the command and its ranks
  std::vector<uint64_t> bytes;      // of each, private
  std::vector<int64_t> open_files;  // of each
};

Use use_of(const Command& command) {
  Use use{.processes = command.ranks(), .bytes = {}, .open_files = {}};
  use.processes.insert(use.processes.begin(), command.pid());
  for (const pid_t each : use.processes) {
    use.bytes.push_back(private_bytes(each));
    use.open_files.push_back(open_files(each));
  }
  return use;
}

// Of open files, in words; "": none.
std::string differences(const std::vector<Use>& before, const std::vector<Use>& now) {
  std::string text;
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i].open_files == before[i].open_files) continue;
    text += fmt::format("server {}: open files of its processes: {} at first, {} now\n", i,
                        fmt::join(before[i].open_files, " "), fmt::join(now[i].open_files, " "));
  }
  return text;
}

// ---- the servers ----

// Memory goes back to the system when it is freed: the allocator keeps large blocks otherwise, and
// sanitizers keep all of them for a while, more than a leak would take.
std::vector<std::pair<std::string, std::string>> frugal_memory() {
  const char* set = std::getenv("ASAN_OPTIONS");
  return {{"MALLOC_MMAP_THRESHOLD_", "131072"},
          {"MALLOC_TRIM_THRESHOLD_", "131072"},
          {"ASAN_OPTIONS", fmt::format("{}:quarantine_size_mb=4:thread_local_quarantine_size_kb=64",
                                       set == nullptr ? "" : set)}};
}

// The policy that plans each layer from scratch, so that experts move all the time. The cache has
// few pages, so that requests are paused and kept prefixes evicted.
std::string restless(int ranks) {
  return fmt::format(
      "tensor_parallel_size: {0}\nmoe_expert_parallel_size: {0}\nenable_attention_dp: true\n"
      "moe_config:\n  load_balancer: {{num_slots: 24, layer_updates_per_iter: 2, "
      "update_policy: trt, exact_load: node, unpaid_moves: go_on}}\n"
      "kv_cache_config: {{max_tokens: {1}}}\n"
      "speculative_config: {{decoding_type: auto, max_pool_bytes: 262144}}\n",
      ranks, kCacheTokens);
}

class SoakServer {
 public:
  SoakServer(const std::string& model, int ranks, std::vector<std::string> more) {
    std::ofstream(files_.file("config.yaml")) << restless(ranks);
    CommandOptions options{.arguments = {"serve", "--model", model, "--port", "0"},
                           .environment = frugal_memory()};
    more.insert(more.end(),
                {"--served-model-name", "m", "--config", files_.file("config.yaml"),
                 "--iteration-log", log_file(), "--iteration-log-max-size", "1",
                 "--expert-statistic-path", files_.file("records"), "--expert-statistic-iterations",
                 "200", "--timeout", "120", "--allowed-hosts", "h.example"});
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    server_ = std::make_unique<Server>(options);
  }

  Server& server() { return *server_; }
  int port() const { return server_->port(); }
  std::string log_file() const { return files_.file("iterations.jsonl"); }

  // Records expert statistics for a moment, beside the traffic.
  void record_experts(SoakRecord& record) {
    const auto post = [&](const char* what) {
      const auto reply =
          server::ask(port(), "POST", fmt::format("/{}_expert_distribution_record", what));
      if (reply.status != 200) record.fault(fmt::format("{}: {}", what, reply.body));
      return json::parse(reply.body, nullptr, false);
    };
    post("start");
    if (server_->complete({{"prompt", "x"}}).status != 200) record.fault("no answer to a prompt");
    std::this_thread::sleep_for(200ms);
    post("stop");
    const json dumped = post("dump");
    if (!dumped.contains("directory")) return record.fault(dumped.dump());
    record.count("recordings of experts");
    fs::remove_all(dumped["directory"].get<std::string>());
  }

 private:
  base::ScratchDirectory files_;
  std::unique_ptr<Server> server_;
};

// ---- clients that send nothing, or not all, and stay ----

struct Stays {
  const char* sent;
  int seconds;        // after which the server ends it
  const char* reply;  // begins with this
};

// As http_options.h has the deadlines.
constexpr Stays kStay[] = {
    {"POST /v1/completions HTTP/1.1\r\nHost:", 20, "HTTP/1.1 408 "},
    {"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{", 30, "HTTP/1.1 408 "},
    {"", 50, ""},
};

// Stays until the server ends the connection; not if `end` comes before.
void stay_once(const Stays& stays, int port, Clock::time_point end, SoakRecord& record) {
  const auto latest = Clock::now() + std::chrono::seconds(stays.seconds) + 10s;
  if (latest > end) return std::this_thread::sleep_for(100ms);
  SoakConnection connection(port);
  connection.send(stays.sent);
  std::this_thread::sleep_for(std::chrono::seconds(stays.seconds - 2));
  const bool closes_early = connection.has_bytes();
  const std::string all = connection.receive_rest();
  record.count("kept until the deadline");
  if (all.starts_with(stays.reply) && all.empty() == (*stays.reply == '\0') && !closes_early &&
      Clock::now() < latest) {
    return;
  }
  record.fault(fmt::format("port {}, {} s after '{}': {}", port, stays.seconds, stays.sent, all));
}

void stay(int port, Clock::time_point end, SoakRecord& record) {
  while (Clock::now() < end && !record.has_fault()) {
    for (const Stays& each : kStay) stay_once(each, port, end, record);
  }
}

// ---- the soak ----

class ServerSoak {
 public:
  ServerSoak()
      : first_((prepare_model(), model_.path()), 4, {}),
        second_(model_.path(), 2, {"--scheduler-policy", "max_utilization", "--max-queue", "8"}) {
    const auto url = [](const SoakServer& each) {
      return fmt::format("http://127.0.0.1:{}", each.port());
    };
    const CommandOptions options{
        .arguments = {"route", "--port", "0", "--replica", url(first_), "--replica", url(second_),
                      "--allowed-hosts", "h.example"},
        .environment = frugal_memory()};
    router_ = std::make_unique<Server>(options);
    ports_ = {.servers = {first_.port(), second_.port()}, .router = router_->port()};
  }

  // Each rank makes its cache with its first prompt.
  void warm_up() {
    for (SoakServer* each : {&first_, &second_}) {
      const json prompts = std::vector<std::string>(8, "x");
      EXPECT_EQ(each->server().complete({{"prompt", prompts}}).status, 200);
    }
    EXPECT_EQ(router_->complete({{"prompt", "x"}}).status, 200);
    std::this_thread::sleep_for(200ms * kSlowdown);  // these connections close
  }

  bool serves() const {
    return ports_.servers[0] > 0 && ports_.servers[1] > 0 && ports_.router > 0;
  }

  // All kinds of clients at the same time.
  void send_traffic(std::chrono::duration<double> duration) {
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(duration);
    std::vector<std::thread> threads;
    for (int i = 0; i < kClients; ++i) {
      threads.emplace_back(
          [this, end, seed = next_seed_++] { SoakClient(ports_, seed, record_).run_until(end); });
    }
    for (const int port : {ports_.servers[0], ports_.router}) {
      threads.emplace_back([this, end, port] { stay(port, end, record_); });
    }
    threads.emplace_back([this, end] {
      while (Clock::now() < end && !record_.has_fault()) first_.record_experts(record_);
    });
    for (std::thread& thread : threads) thread.join();
  }

  // Waits until nothing is running and all connections are closed. start: when there was no
  // traffic yet.
  std::vector<Use> use_at_rest(const std::vector<Use>* start) {
    for (SoakServer* each : {&first_, &second_}) {
      EXPECT_TRUE(wait_until([&] { return each->server().metric("wideep_answers_running") == 0; },
                             10s * kSlowdown));
      EXPECT_EQ(each->server().metric("wideep_kv_pages_used"), 0);
    }
    std::this_thread::sleep_for(20ms * kSlowdown);  // until the connections above are closed
    std::vector<Use> uses;
    std::string more_files;
    const auto files_are_closed = [&] {
      uses.clear();
      for (Server* each : servers()) uses.push_back(use_of(each->command()));
      more_files = start == nullptr ? "" : differences(*start, uses);
      return more_files.empty();
    };
    EXPECT_TRUE(wait_until(files_are_closed, 10s * kSlowdown)) << more_files;
    for (size_t i = 0; start != nullptr && i < uses.size(); ++i) {
      EXPECT_EQ(uses[i].processes, (*start)[i].processes);
    }
    return uses;
  }

  void expect_logs_of_bounded_size() {
    for (const SoakServer* each : {&first_, &second_}) {
      EXPECT_GT(fs::file_size(each->log_file()), 0);
      EXPECT_LT(fs::file_size(each->log_file()), kMiB + kMiB / 8);
    }
  }

  void expect_moves_and_no_failures() {
    for (SoakServer* each : {&first_, &second_}) {
      moves_ += each->server().metric("wideep_ep_experts_moved_total");
      iterations_ += each->server().metric("wideep_iterations_total");
      pauses_ += each->server().metric("wideep_pauses_total");
    }
    EXPECT_GT(moves_, 0);
    const std::string metrics = server::ask(ports_.router, "GET", "/metrics").body;
    for (const int port : ports_.servers) {
      EXPECT_THAT(
          metrics,
          ::testing::HasSubstr(fmt::format(
              "wideep_router_failures_total{{replica=\"http://127.0.0.1:{}\"}} 0\n", port)));
    }
  }

  void expect_clean_ends() {
    for (Server* each : {router_.get(), &first_.server(), &second_.server()}) {
      each->command().send(SIGTERM);
      const CommandEnd end = each->command().wait();
      EXPECT_EQ(end.exit_code, 0) << end.err;
      EXPECT_THAT(each->command().ranks(), IsEmpty()) << "processes that outlived wideep";
    }
  }

  void print(const std::vector<Use>& half, const std::vector<Use>& whole) const {
    size_t processes = 0, restarts = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      processes += whole[i].processes.size();
      restarts += whole[i].processes == half[i].processes ? 0 : 1;
    }
    fmt::print("  {} processes, {} restarts\n", processes, restarts);
    fmt::print("  {} answers compared, {} iterations, {} moves, {} pauses\n", record_.compared(),
               iterations_, moves_, pauses_);
    for (const auto& [kind, count] : record_.counts()) fmt::print("  {:>8} {}\n", count, kind);
    for (size_t i = 0; i < half.size(); ++i) {
      for (size_t j = 0; j < half[i].bytes.size(); ++j) {
        fmt::print("  memory of {} {} at half time and at the end: {} and {} KiB, {} files\n",
                   i < 2 ? "server" : "router", j == 0 ? "process" : fmt::format("rank {}", j - 1),
                   half[i].bytes[j] >> 10, whole[i].bytes[j] >> 10, whole[i].open_files[j]);
      }
    }
  }

  const SoakRecord& record() const { return record_; }

 private:
  void prepare_model() { model_.write("chat_template.jinja", kSoakTemplate); }
  std::vector<Server*> servers() { return {&first_.server(), &second_.server(), router_.get()}; }

  ModelCopy model_;
  SoakServer first_, second_;
  std::unique_ptr<Server> router_;
  SoakPorts ports_;
  SoakRecord record_;
  uint32_t next_seed_ = 1;
  double moves_ = 0, iterations_ = 0, pauses_ = 0;
};

// In the second half, after all kinds of requests have come in the first.
void expect_no_growth(const std::vector<Use>& half, const std::vector<Use>& whole) {
  const uint64_t max = (base::is_command_sanitized() ? 32 : 8) * kMiB;
  for (size_t i = 0; i < half.size(); ++i) {
    for (size_t j = 0; j < half[i].bytes.size() && j < whole[i].bytes.size(); ++j) {
      EXPECT_LT(whole[i].bytes[j], half[i].bytes[j] + max) << "server " << i << ", process " << j;
    }
  }
}

TEST(Soak, ServersAmongClientsOfEveryKind) {
  const auto shared_memory = list_shared_memory();
  {
    ServerSoak soak;
    ASSERT_TRUE(soak.serves());
    soak.warm_up();
    const auto start = soak.use_at_rest(nullptr);
    const auto half_time = std::chrono::duration<double>(soak_seconds() / 2);
    soak.send_traffic(half_time);
    const auto half = soak.use_at_rest(&start);
    soak.send_traffic(half_time);
    const auto whole = soak.use_at_rest(&start);
    soak.expect_moves_and_no_failures();
    soak.expect_logs_of_bounded_size();
    soak.print(half, whole);
    EXPECT_GT(soak.record().compared(), 0);
    expect_no_growth(half, whole);
    soak.expect_clean_ends();
  }
  EXPECT_THAT(abandoned_shared_memory(shared_memory), IsEmpty());
}

}  // namespace
}  // namespace wideep::tests
