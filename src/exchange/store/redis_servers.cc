// SPDX-License-Identifier: Apache-2.0
//
// Questions are sent until their replies together would be kWindowBytes; then a reply is taken for
// each that is sent, in the order of questions. Replies of one server come in that order; another
// server waits meanwhile, with its replies in the socket.
//
// Where something goes wrong in the middle, all that is on its way is dropped with its connections,
// and asked again from the first question without an answer: commands here may be repeated.
#include "store/redis_servers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "base/try.h"

namespace wideep::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kWindowBytes = uint64_t{8} << 20;
constexpr size_t kMaxOnTheWay = 256;
constexpr int kMaxRedirects = 5;  // of one question
constexpr size_t kMaxSlotsReply = size_t{4} << 20;
constexpr int kMaxLearningTimeouts = 3;  // of connecting, in which somebody must know the slots

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

}  // namespace

Result<RedisServers> RedisServers::make(RedisOptions options) {
  RedisServers servers(std::move(options));
  if (servers.options_.is_tls) {
    WIDEEP_TRY_ASSIGN(TlsContext tls, TlsContext::make(servers.options_));
    servers.tls_ = std::make_unique<TlsContext>(std::move(tls));
  }
  return servers;
}

RedisServers::Server& RedisServers::server_at(const RedisHost& host) {
  Server& server = servers_[host];
  server.host = host;
  return server;
}

Status RedisServers::connect(Server& server) {
  if (server.connection.has_value()) return {};
  WIDEEP_TRY_ASSIGN(RedisConnection connection,
                    RedisConnection::open(server.host, options_, tls_.get()));
  server.connection.emplace(std::move(connection));
  server.number = ++connections_;
  return {};
}

uint64_t RedisServers::open_connection() const {
  const auto found = servers_.find(options_.hosts.front());
  if (found == servers_.end()) return 0;
  const auto& [host, server] = *found;
  return server.connection && server.connection->is_open() ? server.number : 0;
}

void RedisServers::drop_waiting() {
  for (auto& [host, server] : servers_) {
    if (server.connection.has_value() && server.connection->num_unanswered() > 0) {
      server.connection.reset();
    }
  }
}

Result<std::vector<RedisReply>> RedisServers::ask_one(Server& server,
                                                      std::span<const std::string> commands) {
  WIDEEP_TRY(connect(server));
  const Deadline deadline = Clock::now() + options_.reply_timeout;
  std::vector<RedisReply> replies;
  for (const std::string& command : commands) {
    WIDEEP_TRY(server.connection->send(command, 1, deadline));
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    WIDEEP_TRY_ASSIGN(RedisReply reply, server.connection->receive(kMaxSlotsReply, deadline));
    replies.push_back(std::move(reply));
  }
  return replies;
}

Status RedisServers::learn_slots_from(Server& server) {
  std::string command;
  append_command(command, {"CLUSTER", "SLOTS"});
  WIDEEP_TRY_ASSIGN(const std::vector<RedisReply> replies, ask_one(server, {&command, 1}));
  Result<RedisSlots> slots = RedisSlots::parse(replies.front(), server.host);
  if (!slots.ok()) return slots.status().at(server.host.text());
  slots_ = std::move(slots).value();
  return {};
}

// Asks those first who are connected.
Status RedisServers::learn_slots() {
  drop_waiting();
  std::vector<RedisHost> hosts;
  for (const auto& [host, server] : servers_) {
    if (server.connection.has_value()) hosts.push_back(host);
  }
  hosts.insert(hosts.end(), options_.hosts.begin(), options_.hosts.end());
  for (const auto& [host, server] : servers_) hosts.push_back(host);
  const Deadline latest = Clock::now() + kMaxLearningTimeouts * options_.connect_timeout;
  Status status;
  for (const RedisHost& host : hosts) {
    status = learn_slots_from(server_at(host));
    if (status.ok()) break;
    drop_waiting();
    if (Clock::now() >= latest) break;
  }
  return status;
}

Status RedisServers::find_server(const Call& call, Server*& server) {
  if (call.ask_once && call.sent == call.answered) {
    server = &server_at(call.ask_once->host);
    return {};
  }
  if (!is_cluster_) {
    server = &server_at(options_.hosts.front());
    return {};
  }
  if (!slots_) WIDEEP_TRY(learn_slots());
  const int slot = redis_slot(call.questions[call.sent].key);
  const RedisHost* host = slots_->host_of(slot);
  if (host == nullptr) return failed(fmt::format("no server of the cluster has slot {}", slot));
  server = &server_at(*host);
  return {};
}

// Not later than all before it and it may take, and than it alone may take from now.
Deadline RedisServers::deadline_of(const Call& call, const RedisQuestion& question) const {
  uint64_t bytes = question.expected_reply_bytes;
  for (const std::string& command : question.commands) bytes += command.size();
  const Deadline deadline = std::min(call.latest, Clock::now() + options_.reply_timeout) +
                            seconds(static_cast<double>(bytes) / options_.min_bytes_per_second);
  return std::min(deadline, call.until);
}

Status RedisServers::send_next(Call& call) {
  const RedisQuestion& question = call.questions[call.sent];
  Server* server = nullptr;
  const Clock::time_point before = Clock::now();
  Status status = find_server(call, server);
  if (status.ok()) status = connect(*server);
  const Clock::duration connecting = Clock::now() - before;  // that has a deadline of its own
  call.latest += connecting;
  call.until += connecting;
  WIDEEP_TRY(status);
  const Deadline deadline = deadline_of(call, question);
  const bool asks_once = call.ask_once && call.sent == call.answered;
  bool is_first = true;
  for (const std::string& command : question.commands) {
    // Within a transaction it goes on to hold.
    if (asks_once && (is_first || !question.is_transaction)) {
      std::string asking;
      append_command(asking, {"ASKING"});
      WIDEEP_TRY(server->connection->send(asking, 1, deadline));
    }
    WIDEEP_TRY(server->connection->send(command, 1, deadline));
    is_first = false;
  }
  call.servers.resize(call.sent + 1);
  call.servers[call.sent++] = server;
  return {};
}

Status RedisServers::send_more(Call& call) {
  uint64_t bytes = 0;
  for (size_t i = call.answered; i < call.sent; ++i) {
    bytes += call.questions[i].expected_reply_bytes;
  }
  while (call.stuck.ok() && call.sent < call.questions.size() &&
         call.sent - call.answered < kMaxOnTheWay) {
    bytes += call.questions[call.sent].expected_reply_bytes;
    if (call.sent > call.answered && (bytes > kWindowBytes || call.ask_once)) break;
    call.stuck = send_next(call);
  }
  return call.sent > call.answered ? Status() : call.stuck;
}

Status RedisServers::receive_next(Call& call, std::vector<RedisReply>& replies) {
  const RedisQuestion& question = call.questions[call.answered];
  RedisConnection& connection = *call.servers[call.answered]->connection;
  const Deadline deadline = deadline_of(call, question);
  replies.clear();
  bool is_first = true;
  for (size_t i = 0; i < question.commands.size(); ++i) {
    if (call.ask_once && (is_first || !question.is_transaction)) {
      WIDEEP_TRY(connection.receive(question.max_reply_bytes, deadline).status());
    }
    WIDEEP_TRY_ASSIGN(RedisReply reply, connection.receive(question.max_reply_bytes, deadline));
    replies.push_back(std::move(reply));
    is_first = false;
  }
  return {};
}

void RedisServers::begin_again(Call& call) {
  drop_waiting();
  call.sent = call.answered;
  call.stuck = {};
  call.latest = Clock::now() + options_.reply_timeout;
}

Status RedisServers::answer_next(Call& call, std::vector<RedisReply>& replies) {
  WIDEEP_TRY(send_more(call));
  return receive_next(call, replies);
}

// Whether a server says that the question is another's, who is asked next.
bool RedisServers::begins_elsewhere(Call& call, const std::vector<RedisReply>& replies) {
  const RedisHost asked = call.servers[call.answered]->host;
  std::optional<RedisRedirect> redirect;
  for (const RedisReply& reply : replies) {
    if (reply.is_error() && !redirect) redirect = parse_redirect(reply.text, asked);
  }
  if (!redirect || call.redirects_left == 0 || !options_.follows) return false;
  --call.redirects_left;
  begin_again(call);
  call.ask_once.reset();
  if (redirect->is_ask) {
    call.ask_once = redirect;
  } else {
    is_cluster_ = true;
    // More has moved, probably. The server that said it knows best of this slot.
    const Clock::time_point before = Clock::now();
    if (Status ignored = learn_slots(); !ignored.ok() && !slots_) slots_.emplace();
    call.until += Clock::now() - before;
    call.latest = Clock::now() + options_.reply_timeout;
    return slots_->move(redirect->slot, redirect->host);
  }
  return true;
}

Status RedisServers::ask(std::span<const RedisQuestion> questions, const Take& take,
                         std::chrono::milliseconds limit) {
  Call call{.questions = questions, .until = Clock::now() + limit};
  // A server that was started anew has ended its connections, which shows one by one.
  call.retries_left = 1 + static_cast<int>(servers_.size());
  call.redirects_left = kMaxRedirects;
  begin_again(call);
  std::vector<RedisReply> replies;
  while (call.answered < questions.size()) {
    const Status status = answer_next(call, replies);
    if (!status.ok() && Clock::now() >= call.until) {
      drop_waiting();
      return {};
    }
    if (!status.ok()) {
      if (is_cluster_) slots_.reset();  // another may have its place by now
      if (status.code() == StatusCode::kFailed && call.retries_left-- > 0) {
        begin_again(call);
        continue;
      }
      drop_waiting();
      return status;
    }
    if (begins_elsewhere(call, replies)) continue;
    call.ask_once.reset();
    call.redirects_left = kMaxRedirects;
    const Clock::time_point before = Clock::now();
    call.latest = deadline_of(call, questions[call.answered]);
    const size_t index = call.answered++;
    if (!take(index, std::move(replies))) {
      drop_waiting();
      return {};
    }
    const Clock::duration taking = Clock::now() - before;
    call.latest += taking;
    call.until += taking;
  }
  return {};
}

Result<std::vector<std::vector<RedisReply>>> RedisServers::ask_each(
    std::span<const std::string> commands) {
  std::vector<std::vector<RedisReply>> all;
  drop_waiting();
  if (is_cluster_ && !slots_) WIDEEP_TRY(learn_slots());
  const std::vector<RedisHost> hosts =
      is_cluster_ ? slots_->hosts() : std::vector<RedisHost>{options_.hosts.front()};
  for (const RedisHost& host : hosts) {
    Server& server = server_at(host);
    Result<std::vector<RedisReply>> replies = ask_one(server, commands);
    if (!replies.ok()) {
      drop_waiting();
      if (replies.status().code() == StatusCode::kFailed) replies = ask_one(server, commands);
    }
    if (!replies.ok()) {
      drop_waiting();
      return replies.status();
    }
    all.push_back(std::move(replies).value());
  }
  return all;
}

}  // namespace wideep::store
