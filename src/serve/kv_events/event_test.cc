// SPDX-License-Identifier: Apache-2.0
//
// Bytes are those that Python's msgspec makes of vLLM's structures, but for a map's size, which it
// writes in two bytes. scripts/test_kv_events_peers.sh reads them with the structures themselves.
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
  pack.map(15);
  pack.nil();
  pack.real(1.5);
  EXPECT_EQ(hex_of(pack.bytes()), "9fdc0010dd000100008fc0cb3ff8000000000000");
}

const Batch& example() {
  static const Batch batch{
      .sequence = 7,
      .seconds = 1.5,
      .rank = 3,
      .events = {{.kind = Event::kCleared},
                 {.kind = Event::kRemoved, .hashes = {1, 0xffffffffffffffff}},
                 {.kind = Event::kStored, .hashes = {300}, .parent = 200, .tokens = {5, 70000}},
                 {.kind = Event::kStored, .hashes = {2}, .tokens = {1}}}};
  return batch;
}

TEST(KvEvents, HaveTheBytesOfVllm) {
  EXPECT_EQ(hex_of(payload_of(example(), EventForm::kMap)),
            "93cb3ff800000000000094"
            "81a474797065b0416c6c426c6f636b73436c6561726564"
            "83a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739201cfffffffffffffff"
            "ffa66d656469756dc0"
            "88a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cd012cb1706172656e74"
            "5f626c6f636b5f68617368ccc8a9746f6b656e5f6964739205ce00011170aa626c6f636b5f73697a6540"
            "a76c6f72615f6964c0a66d656469756dc0a96c6f72615f6e616d65c0"
            "88a474797065ab426c6f636b53746f726564ac626c6f636b5f6861736865739102b1706172656e745f62"
            "6c6f636b5f68617368c0a9746f6b656e5f6964739101aa626c6f636b5f73697a6540a76c6f72615f6964"
            "c0a66d656469756dc0a96c6f72615f6e616d65c0"
            "03");
  EXPECT_EQ(example().num_pages(), 4u);
  EXPECT_EQ(hex_of(sequence_bytes(0x0102030405060708)), "0102030405060708");
}

TEST(KvEvents, AreArraysForOlderReaders) {
  EXPECT_EQ(hex_of(payload_of(example(), EventForm::kArray)),
            "93cb3ff800000000000094"
            "91b0416c6c426c6f636b73436c6561726564"
            "93ac426c6f636b52656d6f7665649201cfffffffffffffffffc0"
            "98ab426c6f636b53746f72656491cd012cccc89205ce0001117040c0c0c0"
            "98ab426c6f636b53746f7265649102c0910140c0c0c0"
            "03");
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
