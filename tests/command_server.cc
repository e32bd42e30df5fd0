// SPDX-License-Identifier: Apache-2.0
#include "command_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string_view>

#include "formats/files.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;

CommandOptions serve(const std::string& model, const std::vector<std::string>& more) {
  CommandOptions options{
      .arguments = {"serve", "--model", model, "--port", "0", "--served-model-name", "m"}};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return options;
}

}  // namespace

Server::Server(const std::string& model, const std::vector<std::string>& more)
    : Server(serve(model, more)) {}

Server::Server(const CommandOptions& options) : command_(options) {
  constexpr std::string_view kBefore = "http://127.0.0.1:";
  const bool serves = wait_until([&] { return command_.err().find(kBefore) != std::string::npos; },
                                 30s * kSlowdown);
  EXPECT_TRUE(serves) << command_.err();
  if (!serves) return;
  port_ = std::stoi(command_.err().substr(command_.err().find(kBefore) + kBefore.size()));
}

server::Reply Server::complete(const nlohmann::json& more) const {
  nlohmann::json body = {
      {"model", "m"}, {"prompt", "a"}, {"max_tokens", kMaxTokens}, {"temperature", 0}};
  if (!more.is_null()) body.update(more);  // complete({})
  return server::ask(port_, "POST", "/v1/completions", body.dump());
}

double metric_at(int port, const std::string& name) {
  const std::string text = server::ask(port, "GET", "/metrics").body;
  const size_t at = text.find("\n" + name + " ");
  return at == text.npos ? -1.0 : std::stod(text.substr(at + name.size() + 2));
}

pid_t process_named(Server& server, const std::string& name) {
  for (const pid_t pid : server.command().ranks()) {
    const auto found = formats::read_file(fmt::format("/proc/{}/comm", pid));
    if (found.ok() && *found == name + "\n") return pid;
  }
  return -1;
}

}  // namespace wideep::tests
