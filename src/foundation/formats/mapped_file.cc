// SPDX-License-Identifier: Apache-2.0
#include "formats/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace wideep::formats {
namespace {

Status unreadable(const std::string& path, const std::string& why) {
  return invalid_input(fmt::format("{}: cannot be read: {}", path, why));
}

std::string reason(int error) { return std::system_category().message(error); }

Result<std::span<const std::byte>> map(int fd, const std::string& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return unreadable(path, reason(errno));
  // A directory or a pipe has no size to map.
  if (!S_ISREG(info.st_mode)) return unreadable(path, "not a regular file");
  const auto num_bytes = static_cast<size_t>(info.st_size);
  if (num_bytes == 0) return std::span<const std::byte>();  // cannot be mapped
  void* address = ::mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return unreadable(path, reason(errno));
  return std::span(static_cast<const std::byte*>(address), num_bytes);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // A pipe without a writer would be waited for; regular files are never.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return unreadable(path, reason(errno));
  const auto mapped = map(fd, path);
  ::close(fd);  // the mapping remains valid
  if (!mapped.ok()) return mapped.status();
  MappedFile file;
  file.bytes_ = *mapped;
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace wideep::formats
