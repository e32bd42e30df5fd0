// SPDX-License-Identifier: Apache-2.0
//
// A connection over TCP or TLS on which every wait has a deadline: looking up the name, connecting,
// the handshake, reading and writing. (transport/tcp.h has addresses that are numbers, and no TLS.)
//
// Thread safety: one thread; a TlsContext may serve several.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "store/redis_address.h"
#include "wideep/status.h"

struct ssl_ctx_st;
struct ssl_st;

namespace wideep::store {

using Deadline = std::chrono::steady_clock::time_point;

// Whom to trust, and who this side is.
class TlsContext {
 public:
  // options: the names of the files. Errors (invalid input): one cannot be read, or is not what it
  // should be.
  static Result<TlsContext> make(const RedisOptions& options);

  ssl_ctx_st* get() const { return context_.get(); }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

class RedisSocket {
 public:
  // tls: null: none. The server's certificate must be of an authority that is trusted, and name
  // the host. Errors (failed, deadline exceeded): with the host in the line.
  static Result<RedisSocket> connect(const RedisHost& host, const TlsContext* tls,
                                     Deadline deadline);
  RedisSocket(RedisSocket&& other) noexcept;
  RedisSocket& operator=(RedisSocket&& other) noexcept;
  ~RedisSocket();

  // All of it.
  Status write(std::string_view bytes, Deadline deadline);
  // Whether neither side has ended it, as far as this one knows.
  bool is_open() const;
  // What is there, at least a byte; 0: the server has ended the connection.
  Result<size_t> read(std::span<std::byte> into, Deadline deadline);

 private:
  explicit RedisSocket(int socket) : socket_(socket) {}
  Status begin_tls(const RedisHost& host, const TlsContext& tls, Deadline deadline);
  Result<size_t> write_some(std::string_view bytes, Deadline deadline);
  Result<size_t> read_tls(std::span<std::byte> into, Deadline deadline);
  Status wait_for_tls(int result, std::string_view what, Deadline deadline);

  struct FreeTls {
    void operator()(ssl_st* tls) const;
  };
  int socket_ = -1;
  std::unique_ptr<ssl_st, FreeTls> tls_;  // null: none
};

}  // namespace wideep::store
