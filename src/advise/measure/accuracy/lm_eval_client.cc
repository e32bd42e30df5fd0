// SPDX-License-Identifier: Apache-2.0
//
// The client runs in the folder of the tasks, so that these can name their data without a path, and
// writes to a file: hundreds of lines, of which the last are shown if it fails.
#include "measure/accuracy/lm_eval_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/printable.h"
#include "base/scratch_directory.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json_text.h"

namespace wideep::measure {
namespace {

constexpr size_t kShownBytes = 600;

std::string python_of(const LmEvalOptions& options) { return options.environment + "/bin/python"; }

// Starts the line with its output in the file, and waits for its end. Returns its wait status.
Result<int> run_program(std::vector<std::string> line, const std::string& directory,
                        const std::string& output) {
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT,
                                     0600);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  if (!directory.empty()) {
    const int refused = ::posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
    if (refused != 0) {  // a portable build where glibc is older than 2.29
      ::posix_spawn_file_actions_destroy(&actions);
      return failed(fmt::format("{}: cannot be started in {}: {}", line[0], directory,
                                std::strerror(refused)));
    }
  }
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, line[0].c_str(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return failed(fmt::format("{}: cannot be started: {}", line[0], std::strerror(error)));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return failed(fmt::format("waitpid: {}", std::strerror(errno)));
  }
  return status;
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                             : fmt::format("exit code {}", WEXITSTATUS(status));
}

std::string last_of(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n");
  if (end == text.npos) return "nothing";
  const size_t begin = end + 1 > kShownBytes ? end + 1 - kShownBytes : 0;
  return base::printable(text.substr(begin, end + 1 - begin), kShownBytes);
}

}  // namespace

Status check_lm_eval(const LmEvalOptions& options) {
  const std::string program = options.environment + "/bin/lm_eval";
  if (::access(program.c_str(), X_OK) != 0) {
    return invalid_input(
        fmt::format("--lm-eval: expected lm_eval in {}, found no {}; install it with "
                    "scripts/install_lm_eval.sh {}",
                    options.environment, program, options.environment));
  }
  if (options.include_path.empty() || std::filesystem::is_directory(options.include_path)) {
    return {};
  }
  return invalid_input(
      fmt::format("--include-path: expected a folder with tasks, found {}", options.include_path));
}

Result<Evaluation> run_lm_eval(const LmEvalOptions& options, const client::HttpAddress& server,
                               const std::string& model) {
  const base::ScratchDirectory files;
  const std::string output = files.file("output"), result = files.file("result.json");
  nlohmann::json asked = {{"url", "http://" + server.authority() + server.path},
                          {"model", model},
                          {"tasks", options.tasks},
                          {"batch_size", options.batch_size},
                          {"limit", nullptr},
                          {"include_path", nullptr}};
  std::string directory;
  if (!options.include_path.empty()) {
    directory = std::filesystem::absolute(options.include_path).string();
    asked["include_path"] = directory;
  }
  if (options.limit) asked["limit"] = *options.limit;
  WIDEEP_TRY(formats::write_file(files.file("options.json"), formats::json_text(asked)));
  const std::string python = std::filesystem::absolute(python_of(options)).string();
  WIDEEP_TRY_ASSIGN(const int status, run_program({python, "-c", std::string(options.client),
                                                   files.file("options.json"), result},
                                                  directory, output));
  if (status != 0) {
    WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(output));
    return failed(fmt::format("lm_eval has ended with {}; the end of what it wrote: {}",
                              how_it_ended(status), last_of(text)));
  }
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(result));
  return parse_evaluation(text);
}

}  // namespace wideep::measure
