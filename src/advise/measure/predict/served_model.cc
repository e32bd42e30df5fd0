// SPDX-License-Identifier: Apache-2.0
//
// The server chooses its port, and the line with its address says that it serves: so two of them
// never want the same one, and nobody polls a port. What it writes goes to files and not to pipes,
// which would fill up; if it ends, that text is the error. The tokenizer gets a text for every id
// of the model, since a client counts events with text.
#include "measure/predict/served_model.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/try.h"
#include "formats/files.h"

namespace wideep::measure {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kBeforeAddress = "http://127.0.0.1:";
constexpr auto kPatience = 120s;

}  // namespace

Status ServedModel::spawn(const std::string& program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {program, "serve"});
  arguments.insert(arguments.end(), {"--served-model-name", kName, "--port", "0"});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    const std::string file = files_.file(std::to_string(fd));
    ::posix_spawn_file_actions_addopen(&actions, fd, file.c_str(), O_WRONLY | O_CREAT, 0600);
  }
  const int error =
      ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return {};
  pid_ = -1;
  return failed(fmt::format("{}: cannot be started: {}", program, std::strerror(error)));
}

Status ServedModel::await_address() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(20ms);
    WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(files_.file("2")));
    const size_t at = text.find(kBeforeAddress);
    const size_t line_end = at == text.npos ? at : text.find('\n', at);
    if (line_end != text.npos) {
      const size_t port = at + kBeforeAddress.size();
      address_ = {.host = "127.0.0.1",
                  .port = text.substr(port, text.find_first_not_of("0123456789", port) - port)};
      return {};
    }
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return failed("wideep serve has ended: " + text);
    }
  }
  return failed(fmt::format("wideep serve: does not serve within {} s", kPatience.count()));
}

Result<std::unique_ptr<ServedModel>> ServedModel::start(const std::string& program,
                                                        std::vector<std::string> arguments) {
  std::unique_ptr<ServedModel> served(new ServedModel);
  WIDEEP_TRY(served->spawn(program, std::move(arguments)));
  WIDEEP_TRY(served->await_address());
  return served;
}

ServedModel::~ServedModel() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
}

Status write_model_directory(const std::string& directory, const std::string& config,
                             const std::string& tokenizer_path) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(tokenizer_path));
  auto tokenizer = nlohmann::json::parse(text, nullptr, false);
  const auto shape = nlohmann::json::parse(config, nullptr, false);
  if (shape.is_discarded() || !shape.contains("vocab_size")) {
    return invalid_input("config.json: expected JSON with vocab_size");
  }
  if (tokenizer.is_discarded() || !tokenizer.contains("/model/vocab"_json_pointer)) {
    return invalid_input(tokenizer_path + ": expected a tokenizer with model.vocab");
  }
  auto& vocabulary = tokenizer["model"]["vocab"];
  int next = 0;
  for (const auto& [token, id] : vocabulary.items()) next = std::max(next, id.get<int>() + 1);
  for (const auto& added : tokenizer.value("added_tokens", nlohmann::json::array())) {
    next = std::max(next, added.value("id", -1) + 1);
  }
  for (; next < shape["vocab_size"].get<int>(); ++next) vocabulary[fmt::format("t{}", next)] = next;
  WIDEEP_TRY(formats::write_file(directory + "/config.json", config));
  return formats::write_file(directory + "/tokenizer.json", tokenizer.dump());
}

}  // namespace wideep::measure
