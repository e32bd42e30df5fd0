// SPDX-License-Identifier: Apache-2.0
//
// Opening reads only the headers of files and checks all that needs no data: each tensor of the
// index is in its shard, none is in two. Names of shards must be plain file names, or an index
// could point to any file of the machine. The state of each file is kept, because weights are read
// from the mappings long after opening: check_unchanged() finds a file that was replaced or
// written to meanwhile. The fingerprint goes over tensors in the order of their names, so that how
// they are spread over shards does not matter.
#include "weights/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "base/spelling.h"
#include "base/try.h"
#include "formats/json.h"
#include "tensor_files/shape.h"
#include "weights/sampled_hash.h"

namespace wideep::weights {
namespace {

using tensor_files::SafetensorsFile;
using tensor_files::TensorEntry;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Status check_directory(const std::string& model_dir) {
  std::error_code error;
  if (std::filesystem::is_directory(model_dir, error)) return {};
  return invalid_input(fmt::format("{}: expected a model directory, found {}", model_dir,
                                   exists(model_dir) ? "a file" : "nothing"));
}

// Shards must lie in the model directory: an index must not make the program read other files.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == name.npos;
}

using WeightMap = std::map<std::string, std::string>;  // tensor to file name

Result<WeightMap> read_index(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const formats::JsonDocument document, formats::JsonDocument::read(path));
  const formats::JsonObject weight_map = document.root().object("weight_map");
  WeightMap files;
  for (const std::string& tensor : weight_map.keys()) {
    const std::string file = weight_map.string(tensor);
    if (!is_plain_file_name(file)) {
      weight_map.complain(tensor, fmt::format("expected the name of a file beside the index, found "
                                              "'{}'",
                                              base::printable(file)));
    }
    files[tensor] = file;
  }
  WIDEEP_TRY(document.status());
  if (files.empty()) return invalid_input(path + ": weight_map: expected tensors, found none");
  return files;
}

Status check_index(const WeightMap& files, const std::string& index,
                   const std::map<std::string, const SafetensorsFile*>& shards) {
  for (const auto& [tensor, file] : files) {
    if (shards.at(file)->find(tensor) != nullptr) continue;
    return invalid_input(
        fmt::format("{}: tensor '{}': expected it in {}, which does not contain it", index,
                    base::printable(tensor), shards.at(file)->path()));
  }
  return {};
}

Result<std::vector<SafetensorsFile>> open_shards(const std::string& model_dir,
                                                 const std::string& index) {
  WIDEEP_TRY_ASSIGN(const WeightMap files, read_index(index));
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  std::vector<SafetensorsFile> shards;
  shards.reserve(names.size());  // by_name keeps pointers to the elements
  std::map<std::string, const SafetensorsFile*> by_name;
  for (const std::string& name : names) {
    auto shard = SafetensorsFile::open(fmt::format("{}/{}", model_dir, name));
    if (!shard.ok()) return shard.status().at(index);
    by_name[name] = &shards.emplace_back(std::move(*shard));
  }
  WIDEEP_TRY(check_index(files, index, by_name));
  return shards;
}

Result<std::vector<SafetensorsFile>> open_files(const std::string& model_dir) {
  WIDEEP_TRY(check_directory(model_dir));
  const std::string single = fmt::format("{}/{}", model_dir, kSingleFile);
  if (exists(single)) {
    WIDEEP_TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(single));
    std::vector<SafetensorsFile> files;
    files.push_back(std::move(file));
    return files;
  }
  const std::string index = fmt::format("{}/{}", model_dir, kIndexFile);
  if (exists(index)) return open_shards(model_dir, index);
  return invalid_input(
      fmt::format("{}: expected {} or {}, found neither", model_dir, kSingleFile, kIndexFile));
}

constexpr Dtype kFloats[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};

bool is_float(Dtype dtype) {
  return std::find(std::begin(kFloats), std::end(kFloats), dtype) != std::end(kFloats);
}

// "F32, BF16 or F16"
std::string listed(std::span<const Dtype> dtypes) {
  std::string text;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    if (i > 0) text += i + 1 == dtypes.size() ? " or " : ", ";
    text += dtype_name(dtypes[i]);
  }
  return text;
}

// `bytes` may be unaligned, because tensors of a file can begin at any byte: memcpy reads each
// element.
template <typename Stored, typename Convert>
void convert_elements(const std::byte* bytes, int64_t num_elements, float* out, Convert convert) {
  for (int64_t i = 0; i < num_elements; ++i) {
    Stored stored;
    std::memcpy(&stored, bytes + static_cast<size_t>(i) * sizeof(Stored), sizeof(Stored));
    out[i] = convert(stored);
  }
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& model_dir) {
  Checkpoint checkpoint;
  checkpoint.model_dir_ = model_dir;
  WIDEEP_TRY_ASSIGN(checkpoint.shards_, open_files(model_dir));
  for (size_t shard = 0; shard < checkpoint.shards_.size(); ++shard) {
    const SafetensorsFile& file = checkpoint.shards_[shard];
    checkpoint.states_.push_back(formats::file_state(file.path()));
    for (const auto& [name, entry] : file.tensors()) {
      if (entry.bytes.empty()) continue;  // says nothing, as in a model without shared experts
      const auto [found, inserted] = checkpoint.tensors_.emplace(name, Location{shard, &entry});
      if (inserted) continue;
      return invalid_input(fmt::format("{}: tensor '{}': expected it once, found it in {} as well",
                                       file.path(), base::printable(name),
                                       checkpoint.shards_[found->second.shard].path()));
    }
  }
  return checkpoint;
}

Result<const TensorEntry*> Checkpoint::tensor(const std::string& name,
                                              const std::vector<int64_t>& shape) const {
  return tensor(name, shape, kFloats);
}

Result<const TensorEntry*> Checkpoint::tensor(const std::string& name,
                                              const std::vector<int64_t>& shape,
                                              std::span<const Dtype> dtypes) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) return missing(name);
  if (entry->shape != shape) {
    return invalid_input(fmt::format("{}: expected shape {}, found {}", where(name),
                                     tensor_files::describe(shape),
                                     tensor_files::describe(entry->shape)));
  }
  if (std::find(dtypes.begin(), dtypes.end(), entry->dtype) == dtypes.end()) {
    return invalid_input(fmt::format("{}: expected dtype {}, found {}", where(name), listed(dtypes),
                                     dtype_name(entry->dtype)));
  }
  return entry;
}

const TensorEntry* Checkpoint::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.entry;
}

// Weights are read from the mapped files for seconds to minutes. If somebody replaces a file in
// that time, the loaded weights may be a mixture of two versions.
Status Checkpoint::check_unchanged() const {
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    WIDEEP_TRY(formats::check_unchanged(shards_[shard].path(), states_[shard]));
  }
  return {};
}

std::string Checkpoint::fingerprint() const {
  std::vector<SampledTensor> sampled;
  for (const auto& [name, location] : tensors_) {
    const TensorEntry& entry = *location.entry;
    sampled.push_back({name, dtype_name(entry.dtype), entry.shape, entry.bytes});
  }
  return sampled_hash(sampled);
}

std::string Checkpoint::where(const std::string& name) const {
  return fmt::format("{}: tensor '{}'", shards_[tensors_.at(name).shard].path(),
                     base::printable(name));
}

Status Checkpoint::missing(const std::string& name) const {
  return invalid_input(
      fmt::format("{}: tensor '{}' is not among the {} tensors of the checkpoint{}", model_dir_,
                  base::printable(name), tensors_.size(), base::did_you_mean(name, names())));
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, location] : tensors_) names.push_back(name);
  return names;
}

uint64_t Checkpoint::tensor_bytes(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? 0 : found->second.entry->bytes.size();
}

uint64_t Checkpoint::total_bytes() const {
  uint64_t total = 0;
  for (const auto& [name, location] : tensors_) total += location.entry->bytes.size();
  return total;
}

void to_float32(const TensorEntry& entry, int64_t first_element, int64_t count, float* out) {
  const size_t element_bytes = dtype_bytes(entry.dtype);
  const std::byte* bytes = entry.bytes.data() + static_cast<size_t>(first_element) * element_bytes;
  switch (entry.dtype) {
    case Dtype::kF32:
      if (count > 0) std::memcpy(out, bytes, static_cast<size_t>(count) * element_bytes);
      return;
    case Dtype::kBf16:
      convert_elements<Bf16>(bytes, count, out, [](Bf16 x) { return float(x); });
      return;
    case Dtype::kF16:
      convert_elements<uint16_t>(bytes, count, out, float_from_f16);
      return;
    default:
      WIDEEP_CHECK(is_float(entry.dtype));
  }
}

}  // namespace wideep::weights
