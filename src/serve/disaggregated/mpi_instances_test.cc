// SPDX-License-Identifier: Apache-2.0
#include "disaggregated/mpi_instances.h"

#include <gtest/gtest.h>

namespace wideep::disaggregated {
namespace {

DisaggConfig config_of(const std::string& text) {
  return parse_disagg_config(text, "d.yaml").value();
}

std::string said(const DisaggConfig& config, int num_ranks) {
  return std::string(instance_of_rank(config, 0, num_ranks).status().message());
}

TEST(MpiInstances, RanksAreDealtOutInTheOrderOfTheFile) {
  const DisaggConfig config = config_of(
      "context_servers: {urls: ['a:1', 'a:2'], tensor_parallel_size: 2}\n"
      "generation_servers: {urls: ['a:3'], pipeline_parallel_size: 3}\n");
  std::string ports, parts;
  for (int rank = 0; rank < 7; ++rank) {
    const auto instance = instance_of_rank(config, rank, 7);
    ASSERT_TRUE(instance.ok()) << instance.status().message();
    ports += std::to_string(instance->server.address.port);
    parts += instance->part.front();
    EXPECT_EQ(instance->index + 1, instance->server.address.port);
  }
  EXPECT_EQ(ports, "1122333");
  EXPECT_EQ(parts, "ccccggg");
  EXPECT_EQ(said(config, 4),
            "d.yaml: expected 7 ranks (2 × 2 of context_servers + 1 × 3 of generation_servers), "
            "found 4; start as many (mpirun -n 7)");
}

TEST(MpiInstances, AServerOfBothSectionsIsThereOnce) {
  const DisaggConfig config = config_of(
      "tensor_parallel_size: 2\n"
      "context_servers: {urls: ['a:1']}\ngeneration_servers: {urls: ['a:1']}\n");
  ASSERT_EQ(mpi_instances(config).size(), 1u);
  EXPECT_EQ(instance_of_rank(config, 1, 2)->server.role, engine::Role::kBoth);
  EXPECT_EQ(said(config, 1),
            "d.yaml: expected 2 ranks (1 × 2 of context_servers), found 1; start as many (mpirun "
            "-n 2)");
}

TEST(MpiInstances, AClusterHasNone) {
  EXPECT_EQ(said(config_of("disagg_cluster: {cluster_uri: 'etcd://h:1'}\n"), 1),
            "d.yaml: expected urls of context_servers and generation_servers, found "
            "disagg_cluster: start its servers one by one, with --config d.yaml:context_servers");
}

}  // namespace
}  // namespace wideep::disaggregated
