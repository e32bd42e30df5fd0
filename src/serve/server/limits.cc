// SPDX-License-Identifier: Apache-2.0
#include "server/limits.h"

#include <fmt/format.h>

#include "api/generation_fields.h"
#include "base/byte_size.h"

namespace wideep::server {

std::vector<Limit> limits(const HttpOptions& http, const ResponseStoreLimits& stored,
                          int max_queue) {
  const auto size = [](uint64_t bytes) { return base::byte_size(bytes); };
  return {
      {"connections", std::to_string(http.max_connections), "--max-connections",
       "the longest idle ones are closed; if none is, new ones wait; fewer where the limit of open "
       "files (`ulimit -Hn`) does not suffice"},
      {"a request's head",
       fmt::format("{}, {} fields, {} s", size(http.max_header_bytes), http.max_header_fields,
                   http.head_seconds),
       "", "431 (414 for the target), 408"},
      {"a request's body",
       fmt::format("{}, {} s and a second for each 8 KiB", size(http.max_body_bytes),
                   http.body_seconds),
       "", "413, 408; without a key, where one is needed, 401 before the body comes"},
      {"a body that is not read, or has a few fields only", "4.0 KiB", "", "413"},
      {"all requests that are read or answered, with what is kept for them and their journals",
       size(http.max_request_bytes_of_all), "--max-request-bytes",
       "503 for those of more than 64 KiB; an answer's journal ends: it would not survive the "
       "serving process"},
      {"answers that run or wait", std::to_string(max_queue), "--max-queue", "429"},
      {"unread bytes of a stream", size(http.max_unread_bytes), "", "its client is disconnected"},
      {"unread bytes of all replies", size(http.max_unread_bytes_of_all), "--max-unread-bytes",
       "who has left most unread is disconnected"},
      {"time to read a reply", fmt::format("{} s and a second for each 8 KiB", http.idle_seconds),
       "", "its client is disconnected"},
      {"log-probabilities of a reply", std::to_string(kMaxLogprobsOfReply), "", "400"},
      {"text of /detokenize, tokens of /tokenize", size(http.max_body_bytes), "", "400"},
      {"stored responses", fmt::format("{}, {}", stored.count, size(stored.bytes)),
       "--max-stored-responses, --max-stored-response-bytes", "the oldest make room"},
      {"time without a request", fmt::format("{} s", http.idle_seconds), "",
       "the connection is closed"},
  };
}

std::string limits_markdown() {
  std::string table = "| of | most | option | beyond |\n|---|---|---|---|\n";
  constexpr int kMaxQueue = 1024;  // ServiceOptions
  for (const Limit& each : limits({}, {}, kMaxQueue)) {
    const std::string option = each.option.empty() ? "" : "`" + each.option + "`";
    table += fmt::format("| {} | {} | {} | {} |\n", each.of, each.max, option, each.beyond);
  }
  return table;
}

}  // namespace wideep::server
