// SPDX-License-Identifier: Apache-2.0
#include "client/message_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace wideep::client {
namespace {

// The messages of these lines; "…" at the end if one has begun.
std::vector<std::string> messages_of(const std::vector<std::string>& lines) {
  MessageReader reader;
  std::vector<std::string> messages;
  for (const std::string& line : lines) {
    if (auto message = reader.take(line)) messages.push_back(*message);
  }
  if (reader.is_inside()) messages.push_back("…");
  return messages;
}

using Messages = std::vector<std::string>;

TEST(MessageReader, ALineIsAMessage) {
  EXPECT_EQ(messages_of({"one", "", "two"}), (Messages{"one", "", "two"}));
  EXPECT_EQ(messages_of({"a \"\"\" b"}), Messages{"a \"\"\" b"});
}

TEST(MessageReader, ABackslashAtTheEndGoesOn) {
  EXPECT_EQ(messages_of({"one\\", "two\\", "three", "four"}),
            (Messages{"one\ntwo\nthree", "four"}));
  EXPECT_EQ(messages_of({"one \\ two"}), Messages{"one \\ two"});
  EXPECT_EQ(messages_of({"one\\"}), Messages{"…"});
}

TEST(MessageReader, ABlockHasItsLines) {
  EXPECT_EQ(messages_of({"\"\"\"", "one", "", "  two\\", "\"\"\"", "next"}),
            (Messages{"one\n\n  two\\\n", "next"}));
  EXPECT_EQ(messages_of({"\"\"\"one", "two\"\"\" "}), Messages{"one\ntwo"});
  EXPECT_EQ(messages_of({"\"\"\"one\"\"\""}), Messages{"one"});
  EXPECT_EQ(messages_of({"\"\"\"", "/not a command"}), Messages{"…"});
}

TEST(MessageReader, PastedLinesMeanThemselves) {
  MessageReader reader;
  for (const char* line : {"\"\"\"Sums.\"\"\"", "", "a\\"}) {
    reader.take_part(line);
    EXPECT_TRUE(reader.is_inside());
  }
  EXPECT_EQ(reader.take("end"), "\"\"\"Sums.\"\"\"\n\na\\\nend");
  EXPECT_FALSE(reader.is_inside());
  EXPECT_FALSE(reader.take("\"\"\""));
  reader.take_part("in a block\"\"\"");
  EXPECT_EQ(reader.take("end\"\"\""), "in a block\"\"\"\nend");
}

TEST(MessageReader, ClearForgetsWhatHasBegun) {
  MessageReader reader;
  EXPECT_FALSE(reader.take("\"\"\"one"));
  reader.clear();
  EXPECT_FALSE(reader.is_inside());
  EXPECT_EQ(reader.take("two"), "two");
}

}  // namespace
}  // namespace wideep::client
