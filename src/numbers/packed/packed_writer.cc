// SPDX-License-Identifier: Apache-2.0
//
// `progress` has a line for what is written, and one for each step that has ended: its parts, and
// where the next ones begin. A step's records are on the disk before its line is, so that a line
// never says more than is there, and a line that is cut short is a step that did not end. Waiting
// for the disk takes milliseconds: small steps do it together.
#include "packed/packed_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/byte_size.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "formats/new_directories.h"

namespace wideep::packed {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// After so many bytes steps are noted.
constexpr uint64_t kBytesToNote = uint64_t{64} << 20;

uint64_t aligned(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

json json_of(const std::map<std::string, Part>& parts) {
  json all = json::object();
  for (const auto& [name, part] : parts) all[name] = to_json(part);
  return all;
}

// Bytes that the disk still takes; if it does not say so, any number.
uint64_t room_at(const std::string& path) {
  struct statvfs at{};
  if (::statvfs(path.c_str(), &at) != 0) return ~uint64_t{0};
  return uint64_t{at.f_bavail} * at.f_frsize;
}

}  // namespace

Result<PackedWriter> PackedWriter::open(const std::string& directory, Options options) {
  PackedWriter writer(directory, std::move(options));
  std::error_code error;
  const bool is_finished = fs::exists(directory, error);
  writer.at_ = is_finished ? directory : directory + kUnfinished;
  fs::create_directories(fs::path(writer.at_), error);
  if (error) {
    return invalid_input(fmt::format("{}: cannot be created: {}", writer.at_, error.message()));
  }
  WIDEEP_TRY(writer.lock());
  if (is_finished) WIDEEP_TRY(writer.read_finished());
  WIDEEP_TRY(writer.resume());
  writer.resumed_ = writer.end_ - writer.finished_;
  writer.noted_ = writer.end_;
  WIDEEP_TRY(writer.check_room());
  return writer;
}

Status PackedWriter::read_finished() {
  WIDEEP_TRY_ASSIGN(const PackedFile file, PackedFile::open(directory_, options_.record_class));
  steps_ = file.steps();
  parts_ = file.parts();
  for (const auto& [name, part] : parts_) {
    finished_ = std::max(finished_, aligned(part.offset + part.bytes));
  }
  end_ = finished_;
  return {};
}

PackedWriter::PackedWriter(PackedWriter&& other) noexcept
    : directory_(std::move(other.directory_)),
      at_(std::move(other.at_)),
      options_(std::move(other.options_)),
      progress_(std::exchange(other.progress_, -1)),
      records_(std::move(other.records_)),
      unnoted_(std::move(other.unnoted_)),
      noted_(other.noted_),
      resumed_(other.resumed_),
      finished_(other.finished_),
      end_(other.end_),
      parts_(std::move(other.parts_)),
      added_(std::move(other.added_)),
      steps_(std::move(other.steps_)) {}

PackedWriter::~PackedWriter() { close(); }

void PackedWriter::close() {
  if (records_ != nullptr && !unnoted_.empty()) note_steps();
  records_.reset();
  if (progress_ >= 0) ::close(std::exchange(progress_, -1));
}

Status PackedWriter::failure(const std::string& what) {
  const int error = errno;
  return failed(fmt::format("{}: {}: {}", at_, what, std::strerror(error)));
}

// The lock ends with the process.
Status PackedWriter::lock() {
  progress_ = ::open(path(kProgressFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (progress_ < 0) return failure("cannot be written");
  if (::flock(progress_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close();
    return invalid_input(
        fmt::format("{}: another process is writing it; start again when it has ended", at_));
  }
  return {};
}

// What an earlier process has written, if it is of the same class.
Status PackedWriter::resume() {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path(kProgressFile)));
  size_t begin = 0, end = text.find('\n');
  bool is_same = false;
  for (; end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
    const auto line = formats::parse_json(text.substr(begin, end - begin), path(kProgressFile));
    if (!line.ok() || !line->is_object()) break;
    if (begin == 0) {
      is_same = line->value("wideep_packed", json()) == kVersion &&
                line->value("class", json()) == options_.record_class &&
                line->value("begin", json()) == finished_;
      if (!is_same) break;
      continue;
    }
    if (!take_step(*line)) break;
  }
  if (!is_same) return start();
  if (::ftruncate(progress_, static_cast<off_t>(begin)) != 0 ||
      ::lseek(progress_, 0, SEEK_END) < 0) {
    return failure("cannot be written");
  }
  WIDEEP_TRY_ASSIGN(records_, DirectOutput::open(path(kRecordsFile), end_));
  return {};
}

// False: it is no step, or its records are not there.
bool PackedWriter::take_step(const json& line) {
  const json step = line.value("step", json()), end = line.value("end", json());
  const json parts = line.value("parts", json());
  if (!step.is_string() || !end.is_number_unsigned() || !parts.is_object()) return false;
  std::error_code error;
  const uint64_t written = fs::file_size(path(kRecordsFile), error);
  if (error || end.get<uint64_t>() < end_ || end.get<uint64_t>() > written) return false;
  std::map<std::string, Part> taken;
  for (const auto& [name, value] : parts.items()) {
    const Result<Part> part = part_of(value, path(kProgressFile));
    if (!part.ok() || part->offset + part->bytes > end.get<uint64_t>()) return false;
    taken.emplace(name, *part);
  }
  parts_.merge(taken);
  steps_.insert(step.get<std::string>());
  end_ = end.get<uint64_t>();
  return true;
}

Status PackedWriter::start() {
  if (::ftruncate(progress_, 0) != 0 || ::lseek(progress_, 0, SEEK_SET) < 0) {
    return failure("cannot be written");
  }
  WIDEEP_TRY_ASSIGN(records_, DirectOutput::open(path(kRecordsFile), finished_));
  const json first = {
      {"wideep_packed", kVersion}, {"class", options_.record_class}, {"begin", finished_}};
  const std::string line = first.dump() + "\n";
  if (::write(progress_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return failure("cannot be written");
  }
  return {};
}

Status PackedWriter::check_room() {
  if (options_.expected_bytes <= resumed_) return {};
  const uint64_t room = room_at(at_), needed = options_.expected_bytes - resumed_;
  if (room >= needed) return {};
  if (resumed_ == 0) remove_added();
  return failed(fmt::format("{}: needs {}, and the disk has room for {}", at_,
                            base::byte_size(needed), base::byte_size(room)));
}

Status PackedWriter::check(int error) {
  if (error == 0) return {};
  errno = error;
  Status status = failure("cannot be written");
  if (error != ENOSPC && error != EDQUOT) return status;
  remove_added();
  return failed(status.message() + "; free some space or choose another place");
}

void PackedWriter::remove_added() {
  std::error_code ignored;
  unnoted_.clear();
  records_.reset();
  if (is_new()) {
    fs::remove_all(at_, ignored);
  } else {
    fs::resize_file(path(kRecordsFile), finished_, ignored);
    fs::remove(path(kProgressFile), ignored);
  }
  close();
}

Status PackedWriter::add(const std::string& name, std::span<const std::byte> bytes, float scale) {
  Part part{.offset = aligned(end_), .bytes = bytes.size(), .scale = scale, .hashes = {}};
  if (has_part(name)) {
    return invalid_input(fmt::format("{}: part '{}' is there already", at_, name));
  }
  for (int piece = 0; piece < part.num_pieces(); ++piece) {
    const auto begin = static_cast<size_t>(piece) * kPieceBytes;
    part.hashes.push_back(records_->append(bytes.subspan(begin, part.piece_bytes(piece))));
  }
  records_->align();
  end_ = aligned(part.offset + part.bytes);
  added_.emplace(name, std::move(part));
  return check(records_->error());
}

Status PackedWriter::end(const std::string& step) {
  const json line = {{"step", step}, {"end", end_}, {"parts", json_of(added_)}};
  unnoted_ += line.dump() + "\n";
  parts_.merge(added_);
  added_.clear();
  steps_.insert(step);
  if (end_ - noted_ >= kBytesToNote) note_steps();
  return check(records_->error());
}

void PackedWriter::note_steps() {
  records_->then([fd = progress_, text = std::exchange(unnoted_, {})] {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count != static_cast<ssize_t>(text.size())) return count < 0 ? errno : ENOSPC;
    return ::fdatasync(fd) != 0 ? errno : 0;
  });
  noted_ = end_;
}

Status PackedWriter::finish() {
  const json index = {{"wideep_packed", kVersion},
                      {"model", options_.model},
                      {"class", options_.record_class},
                      {"steps", steps_},
                      {"parts", json_of(parts_)}};
  unnoted_.clear();  // the index says it
  records_->then([] { return 0; });
  WIDEEP_TRY(check(records_->wait()));
  const std::string text = index.dump(1);
  const Status written = formats::write_file(path(kIndexFile), text);
  if (!written.ok() && room_at(at_) < text.size()) remove_added();
  WIDEEP_TRY(written);
  std::error_code error, ignored;
  if (is_new()) fs::rename(at_, directory_, error);
  if (error) {
    return failed(fmt::format("{}: cannot be renamed to {}: {}", at_, directory_, error.message()));
  }
  // Last: without it a process that dies here would have to begin again. One that stays does not go
  // with the index, and is begun anew.
  fs::remove(directory_ + "/" + kProgressFile, ignored);
  close();
  return {};
}

}  // namespace wideep::packed
