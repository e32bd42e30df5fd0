// SPDX-License-Identifier: Apache-2.0
//
// The length of the header, its JSON, and each tensor are checked before anything that they
// describe is touched. Of a tensor these are dtype, shape and extent, and that the extent has the
// bytes that shape and dtype need. At last the extents together must tile the data: a file with
// overlaps or holes could be read in two ways.
#include "tensor_files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "tensor_files/shape.h"

namespace wideep::tensor_files {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensor data is used as it lies on disk");

constexpr size_t kLengthBytes = 8;
// The same limit as in Hugging Face's library; a checkpoint of 100 000 tensors needs about 15 MB.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

Status broken(const std::string& path, std::string_view what) {
  return invalid_input(fmt::format("{}: not a valid safetensors file: {}", path, what));
}

Status broken_tensor(const std::string& path, const std::string& tensor, std::string_view what) {
  return invalid_input(fmt::format("{}: tensor '{}': {}", path, base::printable(tensor), what));
}

Result<std::string_view> header_text(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.size() < kLengthBytes) {
    return broken(path,
                  fmt::format("expected at least {} bytes, found {}", kLengthBytes, bytes.size()));
  }
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (formats::is_lfs_pointer(all)) return formats::lfs_pointer(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const uint64_t available = std::min<uint64_t>(bytes.size() - kLengthBytes, kMaxHeaderBytes);
  // The length comes from the file and may be any number: it is checked before it is used.
  if (length > available) {
    return broken(path,
                  fmt::format("expected a header of at most {} bytes (file of {} bytes), found "
                              "header length {}; is the file cut short?",
                              available, bytes.size(), length));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  // JSON would allow white space here; the format does not.
  if (!text.starts_with('{')) return broken(path, "expected a header that begins with '{'");
  return text;
}

struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  const std::string* tensor = nullptr;
};

// Reads one member of the header: fills the entry except its bytes, and the extent of the bytes.
class EntryReader {
 public:
  EntryReader(const std::string& path, const std::string& tensor, int64_t data_bytes)
      : path_(path), tensor_(tensor), data_bytes_(data_bytes) {}

  Status read(const json& value, TensorEntry& entry, Extent& extent) const {
    if (!value.is_object()) return error("expected an object, found " + formats::describe(value));
    WIDEEP_TRY(read_dtype(value, entry));
    WIDEEP_TRY(read_shape(value, entry));
    WIDEEP_TRY(read_extent(value, extent));
    return check_size(entry, extent);
  }

 private:
  Status error(std::string_view what) const { return broken_tensor(path_, tensor_, what); }

  Result<const json*> member(const json& value, const char* key) const {
    const auto found = value.find(key);
    if (found == value.end()) return error(fmt::format("'{}' is missing", key));
    return &*found;
  }

  Status read_dtype(const json& value, TensorEntry& entry) const {
    WIDEEP_TRY_ASSIGN(const json* dtype, member(value, "dtype"));
    const auto known =
        dtype->is_string() ? dtype_from_name(dtype->get_ref<const std::string&>()) : std::nullopt;
    if (!known)
      return error("expected a known dtype such as F32 or BF16, found " +
                   formats::describe(*dtype));
    entry.dtype = *known;
    return {};
  }

  Result<std::vector<int64_t>> naturals(const json& value, const char* key) const {
    WIDEEP_TRY_ASSIGN(const json* list, member(value, key));
    if (!list->is_array()) {
      return error(fmt::format("{}: expected a list, found {}", key, formats::describe(*list)));
    }
    std::vector<int64_t> numbers;
    for (const json& element : *list) {
      if (!element.is_number_unsigned() || !std::in_range<int64_t>(element.get<uint64_t>())) {
        return error(fmt::format("{}: expected integers from 0 to 2^63-1, found {}", key,
                                 formats::describe(element)));
      }
      numbers.push_back(element.get<int64_t>());
    }
    return numbers;
  }

  Status read_shape(const json& value, TensorEntry& entry) const {
    WIDEEP_TRY_ASSIGN(entry.shape, naturals(value, "shape"));
    return {};
  }

  Status read_extent(const json& value, Extent& extent) const {
    WIDEEP_TRY_ASSIGN(const std::vector<int64_t> offsets, naturals(value, "data_offsets"));
    if (offsets.size() != 2) {
      return error(fmt::format("data_offsets: expected 2 numbers, found {}", offsets.size()));
    }
    extent = {offsets[0], offsets[1], &tensor_};
    if (extent.begin <= extent.end && extent.end <= data_bytes_) return {};
    return error(
        fmt::format("data_offsets: expected begin <= end <= {} (the bytes after the "
                    "header), found {}; is the file cut short?",
                    data_bytes_, tensor_files::describe(offsets)));
  }

  Status check_size(const TensorEntry& entry, const Extent& extent) const {
    const std::optional<int64_t> expected = num_bytes(entry.shape, entry.dtype);
    const int64_t found = extent.end - extent.begin;
    if (expected == found) return {};
    return error(fmt::format("expected {} for shape {} of {}, found data_offsets of {} bytes",
                             expected ? fmt::format("{} bytes", *expected) : "more than 2^63 bytes",
                             tensor_files::describe(entry.shape), dtype_name(entry.dtype), found));
  }

  const std::string& path_;
  const std::string& tensor_;
  const int64_t data_bytes_;
};

// The extents must tile the data: no overlap, no hole, no bytes after the last. Then each byte of
// the file has one meaning, and two readers cannot see different tensors in it.
Status check_tiling(std::vector<Extent> extents, int64_t data_bytes, const std::string& path) {
  // An empty tensor sorts before a tensor that begins at the same byte, so that both are accepted.
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != end) {
      return broken_tensor(
          path, *extent.tensor,
          fmt::format("{} at byte {} of the data: expected its bytes to begin at {}",
                      extent.begin < end ? "overlap" : "hole", std::min(extent.begin, end), end));
    }
    end = extent.end;
  }
  if (end == data_bytes) return {};
  return broken(path, fmt::format("expected {} bytes of data after the header (the end of the last "
                                  "tensor), found {}",
                                  end, data_bytes));
}

Result<std::map<std::string, std::string>> read_metadata(const json& value,
                                                         const std::string& path) {
  if (!value.is_object()) {
    return broken(path, "__metadata__: expected an object, found " + formats::describe(value));
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return broken(path, fmt::format("__metadata__.{}: expected a string, found {}",
                                      base::printable(key), formats::describe(text)));
    }
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

}  // namespace

int64_t TensorEntry::num_elements() const {
  return static_cast<int64_t>(bytes.size() / dtype_bytes(dtype));
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  WIDEEP_TRY_ASSIGN(formats::MappedFile mapping, formats::MappedFile::open(path));
  WIDEEP_TRY_ASSIGN(SafetensorsFile file, parse(mapping.bytes(), path));
  file.mapping_ = std::move(mapping);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes,
                                               const std::string& name) {
  WIDEEP_TRY_ASSIGN(const std::string_view text, header_text(bytes, name));
  WIDEEP_TRY_ASSIGN(const json header, formats::parse_json(text, name + ": header"));
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + text.size());

  SafetensorsFile file;
  file.path_ = name;
  std::vector<Extent> extents;
  for (const auto& [key, value] : header.get_ref<const json::object_t&>()) {
    if (key == "__metadata__") {
      WIDEEP_TRY_ASSIGN(file.metadata_, read_metadata(value, name));
      continue;
    }
    TensorEntry entry;
    Extent& extent = extents.emplace_back();
    const EntryReader reader(name, key, static_cast<int64_t>(data.size()));
    WIDEEP_TRY(reader.read(value, entry, extent));
    entry.bytes = data.subspan(static_cast<size_t>(extent.begin),
                               static_cast<size_t>(extent.end - extent.begin));
    file.tensors_.emplace(key, std::move(entry));
  }
  WIDEEP_TRY(check_tiling(std::move(extents), static_cast<int64_t>(data.size()), name));
  return file;
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace wideep::tensor_files
