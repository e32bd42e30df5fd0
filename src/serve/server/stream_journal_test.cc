// SPDX-License-Identifier: Apache-2.0
#include "server/stream_journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "formats/base64.h"
#include "server/stream_records.h"

namespace wideep::server {
namespace {

// A server's stream of a few events, as it comes, and without marks.
struct StreamOfEvents {
  std::string bytes, events;

  explicit StreamOfEvents(size_t num_events, size_t first_record = 0) {
    std::mt19937 random(7);
    if (first_record == 0) bytes += record_comment("head");
    for (size_t i = 0; i < num_events; ++i) {
      std::string event = "data: {\"text\": \"";
      for (size_t j = random() % 40; j > 0; --j) event += static_cast<char>('a' + random() % 26);
      event += "\"}\n\n";
      if (i >= first_record) bytes += record_comment("token " + std::to_string(i));
      bytes += event;
      events += event;
    }
  }
};

// The bytes in parts of random sizes.
std::string taken(StreamJournal& journal, std::string_view bytes, std::mt19937& random) {
  std::string out;
  while (!bytes.empty()) {
    const size_t count = std::min<size_t>(bytes.size(), random() % 60);
    out += journal.take(bytes.substr(0, count));
    bytes.remove_prefix(count);
  }
  return out;
}

std::string lines(size_t num_tokens) {
  std::string text = formats::base64("head") + "\n";
  for (size_t i = 0; i < num_tokens; ++i) {
    text += formats::base64("token " + std::to_string(i)) + "\n";
  }
  return text;
}

TEST(StreamJournal, AnAnswerHasBegunBehindItsHead) {
  StreamJournalMemory memory;
  StreamJournal journal(memory);
  journal.take(record_comment("head") + "data: {\"role\": \"assistant\"}\n\n");
  EXPECT_FALSE(journal.has_begun());
  journal.begin_again();
  journal.take("data: {\"role\": \"assistant\"}\n\n");
  EXPECT_FALSE(journal.has_begun());
  journal.take(record_comment("token 0"));
  EXPECT_TRUE(journal.has_begun());
}

TEST(StreamJournal, TakesRecordsOut) {
  const StreamOfEvents stream(30);
  std::mt19937 random(3);
  StreamJournalMemory memory;
  for (int i = 0; i < 200; ++i) {
    StreamJournal journal(memory);
    EXPECT_TRUE(journal.can_resume(10));
    EXPECT_FALSE(journal.has_records());
    EXPECT_EQ(taken(journal, stream.bytes, random), stream.events);
    EXPECT_EQ(journal.resumed("{}"), "{}" + lines(30));
    EXPECT_EQ(memory.bytes, lines(30).size());
  }
  EXPECT_EQ(memory.bytes, 0u);
}

// Servers that send no records, and comments of others.
TEST(StreamJournal, LeavesOtherStreamsAsTheyAre) {
  StreamJournalMemory memory;
  StreamJournal journal(memory);
  std::mt19937 random(3);
  const std::string text =
      ": ping\n\n: wide\n\n: \n\n\n\ndata: : wideep-record x\n\ndata: a\n: wideep-record y\n\n:";
  // The last byte may be of a mark.
  EXPECT_EQ(taken(journal, text, random), text.substr(0, text.size() - 1));
  EXPECT_FALSE(journal.has_records());
  EXPECT_FALSE(journal.can_resume(0));
}

// At every byte, and then again.
TEST(StreamJournal, GoesOnWhereverAStreamIsLost) {
  const StreamOfEvents whole(20);
  std::mt19937 random(5);
  StreamJournalMemory memory;
  for (size_t cut = 0; cut <= whole.bytes.size(); ++cut) {
    StreamJournal journal(memory);
    std::string got = taken(journal, std::string_view(whole.bytes).substr(0, cut), random);
    ASSERT_TRUE(journal.can_resume(2));
    for (int again = 0; again < 2; ++again) {
      const auto split = split_resumed("2", journal.resumed("{}"));
      ASSERT_TRUE(split.ok());
      const size_t num_records = split->records.size();
      const StreamOfEvents next(20, num_records == 0 ? 0 : num_records - 1);
      journal.begin_again();
      const std::string_view bytes = next.bytes;
      got += taken(journal, again == 1 ? bytes : bytes.substr(0, random() % bytes.size()), random);
      ASSERT_FALSE(journal.differs());
    }
    ASSERT_EQ(got, whole.events) << cut;
    ASSERT_FALSE(journal.is_behind());
  }
}

// They come whole or not at all, and only where the client is at the end of an event.
TEST(StreamJournal, AsidesAreNotRepeated) {
  StreamJournalMemory memory;
  const std::string head = record_comment("head"), ping = marked_aside(": ping\n\n");
  const std::string progress = marked_aside("data: progress\n\n");
  const std::string one = "data: one\n\n", two = "data: two\n\n";
  const std::string first = head + ping + one + progress + two;
  for (size_t cut = 0; cut <= first.size(); ++cut) {
    StreamJournal journal(memory);
    const std::string got = journal.take(std::string_view(first).substr(0, cut));
    journal.begin_again();
    const std::string more = journal.take(ping + one + progress + two);
    std::string all = got + more;
    // Without asides the events are there once.
    for (const std::string& aside :
         {std::string(": ping\n\n"), std::string("data: progress\n\n")}) {
      for (size_t at = all.find(aside); at != all.npos; at = all.find(aside)) {
        all.erase(at, aside.size());
      }
    }
    EXPECT_EQ(all, one + two) << cut;
    // Where the client has the beginning of the answer already, it gets none before that.
    const bool has_begun = got.size() > (got.starts_with(": ping") ? 8u : 0u);
    EXPECT_EQ(more.find("ping") == more.npos, has_begun) << cut;
  }
}

TEST(StreamJournal, SeesThatAStreamIsAnother) {
  StreamJournalMemory memory;
  StreamJournal journal(memory);
  EXPECT_EQ(journal.take(record_comment("head") + "data: one\n\ndata: tw"),
            "data: one\n\ndata: tw");
  journal.begin_again();
  EXPECT_TRUE(journal.is_behind());
  EXPECT_EQ(journal.take("data: one\n\ndata: once\n\ndata: more\n\n"), "");
  EXPECT_TRUE(journal.differs());
  EXPECT_FALSE(journal.can_resume(0));
  EXPECT_EQ(journal.take("data: more\n\n"), "");
}

TEST(StreamJournal, KeepsNoMoreThanItMay) {
  StreamJournalMemory memory;
  const std::string large = record_comment(std::string(size_t{1} << 20, 'x'));
  StreamJournal journal(memory);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(journal.take(large + "data: x\n\n"), "data: x\n\n");
    EXPECT_TRUE(journal.can_resume(100));
  }
  EXPECT_FALSE(journal.can_resume(StreamJournal::kMaxBytes - memory.bytes + 1));
  EXPECT_EQ(journal.take(large + "data: x\n\n"), "data: x\n\n");
  EXPECT_FALSE(journal.can_resume(0));
  EXPECT_EQ(memory.bytes, 0u);
  EXPECT_EQ(journal.take(large + "data: x\n\n"), "data: x\n\n");
  EXPECT_EQ(memory.bytes, 0u);

  // Nor all of them together.
  std::vector<std::unique_ptr<StreamJournal>> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(std::make_unique<StreamJournal>(memory));
    for (int j = 0; j < 4; ++j) all.back()->take(large);
  }
  EXPECT_LE(memory.bytes, StreamJournalMemory::kMaxBytes);
  EXPECT_TRUE(all.front()->can_resume(0));
  EXPECT_FALSE(all.back()->can_resume(0) && all.back()->has_records());
  all.clear();
  EXPECT_EQ(memory.bytes, 0u);

  // A comment without an end is read over.
  StreamJournal endless(memory);
  endless.take(record_comment("head"));
  endless.take(kRecordMark);
  for (int i = 0; i < 20; ++i) endless.take(std::string(size_t{1} << 20, 'x'));
  EXPECT_FALSE(endless.can_resume(0));
  EXPECT_EQ(endless.take("\n"), "");
  EXPECT_EQ(endless.take("\ndata: x\n\n"), "data: x\n\n");
}

TEST(StreamJournal, MarksThatNoServerWritesEndIt) {
  StreamJournalMemory memory;
  for (const char* mark :
       {": wideep-aside x\n\n", ": wideep-aside \n\n", ": wideep-aside 99999999999999999999999\n\n",
        ": wideep-aside 1073741824\n\n"}) {
    StreamJournal journal(memory);
    journal.take(record_comment("head"));
    EXPECT_EQ(journal.take(std::string(mark) + "data: x\n\n"), "data: x\n\n");
    EXPECT_FALSE(journal.can_resume(0)) << mark;
  }
}

}  // namespace
}  // namespace wideep::server
