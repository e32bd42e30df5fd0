// SPDX-License-Identifier: Apache-2.0
//
// A directory is read in four steps, each of which must hold before the next:
//
//   names    the files rank0 to rank{n − 1} are all there
//   extent   layers and iterations of each stage's first file, and that it has all of their tensors
//   size     memory for all ranks, only if the files together are large enough for it
//   counts   file by file, each compared with its stage's extent
//
// A file says how much there is, and memory is taken by what it says; hence the third step.
#include "recordings/statistics_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json.h"
#include "recordings/statistics_csv.h"
#include "recordings/statistics_writer.h"
#include "tensor_files/safetensors.h"
#include "wideep/placement.h"

namespace wideep::recordings {
namespace {

namespace fs = std::filesystem;
using tensor_files::SafetensorsFile;
using tensor_files::TensorEntry;

constexpr int kMaxExperts = 1 << 16;
constexpr int kMaxTopK = 1 << 10;
constexpr int64_t kMaxRanks = 1 << 16;

struct IterationLayer {
  int iteration = 0;
  int layer = 0;
  auto operator<=>(const IterationLayer&) const = default;
};

// The tensors of one rank's file by what they count; the entries live as long as the file.
using RankTensors = std::map<IterationLayer, const TensorEntry*>;

std::optional<int> parse_index(std::string_view digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || value < 0 || value == std::numeric_limits<int>::max()) return {};  // + 1 must fit
  return value;
}

// "17_3" → iteration 17, layer 3.
std::optional<IterationLayer> parse_key(std::string_view key) {
  const size_t separator = key.find('_');
  if (separator == std::string_view::npos) return {};
  const std::optional<int> iteration = parse_index(key.substr(0, separator));
  const std::optional<int> layer = parse_index(key.substr(separator + 1));
  if (!iteration || !layer) return {};
  return IterationLayer{*iteration, *layer};
}

// "rank12.safetensors" → 12; nothing for other names, rank12_raw.safetensors among them.
std::optional<int> parse_rank(std::string_view file_name) {
  constexpr std::string_view kPrefix = "rank";
  constexpr std::string_view kSuffix = ".safetensors";
  if (!file_name.starts_with(kPrefix) || !file_name.ends_with(kSuffix)) return {};
  file_name.remove_prefix(kPrefix.size());
  file_name.remove_suffix(std::min(kSuffix.size(), file_name.size()));
  return parse_index(file_name);
}

// Returns the number of files, which must be rank0 ... rank{n-1}.
Result<int> count_rank_files(const std::string& directory) {
  std::error_code error;
  std::set<int> ranks;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (const auto rank = parse_rank(it->path().filename().string())) ranks.insert(*rank);
  }
  // The iterator sets `error` and ends, so it is checked after the loop.
  if (error) return invalid_input(fmt::format("{}: {}", directory, error.message()));
  if (ranks.empty()) {
    return invalid_input(fmt::format(
        "{}: expected expert statistics (rank0.safetensors, ...), found no such file", directory));
  }
  int expected = 0;
  for (int rank : ranks) {
    if (rank != expected) {
      return invalid_input(
          fmt::format("{}: rank{}.safetensors is missing (highest found: rank{}), "
                      "copy the files of all ranks",
                      directory, expected, *ranks.rbegin()));
    }
    ++expected;
  }
  return expected;
}

Status check_tensor(const SafetensorsFile& file, const std::string& key, const TensorEntry& tensor,
                    int num_experts) {
  const bool is_row = tensor.shape.size() == 1 && tensor.shape[0] == num_experts;
  if (tensor.dtype == Dtype::kI64 && is_row) return {};
  return invalid_input(fmt::format(
      "{}: tensor {}: expected I64 [{}] (num_experts of meta_info.json), found {} [{}]",
      file.path(), key, num_experts, dtype_name(tensor.dtype), fmt::join(tensor.shape, ", ")));
}

Result<RankTensors> index_tensors(const SafetensorsFile& file, int num_experts) {
  RankTensors tensors;
  for (const auto& [name, tensor] : file.tensors()) {
    const std::optional<IterationLayer> key = parse_key(name);
    if (!key) {
      return invalid_input(fmt::format("{}: tensor {}: expected a name \"<iteration>_<layer>\"",
                                       file.path(), base::printable(name)));
    }
    WIDEEP_TRY(check_tensor(file, name, tensor, num_experts));
    if (!tensors.emplace(*key, &tensor).second) {
      return invalid_input(fmt::format("{}: tensor {}: iteration {} of layer {} occurs twice",
                                       file.path(), name, key->iteration, key->layer));
    }
  }
  if (tensors.empty()) {
    return invalid_input(
        fmt::format("{}: holds no statistics, expected tensors "
                    "\"<iteration>_<layer>\"",
                    file.path()));
  }
  return tensors;
}

// The files of a directory: for every stage the files of its ranks, in order.
struct Files {
  int num_files = 0;
  int num_stages = 1;
  std::vector<ExpertStatistics>
      stages;  // layers and iterations of each stage's first file; no counts

  int ranks_per_stage() const { return num_files / num_stages; }
  int stage_of(int file) const { return file / ranks_per_stage(); }
};

// Takes the layers and iterations from the first file of a stage; check_grid then requires exactly
// these of all its ranks.
void take_extent(const RankTensors& tensors, ExpertStatistics* statistics) {
  std::set<int> layers;
  for (const auto& [key, tensor] : tensors) layers.insert(key.layer);
  statistics->layers.assign(layers.begin(), layers.end());
  statistics->iter_start = tensors.begin()->first.iteration;
  statistics->iter_stop = tensors.rbegin()->first.iteration + 1;
}

Status wrong_key(const std::string& file, IterationLayer key, std::string_view what,
                 const ExpertStatistics& extent) {
  return invalid_input(fmt::format(
      "{}: tensor {}_{} {}, expected every iteration from {} to {} for each of {} layers, the "
      "same on all ranks",
      file, key.iteration, key.layer, what, extent.iter_start, extent.iter_stop - 1,
      extent.layers.size()));
}

// The grid iteration × layer and the map are in the same order, so the first difference is the
// wrong tensor.
Status check_grid(const RankTensors& tensors, const std::string& file,
                  const ExpertStatistics& extent) {
  auto next = tensors.begin();
  for (int iteration = extent.iter_start; iteration < extent.iter_stop; ++iteration) {
    for (int layer : extent.layers) {
      const IterationLayer expected{iteration, layer};
      if (next == tensors.end() || next->first > expected) {
        return wrong_key(file, expected, "is missing", extent);
      }
      if (next->first < expected) return wrong_key(file, next->first, "is unexpected", extent);
      ++next;
    }
  }
  if (next != tensors.end()) return wrong_key(file, next->first, "is unexpected", extent);
  return {};
}

// rank: of the file, in its stage. extent: of the stage, whose layers are among those of the
// statistics.
Status copy_counts(const RankTensors& tensors, const std::string& file, int rank,
                   const ExpertStatistics& extent, ExpertStatistics* statistics) {
  const auto first =
      std::find(statistics->layers.begin(), statistics->layers.end(), extent.layers.front());
  const auto first_layer = static_cast<int>(first - statistics->layers.begin());
  auto tensor = tensors.begin();
  for (int iteration = 0; iteration < extent.num_iterations(); ++iteration) {
    for (int layer = 0; layer < extent.num_layers(); ++layer, ++tensor) {
      const std::span<int64_t> row = statistics->row(iteration, first_layer + layer, rank);
      std::memcpy(row.data(), tensor->second->bytes.data(), row.size_bytes());
      const auto negative = std::find_if(row.begin(), row.end(), [](int64_t n) { return n < 0; });
      if (negative != row.end()) {
        return invalid_input(fmt::format(
            "{}: tensor {}_{}: expert {}: expected a count ≥ 0, "
            "found {}",
            file, tensor->first.iteration, tensor->first.layer, negative - row.begin(), *negative));
      }
    }
  }
  return {};
}

std::string path_of(const std::string& directory, int file) {
  return fmt::format("{}/rank{}.safetensors", directory, file);
}

// Appends a stage's layers. They must follow those of the stage before, and the iterations must be
// the same.
Status add_stage(const std::string& file, const ExpertStatistics& extent,
                 ExpertStatistics* statistics) {
  if (statistics->layers.empty()) {
    statistics->iter_start = extent.iter_start;
    statistics->iter_stop = extent.iter_stop;
  } else if (extent.layers.front() <= statistics->layers.back()) {
    return invalid_input(
        fmt::format("{}: holds layer {}, expected layers after {}, which belongs "
                    "to the pipeline stage before",
                    file, extent.layers.front(), statistics->layers.back()));
  } else if (extent.iter_start != statistics->iter_start ||
             extent.iter_stop != statistics->iter_stop) {
    return invalid_input(fmt::format(
        "{}: holds iterations {} to {}, expected {} to {} as in the pipeline stage before", file,
        extent.iter_start, extent.iter_stop - 1, statistics->iter_start,
        statistics->iter_stop - 1));
  }
  statistics->layers.insert(statistics->layers.end(), extent.layers.begin(), extent.layers.end());
  return {};
}

Status read_extents(const std::string& directory, Files* files, ExpertStatistics* statistics) {
  for (int stage = 0; stage < files->num_stages; ++stage) {
    const std::string path = path_of(directory, stage * files->ranks_per_stage());
    WIDEEP_TRY_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
    WIDEEP_TRY_ASSIGN(const RankTensors tensors, index_tensors(file, statistics->num_experts));
    take_extent(tensors, &files->stages.emplace_back());
    // Checked before `counts` is sized: a missing tensor would make the extent larger than the
    // file.
    WIDEEP_TRY(check_grid(tensors, path, files->stages.back()));
    WIDEEP_TRY(add_stage(path, files->stages.back(), statistics));
  }
  return {};
}

// Of a stage's files: that this one has the iterations and layers of the first.
Status check_file(const std::string& directory, const Files& files, int number, int num_experts) {
  const std::string path = path_of(directory, number);
  WIDEEP_TRY_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  WIDEEP_TRY_ASSIGN(const RankTensors tensors, index_tensors(file, num_experts));
  return check_grid(tensors, path, files.stages[static_cast<size_t>(files.stage_of(number))]);
}

// Makes room for as many counts as the first files claim for all ranks. Where the files together
// are smaller than that, one of them has less than it must have: it is found before memory is
// taken.
Status size_counts(const std::string& directory, const Files& files, ExpertStatistics* statistics) {
  const auto counts = static_cast<size_t>(statistics->num_iterations()) *
                      statistics->layers.size() * static_cast<size_t>(statistics->ep_size) *
                      static_cast<size_t>(statistics->num_experts);
  uintmax_t stored = 0;
  for (int file = 0; file < files.num_files; ++file) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(path_of(directory, file), error);
    if (!error) stored += bytes;
  }
  for (int file = 0; file < files.num_files && stored / sizeof(int64_t) < counts; ++file) {
    WIDEEP_TRY(check_file(directory, files, file, statistics->num_experts));
  }
  statistics->counts.resize(counts);
  return {};
}

Status read_rank(const std::string& directory, const Files& files, int number,
                 ExpertStatistics* statistics) {
  const std::string path = path_of(directory, number);
  WIDEEP_TRY_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  WIDEEP_TRY_ASSIGN(const RankTensors tensors, index_tensors(file, statistics->num_experts));
  const ExpertStatistics& extent = files.stages[static_cast<size_t>(files.stage_of(number))];
  WIDEEP_TRY(check_grid(tensors, path, extent));
  return copy_counts(tensors, path, number % files.ranks_per_stage(), extent, statistics);
}

bool counts_slots(const formats::JsonObject& root) {
  const std::string counts = root.string_or("counts", "expert");
  if (counts != "expert" && counts != "slot") {
    root.complain("counts", fmt::format("expected \"expert\" or \"slot\", found \"{}\"",
                                        base::printable(counts)));
  }
  return counts == "slot";
}

SlotLayout slot_layout(const formats::JsonObject& root, int num_slots) {
  SlotLayout slots;
  const int64_t stated = root.integer_or("num_slots", num_slots, {.min = 1});
  if (stated != num_slots) {
    root.complain("num_slots", fmt::format("expected {} (num_experts, of counts of slots their "
                                           "number), found {}",
                                           num_slots, stated));
  }
  slots.num_ranks = static_cast<int>(root.integer("slot_ranks", {.min = 1, .max = kMaxRanks}));
  if (root.is_valid() && num_slots % slots.num_ranks != 0) {
    root.complain("slot_ranks", fmt::format("expected a divisor of the {} slots, found {}",
                                            num_slots, slots.num_ranks));
  }
  const int per_rank = root.is_valid() ? num_slots / slots.num_ranks : 1;
  slots.borrowed_per_rank =
      static_cast<int>(root.integer_or("borrowed_slots", 0, {.min = 0, .max = per_rank - 1}));
  slots.num_logical_experts =
      static_cast<int>(root.integer("num_logical_experts", {.min = 1, .max = kMaxExperts}));
  return slots;
}

Status read_meta_info(const std::string& directory, Files* files, ExpertStatistics* statistics) {
  WIDEEP_TRY_ASSIGN(const formats::JsonDocument document,
                    formats::JsonDocument::read(directory + "/meta_info.json"));
  const formats::JsonObject root = document.root();
  const bool are_slots = counts_slots(root);
  statistics->num_experts = static_cast<int>(
      root.integer("num_experts", {.min = 1, .max = are_slots ? balance::kMaxSlots : kMaxExperts}));
  statistics->top_k =
      static_cast<int>(root.integer("num_experts_per_token", {.min = 1, .max = kMaxTopK}));
  // Written by wideep, absent from TRT's files.
  const int64_t stages = root.integer_or("num_stages", 1, {.min = 1, .max = files->num_files});
  const int64_t ranks = root.integer_or("ep_size", files->num_files, {.min = 1, .max = kMaxRanks});
  if (are_slots) statistics->slots = slot_layout(root, statistics->num_experts);
  WIDEEP_TRY(document.status());
  files->num_stages = static_cast<int>(stages);
  statistics->ep_size = files->ranks_per_stage();
  if (ranks * stages == files->num_files) return {};
  const std::string of_stages = stages == 1 ? "" : fmt::format(" of {} pipeline stages", stages);
  return invalid_input(fmt::format(
      "{}: recorded by {} ranks{} (meta_info.json: ep_size), expected as many files, found "
      "{} (rank0 to rank{}); copy the files of all ranks",
      directory, ranks, of_stages, files->num_files, files->num_files - 1));
}

}  // namespace

Result<ExpertStatistics> read_statistics_directory(const std::string& directory) {
  ExpertStatistics statistics;
  Files files;
  WIDEEP_TRY_ASSIGN(files.num_files, count_rank_files(directory));
  WIDEEP_TRY(read_meta_info(directory, &files, &statistics));
  WIDEEP_TRY(read_extents(directory, &files, &statistics));
  WIDEEP_TRY(size_counts(directory, files, &statistics));
  for (int file = 0; file < files.num_files; ++file) {
    WIDEEP_TRY(read_rank(directory, files, file, &statistics));
  }
  WIDEEP_TRY(check_statistics(statistics).at(directory));
  return statistics;
}

Result<ExpertStatistics> read_statistics(const std::string& path, int num_experts) {
  std::error_code error;
  const bool is_directory = fs::is_directory(path, error);
  if (!is_directory && path.ends_with(".csv")) return read_statistics_csv(path, num_experts);
  if (num_experts > 0) {
    return invalid_input(fmt::format(
        "{}: the number of experts (--num-experts) can only describe a trace or a table of "
        "layer_id, expert_id, count; leave it out",
        path));
  }
  if (!is_directory) return read_logical_count(path);
  WIDEEP_TRY_ASSIGN(ExpertStatistics statistics, read_statistics_directory(path));
  WIDEEP_TRY(check_counts_of_experts(path, statistics));
  return statistics;
}

Status check_counts_of_experts(const std::string& path, const ExpertStatistics& statistics) {
  if (!statistics.slots) return {};
  const fs::path whole = (fs::path(path) / "").lexically_normal().parent_path();
  const std::string experts =
      whole.filename() == kSlotsFolder
          ? fmt::format("give {}", whole.parent_path().empty() ? "." : whole.parent_path().string())
          : "record them again, or give the folder above";
  return invalid_input(
      fmt::format("{}: expected counts of experts, found counts of slots (meta_info.json: counts), "
                  "from which only `balance report` follows; {}, which has the experts'",
                  path, experts));
}

}  // namespace wideep::recordings
