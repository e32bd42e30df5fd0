// SPDX-License-Identifier: Apache-2.0
//
// One request and its reply: either reply(), or start_stream(), send() …, end(). Held by whoever
// answers. After the client has left, these calls do nothing.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_request_reader.h"
#include "http/request_record.h"

namespace wideep::server {

class ConnectionJournal;
class Exchange;

// A target's path, decoded, without the query.
std::string path_of_target(std::string_view target);
// The first two lines of a reply: status and date.
std::string status_and_date(int status);

// Where a reply goes: the connection of its client.
class ReplyWire {
 public:
  virtual ~ReplyWire() = default;
  virtual void write(std::string_view bytes) = 0;          // into the queue
  virtual void write_at_once(std::string_view bytes) = 0;  // to the socket, as far as it takes them
  // Calls flush() at the end of this pass of the event loop.
  virtual void flush_later(std::shared_ptr<Exchange> exchange) = 0;
  virtual void end_reply(bool keeps_alive) = 0;
  virtual void disconnect() = 0;
  virtual std::string client() const { return ""; }      // its address and port; "": unknown
  virtual std::string local_host() const { return ""; }  // Exchange::local_host
  // Null: nobody could go on with the connection.
  virtual ConnectionJournal* journal() { return nullptr; }
  virtual void add_record(std::string_view) {}                            // to the journal
  virtual std::optional<HttpError> hold(size_t) { return std::nullopt; }  // Exchange::hold, of all
};

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(ReplyWire& wire, RequestHead head, std::string body);
  ~Exchange();  // without a reply: replies with status 500; a stream without end() is cut
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const RequestHead& head() const { return head_; }
  const std::string& method() const { return head_.method; }  // "GET"
  const std::string& path() const { return path_; }           // decoded, without the query
  const std::string& target() const { return head_.target; }  // path and query, not decoded
  const std::string& body() const { return body_; }
  // For work on another thread, which must not touch the exchange. body() is empty afterwards.
  std::string take_body() { return std::move(body_); }
  std::string header(std::string_view name) const;  // any case; "" if absent
  std::string query(std::string_view name) const;   // value of "?name=value"; "" if absent

  // The address by which the client has reached this machine; "": unknown.
  std::string local_host() const { return wire_ == nullptr ? "" : wire_->local_host(); }

  // X-Request-Id: the client's if it may be one, else one that was made. Every reply has it, of
  // record() as it is when the reply begins.
  const std::string& request_id() const { return record_.id; }
  // What is known of the request; whoever answers adds what it knows, and HttpServer::on_ended gets
  // it when the exchange is over.
  RequestRecord& record() { return record_; }

  // The page that sent the request may read the reply (HttpOptions::cors_origins). `origin`: as the
  // reply says it.
  bool allows_origin() const { return allows_origin_; }
  void allow_origin(std::string_view origin);
  // Adds what a browser asks with OPTIONS before it lets such a page send a request, if it asks and
  // the origin is allowed. methods: as in Allow.
  void allow_methods(std::string_view methods);

  // Adds a header to the reply. REQUIRES: before reply() or start_stream().
  void add_header(std::string_view name, std::string_view value);
  // The reply to HEAD has the length of the body, but not the body.
  void reply(int status, std::string_view content_type, std::string_view body,
             std::string_view retry_after = {});
  void start_stream(std::string_view content_type);
  void send(std::string_view bytes);
  // The same for what is no part of the reply, and would not be made again.
  void send_aside(std::string_view bytes);
  void end();
  // Ends a stream before its end, as if this process had died.
  void cut();

  bool gone() const { return wire_ == nullptr; }

  // Until its end the answer holds about so many bytes, beside what is here of the request. Returns
  // why it cannot be made: all together are too many.
  std::optional<HttpError> hold(size_t bytes);

  // For whoever must give the same reply if this process dies in the middle of it: records are kept
  // with the request, and another process gets them with it. It makes the reply anew; of reply(),
  // send() and the like, the calls whose bytes the client has got already write nothing.
  bool keeps_records() const;
  // The process that had read this request has died: what it had promised holds.
  bool is_inherited() const { return is_inherited_; }
  void set_inherited() { is_inherited_ = true; }
  // That process had begun to reply, but not with an answer that has records: it had refused it.
  bool was_refused() const { return calls_before_ > 0 && records().empty(); }
  std::vector<std::string> records() const;
  void add_record(std::string_view record);
  // Calls so far that write bytes.
  uint64_t num_calls() const { return num_calls_; }
  // Sets a function that is called once if the client leaves (or closes its side), or is
  // disconnected, before the reply has ended.
  void on_gone(std::function<void()> callback) { on_gone_ = std::move(callback); }

  // For the connection: the client has left; returns what is known of the request then.
  RequestRecord detach();
  RequestRecord take_record() { return std::move(record_); }
  // Sends what send() has collected.
  void flush();

 private:
  std::string start_of_reply(int status, std::string_view content_type);
  bool is_repeated_call() { return ++num_calls_ <= calls_before_; }
  void add_unsent(std::string_view bytes);
  std::string_view frame_unsent();

  ReplyWire* wire_;  // null: the client has left, or the reply has ended
  RequestHead head_;
  std::string path_, body_;
  RequestRecord record_;
  std::string headers_;  // of the reply, added by add_header()
  bool allows_origin_ = false;
  bool is_inherited_ = false;
  bool streams_ = false;
  bool in_chunks_ = false;  // chunked transfer encoding
  std::string unsent_;  // kChunkHead bytes for a chunk's head, then the bytes since the last flush
  uint64_t num_calls_ = 0;
  uint64_t calls_before_ = 0;  // by another process
  std::function<void()> on_gone_;
};

}  // namespace wideep::server
