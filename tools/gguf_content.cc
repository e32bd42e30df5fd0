// SPDX-License-Identifier: Apache-2.0
#include "gguf_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/byte_size.h"
#include "base/printable.h"
#include "base/try.h"
#include "tensor_files/gguf.h"

namespace wideep::tools {

uint64_t GgufContent::bytes() const {
  uint64_t sum = 0;
  for (const auto& [type, bytes] : bytes_by_type) sum += bytes;
  return sum;
}

std::string GgufContent::text() const {
  std::string text = fmt::format(
      "{} of llama.cpp's architecture {}, {} of tensors",
      num_files == 1 ? std::string("GGUF file") : fmt::format("{} GGUF files", num_files),
      architecture, base::byte_size(bytes()));
  for (size_t i = 0; i < bytes_by_type.size(); ++i) {
    const auto& [type, bytes] = bytes_by_type[i];
    text += fmt::format("{} {} {}", i == 0 ? ":" : ",", type, base::byte_size(bytes));
  }
  return text;
}

nlohmann::ordered_json GgufContent::json() const {
  nlohmann::ordered_json types = nlohmann::ordered_json::object();
  for (const auto& [type, bytes] : bytes_by_type) types[type] = bytes;
  return {{"architecture", architecture}, {"files", num_files}, {"bytes_by_type", types}};
}

Result<GgufContent> gguf_content(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const tensor_files::GgufFiles files, tensor_files::GgufFiles::open(path));
  GgufContent content;
  content.num_files = files.files().size();
  const tensor_files::GgufValue* architecture = files.first().find("general.architecture");
  if (architecture != nullptr && !architecture->is_list()) {
    content.architecture = base::printable(architecture->text().value_or(""));
  }
  std::map<tensor_files::BlockType, uint64_t> bytes;
  for (const tensor_files::GgufFile& file : files.files()) {
    for (const auto& [name, tensor] : file.tensors()) bytes[tensor.type] += tensor.bytes.size();
  }
  for (const auto& [type, sum] : bytes) {
    content.bytes_by_type.emplace_back(tensor_files::block_type_name(type), sum);
  }
  std::ranges::sort(content.bytes_by_type, [](const auto& a, const auto& b) {
    return std::pair(b.second, a.first) < std::pair(a.second, b.first);
  });
  return content;
}

}  // namespace wideep::tools
