// SPDX-License-Identifier: Apache-2.0
// Expert statistics and routing logs of the commands that run a model: what is recorded, and what
// happens when that fails. Most cases use wideep generate; each of the others is held to record the
// same by the same options and variables, or to refuse them in one line.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "formats/files.h"
#include "recordings/routing_log.h"
#include "tensor_files/safetensors.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using namespace std::chrono_literals;

std::vector<int64_t> counts(const tensor_files::SafetensorsFile& file, const std::string& name) {
  const tensor_files::TensorEntry* entry = file.find(name);
  if (entry == nullptr) return {};
  std::vector<int64_t> values(entry->bytes.size() / sizeof(int64_t));
  std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
  return values;
}

class CommandStatistics : public ::testing::Test {
 protected:
  CommandOptions recording(const std::string& range, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        "--ranks", "4", "--expert-statistic-path", path_, "--expert-statistic-iter-range", range};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return generate(small_model(), arguments);
  }

  // The output of `wideep balance report` for the recorded files.
  json report() {
    const CommandEnd end =
        run_command({.arguments = {"balance", "report", "--stats", path_, "--json"}});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(end.out, nullptr, false);
  }

  // The sum over experts of a rank's counts in an iteration and layer; −1: not recorded.
  int64_t recorded(int rank, int iteration, int layer) {
    const auto file =
        tensor_files::SafetensorsFile::open(fmt::format("{}/rank{}.safetensors", path_, rank));
    EXPECT_TRUE(file.ok()) << file.status().message();
    if (!file.ok()) return -1;
    const auto values = counts(*file, fmt::format("{}_{}", iteration, layer));
    return values.empty() ? -1 : std::accumulate(values.begin(), values.end(), int64_t{0});
  }

  // Skips the test where mounting is not allowed.
  bool mount_small_disk(unsigned long flags) {
    std::filesystem::create_directory(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", flags, "size=4096") == 0;
    if (!mounted_) [&] { GTEST_SKIP() << "needs the right to mount"; }();
    return mounted_;
  }
  ~CommandStatistics() override {
    if (mounted_) ::umount(path_.c_str());
  }

  // Expects that recording fails with exit code 1 and one line that names a file in the directory
  // and contains `why`.
  void expect_write_error(const std::string& why) {
    const CommandEnd end = run_command(recording("0-100", {"--max-tokens", "100"}));
    EXPECT_EQ(end.exit_code, 1) << end.err;
    ASSERT_EQ(end.error_lines().size(), 1u) << end.err;
    EXPECT_THAT(end.error_lines()[0], HasSubstr(path_ + "/rank"));
    EXPECT_THAT(end.error_lines()[0], HasSubstr(why));
  }

  std::unique_ptr<Command> start_long_run(const ModelCopy& model);
  void expect_written_after(int signal);

  base::ScratchDirectory directory_;
  std::string path_ = directory_.file("statistics");
  bool mounted_ = false;
};

TEST_F(CommandStatistics, RecordedFilesAreReadByBalanceReport) {
  const CommandEnd end = run_command(recording("1-3"));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const json read = report();
  EXPECT_EQ(read["ep_size"], 4);
  EXPECT_EQ(read["num_experts"], 16);
  EXPECT_EQ(read["iter_start"], 1);
  EXPECT_EQ(read["iter_stop"], 3);
  EXPECT_EQ(read["layers"].size(), 2u);
}

// "The cat" has 7 tokens; each goes to 4 experts. The other three ranks have nothing to send.
TEST_F(CommandStatistics, IdleRanksWriteZeros) {
  ASSERT_EQ(run_command(recording("0-4")).exit_code, 0);
  for (const int layer : {1, 2}) {
    EXPECT_EQ(recorded(0, 0, layer), 7 * 4);
    EXPECT_EQ(recorded(0, 3, layer), 4);
    for (const int rank : {1, 2, 3}) {
      for (int iteration = 0; iteration < 4; ++iteration) {
        EXPECT_EQ(recorded(rank, iteration, layer), 0) << rank << " " << iteration;
      }
    }
  }
}

TEST_F(CommandStatistics, ReadsEnvironmentVariables) {
  CommandOptions options = generate(small_model(), {"--ranks", "2"});
  options.environment = {{"EXPERT_STATISTIC_PATH", path_}, {"EXPERT_STATISTIC_ITER_RANGE", "0-2"}};
  EXPECT_EQ(run_command(options).exit_code, 0);
  EXPECT_EQ(report()["iter_stop"], 2);
}

TEST_F(CommandStatistics, RangeBeyondTheRunRecordsWhatRan) {
  const CommandEnd end = run_command(recording("2-1000"));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("2-1000"));
  const json read = report();
  EXPECT_EQ(read["iter_start"], 2);
  EXPECT_EQ(read["iter_stop"], 4);
}

TEST_F(CommandStatistics, WarnsOfARangeThatTheRunNeverReaches) {
  const CommandEnd end = run_command(recording("500-1000"));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("500-1000"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

// A limit of file sizes does not end the command by a signal.
TEST_F(CommandStatistics, FilesLargerThanTheLimit) {
  const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
  CommandOptions options = recording("0-10000", {"--max-tokens", "6000"});
  const ModelCopy model;
  model.edit_config([](json& config) { config["max_position_embeddings"] = 1 << 20; });
  options.arguments[2] = model.path();
  options.arguments.insert(options.arguments.end(), {"--max-batch-size", "1"});
  Command command(options);
  ASSERT_TRUE(wait_until([&] { return command.ranks().size() == 4; }, 10s * kSlowdown));
  ASSERT_EQ(::prlimit(command.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  const CommandEnd end = command.wait();
  EXPECT_EQ(end.exit_code, 1) << end.err;
  EXPECT_THAT(end.err, HasSubstr("File too large; raise the limit of file sizes (ulimit -f)"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(CommandStatistics, MalformedRange) {
  for (const char* range : {"5", "5-3", "3-3", "a-b", "1-", "-4", "1-2-3", "1 - 2"}) {
    SCOPED_TRACE(range);
    CommandOptions options = generate(small_model());
    options.environment = {{"EXPERT_STATISTIC_ITER_RANGE", range}};
    expect_refused(run_command(options),
                   {"EXPERT_STATISTIC_ITER_RANGE", "expected a range A-B", range});
  }
  expect_refused(run_command(recording("7")), {"--expert-statistic-iter-range", "\"7\""});
}

TEST_F(CommandStatistics, PathWithoutRange) {
  CommandOptions options = generate(small_model());
  options.environment = {{"EXPERT_STATISTIC_PATH", path_}};
  expect_refused(run_command(options), {path_, "EXPERT_STATISTIC_ITER_RANGE"});
}

TEST_F(CommandStatistics, EarlierStatisticsAreKept) {
  ASSERT_EQ(run_command(recording("0-2")).exit_code, 0);
  expect_refused(run_command(recording("0-2")), {path_, "expected no expert statistics yet"});
}

TEST_F(CommandStatistics, DirectoryThatCannotBeMade) {
  path_ = small_model() + "/config.json/statistics";
  expect_refused(run_command(recording("0-2")), {path_, "Not a directory"});
}

TEST_F(CommandStatistics, DirectoryThatIsNotWritable) {
  if (::geteuid() != 0) {
    std::filesystem::create_directory(path_);
    ::chmod(path_.c_str(), 0500);
    expect_refused(run_command(recording("0-2")), {path_, "Permission denied"});
  } else if (mount_small_disk(MS_RDONLY)) {  // root may write everywhere else
    expect_refused(run_command(recording("0-2")), {path_, "Read-only file system"});
  }
}

// One page: it holds the root directory and nothing else.
TEST_F(CommandStatistics, FullDisk) {
  if (!mount_small_disk(0)) return;
  expect_write_error("No space left on device");
  EXPECT_TRUE(std::filesystem::is_empty(path_));
}

// The signal comes long before the end of the run, inside the range "3-1000000".
std::unique_ptr<Command> CommandStatistics::start_long_run(const ModelCopy& model) {
  model.edit_config([](json& config) { config["max_position_embeddings"] = 1 << 20; });
  CommandOptions options = recording("3-1000000", {"--max-tokens", "100000"});
  options.arguments[2] = model.path();
  auto command = std::make_unique<Command>(options);
  EXPECT_TRUE(wait_until([&] { return command->out().size() > 60; }, 10s * kSlowdown))
      << command->err();
  return command;
}

void CommandStatistics::expect_written_after(int signal) {
  const ModelCopy model;
  const auto command = start_long_run(model);
  command->send(signal);
  const CommandEnd end = command->wait();
  EXPECT_EQ(end.exit_code, 130) << end.err;
  EXPECT_THAT(command->ranks(), IsEmpty());
  const json read = report();
  EXPECT_EQ(read["iter_start"], 3);
  EXPECT_GT(read["iter_stop"], 10);
  EXPECT_LT(read["iter_stop"], 100'000);
  EXPECT_THAT(end.err, HasSubstr(fmt::format("3-{} are recorded in {}",
                                             read["iter_stop"].get<int>(), path_)));
}

TEST_F(CommandStatistics, AreWrittenWhenInterrupted) { expect_written_after(SIGINT); }
TEST_F(CommandStatistics, AreWrittenWhenTerminated) { expect_written_after(SIGTERM); }

// What all ranks had finished before is recorded of all of them.
TEST_F(CommandStatistics, ARankThatDiesLosesNothing) {
  const ModelCopy model;
  const auto command = start_long_run(model);
  ASSERT_THAT(command->ranks(), SizeIs(4));
  ::kill(command->ranks()[3], SIGKILL);
  const CommandEnd end = command->wait();
  EXPECT_EQ(end.exit_code, 1);
  const json read = report();
  EXPECT_EQ(read["ep_size"], 4);
  EXPECT_EQ(read["iter_start"], 3);
  EXPECT_THAT(end.err, HasSubstr(fmt::format("3-{} are recorded in {}",
                                             read["iter_stop"].get<int>(), path_)));
}

// ---- every command that runs a model ----

// Commands with 2 ranks that run more than 8 iterations, each with its options for that.
class EveryCommand : public CommandStatistics {
 protected:
  EveryCommand() {
    std::string lines;
    for (int i = 0; i < 3; ++i) {
      lines += json{{"task_id", i}, {"output_tokens", 8}, {"prompt", "Tell me"}}.dump() + "\n";
    }
    EXPECT_TRUE(formats::write_file(dataset_, lines).ok());
  }
  std::vector<CommandOptions> commands() const {
    std::vector<CommandOptions> all = {
        generate(small_model(), {"--ranks", "2", "--max-tokens", "12"})};
    for (const char* kind : {"throughput", "latency"}) {
      all.push_back({.arguments = {"bench", kind, "--model", small_model(), "--dataset", dataset_,
                                   "--ranks", "2"}});
    }
    all.push_back(
        {.arguments = {"bench", "model", "--model", small_model(), "--ranks", "2", "--prompt", "24",
                       "--generate", "4", "--batch", "2", "--repeat", "1", "--depth", "4"}});
    return all;
  }
  static void add(CommandOptions& command, const std::vector<std::string>& more) {
    command.arguments.insert(command.arguments.end(), more.begin(), more.end());
  }
  // Of `path_`, which is removed.
  void expect_recorded(int first, int last) {
    const json read = report();
    EXPECT_EQ(read["ep_size"], 2);
    EXPECT_EQ(read["counts"], "expert");
    EXPECT_EQ(read["iter_start"], first);
    EXPECT_EQ(read["iter_stop"], last);
    std::filesystem::remove_all(path_);
  }
  void expect_logged(int first, int last, size_t num_requests) {
    const auto log = recordings::read_routing_log(log_);
    ASSERT_TRUE(log.ok()) << log.status().message();
    EXPECT_EQ(log->ep_size, 2);
    ASSERT_EQ(log->iterations.size(), static_cast<size_t>(last - first));
    EXPECT_EQ(log->iterations.front().iteration, first);
    EXPECT_EQ(log->requests.size(), num_requests);
    EXPECT_GT(log->wall_ms, 0.0);
    std::filesystem::remove(log_);
  }

  std::string dataset_ = directory_.file("data.jsonl");
  std::string log_ = directory_.file("routing.json");
};

TEST_F(EveryCommand, RecordsByOptionsAndByVariables) {
  for (const CommandOptions& each : commands()) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(each.arguments, " ")));
    CommandOptions by_variables = each;
    by_variables.environment = {{"EXPERT_STATISTIC_PATH", path_},
                                {"EXPERT_STATISTIC_ITER_RANGE", "2-6"}};
    const CommandEnd end = run_command(by_variables);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(end.err, Not(HasSubstr("expert statistics")));
    expect_recorded(2, 6);
    CommandOptions by_options = each;
    add(by_options, {"--expert-statistic-path", path_, "--expert-statistic-iter-range", "1-3",
                     "--routing-log", log_, "--routing-log-iter-range", "3-5"});
    EXPECT_EQ(run_command(by_options).exit_code, 0);
    expect_recorded(1, 3);
    expect_logged(3, 5, each.arguments[0] == "generate" ? 1 : 0);
  }
}

TEST_F(EveryCommand, SaysWhatIsMissingAndRefusesWhatHasNoEffect) {
  for (const CommandOptions& each : commands()) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(each.arguments, " ")));
    CommandOptions beyond = each;
    add(beyond, {"--expert-statistic-path", path_, "--expert-statistic-iter-range", "2-1000000",
                 "--routing-log", log_, "--routing-log-iter-range", "900000-1000000"});
    const CommandEnd end = run_command(beyond);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(end.err, HasSubstr("expert statistics of iterations 2-1000000: the run had only"));
    EXPECT_THAT(end.err, HasSubstr("routing log of iterations 900000-1000000: the run had only"));
    EXPECT_FALSE(std::filesystem::exists(log_));
    EXPECT_EQ(report()["iter_start"], 2);
    std::filesystem::remove_all(path_);

    CommandOptions path_alone = each;
    path_alone.environment = {{"EXPERT_STATISTIC_PATH", path_}};
    expect_refused(run_command(path_alone), {path_, "EXPERT_STATISTIC_ITER_RANGE"});
    CommandOptions no_range = each;
    no_range.environment = {{"EXPERT_STATISTIC_ITER_RANGE", "3"}};
    expect_refused(run_command(no_range), {"EXPERT_STATISTIC_ITER_RANGE: expected a range A-B"});
    CommandOptions range_alone = each;
    add(range_alone, {"--routing-log-iter-range", "2-4"});
    expect_refused(run_command(range_alone),
                   {"--routing-log-iter-range: has no effect without --routing-log"});
    CommandOptions bad_range = each;
    add(bad_range, {"--routing-log", log_, "--routing-log-iter-range", "4-2"});
    expect_refused(run_command(bad_range), {"--routing-log-iter-range: expected a range A-B"});
  }
}

// Their runs are several: which would be recorded?
TEST_F(EveryCommand, ThatRunsSeveralTimesRefuses) {
  std::vector<CommandOptions> several = {
      {.arguments = {"bench", "compare-routing", "--model", small_model(), "--dataset", dataset_,
                     "--ranks", "2"}},
      {.arguments = {"bench", "speculation", "--model", small_model(), "--prompts", dataset_}}};
  for (CommandOptions& each : several) {
    SCOPED_TRACE(each.arguments[1]);
    each.environment = {{"EXPERT_STATISTIC_ITER_RANGE", "0-2"}};
    expect_refused(run_command(each), {"EXPERT_STATISTIC_ITER_RANGE", "records nothing, because"});
    each.environment.clear();
    add(each, {"--routing-log", log_});
    expect_refused(run_command(each), {"--routing-log", "records nothing, because"});
  }
}

TEST_F(EveryCommand, APerfectRouterHasNoStatistics) {
  for (CommandOptions each : commands()) {
    if (each.arguments[1] == "model") continue;  // which has no such router
    SCOPED_TRACE(each.arguments[1]);
    each.environment = {{"EXPERT_STATISTIC_ITER_RANGE", "0-2"}, {"ENABLE_PERFECT_ROUTER", "1"}};
    expect_refused(run_command(each), {"--perfect-router", "expert statistics"});
  }
}

// ---- serve ----

// Recorded from the start, while clients record besides; a rank dies inside the range.
TEST_F(EveryCommand, AServerRecordsFromItsStart) {
  Server server(
      {.arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name", "m",
                     "--ranks", "2", "--routing-log", log_, "--routing-log-iter-range", "3-20"},
       .environment = {{"EXPERT_STATISTIC_PATH", path_}, {"EXPERT_STATISTIC_ITER_RANGE", "2-60"}}});
  ASSERT_GT(server.port(), 0);
  EXPECT_EQ(server.complete({{"prompt", "Tell me"}}).status, 200);
  // Of clients: only what came after its start.
  const auto post = [&](const std::string& path) {
    return server::ask(server.port(), "POST", path).body_json();
  };
  EXPECT_EQ(post("/start_expert_distribution_record")["status"], "recording");
  EXPECT_EQ(server.complete({{"prompt", "Tell me"}, {"max_tokens", 5}}).status, 200);
  const json stopped = post("/stop_expert_distribution_record");
  EXPECT_LE(stopped["iterations"], 6);
  EXPECT_GE(stopped["iterations"], 5);
  EXPECT_EQ(post("/dump_expert_distribution_record")["directory"], path_ + "/dump-1");
  expect_logged(3, 20, 0);
  EXPECT_FALSE(std::filesystem::exists(path_ + "/meta_info.json"));
  const pid_t rank = process_named(server, "wideep-rank-1");
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGKILL);
  for (int i = 0; i < 20 && !std::filesystem::exists(path_ + "/meta_info.json"); ++i) {
    server.complete({{"prompt", "Tell me"}});
  }
  const json read = report();
  EXPECT_EQ(read["ep_size"], 2);
  EXPECT_EQ(read["iter_start"], 2);
  EXPECT_LE(read["iter_stop"], 60);
  EXPECT_GE(read["iter_stop"], 55);
}

TEST_F(EveryCommand, AServerRefusesALogWithoutAnEnd) {
  const std::vector<std::string> serve = {"serve", "--model", small_model(), "--port", "0"};
  CommandOptions log{.arguments = serve};
  add(log, {"--routing-log", log_});
  expect_refused(run_command(log), {"--routing-log", "add --routing-log-iter-range"});
  CommandOptions range{.arguments = serve};
  add(range, {"--routing-log-iter-range", "2-3"});
  expect_refused(run_command(range), {"has no effect without --routing-log"});
  CommandOptions bad{.arguments = serve, .environment = {{"EXPERT_STATISTIC_ITER_RANGE", "x"}}};
  expect_refused(run_command(bad), {"EXPERT_STATISTIC_ITER_RANGE: expected a range A-B"});
  CommandOptions perfect{
      .arguments = serve,
      .environment = {{"EXPERT_STATISTIC_ITER_RANGE", "0-2"}, {"ENABLE_PERFECT_ROUTER", "1"}}};
  expect_refused(run_command(perfect), {"--perfect-router", "expert statistics"});
}

}  // namespace
}  // namespace wideep::tests
