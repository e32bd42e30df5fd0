// SPDX-License-Identifier: Apache-2.0
#include "model/config/model_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ModelPath : public ::testing::Test {
 protected:
  // Writes a file of the scratch directory, with the directories around it; returns its path.
  std::string write(const std::string& name, const std::string& content) {
    const std::string path = directory_.file(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    EXPECT_TRUE(formats::write_file(path, content).ok());
    return path;
  }
  std::string dir(const std::string& name) {
    std::filesystem::create_directories(directory_.file(name));
    return directory_.file(name);
  }
  static std::string complaint(const std::string& path) {
    const Status status = check_model_path(path);
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    if (!status.ok()) {
      EXPECT_EQ(status.exit_code(), 2);
    }
    return status.ok() ? "" : status.message();
  }

  const base::ScratchDirectory directory_;
};

TEST_F(ModelPath, TakesDirectoriesAndGgufFiles) {
  write("a/config.json", "{}");
  EXPECT_EQ(complaint(dir("a")), "");  // without weights yet: the sizes follow from the config
  write("a/model.safetensors", "");
  write("a/more.gguf", "GGUF");
  EXPECT_EQ(complaint(dir("a")), "");
  EXPECT_EQ(complaint(write("b.gguf", "")), "");     // what is in it is the reader's matter
  EXPECT_EQ(complaint(write("b.bin", "GGUF")), "");  // whatever its name
}

TEST_F(ModelPath, NamesOnHuggingFace) {
  for (const char* name : {"Qwen/Qwen3-30B-A3B", "https://huggingface.co/Qwen/Qwen3-30B-A3B"}) {
    EXPECT_THAT(complaint(name),
                AllOf(StartsWith(name),
                      HasSubstr("hf download Qwen/Qwen3-30B-A3B --local-dir Qwen3-30B-A3B")));
  }
  EXPECT_THAT(complaint("ggml-org/gpt-oss-20b-GGUF:Q4_K_M"),
              HasSubstr("hf download ggml-org/gpt-oss-20b-GGUF --include '*Q4_K_M*.gguf' "
                        "--local-dir gpt-oss-20b-GGUF"));
  // Paths, not names.
  for (const std::string& path :
       {std::string("/nowhere/model"), std::string("./org/name"), std::string("a/b/c"),
        std::string("../name"), std::string("no-slash"), dir("org") + "/name"}) {
    EXPECT_THAT(complaint(path), AllOf(StartsWith(path + ": No such file or directory"),
                                       HasSubstr("config.json"), Not(HasSubstr("hf download"))));
  }
  EXPECT_THAT(complaint(""), HasSubstr("empty"));
}

TEST_F(ModelPath, AFolderThatIsThereIsNoOrganisation) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir("place"));
  dir("place/models");
  EXPECT_THAT(complaint("models/refrence"), HasSubstr("No such file or directory"));
  std::filesystem::current_path(before);
}

TEST_F(ModelPath, DirectoriesWithoutAModel) {
  EXPECT_THAT(complaint(dir("none")),
              AllOf(StartsWith(dir("none") + ": an empty directory"), HasSubstr("hf download")));

  write("files/b-00002-of-00002.gguf", "GGUF");
  const std::string second = write("files/b-00001-of-00002.gguf", "GGUF");
  const std::string first = write("files/a.gguf", "GGUF");
  EXPECT_THAT(complaint(dir("files")),
              AllOf(HasSubstr("a directory of GGUF files"), HasSubstr(first + ", " + second),
                    Not(HasSubstr("00002-of"))));
  write("files/config.json", "{}");  // of the model that they were made from
  EXPECT_THAT(complaint(dir("files")), HasSubstr(first));

  write("weights/model.safetensors", "");
  EXPECT_THAT(complaint(dir("weights")), StartsWith(dir("weights") + "/config.json: No such file"));
  write("own/params.json", "{}");
  write("own/consolidated-00001-of-00002.safetensors", "");
  EXPECT_THAT(
      complaint(dir("own")),
      AllOf(StartsWith(dir("own") + "/config.json: No such file; params.json is what a "),
            HasSubstr("expected the same model's files for transformers, config.json and ")));

  const std::string config = write("cache/snapshots/1a2b/config.json", "{}");
  EXPECT_THAT(complaint(dir("cache")), HasSubstr(dir("cache/snapshots/1a2b")));
  EXPECT_THAT(complaint(config), HasSubstr("name the model's directory"));
  EXPECT_THAT(complaint(dir("cache/snapshots")), HasSubstr(dir("cache/snapshots/1a2b")));
}

// Nothing is read from them: a pipe without a writer would never say what it has.
TEST_F(ModelPath, PipesAndDevices) {
  const std::string pipe = directory_.file("a.gguf");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(complaint(pipe), StartsWith(pipe + ": a pipe or a device; expected a model's"));
  EXPECT_THAT(complaint("/dev/null"), StartsWith("/dev/null: a pipe or a device"));
}

TEST_F(ModelPath, WhatMayNotBeRead) {
  const std::string closed = dir("closed");
  write("closed/m/config.json", "{}");
  ASSERT_EQ(::chmod(closed.c_str(), 0), 0);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  const uid_t user = ::geteuid();
  constexpr uid_t kNobody = 65534;
  ASSERT_TRUE(user != 0 || ::seteuid(kNobody) == 0);  // root may read all
  EXPECT_EQ(complaint(closed), closed + ": cannot be read: Permission denied");
  EXPECT_EQ(complaint(closed + "/m"), closed + "/m: cannot be read: Permission denied");
  ASSERT_EQ(::seteuid(user), 0);
  ASSERT_EQ(::chmod(closed.c_str(), 0700), 0);
}

TEST_F(ModelPath, FilesOfOtherFormats) {
  const std::string zeros(60, '\0');
  EXPECT_THAT(complaint(write("a.bin", "tjgg" + zeros)), HasSubstr("the old format GGJT"));
  EXPECT_THAT(complaint(write("a.gguf", "fmgg" + zeros)), HasSubstr("the old format GGMF"));
  EXPECT_THAT(complaint(write("b.bin", "lmgg" + zeros)), HasSubstr("the old format GGML"));
  EXPECT_THAT(complaint(write("c.bin", "algg" + zeros)), HasSubstr("LoRA adapter"));
  EXPECT_THAT(complaint(write("d.bin", "")), HasSubstr("an empty file"));
  EXPECT_THAT(complaint(write("e.txt", "Hello")), HasSubstr("begins with 'GGUF'"));
  EXPECT_THAT(
      complaint(write("f.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n")),
      HasSubstr("Git LFS"));
}

TEST_F(ModelPath, WeightsAlone) {
  const std::string file = write("alone/model.safetensors", "");
  EXPECT_THAT(complaint(write("alone/x.safetensors", "1234567{")),
              HasSubstr("weights alone; expected their directory"));
  EXPECT_THAT(complaint(write("alone/weights", "12345678{\"a\":")), HasSubstr("weights alone"));
  write("alone/config.json", "{}");
  EXPECT_THAT(complaint(write("alone/x.safetensors", "1234567{")),
              AllOf(HasSubstr("weights alone; name their directory"), HasSubstr(dir("alone"))));
}

}  // namespace
}  // namespace wideep::model
