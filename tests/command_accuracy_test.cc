// SPDX-License-Identifier: Apache-2.0
//
// wideep bench accuracy with a client that is no lm_eval but writes what one would have: what is
// printed, and that a difference ends the command. lm_eval itself: scripts/test_accuracy.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "command.h"
#include "command_model.h"
#include "formats/files.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json result(double logprob) {
  return {{"version", "0.4.10"},
          {"table", "|acc|0.5|\n"},
          {"results", {{"task", {{"acc,none", 0.5}}}}},
          {"requests",
           {{{"prompt", {5, 6}},
             {"text", "The"},
             {"token_logprobs", {nullptr, logprob}},
             {"top_logprobs", {nullptr, {{"he", logprob}}}}}}}};
}

class CommandAccuracy : public ::testing::Test {
 protected:
  // bin/python copies the n-th result when it runs for the n-th time, after `script`.
  void make_client(const std::vector<json>& results, const std::string& script = "") {
    const std::string bin = directory_.file("bin");
    fs::create_directory(bin);
    for (size_t i = 0; i < results.size(); ++i) {
      write(directory_.file(std::to_string(i)), results[i].dump());
    }
    const std::string at = directory_.path();
    write(bin + "/lm_eval", "");
    write(bin + "/python", "#!/bin/sh\n" + script + "\nn=$(ls " + at + " | grep -c ran)\ncp $3 " +
                               at + "/asked\ncp " + at + "/$n $4\ntouch " + at + "/ran$n\n");
    for (const char* name : {"/lm_eval", "/python"}) {
      fs::permissions(bin + name, fs::perms::owner_all);
    }
  }
  static void write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(formats::write_file(path, text).ok());
  }
  CommandEnd run(const std::vector<std::string>& more) {
    CommandOptions options{.arguments = {"bench", "accuracy", "--model", small_model(), "--tasks",
                                         "a,b", "--lm-eval", directory_.path()}};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return run_command(options);
  }

  base::ScratchDirectory directory_;
};

TEST_F(CommandAccuracy, SaysHowToInstallLmEval) {
  expect_refused(run({}), {"--lm-eval", directory_.path(), "scripts/install_lm_eval.sh"});
}

TEST_F(CommandAccuracy, PrintsFiguresAndThatLayoutsAreEqual) {
  make_client({result(-1.5), result(-1.5)});
  const CommandEnd end = run({"--limit", "3", "--batch-size", "2"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, AllOf(HasSubstr("lm_eval 0.4.10"), HasSubstr("|acc|0.5|"),
                             HasSubstr("layout    --ranks 1\n"),
                             HasSubstr("--ranks 2 with the online balancer (18 slots)\n"),
                             HasSubstr("same bits 1 requests, 1 log-probabilities: equal to the "
                                       "last bit with 2 layouts\n")));
  const json asked = json::parse(*formats::read_file(directory_.file("asked")));
  EXPECT_EQ(asked["tasks"], (json{"a", "b"}));
  EXPECT_EQ(asked["limit"], 3);
  EXPECT_EQ(asked["batch_size"], 2);
  EXPECT_THAT(asked["url"].get<std::string>(), HasSubstr("http://127.0.0.1:"));
}

// A balancer would be refused: there is nothing that it could move.
TEST_F(CommandAccuracy, DefaultLayoutsOfADenseModelHaveNoBalancer) {
  const base::ScratchDirectory dense;
  write_random_model_like(dense.path(), "llama_tied");
  make_client({result(-1.5), result(-1.5)});
  const CommandEnd end =
      run_command({.arguments = {"bench", "accuracy", "--model", dense.path(), "--tasks", "a",
                                 "--lm-eval", directory_.path(), "--json"}});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(json::parse(end.out)["layouts"], (json{"--ranks 1", "--ranks 2"}));
}

TEST_F(CommandAccuracy, WritesJson) {
  make_client({result(-1.5), result(-1.5)});
  const CommandEnd end =
      run({"--json", "--layout", "--ranks 1", "--layout", "--ranks 4", "--include-path", "/tmp"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out);
  EXPECT_EQ(report["results"]["task"]["acc,none"], 0.5);
  EXPECT_EQ(report["layouts"], (json{"--ranks 1", "--ranks 4"}));
  EXPECT_EQ(report["log_probabilities"], 1);
}

TEST_F(CommandAccuracy, ADifferenceIsAnError) {
  make_client({result(-1.5), result(-1.5000000000000002)});
  expect_error(run({}), 1,
               {"request 0 of 1 (2 tokens, \"The\"): token 1", "-1.5 as with --ranks 1",
                "found -1.5000000000000002 with --ranks 2"});
}

TEST_F(CommandAccuracy, AFailingClientIsAnErrorWithItsLastWords) {
  make_client({}, "echo first; echo no task of this name >&2; exit 3");
  expect_error(run({}), 1,
               {"--ranks 1: lm_eval has ended with exit code 3", "no task of this name"});
}

TEST_F(CommandAccuracy, RefusesWhatCannotBeCompared) {
  make_client({});
  expect_refused(run({"--layout", "--ranks 1"}), {"--layout", "expected two or more", "found one"});
  expect_refused(run({"--include-path", "/nowhere"}), {"--include-path", "/nowhere"});
}

TEST_F(CommandAccuracy, AServerThatDoesNotStartIsNamed) {
  make_client({});
  expect_error(run({"--layout", "--ranks 5", "--layout", "--ranks 1 --nonsense"}), 1,
               {"--ranks 5", "wideep serve has ended"});
}

}  // namespace
}  // namespace wideep::tests
