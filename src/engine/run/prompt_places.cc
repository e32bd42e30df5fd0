// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with a place is found here before anything large is read, by each process that
// prepares a run: a directory is listed and not read, a server is asked for one name.
#include "run/prompt_places.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <utility>

#include "base/byte_size.h"
#include "base/log.h"
#include "base/try.h"
#include "store/directory.h"
#include "store/host_tier.h"
#include "store/redis_place.h"

namespace wideep::run {
namespace {

using store::ListedPlace;

constexpr const char* kDirectory = "--prompt-cache-dir";
constexpr const char* kServer = "--prompt-cache-redis";

// As users set the first place that is named.
std::string name_of_place(const RunOptions& options) {
  if (options.host_cache_bytes > 0) return "--host-cache-size (kv_cache_config.host_cache_size)";
  return options.prompt_cache_dir.empty() ? kServer : kDirectory;
}

Status check_sharing(const RunOptions& options) {
  if (options.reuses_pages()) return {};
  const char* other = "--enable-return-routed-experts, which needs the experts of every token";
  if (!options.parallel.kv_cache_config.reuses_blocks()) {
    other = "kv_cache_config.enable_block_reuse: false";
  } else if (options.routing_log) {
    other = "--routing-log, which needs the experts of every token";
  }
  return invalid_input(fmt::format("{} has no effect with {}: leave one of them out",
                                   name_of_place(options), other));
}

Status check_size(const char* option, uint64_t bytes, const PageGeometry& geometry) {
  const uint64_t fewest = kFewestPages * (geometry.page_bytes + geometry.state_bytes);
  if (bytes >= fewest) return {};
  return invalid_input(fmt::format(
      "{}: expected at least {}, {} pages of {} tokens in all layers, found {}", option,
      base::byte_size(fewest), kFewestPages, store::kPageTokens, base::byte_size(bytes)));
}

store::DirectoryOptions directory_options(const RunOptions& options, const PageGeometry& geometry) {
  return {.path = options.prompt_cache_dir,
          .max_bytes = options.prompt_cache_bytes,
          .record_class = geometry.record_class};
}

Status check_server(const RunOptions& options) {
  WIDEEP_TRY_ASSIGN(store::RedisOptions redis, redis_options(options));
  const std::string address = redis.text();
  const auto place = store::RedisPlace::make(std::move(redis));
  const Status status = place.ok() ? (*place)->check() : place.status();
  if (status.ok()) return {};
  return Status(status.code(), fmt::format("{} {}: {}; start it, or leave the option out", kServer,
                                           address, status.message()));
}

}  // namespace

Result<store::RedisOptions> redis_options(const RunOptions& options) {
  Result<store::RedisOptions> redis = store::parse_redis_url(options.prompt_cache_redis);
  if (!redis.ok()) return redis.status().at(kServer);
  if (redis->password.empty()) redis->password = options.prompt_cache_redis_password;
  if (options.prompt_cache_ttl > 0) redis->ttl = std::chrono::seconds(options.prompt_cache_ttl);
  return redis;
}

Status check_prompt_options(const RunOptions& options) {
  if (!options.names_places()) return {};
  WIDEEP_TRY(check_sharing(options));
  if (options.prompt_cache_redis.empty()) return {};
  return redis_options(options).status();
}

Status check_prompt_places(const RunOptions& options, const PageGeometry& geometry) {
  if (options.host_cache_bytes > 0) {
    WIDEEP_TRY(check_size("--host-cache-size", options.host_cache_bytes, geometry));
  }
  if (!options.prompt_cache_dir.empty()) {
    WIDEEP_TRY(check_size("--prompt-cache-bytes", options.prompt_cache_bytes, geometry));
    WIDEEP_TRY(store::Directory::check(directory_options(options, geometry)));
  }
  return options.prompt_cache_redis.empty() ? Status() : check_server(options);
}

Result<std::vector<ListedPlace>> open_prompt_places(const RunOptions& options,
                                                    const PageGeometry& geometry,
                                                    const base::SharedBytes* host_memory) {
  std::vector<ListedPlace> places;
  if (host_memory != nullptr) {
    WIDEEP_TRY_ASSIGN(auto host, store::HostTier::open(*host_memory));
    places.push_back({.place = std::move(host), .expected = store::kHostPrice, .takes_hits = true});
  }
  if (!options.prompt_cache_dir.empty()) {
    auto directory = store::Directory::open(directory_options(options, geometry));
    if (directory.ok()) {
      places.push_back({.place = std::move(*directory), .expected = store::kDiskPrice});
    } else {
      log::warn("{}; this rank goes on without it", directory.status().message());
    }
  }
  if (!options.prompt_cache_redis.empty()) {
    WIDEEP_TRY_ASSIGN(store::RedisOptions redis, redis_options(options));
    auto server = store::RedisPlace::make(std::move(redis));
    if (server.ok()) {
      places.push_back({.place = std::move(*server), .expected = store::kServerPrice});
    } else {
      log::warn("{}: {}; this rank goes on without it", kServer, server.status().message());
    }
  }
  return places;
}

std::string prompt_places_text(const RunOptions& options) {
  if (!options.keeps_prompts()) return "";
  std::string text;
  const auto add = [&](const std::string& place) { text += (text.empty() ? "" : ", ") + place; };
  if (options.host_cache_bytes > 0) add("host " + base::byte_size(options.host_cache_bytes));
  if (!options.prompt_cache_dir.empty()) {
    add(fmt::format("disk {} {}", options.prompt_cache_dir,
                    base::byte_size(options.prompt_cache_bytes)));
  }
  if (!options.prompt_cache_redis.empty()) {
    const auto redis = redis_options(options);
    if (redis.ok()) add(redis->text());
  }
  return text;
}

}  // namespace wideep::run
