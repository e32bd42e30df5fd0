// SPDX-License-Identifier: Apache-2.0
#include "server/replies.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>

#include "api/error_form.h"

namespace wideep::server {
namespace {

constexpr const char* kRetryAfter = "1";  // seconds

}  // namespace

std::string_view without_last_slash(std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

std::string_view path_of(const Exchange& exchange) { return without_last_slash(exchange.path()); }

bool is_at(std::string_view path, std::string_view endpoint) {
  return endpoint.size() > 1 && endpoint.ends_with('/')
             ? path.starts_with(endpoint) && path != endpoint
             : path == endpoint;
}

Replies::Replies(Metrics& metrics) : metrics_(metrics), started_(std::time(nullptr)) {}

void Replies::reply(const std::shared_ptr<Exchange>& exchange, std::string_view type,
                    std::string_view body) {
  count(path_of(*exchange), 200);
  exchange->reply(200, type, body);
}

void Replies::reply_with(const std::shared_ptr<Exchange>& exchange, int status,
                         std::string_view body) {
  count(path_of(*exchange), status);
  exchange->reply(status, kJson, body, status == 503 ? kRetryAfter : "");
}

void Replies::refuse(const std::shared_ptr<Exchange>& exchange, const HttpError& error) {
  if (!error.allow.empty()) exchange->add_header("Allow", error.allow);
  const ErrorStyle& style = errors_for(exchange->head());
  const std::string id = style.names_requests ? id_with("req_") : "";
  if (style.names_requests) exchange->add_header("request-id", id);
  const int status = style.status(error);
  count(path_of(*exchange), status);
  const bool passes = error.status == 429 || error.code == "draining";
  exchange->reply(status, kJson, style.body(error, id), passes ? kRetryAfter : "");
}

// Counts unknown paths as "other": clients could otherwise fill the memory with invented paths.
void Replies::count(std::string_view path, int status) {
  const auto found =
      std::ranges::find_if(paths_, [&](const std::string& each) { return is_at(path, each); });
  ++metrics_.replies[{found == paths_.end() ? "other" : *found, status}];
}

std::string Replies::id_with(std::string_view start) {
  return fmt::format("{}{:x}{}-{}", start, started_,
                     restarts_ > 0 ? fmt::format(".{}", restarts_) : "", begun_++);
}

std::optional<int64_t> Replies::read_number(const std::shared_ptr<Exchange>& exchange,
                                            const Number& number) {
  const std::string text = exchange->query(number.name);
  if (text.empty()) return number.by_default;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  refuse(exchange, {.message = fmt::format("{}: expected {}, an integer, found '{}'", number.name,
                                           number.what, text),
                    .param = number.name});
  return std::nullopt;
}

}  // namespace wideep::server
