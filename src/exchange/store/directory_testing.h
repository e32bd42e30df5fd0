// SPDX-License-Identifier: Apache-2.0
//
// For tests of a directory: sequences of pages whose bytes follow from their numbers, so that any
// process knows what a record must have.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/directory.h"

namespace wideep::store::directory_testing {

inline constexpr const char* kClass = "a model";

inline Name sequence_name(uint32_t sequence, uint32_t page) {
  Name name = root_name(kClass, "");
  for (uint32_t i = 0; i <= page; ++i) {
    std::array<int32_t, kPageTokens> tokens;
    tokens.fill(static_cast<int32_t>(sequence * 1000 + i));
    name = page_name(name, 0, tokens);
  }
  return name;
}

inline Head page_head(uint32_t sequence, uint32_t page, const Part& part,
                      uint64_t canonical_bytes) {
  Head head = {.name = sequence_name(sequence, page),
               .before = page == 0 ? root_name(kClass, "") : sequence_name(sequence, page - 1),
               .page = page,
               .canonical_bytes = canonical_bytes,
               .part = part};
  head.tokens.fill(static_cast<int32_t>(sequence * 1000 + page));
  return head;
}

inline Head page_head(uint32_t sequence, uint32_t page, uint64_t bytes) {
  return page_head(sequence, page, Part::whole(bytes), bytes);
}

// Every byte follows from the name and its place in the canonical form.
inline std::vector<std::byte> written_bytes(const Head& head) {
  std::vector<std::byte> bytes;
  bytes.reserve(head.part.bytes());
  for (uint64_t i = 0; i < head.part.count; ++i) {
    for (uint64_t k = 0; k < head.part.length; ++k) {
      const uint64_t at = head.part.first + i * head.part.stride + k;
      bytes.push_back(static_cast<std::byte>((at * 2654435761u >> 13) + head.name.bytes[at % 16]));
    }
  }
  return bytes;
}

inline uint64_t disk_bytes(const std::string& path) {
  uint64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    struct stat state = {};
    if (::stat(entry.path().c_str(), &state) == 0) sum += static_cast<uint64_t>(state.st_blocks);
  }
  return sum * 512;
}

inline std::unique_ptr<Directory> open_directory(const std::string& path,
                                                 uint64_t max_bytes = uint64_t{1} << 30,
                                                 uint64_t segment_bytes = 0) {
  auto directory = Directory::open({.path = path,
                                    .max_bytes = max_bytes,
                                    .record_class = kClass,
                                    .segment_bytes = segment_bytes});
  if (!directory.ok()) ADD_FAILURE() << directory.status().message();
  return directory.ok() ? std::move(*directory) : nullptr;
}

inline OfferResult offer(Directory& directory, const Head& head, double seconds = 0.1) {
  return directory.offer(head, written_bytes(head), seconds, nullptr);
}

// Fails the test where a record is said to be whole and has other bytes than those written.
inline std::vector<FetchResult> fetch(Directory& directory, const std::vector<Head>& heads) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<FetchOrder> orders;
  for (const Head& head : heads) memory.emplace_back(head.part.bytes(), std::byte{0xA5});
  for (size_t i = 0; i < heads.size(); ++i) orders.push_back({heads[i], memory[i]});
  std::vector<FetchResult> results;
  const Status status = directory.fetch(orders, [&](size_t index, FetchResult result) {
    EXPECT_EQ(index, results.size());
    results.push_back(result);
    if (result == FetchResult::kWhole) {
      EXPECT_TRUE(memory[index] == written_bytes(heads[index])) << "wrong bytes of order " << index;
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return results;
}

inline FetchResult fetch(Directory& directory, const Head& head) {
  const auto results = fetch(directory, std::vector<Head>{head});
  return results.empty() ? FetchResult::kMissing : results[0];
}

}  // namespace wideep::store::directory_testing
