// SPDX-License-Identifier: Apache-2.0
// Manual pages and completions of a small program: what a reader of man(7) or a shell would take for
// something else is escaped, and an example that the program would refuse is no page.
// scripts/test_man_pages.sh and test_completions.sh ask man and the shells about the real ones.
#include "man_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "completions.h"
#include "examples.h"

namespace wideep::tools {
namespace {

using command_line::CommandFacts;
using command_line::OptionFacts;
using command_line::ValueKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

OptionFacts option(std::string name, std::string description) {
  OptionFacts facts;
  facts.names = {std::move(name)};
  facts.description = std::move(description);
  facts.value_name = "TEXT";
  facts.takes_value = true;
  return facts;
}

// "pots [--hot]" with the commands "pots cook --model MODEL [MODEL] --way fry|boil" and "pots wash".
CommandFacts program() {
  CommandFacts cook;
  cook.path = {"pots", "cook"};
  cook.aliases = {"heat"};
  cook.description = "Cook something";
  cook.options = {option("--model", "What [to cook]: it's .yaml"), option("--way", "How")};
  cook.options[0].is_required = true;
  cook.options[0].kind = ValueKind::kModel;
  cook.options[1].choices = {"fry", "boil"};
  cook.positionals = {option("MODEL", "The same")};
  cook.positionals[0].kind = ValueKind::kModel;
  CommandFacts wash;
  wash.path = {"pots", "wash"};
  wash.description = "Wash up";
  CommandFacts facts;
  facts.path = {"pots"};
  facts.description = "Deals with pots";
  facts.needs_command = true;
  facts.commands = {cook, wash};
  return facts;
}

std::string complaint(std::string_view arguments) {
  return example_complaint(program(), {.command = "", .purpose = "", .arguments = arguments});
}

TEST(ExamplesTest, WhatTheProgramTakesIsRight) {
  EXPECT_THAT(complaint("cook --model soup --way boil"), IsEmpty());
  EXPECT_THAT(complaint("heat soup"), IsEmpty());
  EXPECT_THAT(complaint("wash"), IsEmpty());
}

TEST(ExamplesTest, WhatItWouldRefuseIsSaid) {
  EXPECT_EQ(complaint(""), "a command is missing");
  EXPECT_EQ(complaint("bake"), "'bake' is no command and no option");
  EXPECT_EQ(complaint("cook soup stew"), "'stew' is no command and no option");
  EXPECT_EQ(complaint("cook --way boil"), "--model is required");
  EXPECT_EQ(complaint("cook --modle soup"), "there is no option --modle");
  EXPECT_EQ(complaint("cook soup --way"), "--way has no value");
  EXPECT_EQ(complaint("cook soup --way stir"), "stir is no value of --way");
}

TEST(ManPagesTest, AnExampleThatWouldBeRefusedIsNoPage) {
  const auto pages = man_pages(program(), "1.0", "2026-11-29");  // these are wideep's examples
  ASSERT_FALSE(pages.ok());
  EXPECT_THAT(pages.status().message(), HasSubstr("example 'wideep serve"));
}

TEST(ManPagesTest, TheDateIsTheSourcesOrRefused) {
  const auto date = man_date("86400");
  ASSERT_TRUE(date.ok());
  EXPECT_EQ(*date, "1970-01-02");
  EXPECT_EQ(man_date("")->size(), 10U);
  for (const char* wrong : {"soon", "-1", "12 ", "99999999999999999999", "999999999999"}) {
    const auto refused = man_date(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_THAT(refused.status().message(), HasSubstr(std::string("SOURCE_DATE_EPOCH=") + wrong));
  }
}

TEST(CompletionsTest, BashKnowsCommandsByEachName) {
  EXPECT_THAT(bash_completion(program()),
              AllOf(HasSubstr("\"pots cook\" | \\\n"), HasSubstr("\"pots heat\""),
                    HasSubstr("\"pots cook --way\") kind=words words='fry boil' ;;"),
                    HasSubstr("\"pots cook --model\") kind=model ;;"),
                    HasSubstr("\"pots cook\") words='--model --way' kind=either ;;"),
                    HasSubstr("complete -F _pots pots"), Not(HasSubstr("NAME"))));
}

TEST(CompletionsTest, ZshReadsNoBracketOfADescription) {
  EXPECT_THAT(
      zsh_completion(program()),
      AllOf(HasSubstr("#compdef pots\n"), HasSubstr("--model=[What to cook]:model:_pots_model"),
            HasSubstr("--way=[How]:value:(fry boil)"), HasSubstr("cook|heat) _pots_cook ;;")));
}

TEST(CompletionsTest, FishEscapesQuotes) {
  CommandFacts facts = program();
  facts.commands[0].options[0].description = "The cook's pot";
  EXPECT_THAT(fish_completion(facts),
              AllOf(HasSubstr("complete -c pots -n '__pots_at cook' -l model -x -a "
                              "'(__pots_models)' -d 'The cook\\'s pot'\n"),
                    HasSubstr("-l way -x -a 'fry boil' -d 'How'\n")));
}

}  // namespace
}  // namespace wideep::tools
