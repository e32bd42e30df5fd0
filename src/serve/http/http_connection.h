// SPDX-License-Identifier: Apache-2.0
//
// A client's connection: reads requests one after the other, and writes their replies.
//
//   reading ── request complete ──→ waiting for the reply ── reply complete ──→ writing
//    ▲   │                                                                       │  │
//    │   └─ refused, or too slow: the error is written ──→ lingering ──→ closed  │  │
//    │                                                         ▲                 │  │
//    │                                                         └── written, ─────┘  │
//    │                                                             last reply       │
//    └───────────────────────────── written ────────────────────────────────────────┘
//
// Deadlines: idle_seconds between requests; head_seconds from the first byte to the end of the
// head; body_seconds for the body, plus a second for each kSlowestBytesPerSecond received. A client
// that misses one of the latter two gets status 408.
//
// Lingering (RFC 9112 9.6): the connection is closed for writing, and what still comes is dropped
// for a moment. Closing at once would let the system reset the connection, and the client lose the
// reply.
//
// Thread safety: the serving thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/connection_journal.h"
#include "http/exchange.h"
#include "http/http_options.h"
#include "http/http_request_reader.h"

struct bufferevent;
struct event;
struct event_base;

namespace wideep::server {

class HttpConnection;

// What the head of a request decides before its body is read.
struct HeadVerdict {
  std::optional<HttpError> error = {};  // why it is refused
  size_t max_body_bytes = SIZE_MAX;     // of this request; or fewer, as of all
};

// Who has the connections.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // A request has come; the reply may be given now or later.
  virtual void handle(const std::shared_ptr<Exchange>& exchange) = 0;
  virtual void flush_later(std::shared_ptr<Exchange> exchange) = 0;
  // whole: the body is here.
  virtual HeadVerdict check(const RequestHead& head, bool whole) = 0;
  // There is more to write than all clients together may leave unread.
  virtual void shed_later() = 0;
  // No request has begun, and no reply is left to be read. Returns a number for what follows it:
  // one has begun, or the connection is closed.
  virtual uint64_t became_idle(HttpConnection* connection) = 0;
  virtual void no_longer_idle(uint64_t number) = 0;
  // Whether it wants to know of requests that are over.
  virtual bool watches() const { return false; }
  virtual void ended(const RequestRecord&) {}
  // The connection is closed.
  virtual void forget(HttpConnection* connection) = 0;
};

// What all connections of a server hold together, in bytes, with their journals.
struct ConnectionTotals {
  size_t requests = 0;  // those that are read or answered now, and what is kept for answers
  size_t unread = 0;    // replies that the system has not taken yet
};

struct ConnectionSetup {
  event_base* base;
  int left_fd;  // an epoll for clients that leave, with HttpConnection* as data
  const HttpOptions& options;
  ConnectionOwner& owner;
  ConnectionTotals& totals;
};

class HttpConnection : public ReplyWire, public std::enable_shared_from_this<HttpConnection> {
 public:
  // journal: null if nobody could go on with the connection should this process die. id: for the
  // owner.
  HttpConnection(const ConnectionSetup& setup, int socket,
                 std::unique_ptr<ConnectionJournal> journal = nullptr, int64_t id = 0);
  ~HttpConnection() override;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Begins to read, or goes on where another process has died; is_suspect: perhaps because of this
  // connection. Called once, when a shared_ptr holds the connection.
  void start(bool is_suspect = false);
  int64_t id() const { return id_; }
  // Closes at once; a request in progress is told (Exchange::on_gone).
  void disconnect() override;

  void write(std::string_view bytes) override;
  void write_at_once(std::string_view bytes) override;
  void flush_later(std::shared_ptr<Exchange> exchange) override;
  void end_reply(bool keeps_alive) override;
  std::string client() const override;
  std::string local_host() const override;
  ConnectionJournal* journal() override { return journal_.get(); }
  // The client has sent something that is not read yet.
  bool has_input() const;
  // Of a reply that is complete: bytes that the client has not taken.
  bool has_unread() const;
  void add_record(std::string_view record) override;
  std::optional<HttpError> hold(size_t bytes) override;
  size_t unread() const { return held_.unread; }

 private:
  enum State { kReading, kWaiting, kWriting, kLingering, kClosed };
  using Clock = std::chrono::steady_clock;

  static void readable(int, short, void* self);
  static void written(bufferevent*, void* self);
  static void failed(bufferevent*, short what, void* self);
  static void late(int, short, void* self);
  bool receive();
  std::string_view input() const;
  bool go_on(bool is_suspect);
  void note_output(std::string_view bytes);
  void note_unread();
  void read();
  void read_request();
  void drop_input();
  void forget_parsed();
  void count();
  bool is_idle() const;
  void note_idle();
  size_t unread_bytes() const;
  // Of what is read, and of what is written: a journal has one, too.
  size_t num_copies() const { return journal_ != nullptr ? 2 : 1; }
  std::optional<HttpError> check_total() const;
  bool is_refused_by_head(bool whole);
  void serve();
  void refuse(const HttpError& error);
  void continue_if_expected();
  void all_written();
  void linger();
  void set_deadline(std::chrono::milliseconds from_now);
  void note_progress();
  void miss_deadline();
  void watch();
  void unwatch();
  RequestRecord record_of_head(int status) const;
  void note_unanswered();
  void note_ended(bool is_whole);

  const ConnectionSetup setup_;
  const int64_t id_;
  std::unique_ptr<ConnectionJournal> journal_;
  bufferevent* stream_;  // only writes
  event* readable_;
  event* deadline_;
  State state_ = kReading;
  std::string input_;  // without a journal: bytes of the request that is being read, and beyond
  size_t parsed_ = 0;  // of input(), by reader_
  RequestReader reader_;
  RequestReader::Progress noted_ = RequestReader::kNothing;  // that the deadline is for
  Clock::time_point body_start_;
  bool keeps_alive_ = true;
  bool refuses_ = false;
  bool goes_on_ = false;          // now, where another process has died
  Exchange* exchange_ = nullptr;  // in progress; null in all states but kWaiting
  // Of the request whose reply is being written, if the owner wants to know.
  std::optional<RequestRecord> replied_;
  bool watched_ = false;      // registered with left_fd
  uint64_t idle_number_ = 0;  // of the owner; 0: it is not idle
  size_t dropped_bytes_ = 0;  // while lingering
  size_t answer_bytes_ = 0;   // that the request holds that is being answered
  ConnectionTotals held_;     // by this connection, as setup_.totals has it
};

}  // namespace wideep::server
