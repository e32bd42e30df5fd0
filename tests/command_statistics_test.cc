// SPDX-License-Identifier: Apache-2.0
// Expert statistics of wideep generate: what is recorded, and what happens when that fails.
#include <fmt/format.h>
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
#include "tensor_files/safetensors.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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

// A limit of file sizes does not end the ranks by a signal.
TEST_F(CommandStatistics, FilesLargerThanTheLimit) {
  const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
  CommandOptions options = recording("0-10000", {"--max-tokens", "6000"});
  const ModelCopy model;
  model.edit_config([](json& config) { config["max_position_embeddings"] = 1 << 20; });
  options.arguments[2] = model.path();
  options.arguments.insert(options.arguments.end(), {"--max-batch-size", "1"});
  Command command(options);
  ASSERT_TRUE(wait_until([&] { return command.ranks().size() == 4; }, 10s * kSlowdown));
  for (const pid_t rank : command.ranks()) {
    ASSERT_EQ(::prlimit(rank, RLIMIT_FSIZE, &limit, nullptr), 0);
  }
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

// Without the warning, the files of the other ranks would look like those of a run with fewer
// ranks.
TEST_F(CommandStatistics, WarnsOfARankThatDied) {
  const ModelCopy model;
  const auto command = start_long_run(model);
  ASSERT_THAT(command->ranks(), SizeIs(4));
  ::kill(command->ranks()[3], SIGKILL);
  const CommandEnd end = command->wait();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("if each of the 4 ranks wrote one"));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/rank0.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/rank3.safetensors"));
}

}  // namespace
}  // namespace wideep::tests
