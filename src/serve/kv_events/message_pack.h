// SPDX-License-Identifier: Apache-2.0
//
// Writes MessagePack, as far as KV events need it, each value in its shortest form.
//
//   MessagePack pack;
//   pack.array(2);
//   pack.text("AllBlocksCleared");
//   pack.unsigned_integer(7);
//   send(pack.bytes());
//
// An array is followed by its elements, a map by each key and its value. Thread safety: none.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace wideep::kv_events {

class MessagePack {
 public:
  void nil() { byte(0xc0); }
  void real(double value) { with_bytes(0xcb, std::bit_cast<uint64_t>(value), 8); }
  void unsigned_integer(uint64_t value) {
    if (value < 0x80) return byte(value);
    if (value <= 0xff) return with_bytes(0xcc, value, 1);
    if (value <= 0xffff) return with_bytes(0xcd, value, 2);
    if (value <= 0xffffffff) return with_bytes(0xce, value, 4);
    with_bytes(0xcf, value, 8);
  }
  // At most 65,535 bytes.
  void text(std::string_view value) {
    if (value.size() < 32) {
      byte(0xa0 | value.size());
    } else if (value.size() <= 0xff) {
      with_bytes(0xd9, value.size(), 1);
    } else {
      with_bytes(0xda, value.size(), 2);
    }
    bytes_ += value;
  }
  // size: below 2³².
  void array(size_t size) {
    if (size < 16) return byte(0x90 | size);
    if (size <= 0xffff) return with_bytes(0xdc, size, 2);
    with_bytes(0xdd, size, 4);
  }
  // size: pairs, below 16.
  void map(size_t size) { byte(0x80 | size); }

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  void byte(uint64_t value) { bytes_ += static_cast<char>(value); }
  // The first byte, then the value: big-endian.
  void with_bytes(uint64_t first, uint64_t value, int count) {
    byte(first);
    while (count-- > 0) byte(value >> (8 * count) & 0xff);
  }

  std::string bytes_;
};

}  // namespace wideep::kv_events
