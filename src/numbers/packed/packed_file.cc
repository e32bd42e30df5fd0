// SPDX-License-Identifier: Apache-2.0
#include "packed/packed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/aligned_bytes.h"
#include "base/byte_size.h"
#include "base/content_hash.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"

namespace wideep::packed {

using nlohmann::json;

json to_json(const Part& part) {
  json value = {part.offset, part.bytes, std::bit_cast<uint32_t>(part.scale)};
  for (const uint64_t hash : part.hashes) value.push_back(hash);
  return value;
}

Result<Part> part_of(const json& value, const std::string& where) {
  const auto is_number = [](const json& each) { return each.is_number_unsigned(); };
  if (!value.is_array() || value.size() < 3 || !std::ranges::all_of(value, is_number)) {
    return invalid_input(fmt::format("{}: expected [offset, bytes, scale, hash, ...], found {}",
                                     where, formats::describe(value)));
  }
  Part part{.offset = value[0].get<uint64_t>(),
            .bytes = value[1].get<uint64_t>(),
            .scale = std::bit_cast<float>(static_cast<uint32_t>(value[2].get<uint64_t>())),
            .hashes = {}};
  for (size_t i = 3; i < value.size(); ++i) part.hashes.push_back(value[i].get<uint64_t>());
  constexpr uint64_t kMost = uint64_t{1} << 50;
  if (part.bytes > kMost || part.offset > kMost || part.offset % kAlignment != 0 ||
      static_cast<size_t>(part.num_pieces()) != part.hashes.size()) {
    return invalid_input(
        fmt::format("{}: {} bytes at {} with {} hashes: expected an offset that is a multiple of "
                    "{}, and a hash for each {}",
                    where, part.bytes, part.offset, part.hashes.size(), kAlignment,
                    base::byte_size(kPieceBytes)));
  }
  return part;
}

namespace {

// Null: it cannot be opened.
std::shared_ptr<const int> open_to_read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return nullptr;
  return {new int(fd), [](const int* opened) {
            ::close(*opened);
            delete opened;
          }};
}

std::string path_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

}  // namespace

Result<PackedFile> PackedFile::open(const std::string& directory,
                                    const std::string& expected_class) {
  const std::string path = directory + "/" + kIndexFile;
  const auto wrong = [&](const std::string& what) {
    return invalid_input(
        fmt::format("{}: {}; remove the directory, and the weights are packed again", path, what));
  };
  const auto text = formats::read_file(path);
  if (!text.ok())
    return std::filesystem::exists(directory) ? wrong("is not there, or cannot be read")
                                              : text.status();
  WIDEEP_TRY_ASSIGN(const json index, formats::parse_json(*text, path));
  const auto text_of = [&](const char* key) {
    const auto found = index.find(key);
    return found != index.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (!index.is_object()) return wrong("expected an object");
  const json version = index.value("wideep_packed", json());
  if (version != kVersion) {
    return wrong(fmt::format("packed weights of version {}, expected {}",
                             formats::describe(version), kVersion));
  }
  if (!expected_class.empty() && text_of("class") != expected_class) {
    return wrong(
        fmt::format("packed weights of class '{}', expected '{}': of another model, "
                    "checkpoint or precision",
                    text_of("class"), expected_class));
  }
  const auto parts = index.find("parts"), steps = index.find("steps");
  if (steps == index.end() || !steps->is_array()) return wrong("expected 'steps', a list");
  if (parts == index.end() || !parts->is_object()) return wrong("expected 'parts', an object");
  PackedFile file;
  file.directory_ = directory;
  file.model_ = text_of("model");
  file.record_class_ = text_of("class");
  for (const json& step : *steps) {
    if (step.is_string()) file.steps_.insert(step.get<std::string>());
  }
  file.descriptor_ = open_to_read(directory + "/" + kRecordsFile);
  if (file.descriptor_ == nullptr) {
    return wrong(fmt::format("'{}' beside it cannot be read: {}", kRecordsFile,
                             std::system_category().message(errno)));
  }
  // By its descriptor, so that both are of one file.
  WIDEEP_TRY_ASSIGN(file.records_, formats::MappedFile::open(path_of(*file.descriptor_)));
  const uint64_t size = file.records_.bytes().size();
  for (const auto& [name, value] : parts->items()) {
    WIDEEP_TRY_ASSIGN(Part part, part_of(value, fmt::format("{}: '{}'", path, name)));
    if (part.offset + part.bytes > size) {
      return wrong(fmt::format("'{}' ends at byte {} of '{}', which has {}: it was cut short", name,
                               part.offset + part.bytes, kRecordsFile, size));
    }
    file.parts_.emplace(name, std::move(part));
  }
  return file;
}

std::string PackedFile::records_path() const {
  const std::string path = directory_ + "/" + kRecordsFile;
  struct stat named{}, opened{};
  const bool is_there = ::stat(path.c_str(), &named) == 0 && ::fstat(*descriptor_, &opened) == 0 &&
                        named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
  return is_there ? path : path_of(*descriptor_);
}

uint64_t PackedFile::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, part] : parts_) bytes += part.bytes;
  return bytes;
}

const Part* PackedFile::find(const std::string& name) const {
  const auto found = parts_.find(name);
  return found == parts_.end() ? nullptr : &found->second;
}

std::span<const std::byte> PackedFile::bytes(const Part& part) const {
  return records_.bytes().subspan(part.offset, part.bytes);
}

Status PackedFile::damaged(const std::string& name, int piece) const {
  return failed(fmt::format(
      "{}: part '{}' differs from its hash (piece {}): the disk or memory is faulty; remove the "
      "directory, and the weights are packed again",
      records_path(), name, piece));
}

Status PackedFile::copy_piece(const std::string& name, int piece, std::byte* out) const {
  const Part& part = parts_.at(name);
  const uint64_t at = static_cast<uint64_t>(piece) * kPieceBytes;
  const uint64_t hash = base::copy_and_hash(bytes(part).data() + at, out + at,
                                            part.piece_bytes(piece), [] { return true; });
  return hash == part.hashes[static_cast<size_t>(piece)] ? Status() : damaged(name, piece);
}

namespace {

// Reads past the page cache, where the file system allows it: what is compared is on the disk.
class PieceReader {
 public:
  explicit PieceReader(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)) {
    if (fd_ < 0) fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  ~PieceReader() {
    if (fd_ >= 0) ::close(fd_);
  }
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;

  // Of bytes from `at` on; 0 also where they cannot be read. Any thread.
  uint64_t hash(uint64_t at, uint64_t size) {
    base::AlignedBytes memory = take();
    const uint64_t wanted = (size + kAlignment - 1) / kAlignment * kAlignment;
    uint64_t done = 0;
    while (done < size) {
      const ssize_t count =
          ::pread(fd_, memory.data() + done, wanted - done, static_cast<off_t>(at + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      done += static_cast<uint64_t>(count);
    }
    const uint64_t hash = done < size ? 0 : base::content_hash(memory.data(), size);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
    return hash;
  }

 private:
  base::AlignedBytes take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        base::AlignedBytes memory = std::move(free_.back());
        free_.pop_back();
        return memory;
      }
    }
    return base::AlignedBytes(kPieceBytes);  // its pages come when they are used
  }

  int fd_;
  std::mutex mutex_;
  std::vector<base::AlignedBytes> free_;
};

}  // namespace

Status PackedFile::verify(base::ThreadPool& threads,
                          const std::function<void(uint64_t bytes)>& progress) const {
  struct Piece {
    const std::string* name;
    const Part* part;
    int index;
  };
  std::vector<Piece> pieces;
  for (const auto& [name, part] : parts_) {
    for (int i = 0; i < part.num_pieces(); ++i) pieces.push_back({&name, &part, i});
  }
  std::ranges::sort(pieces, {},
                    [](const Piece& piece) { return std::pair(piece.part->offset, piece.index); });
  PieceReader reader(records_path());
  std::mutex mutex;
  int64_t num_damaged = 0;
  int64_t first = 0;
  threads.parallel_for(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      const uint64_t size = piece.part->piece_bytes(piece.index);
      const uint64_t at = piece.part->offset + static_cast<uint64_t>(piece.index) * kPieceBytes;
      const bool is_whole =
          reader.hash(at, size) == piece.part->hashes[static_cast<size_t>(piece.index)];
      const std::lock_guard lock(mutex);
      progress(size);
      if (is_whole) continue;
      first = num_damaged++ == 0 ? i : std::min(first, i);
    }
  });
  if (num_damaged == 0) return {};
  const Piece& piece = pieces[static_cast<size_t>(first)];
  return failed(fmt::format("{} of {} pieces are damaged; the first: {}", num_damaged,
                            pieces.size(), damaged(*piece.name, piece.index).message()));
}

}  // namespace wideep::packed
