// SPDX-License-Identifier: Apache-2.0
//
// Directories are made with the files in question, and templates are told apart by the prompts that
// they write. Held are transformers' rules of precedence, that null is absent, and that a wrong
// type is named by file and key. A failure means that a model gets another prompt than it was
// trained with.
#include "server/chat_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace wideep::server {
namespace {

class ChatFilesTest : public testing::Test {
 protected:
  ChatFilesTest() : dir_(testing::TempDir() + "wideep_chat_files_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~ChatFilesTest() override { std::filesystem::remove_all(dir_); }

  Result<ChatFiles> read(const std::string& config) {
    std::ofstream(path()) << config;
    return read_chat_files(dir_);
  }

  std::string complaint_of(const std::string& config) {
    const Result<ChatFiles> files = read(config);
    if (files.ok()) return "read";
    EXPECT_TRUE(files.status().message().starts_with(path() + ": ")) << files.status().message();
    return files.status().message().substr(path().size() + 2);
  }

  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = dir_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  // The prompt that the chosen template makes, or what is wrong.
  static std::string prompt(const ChatFiles& files, const std::string& name, bool has_tools) {
    const auto chosen = files.templates.choose(name, has_tools);
    if (!chosen.ok()) return chosen.status().message();
    const auto text = chosen->chat.render({.special_tokens = files.special_tokens});
    return text.ok() ? *text : text.status().message();
  }

  std::string path() const { return dir_ + "/tokenizer_config.json"; }

 private:
  std::string dir_;
};

TEST_F(ChatFilesTest, ReadsTextsAndWhatHoldsThem) {
  const auto files = read(R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
      "additional_special_tokens": ["<a>", {"content": "<b>"}], "unk_token": null, "chat_template":
      [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "{{ eos_token }}!"}]})");
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->special_tokens.dump(),
            R"({"bos_token":"<s>","eos_token":"</s>","additional_special_tokens":["<a>","<b>"]})");
  EXPECT_EQ(prompt(*files, "", false), "</s>!");
  EXPECT_EQ(prompt(*files, "", true), "t");
  EXPECT_EQ(prompt(*files, "default", true), "</s>!");
}

TEST_F(ChatFilesTest, WhatIsAbsentOrNullIsNone) {
  for (const char* config : {"{}", R"({"bos_token": null, "chat_template": null})"}) {
    const auto files = read(config);
    ASSERT_TRUE(files.ok()) << files.status().message();
    EXPECT_TRUE(files->special_tokens.empty());
    EXPECT_TRUE(files->templates.empty()) << config;
    EXPECT_EQ(prompt(*files, "", false), "this model has no chat template; use /v1/completions");
  }
}

TEST_F(ChatFilesTest, TemplatesWithoutADefaultAreNamed) {
  const auto files = read(R"({"chat_template": [{"name": "rag", "template": "r"},
                                                {"name": "tool_use", "template": "t"}]})");
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(prompt(*files, "", false),
            "this model has no chat template named 'default'; name one with \"chat_template\": "
            "rag, tool_use");
  EXPECT_EQ(prompt(*files, "", true), "t");
  EXPECT_EQ(prompt(*files, "rag", false), "r");
}

TEST_F(ChatFilesTest, FilesReplaceTheTemplatesOfTheConfiguration) {
  write("chat_template.jinja", "file");
  write("additional_chat_templates/tool_use.jinja", "tools");
  write("additional_chat_templates/odd.jinja", "{{");
  const auto files = read(R"({"chat_template": [{"name": "default", "template": "config"},
                                                {"name": "rag", "template": "r"}]})");
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->templates.names(), "default, odd, tool_use");
  EXPECT_EQ(prompt(*files, "", false), "file");
  EXPECT_EQ(prompt(*files, "", true), "tools");
  EXPECT_TRUE(prompt(*files, "odd", false)
                  .ends_with("odd.jinja: line 1: the tag has no end: "
                             "expected '}}'"));
  write("additional_chat_templates/tool_use.jinja", "{{");
  EXPECT_FALSE(read("{}").ok());
}

// As transformers does: the map of older models counts, unless the configuration has all tokens.
TEST_F(ChatFilesTest, TokensOfOlderModelsAreInAFileOfTheirOwn) {
  write("special_tokens_map.json", R"({"bos_token": {"content": "<m>"}, "pad_token": "<p>"})");
  EXPECT_EQ(read(R"({"bos_token": "<s>", "eos_token": "</s>"})")->special_tokens.dump(),
            R"({"eos_token":"</s>","bos_token":"<m>","pad_token":"<p>"})");
  EXPECT_EQ(read(R"({"bos_token": "<s>", "added_tokens_decoder": {}})")->special_tokens.dump(),
            R"({"bos_token":"<s>"})");
}

TEST_F(ChatFilesTest, WrongTypesAreNamed) {
  EXPECT_EQ(complaint_of("[]"), "expected an object, found a list of 0");
  EXPECT_EQ(complaint_of(R"({"bos_token": 5})"), "bos_token: expected a text, found 5");
  EXPECT_EQ(complaint_of(R"({"bos_token": {"content": 5}})"),
            "bos_token.content: expected a text, found 5");
  EXPECT_EQ(complaint_of(R"({"additional_special_tokens": ["<a>", 5]})"),
            "additional_special_tokens[1]: expected a text, found 5");
  EXPECT_EQ(complaint_of(R"({"eos_token": {}})"), "eos_token.content: expected a text, found null");
  EXPECT_EQ(complaint_of(R"({"chat_template": 7})"),
            R"(chat_template: expected a text or a list of {"name", "template"}, found 7)");
  EXPECT_EQ(complaint_of(R"({"chat_template": ["x"]})"),
            R"(chat_template[0]: expected {"name", "template"}, found 'x')");
  EXPECT_EQ(complaint_of(R"({"chat_template": [{"name": "default", "template": 3}]})"),
            "chat_template[0].template: expected a text, found 3");
}

}  // namespace
}  // namespace wideep::server
