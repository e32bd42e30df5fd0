// SPDX-License-Identifier: Apache-2.0
#include "client/chat_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::client {
namespace {

using testing::HasSubstr;

void expect_command(std::string_view line, ChatCommand command, const std::string& argument) {
  const auto parsed = parse_command(line);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->command, command) << line;
  EXPECT_EQ(parsed->argument, argument) << line;
}

std::string error_of(std::string_view line) { return parse_command(line).status().message(); }

TEST(ChatCommand, IsParsed) {
  EXPECT_TRUE(is_command("/show"));
  EXPECT_FALSE(is_command(" /show"));
  expect_command("/show", ChatCommand::kShow, "");
  expect_command("/show  ", ChatCommand::kShow, "");
  expect_command("/system  You are  short. ", ChatCommand::kSystem, "You are  short.");
  expect_command("/system", ChatCommand::kSystem, "");
  expect_command("/set temperature 0.5", ChatCommand::kSet, "temperature 0.5");
  expect_command("/save my file.json", ChatCommand::kSave, "my file.json");
  for (const char* end : {"/bye", "/exit", "/quit"}) expect_command(end, ChatCommand::kEnd, "");
  expect_command("/?", ChatCommand::kHelp, "");
}

TEST(ChatCommand, TakesOllamasWords) {
  expect_command("/set parameter top_k 3", ChatCommand::kSet, "top_k 3");
  expect_command("/set system Be short", ChatCommand::kSystem, "Be short");
}

TEST(ChatCommand, UnknownOnesNameTheNearest) {
  EXPECT_THAT(error_of("/regn"), HasSubstr("/regn: unknown command; did you mean /regen?"));
  EXPECT_THAT(error_of("/halp"), HasSubstr("did you mean /help?"));
  EXPECT_THAT(error_of("/usr/bin/env"), testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(error_of("/usr/bin/env"), HasSubstr("needs a space before it"));
  EXPECT_THAT(error_of("/\x1b[2J"), testing::Not(HasSubstr("\x1b")));
  EXPECT_FALSE(parse_command("/").ok());
}

TEST(ChatCommand, ArgumentsAreChecked) {
  EXPECT_EQ(error_of("/save"), "expected /save FILE, found /save alone");
  EXPECT_EQ(error_of("/undo twice"), "/undo: takes nothing, found 'twice'");
}

TEST(ChatCommand, HelpHasEach) {
  const std::string help = command_help();
  for (const char* name : {"/system", "/set", "/show", "/regen", "/undo", "/clear", "/read",
                           "/save", "/load", "/think", "/help", "/bye"}) {
    EXPECT_THAT(help, HasSubstr(std::string("  ") + name));
  }
}

}  // namespace
}  // namespace wideep::client
