// SPDX-License-Identifier: Apache-2.0
#include "store/redis_connection.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/try.h"

namespace wideep::store {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
constexpr size_t kMaxShortReply = 4096;

}  // namespace

void append_command(std::string& to, std::initializer_list<std::string_view> words) {
  to += fmt::format("*{}\r\n", words.size());
  for (const std::string_view word : words) {
    to += fmt::format("${}\r\n", word.size());
    to += word;
    to += "\r\n";
  }
}

Result<RedisConnection> RedisConnection::open(const RedisHost& host, const RedisOptions& options,
                                              const TlsContext* tls) {
  const Deadline deadline = std::chrono::steady_clock::now() + options.connect_timeout;
  WIDEEP_TRY_ASSIGN(RedisSocket socket, RedisSocket::connect(host, tls, deadline));
  RedisConnection connection(std::move(socket), host.text());
  WIDEEP_TRY(connection.enter(options, deadline));
  return connection;
}

// One packet, and one way there and back.
Status RedisConnection::enter(const RedisOptions& options, Deadline deadline) {
  std::string commands;
  int count = 0;
  if (!options.user.empty()) {
    append_command(commands, {"AUTH", options.user, options.password});
    ++count;
  } else if (!options.password.empty()) {
    append_command(commands, {"AUTH", options.password});
    ++count;
  }
  if (options.db != 0) {
    append_command(commands, {"SELECT", std::to_string(options.db)});
    ++count;
  }
  WIDEEP_TRY(send(commands, count, deadline));
  for (int i = 0; i < count; ++i) {
    WIDEEP_TRY_ASSIGN(const RedisReply reply, receive(kMaxShortReply, deadline));
    if (reply.is_error()) {
      // One that does not know AUTH repeats what it was told.
      const bool tells =
          !options.password.empty() && reply.text.find(options.password) != std::string::npos;
      return invalid_input(fmt::format("{} does not let this client in: {}", where_,
                                       tells ? "its reply repeats the password, so it knows no AUTH"
                                             : base::printable(reply.text)));
    }
  }
  return {};
}

Status RedisConnection::send(std::string_view commands, int num_commands, Deadline deadline) {
  num_unanswered_ += num_commands;
  return socket_.write(commands, deadline).at(where_);
}

Result<RedisReply> RedisConnection::receive(size_t max_bytes, Deadline deadline) {
  buffer_.resize(kReadBytes);
  for (;;) {
    Result<std::optional<RedisReply>> reply = reader_.next();
    if (!reply.ok()) return reply.status().at(where_);
    if (reply->has_value()) {
      --num_unanswered_;
      num_bytes_ = reader_.num_pending_bytes();
      return std::move(**reply);
    }
    // What was read last may have the beginning of other replies.
    if (num_bytes_ > max_bytes + kReadBytes) {
      return invalid_input(fmt::format("{}: a reply of more than {} bytes", where_, max_bytes));
    }
    Result<size_t> count = socket_.read(buffer_, deadline);
    if (!count.ok()) return count.status().at(where_);
    if (*count == 0) return failed(fmt::format("{} has ended the connection", where_));
    reader_.feed(std::span(buffer_).first(*count));
    num_bytes_ += *count;
  }
}

}  // namespace wideep::store
