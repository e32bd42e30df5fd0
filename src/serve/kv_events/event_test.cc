// SPDX-License-Identifier: Apache-2.0
//
// Bytes are those that Python's msgspec makes of vLLM's structures.
#include "kv_events/event.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kv_events/message_pack.h"

namespace wideep::kv_events {
namespace {

std::string hex_of(const std::string& bytes) {
  std::string hex;
  for (const unsigned char each : bytes) hex += fmt::format("{:02x}", each);
  return hex;
}

TEST(MessagePack, WritesEachNumberInItsShortestForm) {
  MessagePack pack;
  for (const uint64_t each : {0ull, 127ull, 128ull, 255ull, 256ull, 65535ull, 65536ull,
                              4294967295ull, 4294967296ull, 18446744073709551615ull}) {
    pack.unsigned_integer(each);
  }
  EXPECT_EQ(hex_of(pack.bytes()),
            "007fcc80ccffcd0100cdffffce00010000ceffffffffcf0000000100000000cfffffffffffffffff");
}

TEST(MessagePack, WritesTextsAndArraysOfAnyLength) {
  MessagePack pack;
  pack.text("abc");
  EXPECT_EQ(hex_of(pack.take()), "a3616263");
  pack.text(std::string(32, 'x'));
  EXPECT_EQ(hex_of(pack.take()).substr(0, 4), "d920");
  pack.text(std::string(256, 'x'));
  EXPECT_EQ(hex_of(pack.take()).substr(0, 6), "da0100");
  pack.array(15);
  pack.array(16);
  pack.array(65536);
  pack.nil();
  pack.real(1.5);
  EXPECT_EQ(hex_of(pack.bytes()), "9fdc0010dd00010000c0cb3ff8000000000000");
}

TEST(KvEvents, HaveTheBytesOfVllm) {
  const Batch batch{
      .sequence = 7,
      .seconds = 1.5,
      .rank = 3,
      .events = {{.kind = Event::kCleared},
                 {.kind = Event::kRemoved, .hashes = {1, 0xffffffffffffffff}},
                 {.kind = Event::kStored, .hashes = {300}, .parent = 200, .tokens = {5, 70000}},
                 {.kind = Event::kStored, .hashes = {2}, .tokens = {1}}}};
  EXPECT_EQ(hex_of(payload_of(batch)),
            "93cb3ff800000000000094"
            "91b0416c6c426c6f636b73436c6561726564"
            "93ac426c6f636b52656d6f7665649201cfffffffffffffffffc0"
            "98ab426c6f636b53746f72656491cd012cccc89205ce0001117040c0c0c0"
            "98ab426c6f636b53746f7265649102c0910140c0c0c0"
            "03");
  EXPECT_EQ(batch.num_pages(), 4u);
  EXPECT_EQ(hex_of(sequence_bytes(0x0102030405060708)), "0102030405060708");
}

TEST(KvEvents, AreJsonWithTheSameNames) {
  const Batch batch{
      .sequence = 7,
      .seconds = 1.5,
      .rank = 1,
      .events = {{.kind = Event::kStored, .hashes = {0xffffffffffffffff}, .tokens = {5}},
                 {.kind = Event::kRemoved, .hashes = {1}},
                 {.kind = Event::kCleared}}};
  EXPECT_EQ(json_of(batch).dump(),
            R"({"sequence":7,"ts":1.5,"data_parallel_rank":1,"events":[)"
            R"({"type":"BlockStored","block_hashes":[18446744073709551615],)"
            R"("parent_block_hash":null,"token_ids":[5],"block_size":64},)"
            R"({"type":"BlockRemoved","block_hashes":[1]},{"type":"AllBlocksCleared"}]})");
}

TEST(KvEvents, AHashIsTheBeginningOfANameAsANumber) {
  store::Name name;
  for (size_t i = 0; i < name.bytes.size(); ++i) name.bytes[i] = static_cast<unsigned char>(i + 1);
  EXPECT_EQ(hash_of(name), 0x0102030405060708u);
}

}  // namespace
}  // namespace wideep::kv_events
