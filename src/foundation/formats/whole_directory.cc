// SPDX-License-Identifier: Apache-2.0
#include "formats/whole_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/try.h"

namespace wideep::formats {
namespace {

namespace fs = std::filesystem;

// The lock ends with the process, and with the descriptor. −1: another one has it, or the file
// system has no locks.
int locked(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

Result<WholeDirectory> WholeDirectory::create(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  WIDEEP_TRY_ASSIGN(NewDirectories parents,
                    NewDirectories::create(parent.empty() ? "." : parent.string()));
  WholeDirectory directory(path, std::move(parents));
  const std::string unfinished = directory.path();
  if (::mkdir(unfinished.c_str(), 0777) != 0) {
    directory.final_path_.clear();
    return invalid_input(
        fmt::format("{}: cannot be created: {}", unfinished, std::strerror(errno)));
  }
  directory.lock_ = locked(unfinished);
  return directory;
}

WholeDirectory::WholeDirectory(WholeDirectory&& other) noexcept
    : final_path_(std::exchange(other.final_path_, {})),
      parents_(std::move(other.parents_)),
      lock_(std::exchange(other.lock_, -1)) {}

WholeDirectory::~WholeDirectory() {
  std::error_code ignored;
  if (!final_path_.empty()) fs::remove_all(path(), ignored);
  if (lock_ >= 0) ::close(lock_);
}

Status WholeDirectory::finish() {
  if (::rename(path().c_str(), final_path_.c_str()) != 0) {
    return failed(
        fmt::format("{}: cannot be renamed to {}: {}", path(), final_path_, std::strerror(errno)));
  }
  final_path_.clear();
  return {};
}

void WholeDirectory::remove_leftovers(const std::string& directory) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (!it->path().string().ends_with(kUnfinished)) continue;
    const int lock = locked(it->path());
    if (lock < 0) continue;
    std::error_code ignored;
    fs::remove_all(it->path(), ignored);
    ::close(lock);
  }
}

}  // namespace wideep::formats
