// SPDX-License-Identifier: Apache-2.0
#include "prompt_cache_options.h"

#include <cstdint>
#include <cstdlib>

#include "base/byte_size.h"
#include "base/try.h"
#include "parallel_options.h"
#include "run/prompt_places.h"

namespace wideep::tools {
namespace {

constexpr uint64_t kDefaultDirectoryBytes = uint64_t{32} << 30;  // the help says so

std::string complain_of_cache_size(const std::string& text) {
  const Result<uint64_t> bytes = base::parse_byte_size(text);
  return bytes.ok() ? "" : bytes.status().message();
}

Status check_effects(const PromptCacheOptions& options) {
  if (!options.directory_size.empty() && options.directory.empty()) {
    return invalid_input("--prompt-cache-bytes: has no effect without --prompt-cache-dir DIR");
  }
  if (options.ttl_seconds && options.redis.empty()) {
    return invalid_input("--prompt-cache-ttl: has no effect without --prompt-cache-redis ADDRESS");
  }
  return {};
}

}  // namespace

void add_prompt_cache_options(command_line::Command command, PromptCacheOptions* options) {
  command
      .add_option("--host-cache-size", options->host_cache_size,
                  "Memory of the node in which prompts are kept when they leave the ranks' KV "
                  "caches, as 8G; all its ranks share it (kv_cache_config.host_cache_size of "
                  "--config; default: none)")
      .check(complain_of_cache_size);
  command
      .add_option("--prompt-cache-dir", options->directory,
                  "Directory in which prompts are kept, also when the program ends; several "
                  "servers may share it")
      .path();
  command
      .add_option("--prompt-cache-bytes", options->directory_size,
                  "Most bytes of that directory, as 500G (default: 32G)")
      .check(complain_of_cache_size);
  command.add_option(
      "--prompt-cache-redis", options->redis,
      "Server of Redis' protocol in which prompts are kept, for many servers: "
      "redis[s]://[user[:password]@]host[:port][,host:port...][/db], several hosts of a cluster. "
      "Better set WIDEEP_REDIS_PASSWORD: process lists show options, not variables");
  command
      .add_option("--prompt-cache-ttl", options->ttl_seconds,
                  "Seconds after which a prompt that nobody uses leaves that server (default: "
                  "604800, 7 days)")
      .range(1, 1 << 30);
}

Status apply_prompt_cache_options(const PromptCacheOptions& options, bool logs,
                                  run::RunOptions* run) {
  WIDEEP_TRY(check_effects(options));
  if (!options.host_cache_size.empty()) {
    WIDEEP_TRY_ASSIGN(run->host_cache_bytes, base::parse_byte_size(options.host_cache_size));
    if (logs) {
      log_override("--host-cache-size", static_cast<int64_t>(run->host_cache_bytes),
                   "kv_cache_config.host_cache_size", run->parallel.kv_cache_config.host_cache_size,
                   run->parallel.name);
    }
  }
  if (!options.directory.empty()) {
    run->prompt_cache_dir = options.directory;
    run->prompt_cache_bytes = kDefaultDirectoryBytes;
    if (!options.directory_size.empty()) {
      WIDEEP_TRY_ASSIGN(run->prompt_cache_bytes, base::parse_byte_size(options.directory_size));
    }
  }
  if (!options.redis.empty()) {
    run->prompt_cache_redis = options.redis;
    run->prompt_cache_ttl = options.ttl_seconds.value_or(0);
    const char* password = std::getenv("WIDEEP_REDIS_PASSWORD");
    if (password != nullptr) run->prompt_cache_redis_password = password;
  }
  return run::check_prompt_options(*run);
}

}  // namespace wideep::tools
