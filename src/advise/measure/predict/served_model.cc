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
#include <thread>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"
#include "tokenizer/vocabulary.h"

namespace wideep::measure {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr std::string_view kBeforeAddress = "http://127.0.0.1:";
constexpr auto kPatience = 120s;

// Ids of the tokenizer, and as many tokens as a model may have.
constexpr formats::IntegerRange kIds{.min = 0, .max = tokenizer::kMaxTokenId};
constexpr formats::IntegerRange kSizes{.min = 1, .max = kIds.max + 1};

Result<int64_t> id_of(const json& value, const std::string& place) {
  if (value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{kIds.max}) {
    return value.get<int64_t>();
  }
  return invalid_input(fmt::format("{}: expected {}, found {}", place, formats::describe(kIds),
                                   formats::describe(value)));
}

// The one after the last that the tokenizer has a text for.
Result<int64_t> first_free_id(const json& file) {
  const json::json_pointer place("/model/vocab");
  if (!file.contains(place) || !file[place].is_object()) {
    return invalid_input("expected a tokenizer with model.vocab, an object");
  }
  int64_t next = 0;
  for (const auto& [token, id] : file[place].items()) {
    WIDEEP_TRY_ASSIGN(const int64_t found, id_of(id, "model.vocab." + base::printable(token, 60)));
    next = std::max(next, found + 1);
  }
  const json added = file.value("added_tokens", json());
  if (!added.is_array() && !added.is_null()) {
    return invalid_input("added_tokens: expected a list, found " + formats::describe(added));
  }
  for (size_t i = 0; i < added.size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    if (!added[i].is_object()) {
      return invalid_input(where + ": expected an object, found " + formats::describe(added[i]));
    }
    WIDEEP_TRY_ASSIGN(const int64_t found, id_of(added[i].value("id", json()), where + ".id"));
    next = std::max(next, found + 1);
  }
  return next;
}

// Where a command says why it ends.
std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == text.npos) return "";
  const size_t before = text.rfind('\n', end);
  const size_t begin = before == text.npos ? 0 : before + 1;
  constexpr std::string_view kError = "error: ";
  const std::string line = text.substr(begin, end + 1 - begin);
  return line.starts_with(kError) ? line.substr(kError.size()) : line;
}

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
      return failed("wideep serve has ended: " + last_line(text));
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
  WIDEEP_TRY_ASSIGN(const formats::JsonDocument shape,
                    formats::JsonDocument::parse(config, "config.json"));
  const int64_t vocab_size = shape.root().integer("vocab_size", kSizes);
  WIDEEP_TRY(shape.status());
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(tokenizer_path));
  WIDEEP_TRY_ASSIGN(json tokenizer, formats::parse_json(text, tokenizer_path));
  const Result<int64_t> first = first_free_id(tokenizer);
  if (!first.ok()) return first.status().at(tokenizer_path);
  json& vocabulary = tokenizer["model"]["vocab"];
  for (int64_t id = *first; id < vocab_size; ++id) vocabulary[fmt::format("t{}", id)] = id;
  WIDEEP_TRY(formats::write_file(directory + "/config.json", config));
  return formats::write_file(directory + "/tokenizer.json", formats::json_text(tokenizer));
}

}  // namespace wideep::measure
