// SPDX-License-Identifier: Apache-2.0
//
// A service over several nodes (`wideep serve --nnodes`): its ranks, its nodes and the connections
// between them may fail, and clients notice nothing. All nodes are on this machine;
// scripts/test_nodes.sh has network namespaces.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/scratch_directory.h"
#include "command_model.h"
#include "fault_load.h"
#include "random_model.h"
#include "service_nodes.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using server::Reply;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kWideEp =
    "tensor_parallel_size: 8\nmoe_expert_parallel_size: 8\nenable_attention_dp: true\n";
constexpr const char* kOnline = "num_slots: 24\nlayer_updates_per_iter: 1\n";

struct Config {
  explicit Config(const std::string& config = kWideEp, const std::string& balancer = "") {
    std::ofstream file(files.file("config.yaml"));
    file << config;
    if (!balancer.empty()) {
      std::ofstream(files.file("balancer.yaml")) << balancer;
      file << "moe_config:\n  load_balancer: " << files.file("balancer.yaml") << "\n";
    }
  }
  std::vector<std::string> arguments() const {
    return {"--config", files.file("config.yaml"), "--threads-per-rank", "1"};
  }
  base::ScratchDirectory files;
};

bool compute(ServiceNodes& service, int ranks) {
  return wait_until([&] { return service.server().metric("wideep_ep_active_ranks") == ranks; },
                    30s * kSlowdown);
}

// What one rank of one process answers.
void learn_from_one_rank(FaultLoad* load) {
  Server server(small_model(), {"--threads-per-rank", "1"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  load->learn(server.port());
}

class ServiceOverNodes : public ::testing::TestWithParam<std::string> {};

// Everything at once: kills of ranks on both sides and of the front, a node that is killed and
// comes back, one that is silent for a while; the bytes are those of one rank.
TEST_P(ServiceOverNodes, NobodyNoticesWhatDies) {
  const Config config(kWideEp, GetParam());
  FaultLoad load({.num_requests = 16, .num_clients = 6});
  ASSERT_NO_FATAL_FAILURE(learn_from_one_rank(&load));
  ServiceNodes service(3, small_model(), config.arguments());
  ASSERT_GT(service.port(), 0) << service.server().command().err();
  EXPECT_EQ(service.server().metric("wideep_ep_active_ranks"), 8);
  load.start(service.port());
  for (const char* name : {"wideep-rank-0", "wideep-rank-3", "wideep-front", "wideep-rank-7"}) {
    std::this_thread::sleep_for(150ms * kSlowdown);
    // On a busy machine a node may just have been lost for a moment.
    std::vector<pid_t> victims;
    const auto find = [&] { return !(victims = service.processes(name)).empty(); };
    ASSERT_TRUE(wait_until(find, 30s * kSlowdown)) << name;
    ::kill(victims.front(), SIGKILL);
    EXPECT_TRUE(compute(service, 8)) << name << service.server().command().err();
  }
  service.kill(1);
  EXPECT_TRUE(compute(service, 5)) << service.server().command().err();
  const Reply health = server::ask(service.port(), "GET", "/health");
  EXPECT_EQ(health.body_json()["status"], "degraded") << health.body;
  service.start(1);
  EXPECT_TRUE(compute(service, 8)) << service.server().command().err();
  service.signal(2, SIGSTOP);
  EXPECT_TRUE(compute(service, 6)) << service.server().command().err();
  service.signal(2, SIGCONT);
  EXPECT_TRUE(compute(service, 8)) << service.server().command().err();
  EXPECT_TRUE(wait_until([&] { return load.num_replies() > 10; }, 60s * kSlowdown));
  load.stop();
  EXPECT_THAT(load.problems(), IsEmpty()) << service.server().command().err();
  EXPECT_THAT(service.server().command().err(), HasSubstr("node 1 is lost"));
  EXPECT_THAT(service.node(2).err(), HasSubstr("its ranks end"));
  service.end();
}

INSTANTIATE_TEST_SUITE_P(Balancer, ServiceOverNodes, ::testing::Values("", kOnline),
                         [](const auto& test) { return test.param.empty() ? "None" : "Online"; });

// Layouts whose ranks compute requests together wait until the node has come back.
TEST(ServiceOverNodesTogether, TensorParallelRanksWaitForTheNode) {
  const Config config("tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n");
  FaultLoad load({.num_requests = 8, .num_clients = 3});
  ServiceNodes service(2, small_model(), config.arguments());
  ASSERT_GT(service.port(), 0) << service.server().command().err();
  load.learn(service.port());
  load.start(service.port());
  std::this_thread::sleep_for(100ms * kSlowdown);
  service.kill(1);
  std::this_thread::sleep_for(300ms * kSlowdown);
  service.start(1);
  EXPECT_TRUE(wait_until([&] { return service.server().metric("wideep_recoveries_total") == 1; },
                         30s * kSlowdown));
  load.stop();
  EXPECT_THAT(load.problems(), IsEmpty()) << service.server().command().err();
  service.end();
}

// Units of states and rows of tokens travel between the nodes; the replies are those of one rank.
TEST(ServiceOverNodesTogether, RanksOfSeveralNodesDivideStates) {
  const base::ScratchDirectory model;
  write_random_model_like(model.path(), "qwen3_next_plain");
  FaultLoad load({.num_requests = 8, .num_clients = 3});
  {
    const Server alone(model.path(), {"--ranks", "1"});
    ASSERT_GT(alone.port(), 0);
    load.learn(alone.port());
  }
  for (const char* layout :
       {"tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n", "context_parallel_size: 2\n",
        "context_parallel_size: 2\ntensor_parallel_size: 2\n"
        "moe_expert_parallel_size: 2\n"}) {
    const Config config(layout);
    ServiceNodes service(2, model.path(), config.arguments());
    ASSERT_GT(service.port(), 0) << service.server().command().err();
    const int64_t before = load.num_replies();
    load.start(service.port());
    EXPECT_TRUE(wait_until([&] { return load.num_replies() >= before + 16; }, 30s * kSlowdown));
    load.stop();
    EXPECT_THAT(load.problems(), IsEmpty()) << layout << service.server().command().err();
    service.end();
  }
}

TEST(ServiceOverNodesScaling, RanksOfOtherNodesComeAndGo) {
  const Config config;
  FaultLoad load({.num_requests = 8, .num_clients = 3});
  ASSERT_NO_FATAL_FAILURE(learn_from_one_rank(&load));
  std::vector<std::string> arguments = config.arguments();
  arguments.insert(arguments.end(), {"--start-ranks", "4"});
  ServiceNodes service(3, small_model(), arguments);
  ASSERT_GT(service.port(), 0) << service.server().command().err();
  EXPECT_EQ(service.server().metric("wideep_ep_active_ranks"), 4);
  load.start(service.port());
  for (const int ranks : {8, 1, 6}) {
    const Reply reply = server::ask(service.port(), "POST", "/scale_elastic_ep",
                                    fmt::format("{{\"new_data_parallel_size\": {}}}", ranks));
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(service.server().metric("wideep_ep_active_ranks"), ranks);
  }
  load.stop();
  EXPECT_THAT(load.problems(), IsEmpty()) << service.server().command().err();
  service.end();
}

// Whoever restarts the service finds the other nodes waiting.
TEST(ServiceOverNodesHead, OtherNodesServeTheNextOne) {
  const Config config;
  auto service = std::make_unique<ServiceNodes>(2, small_model(), config.arguments());
  ASSERT_GT(service->port(), 0) << service->server().command().err();
  const std::string before =
      service->server().complete({{"prompt", "Hello"}}).body_json()["choices"].dump();
  ::kill(-service->server().command().pid(), SIGKILL);
  EXPECT_TRUE(wait_until([&] { return service->node(1).ranks().empty(); }, 10s * kSlowdown))
      << "ranks outlive their service";
  service->restart_server();
  ASSERT_GT(service->port(), 0) << service->server().command().err();
  EXPECT_EQ(service->server().complete({{"prompt", "Hello"}}).body_json()["choices"].dump(),
            before);
  service->end();
}

TEST(ServiceOverNodesInput, ANodeWithOtherSettingsIsRefused) {
  const Config config;
  ServiceNodes service(2, small_model(), config.arguments());
  ASSERT_GT(service.port(), 0) << service.server().command().err();
  service.kill(1);
  service.start(1, {"--max-num-tokens", "64"});
  const CommandEnd end = service.node(1).wait();
  EXPECT_EQ(end.exit_code, 2);
  ASSERT_EQ(end.error_lines().size(), 1u) << end.err;
  EXPECT_THAT(end.err, HasSubstr("nodes 0 and 1 differ in max_num_tokens"));
  EXPECT_THAT(service.server().command().err(),
              HasSubstr("nodes 0 and 1 differ in max_num_tokens"));
  service.start(1);
  EXPECT_TRUE(compute(service, 8));
  service.end();
}

// A node keeps its weights and its host pool while it waits for the next node 0, which may come
// with another training of the same model: experts of both would answer together.
TEST(ServiceOverNodesInput, ANodeThatKeptOtherWeightsIsRefused) {
  const Config config(kWideEp, kOnline);
  const ModelCopy model;
  ServiceNodes service(2, model.path(), config.arguments());
  ASSERT_GT(service.port(), 0) << service.server().command().err();
  ::kill(-service.server().command().pid(), SIGKILL);
  EXPECT_TRUE(wait_until([&] { return service.node(1).ranks().empty(); }, 10s * kSlowdown));
  model.edit_tensors([](std::vector<tensor_files::TensorToWrite>& tensors) {
    tensor_files::TensorToWrite& one =
        tensor_named(tensors, "model.layers.1.mlp.experts.3.up_proj.weight");
    static const std::vector<std::byte> trained(one.bytes.size());
    one.bytes = trained;
  });
  std::thread next([&] { service.restart_server(); });
  const CommandEnd end = service.node(1).wait();
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("nodes 0 and 1 differ in the weights (a sample of each tensor)"));
  service.start(1);  // reads what node 0 has
  next.join();
  EXPECT_TRUE(compute(service, 8)) << service.server().command().err();
  service.end();
}

struct BadOptions {
  std::vector<std::string> arguments;
  std::vector<std::string> parts;
};

TEST(ServiceOverNodesInput, BadOptionsAreNamed) {
  const Config config;
  const std::vector<BadOptions> all = {
      {{"--nnodes", "2", "--node-rank", "2", "--master-addr", "127.0.0.1"},
       {"--node-rank: expected 0 to 1", "found 2"}},
      {{"--nnodes", "2", "--master-addr", "127.0.0.1"}, {"--node-rank", "found none"}},
      {{"--nnodes", "2", "--node-rank", "0"}, {"--master-addr", "found none"}},
      {{"--node-rank", "1"}, {"--node-rank: has no effect without --nnodes"}},
      {{"--nnodes", "9", "--node-rank", "0", "--master-addr", "127.0.0.1"},
       {"--nnodes: 9 nodes for 8 ranks"}},
      {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "no.such.host.invalid"},
       {"--master-addr: 'no.such.host.invalid' is no address"}},
      {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--on-rank-loss",
        "fail"},
       {"--nnodes: needs --on-rank-loss recover"}},
      {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "192.0.2.1"},
       {"--cluster-key-file: expected a file", "--insecure-cluster"}},
      {{"--nnodes", "2", "--node-rank", "1", "--master-addr", "192.0.2.1"},
       {"--cluster-key-file: expected a file", "--insecure-cluster"}},
      {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--cluster-key-file",
        "/no/such/file"},
       {"--cluster-key-file: cannot read /no/such/file"}},
      {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--cluster-key-file",
        "/dev/zero"},
       {"--cluster-key-file: cannot read /dev/zero: it is no regular file"}},
      {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--cluster-key-file",
        "/no/such/file", "--insecure-cluster"},
       {"--insecure-cluster: leave it out"}},
      {{"--insecure-cluster"}, {"--insecure-cluster: has no effect without --nnodes"}},
      {{"--cluster-key-file", "x"}, {"--cluster-key-file: has no effect without --nnodes"}},
  };
  for (const BadOptions& each : all) {
    std::vector<std::string> arguments = {"serve", "--model", small_model(), "--port", "0"};
    for (const auto& more : {config.arguments(), each.arguments}) {
      arguments.insert(arguments.end(), more.begin(), more.end());
    }
    expect_refused(run_command({.arguments = arguments}), each.parts);
  }
}

}  // namespace
}  // namespace wideep::tests
