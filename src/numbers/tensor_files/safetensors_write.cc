// SPDX-License-Identifier: Apache-2.0
//
// Header first, then the data in one pass, through a file that gets its name only when all of it
// is written. Tensors are ordered by the size of their elements, then by name: so each begins
// aligned without padding, which the format forbids, and the same tensors always give the same
// file. The header lists them in the order of the data.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "tensor_files/safetensors.h"
#include "tensor_files/shape.h"

namespace wideep::tensor_files {
namespace {

using Order = std::vector<const TensorToWrite*>;

// Data of larger elements first: each tensor's size is a multiple of its element size, so every
// tensor starts aligned without padding, which the format does not allow.
Order file_order(const std::vector<TensorToWrite>& tensors) {
  Order order;
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return std::pair(-static_cast<int>(dtype_bytes(a->dtype)), std::string_view(a->name)) <
           std::pair(-static_cast<int>(dtype_bytes(b->dtype)), std::string_view(b->name));
  });
  return order;
}

Status check_tensor(const TensorToWrite& tensor) {
  const std::optional<int64_t> expected = num_bytes(tensor.shape, tensor.dtype);
  if (expected && std::cmp_equal(*expected, tensor.bytes.size())) return {};
  return invalid_input(fmt::format(
      "tensor '{}': expected shape {} of {} to be {}, found {} bytes", base::printable(tensor.name),
      describe(tensor.shape), dtype_name(tensor.dtype),
      expected ? fmt::format("{} bytes", *expected) : "representable", tensor.bytes.size()));
}

Status check_names(const std::vector<TensorToWrite>& tensors) {
  std::vector<std::string_view> names = {"__metadata__"};  // reserved by the format
  for (const TensorToWrite& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return invalid_input(
      fmt::format("tensor '{}': the name is used twice or reserved", base::printable(*twice)));
}

// The text as a JSON string. Errors (invalid input): not UTF-8.
Result<std::string> quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return invalid_input(fmt::format("'{}' is not UTF-8", base::printable(text)));
  }
}

Result<std::string> metadata_text(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    WIDEEP_TRY_ASSIGN(const std::string quoted_key, quoted(key));
    WIDEEP_TRY_ASSIGN(const std::string quoted_value, quoted(value));
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", quoted_key, quoted_value);
  }
  return fmt::format("\"__metadata__\":{{{}}}", text);
}

Result<std::string> header_text(const Order& order,
                                const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    WIDEEP_TRY_ASSIGN(std::string text, metadata_text(metadata));
    members.push_back(std::move(text));
  }
  size_t begin = 0;
  for (const TensorToWrite* tensor : order) {
    WIDEEP_TRY_ASSIGN(const std::string name, quoted(tensor->name));
    const size_t end = begin + tensor->bytes.size();
    members.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  name, dtype_name(tensor->dtype), fmt::join(tensor->shape, ","),
                                  begin, end));
    begin = end;
  }
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  // The format allows spaces after the header; they align the data to 8 bytes.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

std::string_view as_chars(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  WIDEEP_TRY(check_names(tensors).at(path));
  for (const TensorToWrite& tensor : tensors) WIDEEP_TRY(check_tensor(tensor).at(path));
  const Order order = file_order(tensors);
  auto text = header_text(order, metadata);
  if (!text.ok()) return text.status().at(path);

  const uint64_t length = text->size();
  WIDEEP_TRY_ASSIGN(formats::AtomicFile file, formats::AtomicFile::create(path));
  WIDEEP_TRY(file.append({reinterpret_cast<const char*>(&length), sizeof(length)}));
  WIDEEP_TRY(file.append(*text));
  for (const TensorToWrite* tensor : order) WIDEEP_TRY(file.append(as_chars(tensor->bytes)));
  return file.commit();
}

}  // namespace wideep::tensor_files
