// SPDX-License-Identifier: Apache-2.0
#include "doctor_places.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/byte_size.h"
#include "run/prompt_places.h"
#include "store/directory.h"
#include "store/redis_place.h"

namespace wideep::tools {
namespace {

using base::byte_size;

// The path itself, or of the folders in which it would be made the nearest that is there.
std::filesystem::path existing(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path found = std::filesystem::absolute(path, error);
  while (found.has_relative_path() && !std::filesystem::exists(found, error)) {
    found = found.parent_path();
  }
  return found;
}

std::optional<run::Advice> trouble_of_directory(const PromptPlace& place) {
  if (place.bytes < store::Directory::kMinBytes) {
    return run::Advice{fmt::format("--prompt-cache-bytes {} is too little for a directory",
                                   byte_size(*place.bytes)),
                       fmt::format("give at least {}", byte_size(store::Directory::kMinBytes))};
  }
  const std::filesystem::path there = existing(place.where);
  std::error_code error;
  if (!std::filesystem::is_directory(there, error)) {
    return run::Advice{
        fmt::format("--prompt-cache-dir {}: {} is no directory", place.where, there.string()),
        "name another one"};
  }
  if (::faccessat(AT_FDCWD, there.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) != 0) {
    return run::Advice{fmt::format("--prompt-cache-dir {}: nothing can be written to {} ({})",
                                   place.where, there.string(), std::strerror(errno)),
                       "name a directory of the user who starts the program"};
  }
  if (!place.free_bytes || *place.free_bytes >= *place.bytes) return {};
  return run::Advice{
      fmt::format("--prompt-cache-dir {}: {} are free on its disk, less than the {} that it may "
                  "grow to; when it is full, nothing more is written",
                  place.where, byte_size(*place.free_bytes), byte_size(*place.bytes)),
      "lower --prompt-cache-bytes, unless the directory has most of them already"};
}

PromptPlace directory_of(const run::RunOptions& options) {
  PromptPlace place{.label = "disk",
                    .where = options.prompt_cache_dir,
                    .bytes = options.prompt_cache_bytes,
                    .free_bytes = {},
                    .trouble = {}};
  std::error_code error;
  const auto space = std::filesystem::space(existing(place.where), error);
  if (!error) place.free_bytes = space.available;
  place.trouble = trouble_of_directory(place);
  return place;
}

PromptPlace server_of(const run::RunOptions& options) {
  PromptPlace place{.label = "redis", .where = {}, .bytes = {}, .free_bytes = {}, .trouble = {}};
  auto redis = run::redis_options(options);
  Status status = redis.status();
  if (status.ok()) {
    place.where = redis->text();
    const auto server = store::RedisPlace::make(std::move(*redis));
    status = server.ok() ? (*server)->check() : server.status();
  }
  if (!status.ok()) {
    place.trouble = {fmt::format("--prompt-cache-redis {}: {}", place.where, status.message()),
                     "start the server, or leave the option out"};
  }
  return place;
}

}  // namespace

std::vector<PromptPlace> look_at_places(const run::RunOptions& options,
                                        const base::Machine& machine) {
  std::vector<PromptPlace> places;
  if (options.host_cache_bytes > 0) {
    places.push_back({.label = "host",
                      .where = {},
                      .bytes = options.host_cache_bytes,
                      .free_bytes = machine.usable_memory_bytes(),
                      .trouble = {}});
    if (options.host_cache_bytes >= machine.usable_memory_bytes()) {
      places.back().trouble = {
          fmt::format("--host-cache-size {} is more than the {} that can be used",
                      byte_size(options.host_cache_bytes), byte_size(*places.back().free_bytes)),
          "lower it"};
    }
  }
  if (!options.prompt_cache_dir.empty()) places.push_back(directory_of(options));
  if (!options.prompt_cache_redis.empty()) places.push_back(server_of(options));
  return places;
}

}  // namespace wideep::tools
