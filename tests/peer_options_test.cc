// SPDX-License-Identifier: Apache-2.0
// What is said of other servers' options: every row names something that the command really has.
#include "peer_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <vector>

#include "command.h"

namespace wideep::tools {
namespace {

using command_line::CommandFacts;
using ::testing::HasSubstr;

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

CommandFacts command(std::vector<std::string> path, std::vector<std::string> options) {
  CommandFacts facts;
  facts.path = std::move(path);
  for (std::string& name : options) {
    facts.options.emplace_back().names = {std::move(name)};
  }
  return facts;
}

// The words of --help that begin with a dash.
std::set<std::string> options_of(const char* name) {
  const tests::CommandEnd help = tests::run_command({.arguments = {name, "--help"}});
  EXPECT_EQ(help.exit_code, 0);
  std::set<std::string> options;
  std::istringstream words(help.out);
  for (std::string word; words >> word;) {
    if (word.starts_with("-")) options.insert(word);
  }
  return options;
}

TEST(PeerOptions, ChoosesByWhatTheCommandHas) {
  const CommandFacts generate =
      command({"wideep", "generate"}, {"--model", "--ranks", "--max-tokens", "--context"});
  const CommandFacts serve = command({"wideep", "serve"}, {"--model", "--ranks", "--port"});
  EXPECT_EQ(peer_hint("-n", generate), "here --max-tokens");
  EXPECT_THAT(peer_hint("-n", serve), HasSubstr("field max_tokens"));
  EXPECT_THAT(peer_hint("--ctx-size", generate), HasSubstr("--context"));
  EXPECT_EQ(peer_hint("--ctx-size", serve), "");  // of this shape it has no --context
  EXPECT_THAT(peer_hint("-hf", serve), HasSubstr("hf download"));
  EXPECT_EQ(peer_hint("--ctx", generate), "");
  EXPECT_EQ(peer_hint("", generate), "");
  EXPECT_EQ(peer_hint(",", generate), "");
}

TEST(PeerOptions, OfAServersPagesAndLog) {
  const CommandFacts serve =
      command({"wideep", "serve"}, {"--port", "--no-ui", "--access-log", "--api-key-file"});
  EXPECT_EQ(peer_hint("--no-webui", serve), "here --no-ui");
  EXPECT_THAT(peer_hint("--log-requests", serve), HasSubstr("here --access-log"));
  EXPECT_THAT(peer_hint("--enable-log-requests", serve), HasSubstr("here --access-log"));
  EXPECT_THAT(peer_hint("--disable-log-requests", serve), HasSubstr("leave it out"));
  EXPECT_THAT(peer_hint("--ssl-keyfile", serve), HasSubstr("proxy"));
}

TEST(PeerOptions, Commands) {
  const CommandFacts program = command({"wideep"}, {});
  EXPECT_THAT(peer_hint("run", program), HasSubstr("wideep chat MODEL"));
  EXPECT_THAT(peer_hint("pull", program), HasSubstr("hf download ORG/NAME"));
  EXPECT_THAT(peer_hint("ls", program), HasSubstr("doctor"));
  EXPECT_EQ(peer_hint("a.gguf", program), "to serve a model: wideep serve a.gguf");
  EXPECT_EQ(peer_hint("srve", program), "");
  EXPECT_EQ(peer_hint("ls", command({"wideep", "balance"}, {})), "");
}

TEST(PeerOptions, RowsNameWhatIsThere) {
  const std::set<std::string> serve = options_of("serve");
  const std::set<std::string> generate = options_of("generate");
  std::set<std::string> seen;
  for (const PeerOption& row : peer_options()) {
    SCOPED_TRACE(row.names);
    const std::string needs(row.needs);
    EXPECT_TRUE(serve.contains(needs) || generate.contains(needs)) << needs;
    EXPECT_FALSE(row.hint.empty());
    EXPECT_EQ(row.hint.find('\n'), std::string_view::npos);
    for (const std::string& name : parts_of(row.names)) {
      EXPECT_TRUE(name.starts_with("-")) << name;
      // Else no command would ever say it.
      const bool is_unknown_to_one = (serve.contains(needs) && !serve.contains(name)) ||
                                     (generate.contains(needs) && !generate.contains(name));
      EXPECT_TRUE(is_unknown_to_one) << name;
      EXPECT_TRUE(seen.insert(name + " " + needs).second) << name;
    }
    // Options of ours that the line names.
    std::istringstream words{std::string(row.hint)};
    for (std::string word; words >> word;) {
      while (!word.empty() && std::string(",;:.()").find(word.back()) != std::string::npos) {
        word.pop_back();
      }
      if (word.starts_with("(")) word.erase(0, 1);
      if (!word.starts_with("--") || word == "--local-dir") continue;
      EXPECT_TRUE(serve.contains(word) || generate.contains(word)) << word;
    }
  }
}

}  // namespace
}  // namespace wideep::tools
