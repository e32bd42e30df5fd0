// SPDX-License-Identifier: Apache-2.0
#include "weights/sampled_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/content_hash.h"
#include "base/thread_pool.h"

namespace wideep::weights {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 10;
// Of tensors that hold all experts, pieces of many experts.
constexpr size_t kBytesPerPiece = size_t{4} << 20;
constexpr size_t kFewestPieces = 4;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void append_pieces(std::span<const std::byte> bytes, std::string& text) {
  if (bytes.size() <= kFewestPieces * kPieceBytes) {
    text += text_of(bytes);
    return;
  }
  const size_t pieces = std::max(kFewestPieces, bytes.size() / kBytesPerPiece);
  for (size_t i = 0; i < pieces; ++i) {
    const size_t at = (bytes.size() - kPieceBytes) * i / (pieces - 1);
    text += text_of(bytes.subspan(at, kPieceBytes));
  }
}

std::string hash_of(const SampledTensor& tensor) {
  std::string text =
      fmt::format("{}\n{}\n{}\n", tensor.name, tensor.type, fmt::join(tensor.shape, ","));
  append_pieces(tensor.bytes, text);
  return base::content_hash_hex(text);
}

}  // namespace

std::string sampled_hash(const std::vector<SampledTensor>& tensors) {
  // Threads wait for a disk here, not for a core: as many as a disk can serve at once.
  constexpr int kReaders = 8;
  std::vector<std::string> hashes(tensors.size());
  base::ThreadPool readers(std::clamp(static_cast<int>(tensors.size()), 1, kReaders));
  readers.parallel_for(static_cast<int64_t>(tensors.size()), 1, [&](int64_t from, int64_t to) {
    for (auto i = static_cast<size_t>(from); i < static_cast<size_t>(to); ++i) {
      hashes[i] = hash_of(tensors[i]);
    }
  });
  return base::content_hash_hex(fmt::format("{}", fmt::join(hashes, " ")));
}

}  // namespace wideep::weights
