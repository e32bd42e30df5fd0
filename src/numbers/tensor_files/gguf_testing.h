// SPDX-License-Identifier: Apache-2.0
//
// Builds small GGUF files for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_files/gguf.h"

namespace wideep::tensor_files {

class GgufBuilder {
 public:
  using Type = GgufValue::Type;

  template <typename T>
  static std::string bytes_of(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string text(std::string_view value) {
    return bytes_of<uint64_t>(value.size()) + std::string(value);
  }

  // An entry with any bytes as its value.
  GgufBuilder& entry(std::string_view key, uint32_t type, const std::string& value) {
    entries_ += text(key) + bytes_of(type) + value;
    ++num_entries_;
    return *this;
  }
  GgufBuilder& entry(std::string_view key, Type type, const std::string& value) {
    return entry(key, static_cast<uint32_t>(type), value);
  }
  GgufBuilder& integer(std::string_view key, uint32_t value) {
    return entry(key, Type::kU32, bytes_of(value));
  }
  GgufBuilder& number(std::string_view key, float value) {
    return entry(key, Type::kF32, bytes_of(value));
  }
  GgufBuilder& boolean(std::string_view key, bool value) {
    return entry(key, Type::kBool, std::string(1, value ? '\1' : '\0'));
  }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    return entry(key, Type::kString, text(value));
  }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes =
        bytes_of(static_cast<uint32_t>(Type::kString)) + bytes_of<uint64_t>(values.size());
    for (const std::string& value : values) bytes += text(value);
    return entry(key, Type::kList, bytes);
  }
  template <typename T>
  GgufBuilder& list(std::string_view key, Type type, const std::vector<T>& values) {
    std::string bytes = bytes_of(static_cast<uint32_t>(type)) + bytes_of<uint64_t>(values.size());
    for (const T value : values) bytes += bytes_of(value);
    return entry(key, Type::kList, bytes);
  }

  // shape: the slowest dimension first. The tensor lies at the next multiple of 32.
  GgufBuilder& tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape,
                      std::string_view data) {
    tensor_at(name, type, shape, data_.size());
    data_ += data;
    data_.resize((data_.size() + 31) / 32 * 32);
    return *this;
  }
  GgufBuilder& floats(std::string_view name, const std::vector<uint64_t>& shape,
                      const std::vector<float>& values) {
    return tensor(name, 0, shape,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  // Lists a tensor at any offset.
  GgufBuilder& tensor_at(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape,
                         uint64_t offset) {
    tensors_ += text(name) + bytes_of(static_cast<uint32_t>(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) tensors_ += bytes_of(*size);
    tensors_ += bytes_of(type) + bytes_of(offset);
    ++num_tensors_;
    return *this;
  }

  std::string file(uint32_t version = 3) const {
    std::string all = header("GGUF", version, num_tensors_, num_entries_) + entries_ + tensors_;
    all.resize((all.size() + 31) / 32 * 32);
    return all + data_;
  }
  static std::string header(std::string_view magic, uint32_t version, uint64_t tensors,
                            uint64_t entries) {
    return std::string(magic) + bytes_of(version) + bytes_of(tensors) + bytes_of(entries);
  }

 private:
  std::string entries_, tensors_, data_;
  uint64_t num_entries_ = 0, num_tensors_ = 0;
};

}  // namespace wideep::tensor_files
