// SPDX-License-Identifier: Apache-2.0
//
// For tests: runs the built `wideep` program as a user does, in its own process group, so that
// processes that it leaves behind can be found.
//
// The program's path is the environment variable WIDEEP_BINARY, or by default the program of this
// build.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitized.h"
#include "base/scratch_directory.h"

namespace wideep::tests {

struct CommandOptions {
  std::vector<std::string> arguments;
  // Added to this process's environment, from which the variables that wideep reads are removed.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string input;         // on stdin
  std::string output;        // file for stdout; empty: kept for out()
  bool keeps_times = false;  // of lines on stderr; else they are as on a terminal
};

struct CommandEnd {
  int exit_code = -1;  // 128 + signal, as in shells, if a signal ended it
  std::string out;
  std::string err;

  std::vector<std::string> error_lines() const;  // lines of stderr that begin with "error: "
};

// One run. Not thread safe.
class Command {
 public:
  // Starts the program.
  explicit Command(const CommandOptions& options);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();  // kills all processes left in its group

  pid_t pid() const { return pid_; }
  // The living processes of its group except the program itself, in the order they were forked.
  std::vector<pid_t> ranks() const;
  std::string out() const;  // so far
  std::string err() const;
  void send(int signal) const;

  // Waits for the end. A run that lasts longer than `limit` is killed, and the test fails.
  CommandEnd wait(std::chrono::seconds limit = std::chrono::seconds(60));

 private:
  void start(const CommandOptions& options);

  base::ScratchDirectory files_;
  pid_t pid_ = -1;
  bool ended_ = false;
  bool keeps_times_;
};

// Runs the command to its end, and expects that no process of the group and no shared memory is
// left.
CommandEnd run_command(const CommandOptions& options);

// Polls until `condition` is true; returns false if it is not within `limit`.
bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit);

// Time limits are multiplied by this, because sanitizers slow wideep down.
inline const int kSlowdown = base::is_command_sanitized() ? 10 : 1;

// Named shared memory that appeared after `before` was listed and that no process holds.
std::vector<std::string> list_shared_memory();
std::vector<std::string> abandoned_shared_memory(const std::vector<std::string>& before);

// Expects an error for bad input before any rank is forked: exit code 2, nothing on stdout, and one
// line on stderr that begins with "error: " and contains all the parts.
void expect_refused(const CommandEnd& end, const std::vector<std::string>& parts);

// Expects an error after the plan was printed or the run began: the same, but other lines may
// precede the one error.
void expect_error(const CommandEnd& end, int exit_code, const std::vector<std::string>& parts);

}  // namespace wideep::tests
