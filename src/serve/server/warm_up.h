// SPDX-License-Identifier: Apache-2.0
//
// Prompts that a server computes at its start, so that clients find their pages
// (--prompt-cache-warm): a file with one on each line, as read_cache_prompt() has it, and who
// submits them, few at a time and behind clients.
//
// Thread safety: read_warm_prompts() is a pure function; else the serving thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/backend.h"
#include "server/cache_prompt.h"
#include "wideep/status.h"

namespace wideep::server {

using ReadCachePrompt = std::function<Parsed<CachePrompt>(nlohmann::ordered_json body)>;

// Errors (invalid input) name the file and the line: no JSON, or no prompt; the file cannot be
// read; it has no prompt; it has stored responses, of which there are none at the start.
Result<std::vector<CachePrompt>> read_warm_prompts(const std::string& path,
                                                   const ReadCachePrompt& read);

class WarmUp {
 public:
  static constexpr size_t kMaxRunning = 4;

  // backend: outlives it. ended: called once, with a line that says what was computed.
  WarmUp(Backend& backend, std::vector<CachePrompt> prompts,
         std::function<void(const std::string& line)> ended)
      : backend_(backend), prompts_(std::move(prompts)), ended_(std::move(ended)) {}
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  // Submits further prompts: while answers of clients run, one at a time. Called now and then.
  void go_on(int64_t clients_running);
  // No more are submitted until go_on().
  void pause() { is_paused_ = true; }
  // No more are submitted, and those that run are cancelled.
  void stop();

 private:
  void submit_next();
  void took(size_t index, const run::Token& token);

  Backend& backend_;
  std::vector<CachePrompt> prompts_;
  std::function<void(const std::string& line)> ended_;
  size_t next_ = 0;
  std::vector<int64_t> ids_;  // [submitted] of the backend
  std::set<size_t> running_;
  bool has_ended_ = false, is_paused_ = false;
  std::chrono::steady_clock::time_point began_;
  int64_t clients_running_ = 0;
  uint64_t warmed_ = 0, failed_ = 0, tokens_ = 0, cached_ = 0;
};

}  // namespace wideep::server
