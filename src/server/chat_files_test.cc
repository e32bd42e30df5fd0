// SPDX-License-Identifier: Apache-2.0
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

  std::string path() const { return dir_ + "/tokenizer_config.json"; }

 private:
  std::string dir_;
};

TEST_F(ChatFilesTest, ReadsTextsAndWhatHoldsThem) {
  const auto files = read(R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template":
      [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "{{ eos_token }}!"}]})");
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->bos_token, "<s>");
  ASSERT_TRUE(files->chat.has_value());
  const Result<std::string> text = files->chat->render({.eos_token = files->eos_token});
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, "</s>!");
}

TEST_F(ChatFilesTest, WhatIsAbsentOrNullIsNone) {
  for (const char* config : {"{}", R"({"bos_token": null, "chat_template": null})",
                             R"({"chat_template": [{"name": "rag", "template": "r"}]})"}) {
    const auto files = read(config);
    ASSERT_TRUE(files.ok()) << files.status().message();
    EXPECT_EQ(files->bos_token, "");
    EXPECT_FALSE(files->chat.has_value()) << config;
  }
}

TEST_F(ChatFilesTest, WrongTypesAreNamed) {
  EXPECT_EQ(complaint_of("[]"), "expected an object, found a list of 0");
  EXPECT_EQ(complaint_of(R"({"bos_token": 5})"), "bos_token: expected a text, found 5");
  EXPECT_EQ(complaint_of(R"({"bos_token": {"content": 5}})"),
            "bos_token.content: expected a text, found 5");
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
