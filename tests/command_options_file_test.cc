// SPDX-License-Identifier: Apache-2.0
// --options-file of wideep serve and route, and keys in files.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/scratch_directory.h"
#include "command_model.h"
#include "command_server.h"

namespace wideep::tests {
namespace {

std::string write(const base::ScratchDirectory& directory, const std::string& name,
                  const std::string& text) {
  const std::string path = directory.path() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(CommandOptionsFile, ServesAsTheFileSays) {
  const base::ScratchDirectory directory;
  const std::string key = write(directory, "key", "secret\n");
  const std::string file = write(directory, "m.yaml",
                                 "model: " + small_model() +
                                     "\nserved_model_name: other\nport: 1\nranks: 2\n"
                                     "api-key-file: " +
                                     key + "\n");
  Server server({"serve", "--options-file", file, "--port", "0", "--served-model-name", "m"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  EXPECT_EQ(server.command().ranks().size(), 3U);  // and the serving process
  EXPECT_EQ(server::ask(server.port(), "GET", "/v1/models").status, 401);
  const auto models =
      server::ask(server.port(), "GET", "/v1/models", "", "Authorization: Bearer secret\r\n");
  EXPECT_EQ(models.body_json()["data"][0]["id"], "m");
}

TEST(CommandOptionsFile, WhatIsWrongIsNamedWithTheFile) {
  const base::ScratchDirectory directory;
  const auto refused = [&](const std::string& command, const std::string& text) {
    return run_command({.arguments = {command, "--options-file", write(directory, "f", text)}});
  };
  expect_refused(refused("serve", "a: b\nmodl: x\n"), {"f:1: a: no option of wideep serve"});
  expect_refused(refused("serve", "modl: x\n"), {"f:1: modl: ", "did you mean 'model'?"});
  expect_refused(refused("serve", "model: x\nport: 70000\n"), {"/f: --port"});
  expect_refused(refused("route", "replica: [x]\nmodel: x\n"),
                 {"f:2: model: no option of wideep route"});
  expect_refused(refused("route", "replica: [x]\n"), {"--replica: expected http://host:port"});
  const std::string empty = write(directory, "key", "\n");
  expect_refused(run_command({.arguments = {"serve", "--model", small_model(), "--admin-key", "a",
                                            "--admin-key-file", empty}}),
                 {"--admin-key-file: leave it out where --admin-key is given"});
}

// What no header can carry no client could send.
TEST(CommandOptionsFile, KeysThatNoClientCouldSend) {
  const base::ScratchDirectory directory;
  const auto refused = [&](const std::string& text) {
    const std::string file = write(directory, "key", text);
    return run_command({.arguments = {"serve", "--model", small_model(), "--api-key-file", file}});
  };
  const std::string where = "--api-key-file: " + directory.path() + "/key: the first line: ";
  expect_refused(refused("\nsecret\n"), {where + "expected a key, found an empty one"});
  expect_refused(refused("secret \n"), {where + "expected a key, found one with a space"});
  expect_refused(refused("sec\tret\n"), {where + "expected a key, found a control character"});
  expect_refused(
      run_command({.arguments = {"serve", "--model", small_model()},
                   .environment = {{"WIDEEP_API_KEY", "secret\r"}}}),
      {"WIDEEP_API_KEY: expected a key, found a control character", "unset it for none"});
  expect_refused(run_command({.arguments = {"serve", "--model", small_model(), "--api-key-file",
                                            directory.path()}}),
                 {"--api-key-file: " + directory.path() + ": "});
  // As an editor of another system writes it.
  const std::string file = write(directory, "key", "\xef\xbb\xbfsecret\r\nmore\r\n");
  Server server({"serve", small_model(), "--port", "0", "--api-key-file", file});
  ASSERT_GT(server.port(), 0) << server.command().err();
  EXPECT_EQ(server::ask(server.port(), "GET", "/v1/models", "", "Authorization: Bearer secret\r\n")
                .status,
            200);
}

}  // namespace
}  // namespace wideep::tests
