// SPDX-License-Identifier: Apache-2.0
//
// GgufReader goes once from front to back over the mapped bytes: header, metadata, alignment, the
// list of tensors; then it places the tensors, in the order of their offsets, so that comparing
// neighbours finds every overlap. Lists of numbers stay where they lie in the mapping; of texts
// only views are made.
//
// A file may come from anywhere, so no count or size in it is believed: take() compares each
// length with the bytes that are left, a list takes memory only in proportion to bytes that the
// file has, and sizes are multiplied with a test for overflow.
//
// Files of a model in several parts are found by the ending of the given name, and each must say
// in its own metadata (split.no, split.count) that it is that part: a renamed file is an error,
// not a model with wrong tensors.
#include "tensor_files/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "tensor_files/shape.h"

namespace wideep::tensor_files {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are used as they lie on disk");

using Type = GgufValue::Type;

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kSuffix = ".gguf";
constexpr uint32_t kMaxDimensions = 4;  // as in ggml
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 1 << 20;
// Of a key or a tensor's name; ggml's limits are 65535 and 64.
constexpr uint64_t kMaxName = 65535;
// Of a list. The largest vocabularies have 2^18 tokens and twice as many merges; each text takes
// memory, while the file may have only zeros for it.
constexpr uint64_t kMaxTexts = 1 << 24;

// The bytes of a number; 0: no number, or no type.
size_t number_bytes(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kI8:
    case Type::kBool:
      return 1;
    case Type::kU16:
    case Type::kI16:
      return 2;
    case Type::kU32:
    case Type::kI32:
    case Type::kF32:
      return 4;
    case Type::kU64:
    case Type::kI64:
    case Type::kF64:
      return 8;
    case Type::kString:
    case Type::kList:
      break;
  }
  return 0;
}

template <typename T>
T number_at(std::span<const std::byte> bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::optional<int64_t> GgufValue::integer(size_t i) const {
  switch (type_) {
    case Type::kU8:
      return number_at<uint8_t>(bytes_, i);
    case Type::kI8:
      return number_at<int8_t>(bytes_, i);
    case Type::kU16:
      return number_at<uint16_t>(bytes_, i);
    case Type::kI16:
      return number_at<int16_t>(bytes_, i);
    case Type::kU32:
      return number_at<uint32_t>(bytes_, i);
    case Type::kI32:
      return number_at<int32_t>(bytes_, i);
    case Type::kI64:
      return number_at<int64_t>(bytes_, i);
    case Type::kU64: {
      const auto value = number_at<uint64_t>(bytes_, i);
      if (std::in_range<int64_t>(value)) return static_cast<int64_t>(value);
      return std::nullopt;
    }
    case Type::kF32:
    case Type::kF64:
    case Type::kBool:
    case Type::kString:
    case Type::kList:
      break;
  }
  return std::nullopt;
}

std::optional<double> GgufValue::number(size_t i) const {
  if (type_ == Type::kF32) return static_cast<double>(number_at<float>(bytes_, i));
  if (type_ == Type::kF64) return number_at<double>(bytes_, i);
  const std::optional<int64_t> value = integer(i);
  if (value) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<bool> GgufValue::boolean(size_t i) const {
  if (type_ != Type::kBool) return std::nullopt;
  return bytes_[i] != std::byte{0};
}

std::optional<std::string_view> GgufValue::text(size_t i) const {
  if (type_ != Type::kString) return std::nullopt;
  return strings_[i];
}

std::string GgufValue::describe() const {
  const bool is_float = type_ == Type::kF32 || type_ == Type::kF64;
  const std::string_view one = type_ == Type::kString ? "text"
                               : type_ == Type::kBool ? "boolean"
                               : is_float             ? "number"
                                                      : "integer";
  if (is_list_) return fmt::format("a list of {} {}s", size_, one);
  return fmt::format("{} {}", one.starts_with('i') ? "an" : "a", one);
}

int64_t GgufTensor::num_elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

size_t GgufTensor::row_bytes() const {
  const BlockTypeInfo& info = block_type_info(type);
  return static_cast<size_t>(columns() / info.elements) * static_cast<size_t>(info.bytes);
}

// Reads a file from its begin to the end of the list of tensors.
class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, const std::string& path)
      : all_(bytes), left_(bytes), path_(path) {}

  Status read(GgufFile* file) {
    file->path_ = path_;
    WIDEEP_TRY(read_header());
    WIDEEP_TRY(read_metadata(&file->metadata_));
    WIDEEP_TRY(read_alignment(file->metadata_));
    WIDEEP_TRY(read_tensors());
    file->header_ = all_.first(position());
    return place_tensors(&file->tensors_);
  }

 private:
  // A tensor with the place that the file gives it.
  struct Listed {
    std::string name;
    GgufTensor tensor;
    uint64_t offset = 0;
    uint64_t size = 0;
  };

  Status broken(std::string_view what) const {
    return invalid_input(fmt::format("{}: not a valid GGUF file: {}", path_, what));
  }
  Status broken_key(const std::string& key, std::string_view what) const {
    return invalid_input(fmt::format("{}: {}: {}", path_, base::printable(key), what));
  }
  Status broken_tensor(const std::string& name, std::string_view what) const {
    return invalid_input(fmt::format("{}: tensor '{}': {}", path_, base::printable(name), what));
  }
  size_t position() const { return all_.size() - left_.size(); }

  // The next `count` bytes.
  Result<std::span<const std::byte>> take(uint64_t count, std::string_view what) {
    if (count > left_.size()) {
      return broken(
          fmt::format("expected {} bytes of {} at byte {}, found {} before the end of the "
                      "file; is it cut short?",
                      count, base::printable(what), position(), left_.size()));
    }
    const auto taken = left_.first(static_cast<size_t>(count));
    left_ = left_.subspan(static_cast<size_t>(count));
    return taken;
  }
  template <typename T>
  Result<T> take_number(std::string_view what) {
    WIDEEP_TRY_ASSIGN(const auto bytes, take(sizeof(T), what));
    return number_at<T>(bytes, 0);
  }
  Result<std::string_view> take_text(std::string_view what) {
    WIDEEP_TRY_ASSIGN(const auto length, take_number<uint64_t>(what));
    WIDEEP_TRY_ASSIGN(const auto bytes, take(length, what));
    return text_of(bytes);
  }
  Result<std::string> take_name(std::string_view what) {
    WIDEEP_TRY_ASSIGN(const std::string_view name, take_text(what));
    if (!name.empty() && name.size() <= kMaxName) return std::string(name);
    return broken(
        fmt::format("expected 1 to {} bytes of {}, found {}", kMaxName, what, name.size()));
  }

  Status read_header() {
    if (formats::is_lfs_pointer(text_of(all_))) return formats::lfs_pointer(path_);
    if (!text_of(all_).starts_with(kMagic))
      return broken("expected a file that begins with 'GGUF'");
    left_ = all_.subspan(kMagic.size());
    WIDEEP_TRY_ASSIGN(const auto version, take_number<uint32_t>("the version"));
    if (version == 2u << 24 || version == 3u << 24) {
      return broken("its numbers are big endian; convert the model again for this processor");
    }
    if (version != 2 && version != 3) {
      return broken(
          fmt::format("expected version 2 or 3, found {}; convert the model again with a "
                      "newer llama.cpp",
                      version));
    }
    WIDEEP_TRY_ASSIGN(num_tensors_, take_number<uint64_t>("the number of tensors"));
    WIDEEP_TRY_ASSIGN(num_entries_, take_number<uint64_t>("the number of metadata entries"));
    return {};
  }

  // Counts are not trusted: each entry takes bytes of the file, and memory in proportion to them.
  Status read_metadata(GgufFile::Metadata* metadata) {
    for (uint64_t i = 0; i < num_entries_; ++i) {
      WIDEEP_TRY_ASSIGN(std::string key, take_name("a key"));
      GgufValue value;
      WIDEEP_TRY(read_value(key, &value));
      if (metadata->contains(key)) return broken_key(key, "expected it once, found it twice");
      metadata->emplace(std::move(key), std::move(value));
    }
    return {};
  }

  Status read_value(const std::string& key, GgufValue* value) {
    WIDEEP_TRY_ASSIGN(auto type, take_number<uint32_t>(key));
    uint64_t count = 1;
    value->is_list_ = type == static_cast<uint32_t>(Type::kList);
    if (value->is_list_) {
      WIDEEP_TRY_ASSIGN(type, take_number<uint32_t>(key));
      WIDEEP_TRY_ASSIGN(count, take_number<uint64_t>(key));
    }
    value->type_ = static_cast<Type>(type);
    const size_t each = number_bytes(value->type_);
    if (each == 0 && value->type_ != Type::kString) {
      return broken_key(key, fmt::format("expected a type of value from 0 to 12{}, found {}",
                                         value->is_list_ ? " other than a list" : "", type));
    }
    // A text takes at least the 8 bytes of its length.
    if (count > left_.size() / std::max<size_t>(each, each == 0 ? sizeof(uint64_t) : 1)) {
      return broken_key(key, fmt::format("a list of {} elements is longer than the {} bytes that "
                                         "are left of the file; is it cut short?",
                                         count, left_.size()));
    }
    value->size_ = static_cast<size_t>(count);
    if (each > 0) {
      WIDEEP_TRY_ASSIGN(value->bytes_, take(count * each, key));
      return check_booleans(key, *value);
    }
    if (count > kMaxTexts) {
      return broken_key(key, fmt::format("expected at most {} texts, found {}", kMaxTexts, count));
    }
    value->strings_.reserve(value->size_);
    for (size_t i = 0; i < value->size_; ++i) {
      WIDEEP_TRY_ASSIGN(const std::string_view text, take_text(key));
      value->strings_.push_back(text);
    }
    return {};
  }

  Status check_booleans(const std::string& key, const GgufValue& value) const {
    if (value.type_ != Type::kBool) return {};
    const auto other =
        std::ranges::find_if(value.bytes_, [](std::byte byte) { return byte > std::byte{1}; });
    if (other == value.bytes_.end()) return {};
    return broken_key(
        key, fmt::format("expected booleans of 0 or 1, found {}", std::to_integer<int>(*other)));
  }

  Status read_alignment(const GgufFile::Metadata& metadata) {
    constexpr const char* kKey = "general.alignment";
    const auto found = metadata.find(kKey);
    if (found == metadata.end()) return {};
    alignment_ = found->second.is_list() ? 0 : found->second.integer().value_or(0);
    const bool is_power = alignment_ > 0 && std::has_single_bit(static_cast<uint64_t>(alignment_));
    if (is_power && alignment_ <= kMaxAlignment) return {};
    return broken_key(
        kKey, fmt::format("expected a power of two up to {}, found {}", kMaxAlignment,
                          alignment_ == 0 ? found->second.describe() : std::to_string(alignment_)));
  }

  Status read_tensors() {
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      Listed listed;
      WIDEEP_TRY_ASSIGN(listed.name, take_name("a tensor's name"));
      WIDEEP_TRY(read_shape(&listed));
      WIDEEP_TRY(read_type(&listed));
      WIDEEP_TRY_ASSIGN(listed.offset, take_number<uint64_t>(listed.name));
      if (listed.offset % static_cast<uint64_t>(alignment_) != 0) {
        return broken_tensor(listed.name, fmt::format("expected an offset that is a multiple of {} "
                                                      "(general.alignment), found {}",
                                                      alignment_, listed.offset));
      }
      listed_.push_back(std::move(listed));
    }
    return {};
  }

  Status read_shape(Listed* listed) {
    WIDEEP_TRY_ASSIGN(const auto dimensions, take_number<uint32_t>(listed->name));
    if (dimensions < 1 || dimensions > kMaxDimensions) {
      return broken_tensor(listed->name, fmt::format("expected 1 to {} dimensions, found {}",
                                                     kMaxDimensions, dimensions));
    }
    for (uint32_t i = 0; i < dimensions; ++i) {
      WIDEEP_TRY_ASSIGN(const auto size, take_number<uint64_t>(listed->name));
      if (size < 1 || !std::in_range<int64_t>(size)) {
        return broken_tensor(listed->name,
                             fmt::format("expected dimensions from 1 to 2^63-1, found {}", size));
      }
      listed->tensor.shape.insert(listed->tensor.shape.begin(), static_cast<int64_t>(size));
    }
    return {};
  }

  Status read_type(Listed* listed) {
    WIDEEP_TRY_ASSIGN(const auto id, take_number<uint32_t>(listed->name));
    const BlockTypeInfo* info = find_block_type(id);
    if (info == nullptr) {
      const std::string_view name = ggml_type_name(id);
      return broken_tensor(
          listed->name,
          fmt::format("type {}{} is not supported; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, "
                      "Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4",
                      id, name.empty() ? " (none of ggml's)" : fmt::format(" ({})", name)));
    }
    GgufTensor& tensor = listed->tensor;
    tensor.type = info->type;
    if (tensor.columns() % info->elements != 0) {
      return broken_tensor(listed->name,
                           fmt::format("expected rows of a multiple of {} elements ({}), found {}",
                                       info->elements, info->name, tensor.columns()));
    }
    constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    uint64_t size = static_cast<uint64_t>(tensor.columns() / info->elements);
    bool fits = !__builtin_mul_overflow(size, static_cast<uint64_t>(info->bytes), &size);
    // The elements themselves are counted in int64, too.
    int64_t elements = tensor.columns();
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
      fits &= !__builtin_mul_overflow(size, static_cast<uint64_t>(tensor.shape[i]), &size);
      fits &= !__builtin_mul_overflow(elements, tensor.shape[i], &elements);
    }
    if (!fits || size > kMax) {
      return broken_tensor(listed->name,
                           fmt::format("shape {} of {} has more than 2^63 bytes",
                                       tensor_files::describe(tensor.shape), info->name));
    }
    listed->size = size;
    return {};
  }

  Status place_tensors(GgufFile::Tensors* tensors) {
    const size_t alignment = static_cast<size_t>(alignment_);
    // Padding belongs to the header only if data follows.
    const size_t padding = (alignment - position() % alignment) % alignment;
    const auto data = left_.subspan(std::min(padding, left_.size()));
    std::ranges::sort(listed_, {}, &Listed::offset);
    uint64_t end = 0;
    const Listed* before = nullptr;
    for (Listed& listed : listed_) {
      if (listed.offset > data.size() || listed.size > data.size() - listed.offset) {
        return broken_tensor(
            listed.name,
            fmt::format("expected its {} bytes at byte {} of the data, which has {}; is the file "
                        "cut short?",
                        listed.size, listed.offset, data.size()));
      }
      if (listed.offset < end) {
        return broken_tensor(listed.name,
                             fmt::format("overlaps tensor '{}' at byte {} of the data",
                                         base::printable(before->name), listed.offset));
      }
      end = listed.offset + listed.size;
      before = &listed;
      listed.tensor.bytes =
          data.subspan(static_cast<size_t>(listed.offset), static_cast<size_t>(listed.size));
    }
    for (Listed& listed : listed_) {
      if (!tensors->emplace(listed.name, std::move(listed.tensor)).second) {
        return broken_tensor(listed.name, "expected it once, found it twice");
      }
    }
    return {};
  }

  std::span<const std::byte> all_, left_;
  const std::string& path_;
  uint64_t num_tensors_ = 0, num_entries_ = 0;
  int64_t alignment_ = kDefaultAlignment;
  std::vector<Listed> listed_;
};

Result<GgufFile> GgufFile::open(const std::string& path) {
  WIDEEP_TRY_ASSIGN(formats::MappedFile mapping, formats::MappedFile::open(path));
  WIDEEP_TRY_ASSIGN(GgufFile file, parse(mapping.bytes(), path));
  file.mapping_ = std::move(mapping);
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& name) {
  GgufFile file;
  WIDEEP_TRY(GgufReader(bytes, name).read(&file));
  return file;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

// ---- several files ----

namespace {

// The number of files and the index of this one, from 0.
struct Split {
  int64_t count = 1;
  int64_t index = 0;
};

constexpr int64_t kMaxSplits = 65535;  // split.count is a u16

Result<Split> split_of(const GgufFile& file) {
  const auto read = [&](const char* key, int64_t by_default, int64_t max) -> Result<int64_t> {
    const GgufValue* value = file.find(key);
    if (value == nullptr) return by_default;
    const int64_t found = value->is_list() ? -1 : value->integer().value_or(-1);
    if (found >= 0 && found <= max) return found;
    return invalid_input(fmt::format("{}: {}: expected an integer from 0 to {}, found {}",
                                     file.path(), key, max,
                                     found < 0 ? value->describe() : std::to_string(found)));
  };
  Split split;
  // 0: not split.
  WIDEEP_TRY_ASSIGN(const int64_t count, read("split.count", 1, kMaxSplits));
  WIDEEP_TRY_ASSIGN(split.index, read("split.no", 0, kMaxSplits));
  split.count = std::max<int64_t>(count, 1);
  return split;
}

std::string ending_of(int64_t index, int64_t count) {
  return fmt::format("-{:05}-of-{:05}{}", index + 1, count, kSuffix);
}

Status check_all_tensors(const std::vector<GgufFile>& files) {
  std::map<std::string_view, const GgufFile*> seen;
  for (const GgufFile& file : files) {
    for (const auto& [name, tensor] : file.tensors()) {
      const auto [at, is_new] = seen.emplace(name, &file);
      if (is_new) continue;
      return invalid_input(fmt::format("{}: tensor '{}': expected it once, found it in {} as well",
                                       file.path(), base::printable(name), at->second->path()));
    }
  }
  const GgufValue* listed = files.front().find("split.tensors.count");
  const int64_t expected = listed == nullptr || listed->is_list()
                               ? static_cast<int64_t>(seen.size())
                               : listed->integer().value_or(-1);
  if (expected == static_cast<int64_t>(seen.size())) return {};
  return invalid_input(
      fmt::format("{}: split.tensors.count: expected {} tensors in the {} files, "
                  "found {}",
                  files.front().path(), expected, files.size(), seen.size()));
}

}  // namespace

Result<GgufFiles> GgufFiles::open(const std::string& path) {
  WIDEEP_TRY_ASSIGN(GgufFile given, GgufFile::open(path));
  WIDEEP_TRY_ASSIGN(const Split split, split_of(given));
  if (split.count == 1) return GgufFiles(std::move(given));
  const std::string ending = ending_of(split.index, split.count);
  if (split.index >= split.count || !path.ends_with(ending)) {
    return invalid_input(fmt::format(
        "{}: its metadata say that it is file {} of {}: expected a name that ends with '{}'; give "
        "it the name under which it was published",
        path, split.index + 1, split.count, ending));
  }
  const std::string begin = path.substr(0, path.size() - ending.size());
  GgufFiles all;
  for (int64_t i = 0; i < split.count; ++i) {
    const std::string each = begin + ending_of(i, split.count);
    std::error_code error;
    if (!std::filesystem::exists(each, error)) {
      return invalid_input(
          fmt::format("{}: missing: {} says that the model has {} files; put all of them into one "
                      "directory",
                      each, path, split.count));
    }
    WIDEEP_TRY_ASSIGN(GgufFile file, GgufFile::open(each));
    WIDEEP_TRY_ASSIGN(const Split found, split_of(file));
    if (found.index != i || found.count != split.count) {
      return invalid_input(
          fmt::format("{}: expected file {} of {}, found (split.no, split.count) file {} of {}",
                      each, i + 1, split.count, found.index + 1, found.count));
    }
    all.files_.push_back(std::move(file));
  }
  WIDEEP_TRY(check_all_tensors(all.files_));
  return all;
}

bool is_gguf(const std::string& path) {
  std::error_code absent;
  if (std::filesystem::is_directory(path, absent)) return false;
  if (path.ends_with(kSuffix)) return true;
  if (!std::filesystem::is_regular_file(path, absent)) return false;
  std::array<char, kMagic.size()> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  return std::string_view(magic.data(), magic.size()) == kMagic;
}

}  // namespace wideep::tensor_files
