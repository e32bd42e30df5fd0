// SPDX-License-Identifier: Apache-2.0
//
// The options that say where prompts are kept beyond a rank's KV cache (run/prompt_places.h).
//
// Thread safety: for one thread.
#pragma once

#include <optional>
#include <string>

#include "command_line/command_line.h"
#include "run/run_options.h"
#include "wideep/status.h"

namespace wideep::tools {

struct PromptCacheOptions {
  // Sizes as base::parse_byte_size reads them; empty: not given.
  std::string host_cache_size, directory_size;
  std::string directory, redis;
  std::optional<int> ttl_seconds;
};

// `options` must outlive the parsing.
void add_prompt_cache_options(command_line::Command command, PromptCacheOptions* options);

// Writes the options into *run, whose configuration is set: --host-cache-size wins over its
// kv_cache_config.host_cache_size; logs: a line says so. The password of the server may be in
// WIDEEP_REDIS_PASSWORD. Errors (invalid input): an option without effect; as
// run::check_prompt_options.
Status apply_prompt_cache_options(const PromptCacheOptions& options, bool logs,
                                  run::RunOptions* run);

}  // namespace wideep::tools
