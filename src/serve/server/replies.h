// SPDX-License-Identifier: Apache-2.0
//
// How endpoints reply: whole bodies, and errors in the form of the API that the client speaks.
// Every reply is counted by its endpoint, and has an id that no other has.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/parsed.h"
#include "http/exchange.h"
#include "server/metrics.h"

namespace wideep::server {

inline constexpr const char* kJson = "application/json";

// The path without a slash at the end, which has no meaning here.
std::string_view without_last_slash(std::string_view path);
std::string_view path_of(const Exchange& exchange);
// An endpoint that ends with a slash ("/v1/models/") matches every path below it; "/" only itself.
bool is_at(std::string_view path, std::string_view endpoint);

class Replies {
 public:
  // metrics: outlives it.
  explicit Replies(Metrics& metrics);

  // This process goes on where `number` others have died.
  void restarted(int number) { restarts_ = number; }
  // Replies to these paths are counted apart.
  void add_path(std::string path) { paths_.push_back(std::move(path)); }

  void reply(const std::shared_ptr<Exchange>& exchange, std::string_view type,
             std::string_view body);
  // With another status than 200, though it is no error object.
  void reply_with(const std::shared_ptr<Exchange>& exchange, int status, std::string_view body);
  void refuse(const std::shared_ptr<Exchange>& exchange, const HttpError& error);
  void count(std::string_view path, int status);

  // An id that begins so. It can be guessed.
  std::string id_with(std::string_view start);
  int64_t started() const { return started_; }  // seconds since 1970

  // The value of "?name=…". nullopt: it is not a number, and an error was sent.
  struct Number {
    std::string name;
    const char* what;  // it is, for the error
    int64_t by_default = 0;
  };
  std::optional<int64_t> read_number(const std::shared_ptr<Exchange>& exchange,
                                     const Number& number);

 private:
  Metrics& metrics_;
  std::vector<std::string> paths_;
  const int64_t started_;
  int restarts_ = 0;
  uint64_t begun_ = 0;
};

}  // namespace wideep::server
