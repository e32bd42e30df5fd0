// SPDX-License-Identifier: Apache-2.0
#include "command_line/options_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "command_line/command_line.h"

namespace wideep::command_line {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

struct Values {
  std::string model, name, file;
  std::vector<std::string> origins;
  int port = 1;
  bool fast = false;
};

class OptionsFiles : public testing::Test {
 protected:
  OptionsFiles() {
    Command serve = program_.add_command("serve", "");
    serve.add_option("--model,-m", values_.model).model();
    serve.add_option("--name", values_.name);
    serve.add_option("--cors-origin", values_.origins);
    serve.add_option("--port", values_.port).range(0, 9);
    serve.add_flag("--fast", values_.fast);
    serve.add_option(OptionsFile::kOption, values_.file).path();
    program_.add_command("other", "").add_option("--name", other_);
  }
  std::string file(const std::string& text) {
    const std::string path = directory_.path() + "/o.yaml";
    std::ofstream(path) << text;
    return path;
  }
  // Parses with `text` in the file.
  Status parse(const std::string& text, std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), {"serve", OptionsFile::kOption, file(text)});
    const auto expanded = OptionsFile::expand(program_.facts(), arguments);
    if (!expanded.ok()) return expanded.status();
    const Result<bool> parsed = program_.parse(expanded->arguments());
    return parsed.ok() ? Status() : invalid_input(expanded->explain(parsed.status().message()));
  }

  base::ScratchDirectory directory_;
  Values values_;
  std::string other_;
  Program program_{"p", "p"};
};

TEST_F(OptionsFiles, EveryKindOfValue) {
  ASSERT_EQ(
      parse("model: /m\nname: -dash\ncors_origin: [a, 'b c']\nport: 7\nfast: yes\n").message(), "");
  EXPECT_EQ(values_.model, "/m");
  EXPECT_EQ(values_.name, "-dash");
  EXPECT_THAT(values_.origins, ElementsAre("a", "b c"));
  EXPECT_EQ(values_.port, 7);
  EXPECT_TRUE(values_.fast);
}

TEST_F(OptionsFiles, OneValueOfManyAndNone) {
  values_.name = "before";
  ASSERT_EQ(parse("cors-origin: a\nname: ''\nfast: false\n").message(), "");
  EXPECT_THAT(values_.origins, ElementsAre("a"));
  EXPECT_EQ(values_.name, "");
  EXPECT_FALSE(values_.fast);
  ASSERT_EQ(parse("# nothing\n").message(), "");
}

TEST_F(OptionsFiles, TheCommandLineWins) {
  ASSERT_EQ(parse("model: /m\nport: 7\ncors-origin: [a, b]\nname: n\n",
                  {"-m", "/other", "--port=3", "--cors-origin", "c"})
                .message(),
            "");
  EXPECT_EQ(values_.model, "/other");
  EXPECT_EQ(values_.port, 3);
  EXPECT_THAT(values_.origins, ElementsAre("c"));
  EXPECT_EQ(values_.name, "n");
}

TEST_F(OptionsFiles, WhatIsWrongIsOneLine) {
  const std::string path = file("");
  const auto complaint = [&](const std::string& text) { return parse(text).message(); };
  EXPECT_EQ(complaint("model: m\nportt: 7\n"),
            path + ":2: portt: no option of p serve; did you mean 'port'?");
  EXPECT_THAT(complaint("options-file: x\n"), HasSubstr(":1: options-file: no option of p serve"));
  EXPECT_THAT(complaint("help: true\n"), HasSubstr(":1: help: no option of p serve"));
  EXPECT_THAT(complaint("m: x\n"), HasSubstr(":1: m: no option of p serve"));
  EXPECT_THAT(complaint("fast: 2\n"), HasSubstr(":1: fast: expected true or false, found '2'"));
  EXPECT_THAT(complaint("fast:\n"), HasSubstr(":1: fast: expected true or false, found nothing"));
  EXPECT_THAT(complaint("name:\n"), HasSubstr(":1: name: missing; expected a value"));
  EXPECT_THAT(complaint("name: {a: b}\n"), HasSubstr(":1: name: expected a value"));
  EXPECT_THAT(complaint("name: [a, b]\n"), EndsWith(":1: name: expected one value, found 2"));
  EXPECT_THAT(complaint("name: []\n"), EndsWith(":1: name: expected one value, found 0"));
  EXPECT_THAT(complaint("port: 7\nport: 8\n"), HasSubstr("port"));
  EXPECT_THAT(complaint("port: 70\n"), testing::StartsWith(path + ": --port"));
  EXPECT_THAT(complaint("- a\n"), HasSubstr(path));
}

TEST_F(OptionsFiles, OnlyOneThatIsThere) {
  const auto expand = [&](const std::vector<std::string>& arguments) {
    return OptionsFile::expand(program_.facts(), arguments);
  };
  EXPECT_THAT(expand({"serve", "--options-file", "/nowhere.yaml"}).status().message(),
              testing::AllOf(HasSubstr("--options-file"), HasSubstr("/nowhere.yaml")));
  const std::string path = file("port: 2\n");
  EXPECT_EQ(expand({"serve", "--options-file=" + path, "--options-file", path}).status().message(),
            "--options-file: expected one file, found 2");
  // A value of another option, and a command without the option, are left as they are.
  const std::vector<std::string> others[] = {
      {"serve", "--name", "--options-file"}, {"other", "--options-file", path}, {"serve"}, {}};
  for (const auto& each : others) EXPECT_EQ(expand(each)->arguments(), each);
}

}  // namespace
}  // namespace wideep::command_line
