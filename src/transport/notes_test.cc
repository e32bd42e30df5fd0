// SPDX-License-Identifier: Apache-2.0
#include "transport/notes.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace wideep::transport
