// SPDX-License-Identifier: Apache-2.0
#include "group/notes.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace wideep::transport {
namespace {

// Of a front that is killed: which connections it has closed must be known, although it has not
// read what was sent to it.
TEST(NoteSocket, WhatTheOtherEndSaidArrivesAfterItsDeath) {
  auto pair = NoteSocket::make_pair();
  ASSERT_TRUE(pair.ok());
  ASSERT_TRUE(pair->keeper.send({.kind = Note::Kind::kHeld, .value = 9}));
  ASSERT_TRUE(pair->child.send({.kind = Note::Kind::kDrop, .value = 7}));
  ASSERT_TRUE(pair->child.send({.kind = Note::Kind::kDrop, .value = 8}));
  pair->child = NoteSocket();
  Note note;
  for (const int64_t dropped : {7, 8}) {
    ASSERT_EQ(pair->keeper.receive(&note, false), NoteSocket::Got::kNote);
    EXPECT_EQ(note.value, dropped);
  }
  EXPECT_EQ(pair->keeper.receive(&note, false), NoteSocket::Got::kClosed);
}

// As when hundreds of clients leave at the same time: more than the kernel holds.
TEST(NoteSocket, NoNoteIsLostWhoseReaderIsSlow) {
  constexpr int kNotes = 2'000;
  auto pair = NoteSocket::make_pair();
  ASSERT_TRUE(pair.ok());
  std::thread writer([&] {
    for (int i = 0; i < kNotes; ++i) {
      EXPECT_TRUE(pair->child.send_surely({.kind = Note::Kind::kDrop, .value = i}));
    }
  });
  Note note;
  for (int i = 0; i < kNotes; ++i) {
    ASSERT_EQ(pair->keeper.receive(&note, true), NoteSocket::Got::kNote);
    ASSERT_EQ(note.value, i);
  }
  writer.join();
  pair->keeper = NoteSocket();
  EXPECT_FALSE(pair->child.send_surely({.kind = Note::Kind::kDrop}));
}

TEST(NoteQueue, KeepsNotesWithTheirDescriptorsUntilThereIsRoom) {
  constexpr int kNotes = 500;
  auto pair = NoteSocket::make_pair();
  ASSERT_TRUE(pair.ok());
  NoteQueue queue;
  for (int i = 0; i < kNotes; ++i) {
    const int fd = i % 50 == 0 ? ::eventfd(static_cast<unsigned>(i) + 1, EFD_CLOEXEC) : -1;
    queue.send(pair->keeper, {.kind = Note::Kind::kRankStarted, .rank = i}, {fd, -1});
  }
  EXPECT_FALSE(queue.is_empty());
  for (int i = 0; i < kNotes; ++i) {
    Note note;
    std::array<int, 2> fds;
    ASSERT_EQ(pair->child.receive(&note, false, &fds), NoteSocket::Got::kNote);
    queue.flush(pair->keeper);
    ASSERT_EQ(note.rank, i);
    ASSERT_EQ(fds[0] >= 0, i % 50 == 0);
    if (fds[0] < 0) continue;
    eventfd_t value = 0;
    EXPECT_EQ(::eventfd_read(fds[0], &value), 0);
    EXPECT_EQ(value, static_cast<eventfd_t>(i) + 1);
    ::close(fds[0]);
  }
  EXPECT_TRUE(queue.is_empty());
}

}  // namespace
}  // namespace wideep::transport
