// SPDX-License-Identifier: Apache-2.0
//
// wideep disaggregated and disaggregated_mpi_worker without a model: what they print, refuse and
// wait for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "command.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

// Nobody listens on these ports.
constexpr const char* kServers =
    "port: 0\n"
    "context_servers:\n  tensor_parallel_size: 2\n  urls: ['127.0.0.1:1', '127.0.0.1:2']\n"
    "generation_servers:\n  urls: ['127.0.0.1:3']\n";

class CommandDisaggregatedTest : public testing::Test {
 protected:
  std::string file(const std::string& text) {
    const std::string path = folder_.file("d.yaml");
    EXPECT_TRUE(formats::write_file(path, text).ok());
    return path;
  }

  base::ScratchDirectory folder_;
};

TEST_F(CommandDisaggregatedTest, ChecksAFile) {
  const CommandEnd end = run_command(
      {.arguments = {"disaggregated", "-c", file(std::string(kServers) + "num_workers: 2\n"),
                     "--port", "9000", "--check"}});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("proxy: http://localhost:9000, generation_first"));
  EXPECT_THAT(end.out, HasSubstr("ranks of each: 2 (tp 2, pp 1, cp 1)\n  http://127.0.0.1:1\n"));
  EXPECT_THAT(end.err, HasSubstr("num_workers has no effect"));
}

TEST_F(CommandDisaggregatedTest, RefusesWithALine) {
  const auto refused = [&](const std::string& text, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"disaggregated", "-c", file(text)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command({.arguments = arguments});
  };
  expect_refused(refused(std::string(kServers) + "max_retry: 1\n"),
                 {"d.yaml:7: max_retry: unknown key", "did you mean 'max_retries'?"});
  expect_refused(refused("generation_servers: {num_instances: 1}\n"), {"urls: missing"});
  expect_refused(refused(kServers, {"-m", "x.yaml"}),
                 {"--metadata-server-config-file x.yaml: disagg_cluster in the file"});
  expect_refused(run_command({.arguments = {"disaggregated"}}), {"--config"});
}

TEST_F(CommandDisaggregatedTest, SaysWhoIsMissingAndEndsInTime) {
  const CommandEnd end =
      run_command({.arguments = {"disaggregated", "-c", file(kServers), "-t", "2"}});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("waiting for context_servers: 0 of 2, missing "
                                 "http://127.0.0.1:1, missing http://127.0.0.1:2; "
                                 "generation_servers: 0 of 1, missing http://127.0.0.1:3\n"));
  EXPECT_THAT(end.err, HasSubstr("--server-start-timeout: after 2 s servers are still missing"));
}

TEST_F(CommandDisaggregatedTest, ASignalEndsItWhileItWaits) {
  Command command({.arguments = {"disaggregated", "-c", file(kServers)}});
  EXPECT_TRUE(wait_until([&] { return command.err().find("waiting for") != std::string::npos; },
                         std::chrono::seconds(20)));
  command.send(SIGTERM);
  const CommandEnd end = command.wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, Not(HasSubstr("error")));
}

TEST_F(CommandDisaggregatedTest, AWorkerIsOneOfAllRanks) {
  const std::string path = file(kServers);
  expect_refused(
      run_command({.arguments = {"disaggregated_mpi_worker", "-c", path, "--model", "m"}}),
      {"d.yaml: expected 5 ranks (2 × 2 of context_servers + 1 × 1 of generation_servers), found 1",
       "mpirun -n 5"});
  expect_refused(run_command({.arguments = {"disaggregated_mpi_worker", "--model", "m"}}),
                 {"--config"});
  const std::string alone = file("generation_servers: {urls: ['127.0.0.1:1']}\n");
  expect_refused(run_command({.arguments = {"disaggregated_mpi_worker", "-c", alone}}),
                 {"--model: missing; expected a model's directory here, or as model in"});
  // It becomes a server, which looks for its model.
  expect_refused(
      run_command({.arguments = {"disaggregated_mpi_worker", "-c", alone, "--model", "/absent"}}),
      {"/absent"});
  const CommandEnd help = run_command({.arguments = {"disaggregated_mpi_worker", "--help"}});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--worker-options"));
}

}  // namespace
}  // namespace wideep::tests
