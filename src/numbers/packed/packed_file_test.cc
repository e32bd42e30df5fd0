// SPDX-License-Identifier: Apache-2.0
#include "packed/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "packed/packed_writer.h"

namespace wideep::packed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  Bytes bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(rng());
  return bytes;
}

class PackedFileTest : public testing::Test {
 protected:
  Result<PackedWriter> writer(const std::string& record_class = "class a") {
    return PackedWriter::open(directory_, {.model = "tiny", .record_class = record_class});
  }
  // Steps "0", "1", … of two parts each.
  static Bytes part_bytes(int step, int part) {
    return random_bytes(static_cast<size_t>(step * 5000 + part * 77 + 1), step * 2 + part);
  }
  static std::string part_name(int step, int part) {
    return "part " + std::to_string(step) + "." + std::to_string(part);
  }
  static Status write_step(PackedWriter& writer, int step, bool ends = true) {
    for (int part = 0; part < 2; ++part) {
      const Status added = writer.add(part_name(step, part), part_bytes(step, part), 0.5f * step);
      if (!added.ok()) return added;
    }
    return ends ? writer.end(std::to_string(step)) : Status();
  }
  void write(int num_steps) {
    auto out = writer();
    ASSERT_TRUE(out.ok()) << out.status().message();
    for (int step = 0; step < num_steps; ++step) ASSERT_TRUE(write_step(*out, step).ok());
    ASSERT_TRUE(out->finish().ok());
  }
  static void expect_parts(const PackedFile& file, int num_steps) {
    ASSERT_EQ(file.parts().size(), 2u * num_steps);
    for (int step = 0; step < num_steps; ++step) {
      for (int i = 0; i < 2; ++i) {
        const Part* const part = file.find(part_name(step, i));
        ASSERT_NE(part, nullptr);
        EXPECT_EQ(part->offset % kAlignment, 0u);
        EXPECT_EQ(part->scale, 0.5f * step);
        const Bytes expected = part_bytes(step, i);
        Bytes copy(part->bytes);
        ASSERT_TRUE(file.copy_piece(part_name(step, i), 0, copy.data()).ok());
        EXPECT_EQ(copy, expected);
      }
    }
  }
  std::string error_of_open(const std::string& record_class = "") {
    return PackedFile::open(directory_, record_class).status().message();
  }
  void overwrite(const std::string& name, const std::string& content) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << content;
  }

  base::ScratchDirectory scratch_;
  const std::string directory_ = scratch_.file("cache/tiny-0123");
  base::ThreadPool threads_{2};
};

TEST_F(PackedFileTest, HasWhatWasWritten) {
  write(3);
  const auto file = PackedFile::open(directory_, "class a");
  ASSERT_TRUE(file.ok()) << file.status().message();
  expect_parts(*file, 3);
  EXPECT_EQ(file->model(), "tiny");
  EXPECT_EQ(file->find("another"), nullptr);
  uint64_t read = 0;
  EXPECT_TRUE(file->verify(threads_, [&](uint64_t bytes) { read += bytes; }).ok());
  EXPECT_EQ(read, file->total_bytes());
  // Whole pages, for those that read without the page cache.
  EXPECT_EQ(fs::file_size(file->records_path()) % kAlignment, 0u);
  EXPECT_FALSE(fs::exists(directory_ + ".unfinished"));
}

TEST_F(PackedFileTest, APartOfSeveralPiecesHasAHashForEach) {
  const Bytes large = random_bytes(kPieceBytes + 12'345, 9);
  auto out = writer();
  ASSERT_TRUE(out->add("large", large).ok());
  ASSERT_TRUE(out->end("all").ok());
  ASSERT_TRUE(out->finish().ok());
  const auto file = PackedFile::open(directory_, "");
  ASSERT_TRUE(file.ok());
  Bytes copy(large.size());
  for (const int piece : {1, 0}) ASSERT_TRUE(file->copy_piece("large", piece, copy.data()).ok());
  EXPECT_EQ(copy, large);
}

// A process that dies leaves the steps that have ended, and half of one.
TEST_F(PackedFileTest, TheNextWriterGoesOn) {
  {
    auto first = writer();
    ASSERT_TRUE(write_step(*first, 0).ok());
    ASSERT_TRUE(write_step(*first, 1).ok());
    ASSERT_TRUE(write_step(*first, 2, false).ok());
    EXPECT_THAT(error_of_open(), HasSubstr(directory_));
  }
  // A line that was being written.
  std::ofstream(directory_ + ".unfinished/progress", std::ios::app) << R"({"step":"2","en)";
  auto second = writer();
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_TRUE(second->has("0") && second->has("1"));
  EXPECT_FALSE(second->has("2"));
  EXPECT_TRUE(second->has_part(part_name(1, 1)));
  EXPECT_FALSE(second->has_part(part_name(2, 0)));
  EXPECT_FALSE(second->add(part_name(1, 0), part_bytes(1, 0)).ok());
  ASSERT_TRUE(write_step(*second, 2).ok());
  ASSERT_TRUE(second->finish().ok());
  const auto file = PackedFile::open(directory_, "class a");
  ASSERT_TRUE(file.ok());
  expect_parts(*file, 3);
}

// At any byte of what a writer notes, the next one finds steps that are whole, and no others.
TEST_F(PackedFileTest, WhatIsNotedMayEndAnywhere) {
  {
    auto first = writer();
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(write_step(*first, step).ok());
  }
  const std::string progress = directory_ + ".unfinished/progress";
  const std::string kept = scratch_.file("kept");
  fs::copy(directory_ + ".unfinished", kept);
  for (uint64_t bytes = 0; bytes <= fs::file_size(kept + "/progress"); bytes += 7) {
    fs::remove_all(directory_);
    fs::copy(kept, directory_ + ".unfinished",
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    fs::resize_file(progress, bytes);
    auto next = writer();
    ASSERT_TRUE(next.ok()) << bytes << ": " << next.status().message();
    for (int step = 0; step < 3; ++step) {
      if (next->has(std::to_string(step))) continue;
      ASSERT_TRUE(write_step(*next, step).ok());
    }
    ASSERT_TRUE(next->finish().ok());
    const auto file = PackedFile::open(directory_, "class a");
    ASSERT_TRUE(file.ok());
    expect_parts(*file, 3);
  }
}

// As a copy that was cut short, or a hand, leaves it.
TEST_F(PackedFileTest, WhatIsNotedAndNotThereIsWrittenAgain) {
  const std::string at = directory_ + ".unfinished";
  const auto spoil = [&](const std::string& line) {
    std::ofstream(at + "/progress", std::ios::app) << line << "\n";
  };
  for (const std::string& line :
       {std::string(R"({"step": 1, "end": 0, "parts": {}})"),
        std::string(R"({"step": "1", "end": 0, "parts": {}})"),
        std::string(R"({"step": "1", "end": "x", "parts": {}})"),
        std::string(R"({"step": "1", "end": 1099511627776, "parts": {}})"),
        std::string(R"({"step": "1", "end": 0, "parts": {"x": [0, 4096, 0, 1]}})"),
        std::string(R"({"step": "1", "end": 0, "parts": {"x": "y"}})")}) {
    SCOPED_TRACE(line);
    fs::remove_all(directory_);
    {
      auto first = writer();
      ASSERT_TRUE(write_step(*first, 0).ok());
    }
    spoil(line);
    auto next = writer();
    ASSERT_TRUE(next.ok()) << next.status().message();
    EXPECT_FALSE(next->has("1"));
    for (int step = 0; step < 2; ++step) {
      if (next->has(std::to_string(step))) continue;
      ASSERT_TRUE(write_step(*next, step).ok());
    }
    ASSERT_TRUE(next->finish().ok());
    expect_parts(*PackedFile::open(directory_, "class a"), 2);
  }
}

TEST_F(PackedFileTest, WhatIsOfAnotherClassIsWrittenAnew) {
  {
    auto first = writer("class b");
    ASSERT_TRUE(write_step(*first, 0).ok());
  }
  auto second = writer("class a");
  EXPECT_FALSE(second->has("0"));
  ASSERT_TRUE(write_step(*second, 0).ok());
  ASSERT_TRUE(second->finish().ok());
  expect_parts(*PackedFile::open(directory_, "class a"), 1);
}

TEST_F(PackedFileTest, OneProcessWrites) {
  auto first = writer();
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(writer().status().message(), HasSubstr("another process is writing it"));
  ASSERT_TRUE(write_step(*first, 0).ok());
  ASSERT_TRUE(first->finish().ok());
  EXPECT_TRUE(writer().ok());
}

// Who has opened the file before keeps what it has.
TEST_F(PackedFileTest, StepsAreAddedLater) {
  write(2);
  const auto before = PackedFile::open(directory_, "class a");
  ASSERT_TRUE(before.ok());
  EXPECT_THAT(writer("class b").status().message(), HasSubstr("expected 'class b'"));
  {
    auto more = writer();
    ASSERT_TRUE(more.ok()) << more.status().message();
    EXPECT_TRUE(more->has("1"));
    ASSERT_TRUE(write_step(*more, 2).ok());
    ASSERT_TRUE(write_step(*more, 3, false).ok());
  }
  expect_parts(*PackedFile::open(directory_, "class a"), 2);  // not yet
  auto rest = writer();
  EXPECT_TRUE(rest->has("2"));
  EXPECT_FALSE(rest->has("3"));
  ASSERT_TRUE(write_step(*rest, 3).ok());
  ASSERT_TRUE(rest->finish().ok());
  expect_parts(*PackedFile::open(directory_, "class a"), 4);
  expect_parts(*before, 2);
}

// Readers that open the records by themselves get those that the index is about.
TEST_F(PackedFileTest, RecordsAreFoundWhenTheirNameIsGoneOrAnothers) {
  write(2);
  const auto file = PackedFile::open(directory_, "class a");
  ASSERT_TRUE(file.ok());
  const std::string path = file->records_path();
  EXPECT_EQ(path, directory_ + "/records");
  const std::string bytes = *formats::read_file(path);
  fs::remove(path);
  EXPECT_EQ(*formats::read_file(file->records_path()), bytes);
  EXPECT_THAT(error_of_open("class a"),
              AllOf(HasSubstr("'records' beside it cannot be read: No such file"),
                    HasSubstr("remove the directory, and the weights are packed again")));
  std::ofstream(path) << "others";
  EXPECT_EQ(*formats::read_file(file->records_path()), bytes);
  expect_parts(*file, 2);
  fs::remove(directory_ + "/index.json");
  EXPECT_THAT(error_of_open("class a"), HasSubstr("index.json: is not there"));
  EXPECT_THAT(error_of_open("class a"), HasSubstr("remove the directory"));
}

TEST_F(PackedFileTest, ADiskWithoutRoomIsAnErrorBeforeAnythingIsRead) {
  const auto out = PackedWriter::open(
      directory_, {.model = "", .record_class = "a", .expected_bytes = uint64_t{1} << 60});
  EXPECT_THAT(out.status().message(), AllOf(HasSubstr("needs 1.0 EiB"), HasSubstr("has room for")));
}

// At any part; what is there of steps before would only keep others from the room.
TEST_F(PackedFileTest, AFullDiskLeavesNothingHalf) {
  const std::string disk = scratch_.file("disk");
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "needs permission to mount a file system";
  }
  const std::string directory = disk + "/packed";
  const Bytes part = random_bytes(300'000, 1);
  // A new one, then one to which a step is added.
  for (const bool has_one : {false, true}) {
    if (has_one) {
      auto first = PackedWriter::open(directory, {.model = "", .record_class = "a"});
      ASSERT_TRUE(first->add("p", part).ok() && first->end("0").ok() && first->finish().ok());
    }
    auto out = PackedWriter::open(directory, {.model = "", .record_class = "a"});
    ASSERT_TRUE(out.ok());
    Status status;
    for (int step = 1; step < 5 && status.ok(); ++step) {
      status = out->add(std::to_string(step), part);
      if (status.ok()) status = out->end(std::to_string(step));
    }
    if (status.ok()) status = out->finish();
    EXPECT_THAT(status.message(), HasSubstr("No space left on device"));
    EXPECT_FALSE(fs::exists(directory + ".unfinished"));
    EXPECT_EQ(fs::exists(directory), has_one);
    if (!has_one) continue;
    const auto file = PackedFile::open(directory, "a");
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_TRUE(file->verify(threads_, [](uint64_t) {}).ok());
    EXPECT_LT(fs::file_size(file->records_path()), 400'000u);
  }
  ::umount(disk.c_str());
}

// ---- what is wrong with a directory ----

TEST_F(PackedFileTest, OthersAreRefused) {
  write(2);
  EXPECT_THAT(error_of_open("class b"), AllOf(HasSubstr("of class 'class a', expected 'class b'"),
                                              HasSubstr("remove the directory")));
  fs::resize_file(directory_ + "/records", 4096);
  EXPECT_THAT(error_of_open(), AllOf(HasSubstr("which has 4096"), HasSubstr("cut short")));
  overwrite("index.json", R"({"wideep_packed": 1})");
  EXPECT_THAT(error_of_open(), HasSubstr("expected 'steps'"));
  overwrite("index.json", R"({"wideep_packed": 99})");
  EXPECT_THAT(error_of_open(), HasSubstr("version 99, expected 1"));
  for (const char* part : {"[1, 2, 3, 4]", "[0, 2, 3]", "[0, -1, 3]", "7", "[0, 1, 2, \"x\"]",
                           "[18446744073709547520, 8192, 0, 1]"}) {
    overwrite("index.json",
              std::string(R"({"wideep_packed": 1, "steps": [], "parts": {"p": )") + part + "}}");
    EXPECT_THAT(error_of_open(), HasSubstr("'p'")) << part;
  }
  overwrite("index.json", "{");
  EXPECT_THAT(error_of_open(), HasSubstr("index.json:1:"));
  fs::remove(directory_ + "/index.json");
  EXPECT_THAT(error_of_open(), HasSubstr("index.json"));
}

// Any bit of any part, 1,000 times: found where the part is used, and by verify().
TEST_F(PackedFileTest, NoDamagedPartIsUsed) {
  write(3);
  const auto file = PackedFile::open(directory_, "class a");
  ASSERT_TRUE(file.ok());
  std::fstream records(file->records_path(), std::ios::binary | std::ios::in | std::ios::out);
  std::mt19937 rng(4);
  const auto flip = [&](uint64_t at, int bit) {
    char byte;
    records.seekg(static_cast<std::streamoff>(at)).read(&byte, 1);
    byte = static_cast<char>(byte ^ (1 << bit));
    records.seekp(static_cast<std::streamoff>(at)).write(&byte, 1).flush();
  };
  for (int i = 0; i < 1000; ++i) {
    const auto named = std::next(file->parts().begin(), rng() % file->parts().size());
    const uint64_t at = named->second.offset + rng() % named->second.bytes;
    const int bit = static_cast<int>(rng() % 8);
    flip(at, bit);
    Bytes copy(named->second.bytes);
    const Status status = file->copy_piece(named->first, 0, copy.data());
    ASSERT_THAT(status.message(), HasSubstr("'" + named->first + "' differs from its hash"));
    if (i % 100 == 0) {
      EXPECT_THAT(file->verify(threads_, [](uint64_t) {}).message(),
                  AllOf(HasSubstr("1 of 6 pieces are damaged"), HasSubstr(named->first)));
    }
    flip(at, bit);
  }
  expect_parts(*file, 3);
}

}  // namespace
}  // namespace wideep::packed
