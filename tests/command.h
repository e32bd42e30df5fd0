// SPDX-License-Identifier: Apache-2.0
//
// For tests: the built `wideep` program as a user runs it, in its own process group, so that what
// it leaves behind can be seen.
//
// The program's path is the environment variable WIDEEP_BINARY, or the build's own program.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/scratch_directory.h"

namespace wideep::tests {

struct CommandOptions {
  std::vector<std::string> arguments;
  // Besides this process's own, without the variables that wideep reads.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string input;   // on stdin
  std::string output;  // file for stdout; empty: kept for out()
};

struct CommandEnd {
  int exit_code = -1;  // 128 + signal, as shells say it, where a signal ended it
  std::string out;
  std::string err;

  std::vector<std::string> error_lines() const;  // lines of stderr that begin with "error: "
};

// One run. Not thread safe.
class Command {
 public:
  // Starts it.
  explicit Command(const CommandOptions& options);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();  // kills what is left of its group

  pid_t pid() const { return pid_; }
  // The living processes of its group besides itself, in the order they were forked.
  std::vector<pid_t> ranks() const;
  std::string out() const;  // so far
  std::string err() const;
  void send(int signal) const;

  // Waits for the end; a run that lasts longer is killed and is a failure of the test.
  CommandEnd wait(std::chrono::seconds limit = std::chrono::seconds(60));

 private:
  void start(const CommandOptions& options);

  base::ScratchDirectory files_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

// Starts, waits, and expects that no process of the group and no shared memory is left.
CommandEnd run_command(const CommandOptions& options);

// Looks until `condition` holds; false when it does not within `limit`.
bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit);

// Sanitizers slow wideep down: limits of time count this many times.
extern const int kSlowdown;

// Named shared memory that appeared after `before` was listed and that no process holds.
std::vector<std::string> list_shared_memory();
std::vector<std::string> abandoned_shared_memory(const std::vector<std::string>& before);

// Expects bad input, found before any rank was forked: exit code 2, one line on stderr, which
// begins with "error: " and has all the parts, nothing on stdout.
void expect_refused(const CommandEnd& end, const std::vector<std::string>& parts);

// The same after wideep has said what it is about to run, or has begun to: other lines may precede
// the one error.
void expect_error(const CommandEnd& end, int exit_code, const std::vector<std::string>& parts);

}  // namespace wideep::tests
