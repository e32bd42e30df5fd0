// SPDX-License-Identifier: Apache-2.0
#include "formats/json_size.h"

#include <nlohmann/json.hpp>
#include <string>

namespace wideep::formats {
namespace {

using nlohmann::ordered_json;

constexpr size_t kOfAllocation = 16;

// Short texts are inside of their object.
size_t text_bytes(const std::string& text) {
  return text.capacity() < sizeof(text) / 2 ? 0 : text.capacity() + kOfAllocation;
}

// A value of a variable size: an object for it, and its memory.
template <typename Container>
size_t container_bytes(const Container& container) {
  size_t bytes = sizeof(container) + kOfAllocation;
  if (container.capacity() > 0) {
    bytes += container.capacity() * sizeof(typename Container::value_type) + kOfAllocation;
  }
  return bytes;
}

// Beside the value itself.
size_t owned_bytes(const ordered_json& value) {
  size_t bytes = 0;
  if (value.is_array()) {
    bytes = container_bytes(value.get_ref<const ordered_json::array_t&>());
    for (const ordered_json& each : value) bytes += owned_bytes(each);
  } else if (value.is_object()) {
    bytes = container_bytes(value.get_ref<const ordered_json::object_t&>());
    for (const auto& [name, each] : value.items()) bytes += text_bytes(name) + owned_bytes(each);
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    bytes = sizeof(text) + kOfAllocation + text_bytes(text);
  } else if (value.is_binary()) {
    bytes = container_bytes(value.get_binary());
  }
  return bytes;
}

}  // namespace

size_t json_bytes(const ordered_json& value) { return sizeof(value) + owned_bytes(value); }

}  // namespace wideep::formats
