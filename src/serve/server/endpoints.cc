// SPDX-License-Identifier: Apache-2.0
//
// A request is judged by its head before its body is read, so that bodies of clients without a key,
// or for no endpoint, do not fill the memory; handle() judges again, because a request that came in
// one piece was not judged before. Keys are compared in a time that does not tell how much of a
// guess is right. OPTIONS needs none: a browser asks it without one.
#include "server/endpoints.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

namespace wideep::server {
namespace {

// Of bodies that no endpoint needs to be longer. As many as there may be connections must leave
// room for those of requests for text.
constexpr size_t kShortBodyBytes = 4 << 10;

// Takes the same time for every wrong key of the right length, so that timing does not reveal how
// much of a guess is right.
bool same_text(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// The key of "Bearer <key>"; "" for another scheme or none. Schemes are case-insensitive (RFC
// 9110).
std::string_view bearer_key(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const bool bears =
      authorization.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b | 0x20 : b); });
  if (!bears) return {};
  authorization.remove_prefix(kScheme.size());
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' '), authorization.size()));
  return authorization;
}

}  // namespace

Endpoints::Endpoints(std::vector<Endpoint> table, Keys keys, Replies& replies)
    : table_(std::move(table)), keys_(std::move(keys)), replies_(replies) {
  for (const Endpoint& each : table_) replies_.add_path(each.path);
}

const Endpoint* Endpoints::endpoint_of(std::string_view method, std::string_view path) const {
  if (method == "HEAD") method = "GET";
  const auto found = std::ranges::find_if(table_, [&](const Endpoint& each) {
    return is_at(path, each.path) && method == each.method;
  });
  return found == table_.end() ? nullptr : &*found;
}

void Endpoints::handle(const std::shared_ptr<Exchange>& exchange) {
  const std::string_view path = path_of(*exchange);
  const HeadVerdict verdict = judge(exchange->head(), path);
  if (verdict.error) return replies_.refuse(exchange, *verdict.error);
  if (exchange->body().size() > verdict.max_body_bytes) {
    return replies_.refuse(exchange, body_too_large(verdict.max_body_bytes));
  }
  const Endpoint* endpoint = endpoint_of(exchange->method(), path);
  if (endpoint == nullptr) return answer_options(exchange);
  endpoint->handler(exchange);
}

HeadVerdict Endpoints::check_head(const RequestHead& head) {
  const std::string path = path_of_target(head.target);
  HeadVerdict verdict = judge(head, without_last_slash(path));
  if (verdict.error) replies_.count(without_last_slash(path), verdict.error->status);
  return verdict;
}

// Bodies of clients without a key, and those that nobody reads, must not fill the memory.
HeadVerdict Endpoints::judge(const RequestHead& head, std::string_view path) const {
  const Endpoint* endpoint = endpoint_of(head.method, path);
  if (endpoint == nullptr) {
    return {.error = without_endpoint(head.method, path), .max_body_bytes = kShortBodyBytes};
  }
  return {.error = check_key(head, endpoint->access),
          .max_body_bytes = endpoint->body == Endpoint::kAnyBody ? SIZE_MAX : kShortBodyBytes};
}

// nullopt: OPTIONS, which is answered for all that there is.
std::optional<HttpError> Endpoints::without_endpoint(std::string_view method,
                                                     std::string_view path) const {
  const std::string allowed = allowed_methods(path);
  if (allowed.empty()) {
    return HttpError{.status = 404, .message = fmt::format("no endpoint {}", path)};
  }
  if (method == "OPTIONS") return std::nullopt;
  return HttpError{.status = 405,
                   .message = fmt::format("{} {}: expected {}", method, path, allowed),
                   .allow = allowed};
}

// The methods of a path, as the header Allow has them; "": there is no such endpoint.
std::string Endpoints::allowed_methods(std::string_view path) const {
  if (path == "*") return "GET, HEAD, POST, DELETE, OPTIONS";
  std::string methods;
  for (const Endpoint& endpoint : table_) {
    if (!is_at(path, endpoint.path)) continue;
    methods += fmt::format("{}, ", endpoint.method);
    if (std::string_view(endpoint.method) == "GET") methods += "HEAD, ";
  }
  return methods.empty() ? "" : methods + "OPTIONS";
}

// Also what a browser asks before it lets a page of another origin send a request (CORS). Such a
// question has no key.
void Endpoints::answer_options(const std::shared_ptr<Exchange>& exchange) {
  const std::string allowed = allowed_methods(path_of(*exchange));
  exchange->add_header("Allow", allowed);
  exchange->allow_methods(allowed);
  replies_.count(path_of(*exchange), 204);
  exchange->reply(204, "", "");
}

bool Endpoints::may_administrate(const RequestHead& head) const {
  return !check_key(head, Endpoint::kAdmins);
}

// The admin key opens everything.
std::optional<HttpError> Endpoints::check_key(const RequestHead& head,
                                              Endpoint::Access access) const {
  const bool wants_admin = access == Endpoint::kAdmins && !keys_.admin.empty();
  if (access == Endpoint::kPublic || (!wants_admin && keys_.api.empty())) return std::nullopt;
  const std::string authorization = head.field("authorization"), key = head.field("x-api-key");
  const auto has = [&](const std::string& right) {
    const bool bears = same_text(bearer_key(authorization), right);
    return (bears | same_text(key, right)) && !right.empty();
  };
  if (has(keys_.admin) || (!wants_admin && has(keys_.api))) return std::nullopt;
  return HttpError{.status = 401,
                   .message = fmt::format("expected the server's {} key as \"Authorization: Bearer "
                                          "<key>\" or \"x-api-key: <key>\"",
                                          wants_admin ? "admin" : "API"),
                   .code = "invalid_api_key"};
}

}  // namespace wideep::server
