// SPDX-License-Identifier: Apache-2.0
//
// For tests and measurements: stops threads of child processes at an arbitrary point, such as in
// the middle of a copy or while they hold a lock.
#pragma once

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace wideep::base {

// The processes that the calling thread has forked.
inline std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::ifstream file(fmt::format("/proc/self/task/{}/children", ::gettid()));
  for (pid_t child; file >> child;) found.push_back(child);
  return found;
}

// The threads of all children whose names begin with `prefix`.
inline std::vector<pid_t> threads_of_children(const std::string& prefix) {
  std::vector<pid_t> found;
  for (const pid_t child : children()) {
    const std::string tasks = fmt::format("/proc/{}/task", child);
    for (const auto& entry : std::filesystem::directory_iterator(tasks)) {
      std::string name;
      std::ifstream comm(entry.path() / "comm");
      std::getline(comm, name);
      if (name.starts_with(prefix)) found.push_back(std::stoi(entry.path().filename()));
    }
  }
  return found;
}

// Stops threads with ptrace until resume(). Not thread safe: the thread that stops them resumes
// them.
class StoppedThreads {
 public:
  // False where the system forbids ptrace.
  bool stop(const std::vector<pid_t>& threads) {
    for (const pid_t thread : threads) {
      if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return false;
      ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
      ::waitpid(thread, nullptr, __WALL);
      stopped_.push_back(thread);
    }
    return true;
  }
  void resume() {
    for (const pid_t thread : stopped_) ::ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
    stopped_.clear();
  }

 private:
  std::vector<pid_t> stopped_;
};

}  // namespace wideep::base
