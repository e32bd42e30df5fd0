// SPDX-License-Identifier: Apache-2.0
//
// What a server says of each request: its id, which its client and its log know, also when the
// serving process dies in the middle of the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "command.h"
#include "command_model.h"
#include "command_server.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<json> access_lines(const std::string& err) {
  std::vector<json> lines;
  std::istringstream stream(err);
  for (std::string line; std::getline(stream, line);) {
    json object = json::parse(line, nullptr, false);
    EXPECT_TRUE(object.is_object()) << line;
    if (object.value("message", "") == "access") lines.push_back(std::move(object));
  }
  return lines;
}

std::string id_in(const std::string& head) {
  const std::string name = "X-Request-Id: ";
  const size_t at = head.find(name);
  EXPECT_NE(at, head.npos) << head;
  return head.substr(at + name.size(), head.find("\r\n", at) - at - name.size());
}

TEST(CommandRequests, AccessLinesOutliveTheServingProcess) {
  Server server(CommandOptions{
      .arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name", "m",
                    "--ranks", "2", "--access-log", "--log-format", "json"},
      .environment = {{"WIDEEP_FAULT_DRILL", "recorded:12"}}});
  ASSERT_GT(server.port(), 0) << server.command().err();
  const json body = {{"model", "m"}, {"prompt", "The cat"}, {"max_tokens", 24},
                     {"seed", 5},    {"stream", true},      {"ignore_eos", true}};
  const auto reply = server::ask(server.port(), "POST", "/v1/completions", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::string made = id_in(reply.head);
  const auto own =
      server::ask(server.port(), "POST", "/v1/completions", body.dump(), "X-Request-Id: mine\r\n");
  EXPECT_EQ(id_in(own.head), "mine");
  server.command().send(SIGTERM);
  const CommandEnd end = server.command().wait();
  EXPECT_THAT(end.err, HasSubstr("signal 9")) << "no process has died";
  const std::vector<json> lines = access_lines(end.err);
  ASSERT_EQ(lines.size(), 2u) << end.err;
  EXPECT_EQ(lines[0]["request_id"], made);
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[0]["path"], "/v1/completions");
  EXPECT_EQ(lines[0]["generated_tokens"], 24);
  EXPECT_FALSE(lines[0].contains("time_to_first_token_seconds")) << "nobody knows it any more";
  EXPECT_EQ(lines[1]["request_id"], "mine");
  EXPECT_GT(lines[1]["time_to_first_token_seconds"], 0.0);
  EXPECT_GE(lines[1]["seconds"], lines[1]["time_to_first_token_seconds"]);
}

}  // namespace
}  // namespace wideep::tests
