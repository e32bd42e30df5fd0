// SPDX-License-Identifier: Apache-2.0
#include "server/warm_up.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "formats/lines.h"

namespace wideep::server {

using nlohmann::ordered_json;

Result<std::vector<CachePrompt>> read_warm_prompts(const std::string& path,
                                                   const ReadCachePrompt& read) {
  WIDEEP_TRY_ASSIGN(std::string content, formats::read_file(path));
  formats::NonBlankLines lines(std::move(content));
  std::vector<CachePrompt> prompts;
  while (const auto line = lines.next()) {
    const std::string where = fmt::format("{}:{}", path, line->number);
    auto body = formats::parse_exact_json(line->text, where);
    if (!body.ok()) return body.status();
    if (body->is_object() && body->contains("response_id")) {
      return invalid_input(where +
                           ": response_id: a server has no stored responses when it starts; "
                           "write the messages");
    }
    auto prompt = read(std::move(*body));
    if (const auto* error = std::get_if<HttpError>(&prompt)) {
      return invalid_input(where + ": " + error->message);
    }
    prompts.push_back(std::get<CachePrompt>(std::move(prompt)));
  }
  if (prompts.empty()) {
    return invalid_input(fmt::format("{}: expected a prompt on each line, found no line", path));
  }
  return prompts;
}

void WarmUp::go_on(int64_t clients_running) {
  if (has_ended_) return;
  is_paused_ = false;
  if (next_ == 0) began_ = std::chrono::steady_clock::now();
  clients_running_ = clients_running;
  const size_t max = clients_running > 0 ? 1 : kMaxRunning;
  while (next_ < prompts_.size() && running_.size() < max) submit_next();
}

// One token is generated: a request without an answer there is not. Its seed and the like mean
// nothing.
void WarmUp::submit_next() {
  const size_t index = next_++;
  engine::Request request;
  request.prompt = prompts_[index].tokens;
  request.salt = prompts_[index].salt;
  request.turn_begin = prompts_[index].turn_begin;
  request.max_tokens = 1;
  request.speculates = false;
  running_.insert(index);
  ids_.push_back(backend_.submit(
      std::move(request), [this, index](const run::Token& token) { took(index, token); }, nullptr,
      nullptr));
}

void WarmUp::took(size_t index, const run::Token& token) {
  if (token.finish_reason == engine::FinishReason::kNotFinished) return;
  if (running_.erase(index) == 0) return;
  const bool has_failed = token.finish_reason == engine::FinishReason::kFailed ||
                          engine::has_no_token(token.finish_reason);
  if (has_failed) {
    ++failed_;
  } else {
    ++warmed_;
    tokens_ += prompts_[index].tokens.size();
    cached_ += static_cast<uint64_t>(token.cached_tokens);
  }
  prompts_[index] = {};
  if (!is_paused_) go_on(clients_running_);
  if (next_ < prompts_.size() || !running_.empty()) return;
  has_ended_ = true;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  ended_(fmt::format("warmed {} prompts, {} tokens ({} cached) in {:.1f} s{}", warmed_, tokens_,
                     cached_, seconds, failed_ == 0 ? "" : fmt::format("; {} failed", failed_)));
}

void WarmUp::stop() {
  has_ended_ = true;
  for (const size_t index : running_) backend_.cancel(ids_[index]);
  running_.clear();
}

}  // namespace wideep::server
