// SPDX-License-Identifier: Apache-2.0
#include "measure/serving/text_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/scratch_directory.h"

namespace wideep::measure {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class TextRecords : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) {
    const std::filesystem::path path = directory_.file(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
    return path;
  }
  static json all_of(const std::string& file) {
    json all = json::array();
    const auto read = for_each_record(file, [&](const json& record) -> Result<bool> {
      all.push_back(record);
      return true;
    });
    return read.ok() ? all : json(read.status().message());
  }

  base::ScratchDirectory directory_;
};

TEST_F(TextRecords, EveryKindOfFileHasTheSameRecords) {
  const json wanted = {{{"q", "a, \"b\""}, {"a", "x\ny"}}, {{"q", "c"}, {"a", ""}}};
  EXPECT_EQ(all_of(write("a.json", wanted.dump())), wanted);
  const std::string lines = wanted[0].dump() + "\n\n" + wanted[1].dump() + "\n";
  EXPECT_EQ(all_of(write("b.json", lines)), wanted);
  EXPECT_EQ(all_of(write("c.jsonl", lines)), wanted);
  EXPECT_EQ(all_of(write("d.csv", "q,a\r\n\"a, \"\"b\"\"\",\"x\ny\"\r\nc,\r\n")), wanted);
  EXPECT_EQ(all_of(write("e.csv", "q,a\n")), json::array());
}

TEST_F(TextRecords, ErrorsHaveTheirPlace) {
  EXPECT_THAT(all_of(write("a.csv", "q,a\n\"x\ny\",1\nz\n")).get<std::string>(),
              HasSubstr("a.csv:4: expected 2 fields as in the first row, found 1"));
  EXPECT_THAT(all_of(write("b.csv", "q\n1\n\"x\n")).get<std::string>(),
              HasSubstr("b.csv: a quote of line 3 has no end"));
  EXPECT_THAT(all_of(write("c.jsonl", "{}\n3\n")).get<std::string>(),
              HasSubstr("c.jsonl:2: expected an object"));
  EXPECT_THAT(all_of(write("d.json", "[{}, 3]")).get<std::string>(),
              HasSubstr("d.json: record 1: expected an object"));
  EXPECT_THAT(all_of(write("e.parquet", "PAR1")).get<std::string>(),
              HasSubstr("e.parquet: files of the kind .parquet cannot be read"));
}

TEST_F(TextRecords, FoldersHaveConfigurationsAndSplits) {
  const std::string second = write("set/one/train-00001-of-00002.jsonl", "");
  const std::string first = write("set/one/train-00000-of-00002.jsonl", "");
  const std::string other = write("set/one/trainer.jsonl", "");
  const std::string test = write("set/two/test/part.csv", "");
  write("set/README.md", "");
  const std::string set = directory_.file("set");
  const auto files = [&](const char* configuration, const char* split) {
    return record_files({.path = set, .configuration = configuration, .split = split});
  };
  EXPECT_THAT(files("one", "train").value(), ElementsAre(first, second));
  EXPECT_THAT(files("", "test").value(), ElementsAre(test));
  EXPECT_THAT(record_files({.path = other, .configuration = "", .split = "x"}).value(),
              ElementsAre(other));
  EXPECT_THAT(files("one", "validation").status().message(),
              HasSubstr("expected files of the split validation, found those of: train, trainer"));
  EXPECT_THAT(files("one", "").status().message(), HasSubstr("(none given)"));
  EXPECT_THAT(files("three", "train").status().message(), HasSubstr("expected a folder three"));
  EXPECT_THAT(
      record_files({.path = set + "x", .configuration = "", .split = ""}).status().message(),
      HasSubstr("expected a file or a folder of data (nothing is downloaded)"));
}

}  // namespace
}  // namespace wideep::measure
