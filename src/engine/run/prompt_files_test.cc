// SPDX-License-Identifier: Apache-2.0
#include "run/prompt_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "base/shared_bytes.h"
#include "formats/files.h"
#include "store/directory.h"
#include "store/host_tier.h"
#include "store/records_testing.h"

namespace wideep::run {
namespace {

using store::Head;
using store::Part;
using testing::HasSubstr;

constexpr uint64_t kPageBytes = 24 << 10;
constexpr uint64_t kStateBytes = 5000;

RecordForm form_of_model(std::string record_class = "test") {
  return {.record_class = std::move(record_class),
          .page_bytes = kPageBytes,
          .state_bytes = kStateBytes};
}

// As two ranks of a tensor group have them: each has one half of each KiB.
std::vector<Head> halves(Head head) {
  std::vector<Head> parts;
  for (const uint64_t first : {0, 512}) {
    head.part = {.first = first, .length = 512, .stride = 1024, .count = kPageBytes / 1024};
    parts.push_back(head);
  }
  return parts;
}

// A host tier and a directory, as a service has them.
class Service {
 public:
  explicit Service(const std::string& path, const std::string& record_class = "test")
      : memory_(store::HostTier::create_memory(uint64_t{16} << 20).value()) {
    std::vector<store::ListedPlace> listed;
    listed.push_back({store::HostTier::open(memory_).value(), store::kHostPrice, true});
    listed.push_back(
        {store::Directory::open(
             {.path = path, .max_bytes = uint64_t{64} << 20, .record_class = record_class})
             .value(),
         store::kDiskPrice});
    places_ = std::make_unique<store::Places>(std::move(listed));
  }

  store::Places& places() { return *places_; }
  void keep(int place, const Head& head) {
    EXPECT_EQ(places().offer(place, head, payload_of(head), 0.5, store::kIntact),
              store::OfferResult::kTaken);
  }
  bool has(const Head& head) {
    std::vector<std::byte> bytes(head.part.bytes());
    const int where = places().find(std::span(&head, 1))[0];
    if (where == store::Places::kNowhere) return false;
    const std::vector<store::Wanted> wanted = {
        {.order = {.head = head, .into = bytes}, .place = where}};
    bool is_whole = false;
    places().fetch(wanted, [&](size_t, store::FetchResult result, int) {
      return is_whole = result == store::FetchResult::kWhole;
    });
    return is_whole && bytes == payload_of(head);
  }

 private:
  base::SharedBytes memory_;
  std::unique_ptr<store::Places> places_;
};

class PromptFilesTest : public testing::Test {
 protected:
  PromptFilesTest() { std::iota(tokens_.begin(), tokens_.end(), 100); }

  Head state_after(const Head& page) const {
    Head head = page;
    head.kind = store::Kind::kState;
    head.canonical_bytes = kStateBytes;
    head.part = Part::whole(kStateBytes);
    return head;
  }
  // Three pages, the last of them in another place, and the state after the second.
  void fill(Service& service, std::string_view salt = "") {
    const std::vector<Head> pages = pages_of(form_of_model(), tokens_, salt);
    ASSERT_EQ(pages.size(), 3u);
    for (size_t i = 0; i < 2; ++i) {
      for (const Head& part : halves(pages[i])) service.keep(0, part);
    }
    service.keep(1, pages[2]);
    service.keep(1, state_after(pages[1]));
  }
  ExportOrder order(std::string_view salt = "") const {
    return {.path = archive_,
            .tokens = tokens_,
            .salt = salt,
            .page_seconds = 0.25,
            .patience = std::chrono::milliseconds(0)};
  }
  // Name, time of the last change and bytes of each file.
  std::map<std::string, std::pair<int64_t, std::string>> files() const {
    std::map<std::string, std::pair<int64_t, std::string>> found;
    for (const auto& entry : std::filesystem::directory_iterator(archive_)) {
      found[entry.path().filename().string()] = {entry.last_write_time().time_since_epoch().count(),
                                                 formats::read_file(entry.path().string()).value()};
    }
    return found;
  }
  std::string segment() const {
    for (const auto& entry : std::filesystem::directory_iterator(archive_)) {
      return entry.path().string();
    }
    return "";
  }
  // An archive of these records and no other.
  void write_archive(const std::vector<Head>& heads, const std::string& record_class = "test") {
    const auto directory =
        store::Directory::open(
            {.path = archive_, .max_bytes = uint64_t{16} << 20, .record_class = record_class})
            .value();
    for (const Head& head : heads) {
      ASSERT_EQ(directory->offer(head, payload_of(head), 0.5, store::kIntact),
                store::OfferResult::kTaken);
    }
  }

  base::ScratchDirectory scratch_;
  std::string archive_ = scratch_.path() + "/archive";
  std::vector<int32_t> tokens_ = std::vector<int32_t>(3 * store::kPageTokens + 5);
};

TEST_F(PromptFilesTest, WhatOneServiceKeepsInPartsAnotherGetsWhole) {
  Service from(scratch_.path() + "/from"), to(scratch_.path() + "/to");
  fill(from);
  const auto exported = export_prompt(form_of_model(), order(), from.places());
  ASSERT_TRUE(exported.ok()) << exported.status().message();
  EXPECT_EQ(exported->pages, 3);
  EXPECT_EQ(exported->states, 1);
  EXPECT_EQ(exported->missing, 0);
  EXPECT_EQ(exported->bytes, 3 * kPageBytes + kStateBytes);
  const auto before = files();
  EXPECT_EQ(before.size(), 1u);
  // No longer than its records.
  EXPECT_EQ(std::filesystem::file_size(segment()), 4096u + 3 * (4096 + kPageBytes) + 4096 + 8192);

  const auto imported = import_archive(form_of_model(), archive_, to.places());
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->pages, 3);
  EXPECT_EQ(imported->states, 1);
  EXPECT_EQ(imported->bytes, exported->bytes);
  EXPECT_EQ(imported->skipped.all(), 0u);
  EXPECT_EQ(files(), before);
  const std::vector<Head> pages = pages_of(form_of_model(), tokens_, "");
  for (const Head& page : pages) {
    EXPECT_TRUE(to.has(page));
    for (const Head& part : halves(page)) {
      EXPECT_TRUE(to.has(part));
    }
  }
  EXPECT_TRUE(to.has(state_after(pages[1])));
  EXPECT_FALSE(to.has(state_after(pages[0])));
  // Again: all is known.
  EXPECT_EQ(import_archive(form_of_model(), archive_, to.places())->pages, 3);
}

TEST_F(PromptFilesTest, WhatIsMissingIsCounted) {
  Service from(scratch_.path() + "/from");
  const auto nothing = export_prompt(form_of_model(), order(), from.places());
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->pages, 0);
  EXPECT_EQ(nothing->missing, 3);
  EXPECT_FALSE(std::filesystem::exists(archive_));

  const std::vector<Head> pages = pages_of(form_of_model(), tokens_, "");
  for (const Head& part : halves(pages[0])) from.keep(0, part);
  from.keep(0, halves(pages[1])[0]);  // the other half is not written yet
  const auto some = export_prompt(form_of_model(), order(), from.places());
  ASSERT_TRUE(some.ok()) << some.status().message();
  EXPECT_EQ(some->pages, 1);
  EXPECT_EQ(some->missing, 2);
  // A name is given once.
  const auto again = export_prompt(form_of_model(), order(), from.places());
  EXPECT_EQ(again.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(again.status().message(), HasSubstr("archive: is there already"));
}

TEST_F(PromptFilesTest, PagesThatAreWrittenMeanwhileAreWaitedFor) {
  Service from(scratch_.path() + "/from");
  ExportOrder patient = order();
  patient.patience = std::chrono::milliseconds(200);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(export_prompt(form_of_model(), patient, from.places()).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(100));
}

TEST_F(PromptFilesTest, ASaltIsPartOfTheNames) {
  Service from(scratch_.path() + "/from"), to(scratch_.path() + "/to");
  fill(from, "tenant");
  EXPECT_EQ(export_prompt(form_of_model(), order(), from.places())->pages, 0);
  EXPECT_EQ(export_prompt(form_of_model(), order("tenant"), from.places())->pages, 3);
  EXPECT_EQ(import_archive(form_of_model(), archive_, to.places())->pages, 3);
  EXPECT_FALSE(to.has(pages_of(form_of_model(), tokens_, "")[0]));
  EXPECT_TRUE(to.has(pages_of(form_of_model(), tokens_, "tenant")[0]));
}

TEST_F(PromptFilesTest, RecordsOfAnotherClassAreSkipped) {
  Service to(scratch_.path() + "/to");
  write_archive(pages_of(form_of_model("other"), tokens_, ""), "other");
  const auto imported = import_archive(form_of_model(), archive_, to.places());
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->pages, 0);
  EXPECT_EQ(imported->skipped.other_class, 3u);
  EXPECT_EQ(imported->skipped.all(), 3u);
}

TEST_F(PromptFilesTest, ForgedRecordsAreSkipped) {
  Service to(scratch_.path() + "/to");
  std::vector<Head> pages = pages_of(form_of_model(), tokens_, "");
  const Head right = pages[0];
  std::vector<Head> forged(6, pages[1]);
  Head first = pages[0];
  first.page = 3;  // it begins a sequence
  write_archive({first});
  EXPECT_EQ(import_archive(form_of_model(), archive_, to.places())->skipped.wrong, 1u);
  ++forged[0].tokens[7];                             // not those of the name
  forged[1].page = 5;                                // does not follow the page before
  forged[2].before = store::root_name("test", "x");  // not that of the name
  forged[3].canonical_bytes = 2 * kPageBytes;        // of another model
  forged[4] = state_after(pages[2]);
  forged[4].canonical_bytes = kStateBytes + 1;
  forged[4].part = Part::whole(kStateBytes + 1);
  forged[5].part = {.first = 0, .length = 100, .stride = 200, .count = 3};
  std::vector<Head> heads = {right};
  heads.insert(heads.end(), forged.begin(), forged.begin() + 5);
  // A part that the directory takes, as it is one of a possible layout.
  heads.push_back(forged[5]);
  for (size_t i = 1; i < heads.size(); ++i) {
    // Each in a directory of its own, since a directory has a name once.
    std::filesystem::remove_all(archive_);
    write_archive({right, heads[i]});
    const auto imported = import_archive(form_of_model(), archive_, to.places());
    ASSERT_TRUE(imported.ok());
    const bool is_right = i == heads.size() - 1;
    EXPECT_EQ(imported->pages, is_right ? 2 : 1) << i;
    EXPECT_EQ(imported->skipped.wrong, is_right ? 0u : 1u) << i;
  }
}

// More than any layout has: places would put them together whenever somebody looks.
TEST_F(PromptFilesTest, PartsAreFewAndOfFewPieces) {
  Service to(scratch_.path() + "/to");
  RecordForm form = form_of_model();
  form.page_bytes = uint64_t{1} << 20;
  Head page = pages_of(form, tokens_, "")[0];
  std::vector<Head> heads;
  for (uint64_t i = 0; i < 200; ++i) {
    page.part = {.first = 100 * i, .length = 100, .stride = 100, .count = 1};
    heads.push_back(page);
  }
  page.part = {.first = 1, .length = 1, .stride = 2, .count = (1 << 16) + 1};
  heads.push_back(page);
  write_archive(heads);
  const auto imported = import_archive(form, archive_, to.places());
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->pages, 1);
  EXPECT_EQ(imported->skipped.wrong, 200 - 128 + 1u);
}

// Each byte of a record's block, and some of its payload.
TEST_F(PromptFilesTest, DamagedRecordsAreSkipped) {
  Service from(scratch_.path() + "/from"), to(scratch_.path() + "/to");
  fill(from);
  ASSERT_TRUE(export_prompt(form_of_model(), order(), from.places()).ok());
  const std::string file = segment();
  const std::string whole = formats::read_file(file).value();
  for (size_t at = 4096; at < whole.size(); at += at < 4096 + 416 ? 13 : 3001) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    ASSERT_TRUE(formats::write_file(file, damaged).ok());
    const auto imported = import_archive(form_of_model(), archive_, to.places());
    ASSERT_TRUE(imported.ok()) << at;
    // What lies behind a payload is no part of it.
    const bool is_behind = imported->pages == 3 && imported->states == 1;
    EXPECT_EQ(imported->pages + imported->states, is_behind ? 4 : 3) << at;
    // A version that is another may be meant so.
    const bool is_version = at >= 4096 + 8 && at < 4096 + 16;
    EXPECT_EQ(is_version ? imported->skipped.foreign : imported->skipped.damaged,
              is_behind ? 0u : 1u)
        << at;
    if (is_behind) {
      EXPECT_GE(at, whole.size() - 8192 + kStateBytes);
    }
  }
  ASSERT_TRUE(formats::write_file(file, whole.substr(0, whole.size() - 4096)).ok());
  EXPECT_EQ(import_archive(form_of_model(), archive_, to.places())->states, 0);
  // The head of the segment: the records know where they belong.
  std::string headless = whole;
  headless[20] ^= 1;
  ASSERT_TRUE(formats::write_file(file, headless).ok());
  EXPECT_EQ(import_archive(form_of_model(), archive_, to.places())->pages, 3);
}

TEST_F(PromptFilesTest, OtherFilesAndNoDirectoryAreToldApart) {
  Service to(scratch_.path() + "/to");
  const auto none = import_archive(form_of_model(), archive_, to.places());
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(none.status().message(), HasSubstr("archive: expected a directory"));
  ASSERT_TRUE(std::filesystem::create_directory(archive_));
  ASSERT_TRUE(formats::write_file(archive_ + "/readme.txt", "text").ok());
  ASSERT_TRUE(formats::write_file(archive_ + "/segment-00c0ffee00c0ffee.wideep", "text").ok());
  const auto imported = import_archive(form_of_model(), archive_, to.places());
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->skipped.foreign, 2u);
  std::filesystem::create_symlink(archive_, scratch_.path() + "/link");
  EXPECT_FALSE(import_archive(form_of_model(), scratch_.path() + "/link", to.places()).ok());
}

TEST_F(PromptFilesTest, ADiskThatRefusesLeavesNothing) {
  Service from(scratch_.path() + "/from");
  fill(from);
  ExportOrder nowhere = order();
  nowhere.path = scratch_.path() + "/from/segment-file/archive";
  ASSERT_TRUE(formats::write_file(scratch_.path() + "/from/segment-file", "a file").ok());
  EXPECT_EQ(export_prompt(form_of_model(), nowhere, from.places()).status().code(),
            StatusCode::kFailed);
}

TEST_F(PromptFilesTest, BothEndEarlyWhereTheyShall) {
  Service from(scratch_.path() + "/from"), to(scratch_.path() + "/to");
  fill(from);
  int left = 2;
  const auto goes_on = [&left] { return left-- > 0; };
  ExportOrder cut = order();
  cut.goes_on = goes_on;
  EXPECT_EQ(export_prompt(form_of_model(), cut, from.places()).status().code(),
            StatusCode::kFailed);
  EXPECT_FALSE(std::filesystem::exists(archive_));
  ASSERT_TRUE(export_prompt(form_of_model(), order(), from.places()).ok());
  left = 2;
  const auto imported = import_archive(form_of_model(), archive_, to.places(), goes_on);
  EXPECT_EQ(imported.status().code(), StatusCode::kFailed);
  const std::vector<Head> pages = pages_of(form_of_model(), tokens_, "");
  EXPECT_TRUE(to.has(pages[1]));
  EXPECT_FALSE(to.has(pages[2]));
}

}  // namespace
}  // namespace wideep::run
