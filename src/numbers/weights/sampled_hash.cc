// SPDX-License-Identifier: Apache-2.0
#include "weights/sampled_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

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

std::vector<std::span<const std::byte>> pieces_of(std::span<const std::byte> bytes) {
  if (bytes.size() <= kFewestPieces * kPieceBytes) return {bytes};
  std::vector<std::span<const std::byte>> pieces(
      std::max(kFewestPieces, bytes.size() / kBytesPerPiece));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t at = (bytes.size() - kPieceBytes) * i / (pieces.size() - 1);
    pieces[i] = bytes.subspan(at, kPieceBytes);
  }
  return pieces;
}

// Asks the kernel for the pages of a mapped file. Whoever touches one without that waits for all
// around it, too, as many as the disk's read-ahead has: for most of the file.
void ask_for(std::span<const std::byte> bytes) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin + bytes.size() - first, MADV_WILLNEED);
}

std::string hash_of(const SampledTensor& tensor) {
  std::string text =
      fmt::format("{}\n{}\n{}\n", tensor.name, tensor.type, fmt::join(tensor.shape, ","));
  const auto pieces = pieces_of(tensor.bytes);
  for (const auto& piece : pieces) ask_for(piece);
  for (const auto& piece : pieces) text += text_of(piece);
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
