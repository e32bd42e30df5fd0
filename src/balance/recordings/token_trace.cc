// SPDX-License-Identifier: Apache-2.0
//
// Blocks of whole tokens, so that a trace may be larger than memory. The file has no header: that
// its shape is right shows only in its size and in its ids, so each id is checked, also those of
// tokens that are dropped.
#include "recordings/token_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "base/try.h"
#include "formats/range.h"

namespace wideep::recordings {
namespace {

constexpr int kMaxExperts = 1 << 16;
constexpr int kMaxTopK = 1 << 10;
constexpr int kMaxLayers = 1 << 16;
constexpr int64_t kMaxCounts = int64_t{1} << 27;   // of 8 bytes: 1 GiB
constexpr int64_t kBlockBytes = int64_t{1} << 18;  // read at once

Status check_number(const char* name, int64_t found, const formats::IntegerRange& range) {
  if (range.contains(found)) return {};
  return invalid_input(
      fmt::format("{}: expected {}, found {}", name, formats::describe(range), found));
}

// The sizes of a file that agrees with the shape.
struct Layout {
  int id_bytes = 1;
  int64_t ids_per_token = 0;
  int64_t num_tokens = 0;

  int64_t token_bytes() const { return ids_per_token * id_bytes; }
};

Result<int> id_bytes_of(const std::string& path, const TraceShape& shape) {
  if (path.ends_with(".u16")) return 2;
  if (!path.ends_with(".u8")) {
    return invalid_input(fmt::format(
        "{}: expected a trace of expert ids whose name ends in .u8 (uint8) or .u16 (uint16)",
        path));
  }
  if (shape.num_experts <= 256) return 1;
  return invalid_input(
      fmt::format("{}: uint8 ids name at most 256 experts, expected a .u16 file for {} experts",
                  path, shape.num_experts));
}

Result<Layout> check_size(const std::string& path, const TraceShape& shape) {
  WIDEEP_TRY(check_trace_shape(shape).at(path));
  Layout layout;
  WIDEEP_TRY_ASSIGN(layout.id_bytes, id_bytes_of(path, shape));
  layout.ids_per_token = int64_t{shape.num_layers} * shape.top_k;
  std::error_code error;
  const uintmax_t file_bytes = std::filesystem::file_size(path, error);
  if (error) {
    return invalid_input(fmt::format("{}: cannot be read: {}", path, error.message()));
  }
  const auto token_bytes = static_cast<uintmax_t>(layout.token_bytes());
  if (file_bytes == 0 || file_bytes % token_bytes != 0) {
    return invalid_input(fmt::format(
        "{}: expected tokens of {} bytes ({} layers × top-{} × {} bytes), found a file of {} bytes",
        path, token_bytes, shape.num_layers, shape.top_k, layout.id_bytes, file_bytes));
  }
  layout.num_tokens = static_cast<int64_t>(file_bytes / token_bytes);
  return layout;
}

// Reads the ids of whole tokens, block by block.
class TraceFile {
 public:
  TraceFile(const std::string& path, const Layout& layout)
      : path_(path), layout_(layout), file_(path, std::ios::binary) {}

  // The ids of the next num_tokens tokens, valid until the next call.
  Result<std::span<const uint16_t>> read(int64_t num_tokens) {
    bytes_.resize(static_cast<size_t>(num_tokens * layout_.token_bytes()));
    file_.read(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    if (!file_) {
      return failed(
          fmt::format("{}: cannot be read to the end of its {} tokens", path_, layout_.num_tokens));
    }
    ids_.resize(static_cast<size_t>(num_tokens * layout_.ids_per_token));
    for (size_t i = 0; i < ids_.size(); ++i) ids_[i] = id_at(i);
    return std::span<const uint16_t>(ids_);
  }

 private:
  uint16_t id_at(size_t i) const {
    const auto byte = [&](size_t k) { return static_cast<unsigned char>(bytes_[k]); };
    if (layout_.id_bytes == 1) return byte(i);
    // Little-endian on every machine.
    return static_cast<uint16_t>(byte(2 * i) | byte(2 * i + 1) << 8);
  }

  std::string path_;
  Layout layout_;
  std::ifstream file_;
  std::vector<char> bytes_;
  std::vector<uint16_t> ids_;
};

// Checks that each choice names distinct experts. A mark per expert instead of a set per choice
// makes the check one look-up per id; marks differ between choices, so nothing is cleared.
class ChoiceCheck {
 public:
  ChoiceCheck(const std::string& path, const TraceShape& shape)
      : path_(path), shape_(shape), chosen_by_(static_cast<size_t>(shape.num_experts), -1) {}

  Status operator()(const TokenChoice& choice) {
    const int64_t mark = choice.token * shape_.num_layers + choice.layer_idx;
    for (uint16_t expert : choice.experts) {
      if (expert >= shape_.num_experts) {
        return wrong(choice, fmt::format("an expert id from 0 to {}", shape_.num_experts - 1),
                     fmt::format("{}", expert));
      }
      // The last choice that named the expert is this one: the expert occurs twice.
      if (std::exchange(chosen_by_[expert], mark) == mark) {
        return wrong(choice, fmt::format("{} different experts", shape_.top_k),
                     fmt::format("{} twice", expert));
      }
    }
    return {};
  }

 private:
  Status wrong(const TokenChoice& choice, const std::string& expected,
               const std::string& found) const {
    return invalid_input(
        fmt::format("{}: token {}, layer {}: expected {}, found {}; check the trace's shape ({} "
                    "layers, top-{}, {} experts)",
                    path_, choice.token, shape_.first_layer + choice.layer_idx, expected, found,
                    shape_.num_layers, shape_.top_k, shape_.num_experts));
  }

  const std::string& path_;
  const TraceShape& shape_;
  std::vector<int64_t> chosen_by_;  // [E] the last choice that named the expert
};

struct Windows {
  int64_t tokens_each = 0;
  int64_t count = 0;
  int64_t num_tokens = 0;  // in them; the last window may hold fewer than the others
};

Result<Windows> split_into_windows(const std::string& path, const TraceShape& shape,
                                   int64_t num_tokens) {
  Windows windows{shape.window_tokens == 0 ? num_tokens : shape.window_tokens, 0, num_tokens};
  const int64_t rest = num_tokens % windows.tokens_each;
  const bool keeps_rest = rest * 2 >= windows.tokens_each;
  windows.count = num_tokens / windows.tokens_each + (rest > 0 && keeps_rest ? 1 : 0);
  if (!keeps_rest) windows.num_tokens -= rest;
  if (windows.count == 0) {
    return invalid_input(
        fmt::format("{}: {} tokens do not fill half a window of {}, expected smaller windows", path,
                    num_tokens, windows.tokens_each));
  }
  const int64_t counts_each = int64_t{shape.num_layers} * shape.num_experts;
  if (windows.count > kMaxCounts / counts_each) {
    return invalid_input(fmt::format(
        "{}: {} windows of {} layers × {} experts exceed {} counts, expected larger windows", path,
        windows.count, shape.num_layers, shape.num_experts, kMaxCounts));
  }
  return windows;
}

ExpertStatistics empty_statistics(const TraceShape& shape, int64_t num_windows) {
  ExpertStatistics statistics;
  statistics.num_experts = shape.num_experts;
  statistics.top_k = shape.top_k;
  statistics.iter_stop = static_cast<int>(num_windows);
  statistics.layers.resize(static_cast<size_t>(shape.num_layers));
  std::iota(statistics.layers.begin(), statistics.layers.end(), shape.first_layer);
  statistics.counts.resize(static_cast<size_t>(num_windows) * statistics.layers.size() *
                           static_cast<size_t>(shape.num_experts));
  return statistics;
}

}  // namespace

Status check_trace_shape(const TraceShape& shape) {
  WIDEEP_TRY(check_number("number of layers", shape.num_layers, {1, kMaxLayers}));
  WIDEEP_TRY(check_number("number of experts", shape.num_experts, {1, kMaxExperts}));
  WIDEEP_TRY(check_number("top_k", shape.top_k, {1, std::min(kMaxTopK, shape.num_experts)}));
  WIDEEP_TRY(check_number("first layer", shape.first_layer, {0, kMaxLayers}));
  return check_number("tokens of a window", shape.window_tokens, {.min = 0});
}

Result<int64_t> visit_trace(const std::string& path, const TraceShape& shape,
                            const std::function<void(const TokenChoice&)>& visit) {
  WIDEEP_TRY_ASSIGN(const Layout layout, check_size(path, shape));
  // Whole tokens per block, at least one even if a token is larger than a block.
  const int64_t block_tokens = std::max<int64_t>(1, kBlockBytes / layout.token_bytes());
  const auto top_k = static_cast<size_t>(shape.top_k);
  TraceFile file(path, layout);
  ChoiceCheck check(path, shape);
  for (int64_t first = 0; first < layout.num_tokens; first += block_tokens) {
    const int64_t num_tokens = std::min(block_tokens, layout.num_tokens - first);
    WIDEEP_TRY_ASSIGN(std::span<const uint16_t> ids, file.read(num_tokens));
    for (int64_t token = first; token < first + num_tokens; ++token) {
      for (int layer_idx = 0; layer_idx < shape.num_layers; ++layer_idx) {
        const TokenChoice choice{token, layer_idx, ids.first(top_k)};
        WIDEEP_TRY(check(choice));
        visit(choice);
        ids = ids.subspan(top_k);
      }
    }
  }
  return layout.num_tokens;
}

Result<TraceStatistics> read_trace(const std::string& path, const TraceShape& shape) {
  WIDEEP_TRY_ASSIGN(const Layout layout, check_size(path, shape));
  WIDEEP_TRY_ASSIGN(const Windows windows, split_into_windows(path, shape, layout.num_tokens));
  TraceStatistics trace{empty_statistics(shape, windows.count), layout.num_tokens,
                        layout.num_tokens - windows.num_tokens};
  // The dropped tokens are visited too: a wrong id there shows that the shape is wrong.
  const Result<int64_t> visited = visit_trace(path, shape, [&](const TokenChoice& choice) {
    if (choice.token >= windows.num_tokens) return;
    const int window = static_cast<int>(choice.token / windows.tokens_each);
    const std::span<int64_t> counts = trace.statistics.row(window, choice.layer_idx, 0);
    for (uint16_t expert : choice.experts) ++counts[expert];
  });
  if (!visited.ok()) return visited.status();
  return trace;
}

}  // namespace wideep::recordings
