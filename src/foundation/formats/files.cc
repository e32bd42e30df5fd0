// SPDX-License-Identifier: Apache-2.0
//
// Whole files: a write goes to a temporary file beside the target, is flushed, closed and renamed,
// and then the directory is flushed. In any other order a crash or a power failure can leave an
// empty or half a file. What is not a regular file is refused before, for a rename would replace
// it. Reading grows by half, since the size of a pipe is not known.
#include "formats/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/try.h"

namespace wideep::formats {
namespace {

// The largest files read whole (settings, tokenizers, statistics) have some tens of MiB. The limit
// stops files without an end, such as /dev/zero.
constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr size_t kReadBytes = size_t{1} << 16;

std::string reason(int error) { return std::system_category().message(error); }

Status unreadable(const std::string& path, int error) {
  return invalid_input(fmt::format("{}: cannot be read: {}", path, reason(error)));
}

Status unwritable(const std::string& path, int error) {
  const char* advice = "";
  if (error == ENOSPC || error == EDQUOT) advice = "; free some space or choose another place";
  if (error == EFBIG) advice = "; raise the limit of file sizes (ulimit -f)";
  return failed(fmt::format("{}: cannot be written: {}{}", path, reason(error), advice));
}

Status read_to_end(int fd, const std::string& path, std::string& content) {
  while (true) {
    const size_t done = content.size();
    if (done > kMaxFileBytes) {
      return invalid_input(fmt::format("{}: too large: expected at most 256 MiB", path));
    }
    // Growing by half keeps the copies linear. The size of a pipe is not known in advance.
    content.resize(done + std::max(kReadBytes, done / 2));
    const ssize_t got = ::read(fd, content.data() + done, content.size() - done);
    const int error = errno;
    content.resize(done + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got == 0) return {};
    if (got < 0 && error != EINTR) return unreadable(path, error);
  }
}

const char* kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "a directory";
    case S_IFLNK:
      return "a symbolic link";
    case S_IFIFO:
      return "a pipe";
    case S_IFSOCK:
      return "a socket";
    default:
      return "a device";
  }
}

// rename() replaces whatever has this name by a regular file: root could lose a device such as
// /dev/full, and a symbolic link would be replaced instead of followed.
Status check_replaceable(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return {};
  return failed(
      fmt::format("{}: cannot be written: expected a regular file or a new name, found {}", path,
                  kind_of(info.st_mode)));
}

// Distinct per process and call, so that concurrent writers do not share a temporary file.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> next{0};
  return fmt::format("{}.{}-{}.tmp", path, ::getpid(), next.fetch_add(1));
}

// A rename survives a power failure only after its directory is flushed too. Errors are ignored:
// some network file systems cannot flush a directory, and the file itself is complete.
void flush_directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const int fd = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

bool is_lfs_pointer(std::string_view content) {
  return content.starts_with("version https://git-lfs.github.com/spec/");
}

Status lfs_pointer(const std::string& path) {
  return invalid_input(fmt::format(
      "{}: expected the file, found a Git LFS pointer to it; get it with 'git lfs pull', or "
      "download it again",
      path));
}

Result<std::string> read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return unreadable(path, errno);
  std::string content;
  const Status status = read_to_end(fd, path, content);
  ::close(fd);
  WIDEEP_TRY(status);
  if (is_lfs_pointer(content)) return lfs_pointer(path);
  return content;
}

Status write_file(const std::string& path, std::string_view content) {
  WIDEEP_TRY_ASSIGN(AtomicFile file, AtomicFile::create(path));
  WIDEEP_TRY(file.append(content));
  return file.commit();
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  WIDEEP_TRY(check_replaceable(path));
  const std::string temporary = temporary_name(path);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return unwritable(path, errno);
  return AtomicFile(path, temporary, fd);
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status AtomicFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return unwritable(path_, errno);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// The flush comes before the rename: otherwise a power failure could leave an empty file at
// `path_`. The result of close() counts, because network file systems report write errors there.
Status AtomicFile::commit() {
  if (::fsync(fd_) != 0) return unwritable(path_, errno);
  if (::close(std::exchange(fd_, -1)) != 0) return unwritable(path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return unwritable(path_, errno);
  temporary_.clear();
  flush_directory_of(path_);
  return {};
}

Status check_writable(const std::string& path) {
  const Result<AtomicFile> file = AtomicFile::create(path);
  return file.ok() ? Status() : invalid_input(file.status().message());
}

}  // namespace wideep::formats
