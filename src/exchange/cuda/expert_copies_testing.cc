// SPDX-License-Identifier: Apache-2.0
//
// Sizes are drawn around whole stripes and blocks of the hash, and sources off their alignment,
// since hashes go wrong at such ends. One bit of some records is flipped: their copies must be said
// to be spoilt, and the hash must be that of what was copied. Bytes behind a record have to stay.
// Copies may be begun once more after some pieces. With two ranks the refill is launched before the
// fetch, so that only the flags keep it from overwriting what is still being read.
#include "cuda/expert_copies_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/content_hash.h"
#include "base/try.h"

namespace wideep::cuda {
namespace {

constexpr size_t kBehind = 32;  // bytes behind a record that have to stay as they are

int draw(std::mt19937_64& random, int min, int max) {
  return min + static_cast<int>(random() % static_cast<uint64_t>(max - min + 1));
}

// A record on the CPU's way, and on the device.
struct Played {
  std::vector<std::byte> bytes;  // the copy of the CPU's mover
  uint64_t hash = 0;             // of what is copied
  RecordCopy copy;
};

Result<Played> make_record(Devices& devices, int stream, const CopyCase::Record& record,
                           std::mt19937_64& random) {
  std::vector<std::byte> bytes(record.num_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  Played made;
  made.copy.num_bytes = record.num_bytes;
  made.copy.expected_hash = base::content_hash(bytes.data(), bytes.size());
  if (record.is_spoilt) {
    const size_t bit = random() % (8 * bytes.size());
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
  made.bytes.resize(record.num_bytes);
  made.hash =
      base::copy_and_hash(bytes.data(), made.bytes.data(), bytes.size(), [] { return true; });
  WIDEEP_TRY_ASSIGN(std::byte* const from,
                    devices.allocate(stream, record.num_bytes + sizeof(Vector), true));
  WIDEEP_TRY_ASSIGN(std::byte* const to,
                    devices.allocate(stream, record.num_bytes + kBehind, true));
  WIDEEP_TRY(devices.write(stream, from + record.misaligned_by, bytes.data(), bytes.size()));
  devices.forget(to, record.num_bytes + kBehind);
  made.copy.from = from + record.misaligned_by;
  made.copy.to = to;
  return made;
}

Status compare_record(Devices& devices, int stream, const Played& record, bool is_spoilt,
                      const CopyOutcome& outcome) {
  const CopyResult expected = is_spoilt ? CopyResult::kSpoilt : CopyResult::kDone;
  if (outcome.result != expected) {
    return failed(fmt::format("result {}, expected {}", static_cast<int>(outcome.result),
                              static_cast<int>(expected)));
  }
  if (outcome.hash != record.hash) {
    return failed(fmt::format("hash {:016x}, expected {:016x}", outcome.hash, record.hash));
  }
  const size_t num_bytes = record.bytes.size();
  std::vector<std::byte> found(num_bytes + kBehind);
  if (!devices.is_written(record.copy.to, num_bytes)) return failed("bytes are missing");
  WIDEEP_TRY(devices.read(stream, found.data(), record.copy.to, found.size()));
  const auto differs = std::mismatch(record.bytes.begin(), record.bytes.end(), found.begin());
  if (differs.first != record.bytes.end()) {
    return failed(fmt::format("byte {} differs", differs.first - record.bytes.begin()));
  }
  const bool is_clean = std::all_of(found.begin() + static_cast<ptrdiff_t>(num_bytes), found.end(),
                                    [](std::byte byte) { return byte == std::byte{0xd5}; });
  return is_clean ? Status{} : failed("bytes behind the record were written");
}

}  // namespace

CopyCase random_copies(std::mt19937_64& random, size_t max_bytes) {
  CopyCase c;
  c.seed = random();
  const int n = draw(random, 1, 5);
  for (int i = 0; i < n; ++i) {
    CopyCase::Record record;
    const size_t max = random() % 3 == 0 ? 1200 : max_bytes;
    record.num_bytes = kMinHashedBytes + random() % (max - kMinHashedBytes);
    // Whole stripes and blocks, and their neighbours, are where hashes go wrong.
    if (random() % 3 == 0) record.num_bytes = record.num_bytes / 64 * 64 + 256 + random() % 3 - 1;
    if (random() % 4 == 0)
      record.num_bytes = record.num_bytes / 1024 * 1024 + 1024 + random() % 3 - 1;
    record.misaligned_by = random() % 3 == 0 ? draw(random, 1, 15) : 0;
    record.is_spoilt = random() % 6 == 0;
    c.records.push_back(record);
  }
  c.options = {.max_copies = n + draw(random, 0, 2),
               .piece_bytes = kHashBlockBytes * static_cast<size_t>(draw(random, 1, 9)),
               .num_blocks = draw(random, 1, 3),
               .num_threads = kWarpSize * draw(random, 1, 3),
               .deadline = std::chrono::milliseconds(500)};
  if (random() % 4 == 0) c.stop_after = draw(random, 0, 3);
  return c;
}

Status play_copies(Devices& devices, int stream, const CopyCase& c) {
  std::mt19937_64 random(c.seed);
  std::vector<Played> records;
  std::vector<RecordCopy> copies;
  for (const CopyCase::Record& record : c.records) {
    WIDEEP_TRY_ASSIGN(Played made, make_record(devices, stream, record, random));
    copies.push_back(made.copy);
    records.push_back(std::move(made));
  }
  WIDEEP_TRY_ASSIGN(ExpertCopies mover, ExpertCopies::create(devices, stream, c.options));
  WIDEEP_TRY(mover.begin(copies));
  if (c.stop_after >= 0) {
    for (int i = 0; i < c.stop_after; ++i) WIDEEP_TRY(mover.launch_piece());
    WIDEEP_TRY(devices.finish());
    WIDEEP_TRY(mover.begin(copies));
  }
  for (int launched = 0; !mover.are_ended(); ++launched) {
    WIDEEP_TRY(mover.launch_piece());
    // Sometimes the owner looks between the pieces.
    if (launched % 3 == 1) WIDEEP_TRY(devices.finish());
  }
  WIDEEP_TRY(devices.finish());
  WIDEEP_TRY_ASSIGN(const std::vector<CopyOutcome> outcomes, mover.outcomes());
  for (size_t i = 0; i < records.size(); ++i) {
    const std::string where = fmt::format("case {}, record {} of {} bytes, off by {}", c.seed, i,
                                          records[i].bytes.size(), c.records[i].misaligned_by);
    WIDEEP_TRY(
        compare_record(devices, stream, records[i], c.records[i].is_spoilt, outcomes[i]).at(where));
  }
  return {};
}

// ---- two ranks ----

TwoRanks::TwoRanks(Devices& devices, int stream_of_0, int stream_of_1)
    : devices_(devices),
      stream_of_0_(stream_of_0),
      stream_of_1_(stream_of_1),
      allocated_(allocate()) {}

Status TwoRanks::allocate() {
  for (std::byte** memory : {&host_, &other_, &slot_, &copy_}) {
    WIDEEP_TRY_ASSIGN(*memory, devices_.allocate(stream_of_0_, kRecordBytes, true));
  }
  for (uint32_t** word : {&offered_, &taken_}) {
    WIDEEP_TRY_ASSIGN(std::byte* const memory,
                      devices_.allocate(stream_of_0_, sizeof(uint32_t), true));
    *word = reinterpret_cast<uint32_t*>(memory);
    WIDEEP_TRY(devices_.clear(stream_of_0_, memory, sizeof(uint32_t)));
  }
  std::vector<std::byte> bytes(kRecordBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  hash_ = base::content_hash(bytes.data(), bytes.size());
  WIDEEP_TRY(devices_.write(stream_of_0_, host_, bytes.data(), bytes.size()));
  bytes[5] = std::byte{99};
  other_hash_ = base::content_hash(bytes.data(), bytes.size());
  return devices_.write(stream_of_0_, other_, bytes.data(), bytes.size());
}

RecordCopy TwoRanks::fill() const {
  return {.from = host_, .to = slot_, .num_bytes = kRecordBytes, .expected_hash = hash_};
}

RecordCopy TwoRanks::fetch() const {
  return {.from = slot_,
          .to = copy_,
          .num_bytes = kRecordBytes,
          .expected_hash = hash_,
          .offered = offered_,
          .taken = taken_,
          .ticket = kTicket,
          .source = 1,
          .layer = 4,
          .expert = 9};
}

RecordCopy TwoRanks::refill() const {
  return {.from = other_,
          .to = slot_,
          .num_bytes = kRecordBytes,
          .expected_hash = other_hash_,
          .offered = taken_,
          .ticket = kTicket,
          .source = 0,
          .layer = 4,
          .expert = 9};
}

Result<ExpertCopies> TwoRanks::begin(int stream, const RecordCopy& copy) {
  WIDEEP_TRY(allocated_);
  WIDEEP_TRY_ASSIGN(ExpertCopies mover,
                    ExpertCopies::create(devices_, stream,
                                         {.max_copies = 2,
                                          .piece_bytes = 2048,
                                          .num_blocks = 2,
                                          .num_threads = 64,
                                          .deadline = std::chrono::milliseconds(500)}));
  WIDEEP_TRY(mover.begin(std::span(&copy, 1)));
  return mover;
}

Status TwoRanks::all() {
  WIDEEP_TRY_ASSIGN(ExpertCopies filling, begin(stream_of_1_, fill()));
  WIDEEP_TRY_ASSIGN(ExpertCopies fetching, begin(stream_of_0_, fetch()));
  WIDEEP_TRY_ASSIGN(ExpertCopies refilling, begin(stream_of_1_, refill()));
  while (!filling.are_ended()) WIDEEP_TRY(filling.launch_piece());
  WIDEEP_TRY(filling.offer(std::span(&offered_, 1), kTicket));
  while (!refilling.are_ended()) WIDEEP_TRY(refilling.launch_piece());
  while (!fetching.are_ended()) WIDEEP_TRY(fetching.launch_piece());
  WIDEEP_TRY(devices_.finish());
  WIDEEP_TRY_ASSIGN(const std::vector<CopyOutcome> filled, filling.outcomes());
  WIDEEP_TRY(copy_status(1, fill(), filled[0]));
  WIDEEP_TRY_ASSIGN(const std::vector<CopyOutcome> fetched, fetching.outcomes());
  WIDEEP_TRY(copy_status(0, fetch(), fetched[0]));
  WIDEEP_TRY_ASSIGN(const std::vector<CopyOutcome> refilled, refilling.outcomes());
  WIDEEP_TRY(copy_status(1, refill(), refilled[0]));
  std::vector<std::byte> bytes(kRecordBytes);
  WIDEEP_TRY(devices_.read(stream_of_0_, bytes.data(), copy_, bytes.size()));
  return base::content_hash(bytes.data(), bytes.size()) == hash_ ? Status{}
                                                                 : failed("the copy differs");
}

Status TwoRanks::fetch_only() {
  WIDEEP_TRY_ASSIGN(ExpertCopies fetching, begin(stream_of_0_, fetch()));
  while (!fetching.are_ended()) WIDEEP_TRY(fetching.launch_piece());
  WIDEEP_TRY(devices_.finish());
  WIDEEP_TRY_ASSIGN(const std::vector<CopyOutcome> outcomes, fetching.outcomes());
  return copy_status(0, fetch(), outcomes[0]);
}

}  // namespace wideep::cuda
