// SPDX-License-Identifier: Apache-2.0
#include "recordings/statistics_writer.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/check.h"
#include "base/try.h"
#include "formats/json.h"
#include "tensor_files/safetensors.h"

namespace wideep::recordings {
namespace {

namespace fs = std::filesystem;

bool is_statistics_file(const std::string& name) {
  // Includes rank{r}_raw.safetensors, which TRT records beside the statistics.
  return name == "meta_info.json" || (name.starts_with("rank") && name.ends_with(".safetensors"));
}

Status check_empty(const std::string& directory) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (is_statistics_file(name)) {
      return invalid_input(fmt::format(
          "{}: expected no expert statistics yet, found {}; remove them or name another "
          "directory",
          directory, name));
    }
  }
  return error ? invalid_input(fmt::format("{}: cannot read: {}", directory, error.message()))
               : Status();
}

}  // namespace

Result<formats::NewDirectories> prepare_statistics_directory(const std::string& directory) {
  WIDEEP_TRY_ASSIGN(formats::NewDirectories made, formats::NewDirectories::create(directory));
  WIDEEP_TRY(check_empty(directory));
  std::error_code absent;
  const std::string slots = fmt::format("{}/{}", directory, kSlotsFolder);
  if (fs::is_directory(slots, absent)) WIDEEP_TRY(check_empty(slots));
  return made;
}

StatisticsWriter::StatisticsWriter(std::string directory, int rank, StatisticsShape shape)
    : directory_(std::move(directory)), rank_(rank), shape_(shape) {}

void StatisticsWriter::add(int iteration, int layer, std::span<const int64_t> tokens_per_expert) {
  WIDEEP_CHECK_EQ(tokens_per_expert.size(), static_cast<size_t>(shape_.num_experts));
  std::vector<int64_t>& sums = counts_[{iteration, layer}];
  sums.resize(tokens_per_expert.size(), 0);
  for (size_t expert = 0; expert < sums.size(); ++expert) sums[expert] += tokens_per_expert[expert];
}

Status StatisticsWriter::write() const {
  WIDEEP_TRY(write_counts());
  return write_meta_info();
}

Status StatisticsWriter::write_counts() const {
  if (counts_.empty()) {
    return invalid_input(
        fmt::format("{}: no iteration was recorded, choose a range of iterations that the run "
                    "reaches",
                    directory_));
  }
  // Another rank may have removed the directory, which was empty when its own part ended.
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) return failed(fmt::format("{}: cannot create: {}", directory_, error.message()));
  std::vector<tensor_files::TensorToWrite> tensors;
  tensors.reserve(counts_.size());
  for (const auto& [key, counts] : counts_) {
    tensors.push_back({.name = fmt::format("{}_{}", key.first, key.second),
                       .dtype = Dtype::kI64,
                       .shape = {shape_.num_experts},
                       .bytes = std::as_bytes(std::span(counts))});
  }
  return tensor_files::write_safetensors(fmt::format("{}/rank{}.safetensors", directory_, rank_),
                                         tensors);
}

Status StatisticsWriter::write_meta_info() const {
  std::string ranks = shape_.ep_size == 0 ? "" : fmt::format(", \"ep_size\": {}", shape_.ep_size);
  if (shape_.num_stages > 1) ranks += fmt::format(", \"num_stages\": {}", shape_.num_stages);
  std::string counts = "\"expert\"";
  if (const auto& slots = shape_.slots) {
    counts = fmt::format(
        "\"slot\", \"num_slots\": {}, \"slot_ranks\": {}, \"borrowed_slots\": {}, "
        "\"num_logical_experts\": {}",
        shape_.num_experts, slots->num_ranks, slots->borrowed_per_rank, slots->num_logical_experts);
  }
  const std::string own =
      shape_.recorded_iterations.empty()
          ? ""
          : fmt::format(", \"recorded_iterations\": \"{}\"", shape_.recorded_iterations);
  return formats::write_file(
      directory_ + "/meta_info.json",
      fmt::format("{{\"num_experts\": {}, \"num_experts_per_token\": {}{}, \"counts\": {}{}}}\n",
                  shape_.num_experts, shape_.top_k, ranks, counts, own));
}

}  // namespace wideep::recordings
