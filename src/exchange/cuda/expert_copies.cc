// SPDX-License-Identifier: Apache-2.0
//
// A copy is a sequence of launches of one piece of every record, so that the owner may stop
// between them and the forward path's kernels come in between. The hash goes on from piece to
// piece in the state of each copy on the device; the host reads it only when it asks for outcomes.
// Records of different sizes end at different pieces: the number of launches is that of the
// largest.
#include "cuda/expert_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/content_hash.h"
#include "base/try.h"

namespace wideep::cuda {
namespace {

Status check(const ExpertCopyOptions& options) {
  const auto wrong = [](const char* what, int64_t found, const char* expected) {
    return invalid_input(
        fmt::format("copies of experts on GPUs: {} {}, expected {}", what, found, expected));
  };
  if (options.max_copies < 1 || options.max_copies > CopyRecords::kMaxCopies) {
    return wrong("copies", options.max_copies, "1 to 1024");
  }
  if (options.piece_bytes < kHashBlockBytes || options.piece_bytes % kHashBlockBytes != 0 ||
      options.piece_bytes > size_t{1} << 30) {
    return wrong("bytes of a piece", static_cast<int64_t>(options.piece_bytes),
                 "a multiple of 1024, at most 2^30");
  }
  if (options.num_blocks < 1) return wrong("blocks", options.num_blocks, "at least 1");
  if (options.num_threads < kWarpSize || options.num_threads > kMaxThreads ||
      options.num_threads % kWarpSize != 0) {
    return wrong("threads of a block", options.num_threads, "a multiple of 32, at most 512");
  }
  return {};
}

Status check(const RecordCopy& copy) {
  const auto wrong = [&](const std::string& what) {
    return invalid_input(fmt::format("copying expert {} of layer {} from rank {}: {}", copy.expert,
                                     copy.layer, copy.source, what));
  };
  if (copy.num_bytes < kMinHashedBytes) {
    return wrong(
        fmt::format("a record of {} bytes, expected at least {}", copy.num_bytes, kMinHashedBytes));
  }
  if (copy.from == nullptr || copy.to == nullptr) return wrong("no memory given");
  if (reinterpret_cast<uintptr_t>(copy.to) % sizeof(Vector) != 0) {
    return wrong("the new record is not aligned to 16 bytes");
  }
  return {};
}

uint64_t num_pieces(uint64_t num_bytes, int piece_blocks) {
  const auto blocks = static_cast<uint64_t>(piece_blocks);
  return (HashParts{num_bytes}.num_blocks() + blocks - 1) / blocks;
}

}  // namespace

Status copy_status(int rank, const RecordCopy& copy, const CopyOutcome& outcome) {
  const std::string where = fmt::format("rank {}, layer {}: copying expert {} from rank {}", rank,
                                        copy.layer, copy.expert, copy.source);
  switch (outcome.result) {
    case CopyResult::kDone:
      return {};
    case CopyResult::kUnderWay:
      return failed(where + " has not ended");
    case CopyResult::kSpoilt:
      return failed(fmt::format("{}: what has come has the hash {:016x}, expected {:016x}", where,
                                outcome.hash, copy.expected_hash));
    case CopyResult::kNotOffered:
      return deadline_exceeded(where + ": it was not offered within the deadline");
  }
  return failed(where + ": unknown result");
}

Result<ExpertCopies> ExpertCopies::create(Devices& devices, int stream,
                                          const ExpertCopyOptions& options) {
  WIDEEP_TRY(check(options));
  ExpertCopies made(devices, stream, options);
  const auto allocate = [&]<typename T>(size_t count, T** to) -> Status {
    WIDEEP_TRY_ASSIGN(std::byte* const memory, devices.allocate(stream, count * sizeof(T), false));
    *to = reinterpret_cast<T*>(memory);
    return {};
  };
  const auto copies = static_cast<size_t>(options.max_copies);
  const auto sums = copies * static_cast<size_t>(made.piece_blocks()) * kHashAccumulators;
  WIDEEP_TRY(allocate(copies, &made.copies_));
  WIDEEP_TRY(allocate(copies, &made.states_));
  WIDEEP_TRY(allocate(sums, &made.sums_));
  WIDEEP_TRY(allocate(1, &made.blocks_done_));
  WIDEEP_TRY(allocate(copies, &made.words_));
  WIDEEP_TRY(devices.clear(stream, made.blocks_done_, sizeof(uint32_t)));
  return made;
}

Status ExpertCopies::begin(std::span<const RecordCopy> copies) {
  if (copies.size() > static_cast<size_t>(options_.max_copies)) {
    return invalid_input(fmt::format("copies of experts on GPUs: {} at a time, expected at most {}",
                                     copies.size(), options_.max_copies));
  }
  uint64_t pieces = 0;
  for (const RecordCopy& copy : copies) {
    WIDEEP_TRY(check(copy));
    pieces = std::max(pieces, num_pieces(copy.num_bytes, piece_blocks()));
  }
  CopyState first{};
  std::memcpy(first.accumulators, kFirstAccumulators, sizeof(kFirstAccumulators));
  const std::vector<CopyState> states(copies.size(), first);
  WIDEEP_TRY(devices_->write(stream_, copies_, copies.data(), copies.size_bytes()));
  WIDEEP_TRY(devices_->write(stream_, states_, states.data(), states.size() * sizeof(CopyState)));
  num_copies_ = static_cast<int>(copies.size());
  pieces_left_ = static_cast<int>(pieces);
  return {};
}

Status ExpertCopies::launch_piece() {
  if (pieces_left_ == 0) return {};
  --pieces_left_;
  CopyRecords kernel{.copies = copies_,
                     .states = states_,
                     .sums = sums_,
                     .blocks_done = blocks_done_,
                     .secret = {},
                     .num_copies = num_copies_,
                     .piece_blocks = piece_blocks(),
                     .deadline_ns = static_cast<uint64_t>(options_.deadline.count())};
  const auto secret = base::content_hash_secret();
  std::copy(secret.begin(), secret.end(), kernel.secret.words);
  return devices_->launch(
      stream_, kernel,
      {options_.num_blocks, options_.num_threads, CopyRecords::shared_bytes(num_copies_)});
}

Result<std::vector<CopyOutcome>> ExpertCopies::outcomes() {
  std::vector<CopyState> states(static_cast<size_t>(num_copies_));
  WIDEEP_TRY(devices_->read(stream_, states.data(), states_, states.size() * sizeof(CopyState)));
  std::vector<CopyOutcome> outcomes;
  for (const CopyState& state : states) {
    outcomes.push_back({static_cast<CopyResult>(state.result), state.hash});
  }
  return outcomes;
}

Status ExpertCopies::offer(std::span<uint32_t* const> words, uint32_t ticket) {
  if (words.size() > static_cast<size_t>(options_.max_copies)) {
    return invalid_input(fmt::format("offers of experts on GPUs: {} at a time, expected at most {}",
                                     words.size(), options_.max_copies));
  }
  WIDEEP_TRY(devices_->write(stream_, words_, words.data(), words.size_bytes()));
  return devices_->launch(stream_, OfferRecords{words_, static_cast<int32_t>(words.size()), ticket},
                          {1, kWarpSize});
}

}  // namespace wideep::cuda
