// SPDX-License-Identifier: Apache-2.0
//
// Output goes to files, not pipes: a program that writes much is never held up, and a test may look
// at what there is so far. Variables that wideep reads are removed from its environment, so that a
// developer's own settings change no test. The program leads a process group, by which ranks that
// it leaves behind are found, and ended. Shared memory counts as abandoned only if no process holds
// it, as other tests run at the same time.
#include "command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

namespace wideep::tests {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::array kVariables = {"WIDEEP_ISA=",
                                   "WIDEEP_PROFILE_START_STOP=",
                                   "ENABLE_PERFECT_ROUTER=",
                                   "ENABLE_CONFIGURABLE_MOE=",
                                   "TLLM_",
                                   "TRTLLM_",
                                   "NCCL_GRAPH_REGISTER=",
                                   "OPENAI_API_KEY=",
                                   "EXPERT_STATISTIC_PATH=",
                                   "EXPERT_STATISTIC_ITER_RANGE=",
                                   "OTEL_",
                                   "JOURNAL_STREAM="};

std::string program() {
  if (const char* path = std::getenv("WIDEEP_BINARY")) return path;
#ifdef WIDEEP_BINARY
  return WIDEEP_BINARY;
#else
  return "wideep";
#endif
}

std::string read_all(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Without what a service adds to lines where stderr is a file: times, and the level of most of
// them.
std::string without_times(const std::string& text) {
  constexpr std::string_view kTime = "0000-00-00T00:00:00.000Z ";
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end;
    const bool has_time = line.size() > kTime.size() &&
                          std::ranges::equal(kTime, line.substr(0, kTime.size()), {}, {},
                                             [](char c) { return ::isdigit(c) ? '0' : c; });
    if (has_time) line.remove_prefix(kTime.size());
    const size_t rank_end = line.starts_with("rank ") ? line.find(": ") + 2 : 0;
    if (has_time && rank_end != 1) {
      result += line.substr(0, rank_end);
      line.remove_prefix(rank_end);
      if (line.starts_with("info: ")) line.remove_prefix(6);
    }
    result += line;
  }
  return result;
}

// Pointers to the strings and a final null, as exec needs them.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_of(const CommandOptions& options) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool read_by_wideep = std::any_of(kVariables.begin(), kVariables.end(),
                                            [&](const char* v) { return text.starts_with(v); });
    if (!read_by_wideep) environment.emplace_back(text);
  }
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  return environment;
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), ::isdigit);
}

// The process group of a process; −1 if it has ended or is a zombie.
pid_t group_of(const std::string& pid) {
  const std::string stat = read_all("/proc/" + pid + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return -1;
  std::istringstream fields(stat.substr(name_end + 1));
  char state = 'Z';
  pid_t parent = -1, group = -1;
  fields >> state >> parent >> group;
  return state == 'Z' || state == 'X' ? -1 : group;
}

std::vector<std::string> process_ids() {
  std::vector<std::string> ids;
  std::error_code ignored;  // processes come and go
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    if (is_number(entry.path().filename())) ids.push_back(entry.path().filename());
  }
  return ids;
}

bool is_held(const std::string& path) {
  for (const std::string& pid : process_ids()) {
    if (read_all("/proc/" + pid + "/maps").find(path) != std::string::npos) return true;
    std::error_code ignored;
    for (const auto& fd : fs::directory_iterator("/proc/" + pid + "/fd", ignored)) {
      std::error_code gone;
      if (fs::read_symlink(fd.path(), gone) == path) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> CommandEnd::error_lines() const {
  std::vector<std::string> errors;
  for (const std::string& line : lines_of(err)) {
    if (line.starts_with("error: ")) errors.push_back(line);
  }
  return errors;
}

Command::Command(const CommandOptions& options) : keeps_times_(options.keeps_times) {
  std::ofstream(files_.file("in"), std::ios::binary) << options.input;
  start(options);
}

void Command::start(const CommandOptions& options) {
  const std::string in = files_.file("in"), err = files_.file("err");
  const std::string out = options.output.empty() ? files_.file("out") : options.output;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  sigset_t signals;  // reset to their defaults, even if this process ignores them
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&signals, signal);
  posix_spawnattr_setsigdefault(&attributes, &signals);

  std::vector<std::string> arguments = {program()};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = environment_of(options);
  const int error = ::posix_spawnp(&pid_, arguments[0].c_str(), &actions, &attributes,
                                   pointers(arguments).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ended_ = error != 0;
  if (error != 0) {
    pid_ = -1;
    ADD_FAILURE() << arguments[0] << ": cannot be run (error " << error << "); set WIDEEP_BINARY";
  }
}

Command::~Command() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  if (!ended_) ::waitpid(pid_, nullptr, 0);
}

std::vector<pid_t> Command::ranks() const {
  std::vector<pid_t> ranks;
  if (pid_ < 0) return ranks;
  for (const std::string& pid : process_ids()) {
    if (group_of(pid) == pid_ && std::stoi(pid) != pid_) ranks.push_back(std::stoi(pid));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string Command::out() const { return read_all(files_.file("out")); }
std::string Command::err() const {
  const std::string text = read_all(files_.file("err"));
  return keeps_times_ ? text : without_times(text);
}

void Command::send(int signal) const {
  if (pid_ >= 0 && !ended_) ::kill(pid_, signal);
}

CommandEnd Command::wait(std::chrono::seconds limit) {
  int how = 0;
  if (!ended_ &&
      !wait_until([&] { return ::waitpid(pid_, &how, WNOHANG) == pid_; }, limit * kSlowdown)) {
    ADD_FAILURE() << "still running after " << limit.count() << " s; stderr so far:\n" << err();
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, &how, 0);
  }
  ended_ = true;
  return {.exit_code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how),
          .out = out(),
          .err = err()};
}

CommandEnd run_command(const CommandOptions& options) {
  const auto shared_memory = list_shared_memory();
  Command command(options);
  CommandEnd end = command.wait();
  EXPECT_THAT(command.ranks(), IsEmpty()) << "processes that outlived wideep";
  EXPECT_THAT(abandoned_shared_memory(shared_memory), IsEmpty());
  return end;
}

bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::vector<std::string> list_shared_memory() {
  std::vector<std::string> names;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator("/dev/shm", absent)) {
    names.push_back(entry.path());
  }
  return names;
}

std::vector<std::string> abandoned_shared_memory(const std::vector<std::string>& before) {
  std::vector<std::string> abandoned;
  for (const std::string& path : list_shared_memory()) {
    const bool known = std::find(before.begin(), before.end(), path) != before.end();
    if (!known && !is_held(path) && fs::exists(path)) abandoned.push_back(path);
  }
  return abandoned;
}

void expect_refused(const CommandEnd& end, const std::vector<std::string>& parts) {
  EXPECT_EQ(lines_of(end.err).size(), 1u) << end.err;
  expect_error(end, 2, parts);
}

void expect_error(const CommandEnd& end, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(end.exit_code, exit_code) << end.err;
  EXPECT_EQ(end.out, "");
  const auto errors = end.error_lines();
  ASSERT_EQ(errors.size(), 1u) << end.err;
  EXPECT_EQ(lines_of(end.err).back(), errors[0]) << end.err;
  for (const std::string& part : parts) EXPECT_THAT(errors[0], HasSubstr(part));
}

}  // namespace wideep::tests
