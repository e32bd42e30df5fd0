// SPDX-License-Identifier: Apache-2.0
//
// Plain values as bytes, between processes of one build on one machine: no versions, no byte order.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace wideep::engine {

class WireWriter {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <typename T>
  void put_all(std::span<const T> values) {
    put(static_cast<uint32_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  template <typename T>
  void put_all(const std::vector<T>& values) {
    put_all(std::span<const T>(values));
  }
  void put_text(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  // Values of any of these kinds, one after the other, as WireReader::fields() takes them in.
  template <typename... T>
  void fields(const T&... values) {
    (field(values), ...);
  }
  std::string take() { return std::move(bytes_); }

  // For writers that are used again and keep their memory.
  bool empty() const { return bytes_.empty(); }
  const std::string& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  template <typename T>
  void field(const T& plain) {
    put(plain);
  }
  template <typename T>
  void field(const std::vector<T>& values) {
    put_all(values);
  }
  template <typename T>
  void field(const std::vector<std::vector<T>>& lists) {
    put(static_cast<uint32_t>(lists.size()));
    for (const std::vector<T>& each : lists) put_all(each);
  }
  void field(const std::string& text) { put_text(text); }

  std::string bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, next(sizeof(T)), sizeof(T));
    return value;
  }
  template <typename T>
  std::vector<T> get_all() {
    // The bytes first: a claimed count must not allocate what is not there.
    const auto count = get<uint32_t>();
    const size_t num_bytes = count * sizeof(T);
    const char* bytes = next(num_bytes);
    std::vector<T> values(count);
    if (num_bytes > 0) std::memcpy(values.data(), bytes, num_bytes);
    return values;
  }
  template <typename... T>
  void fields(T&... values) {
    (field(values), ...);
  }
  bool at_end() const { return at_ == bytes_.size(); }
  std::string get_text() {
    const auto length = get<uint32_t>();
    return std::string(next(length), length);
  }

 private:
  template <typename T>
  void field(T& plain) {
    plain = get<T>();
  }
  template <typename T>
  void field(std::vector<T>& values) {
    values = get_all<T>();
  }
  template <typename T>
  void field(std::vector<std::vector<T>>& lists) {
    const auto count = get<uint32_t>();
    lists.clear();
    // One by one: a claimed count must not allocate what is not there.
    for (uint32_t i = 0; i < count; ++i) lists.push_back(get_all<T>());
  }
  void field(std::string& text) { text = get_text(); }

  const char* next(size_t count) {
    WIDEEP_CHECK_LE(count, bytes_.size() - at_);
    at_ += count;
    return bytes_.data() + at_ - count;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace wideep::engine
