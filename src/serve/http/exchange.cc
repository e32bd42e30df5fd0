// SPDX-License-Identifier: Apache-2.0
//
// Calls that write are counted, and the journal keeps their number with the bytes. A process that
// goes on with a reply makes the same calls anew, and those that counted before write nothing. So
// what a call writes goes into the journal in one piece, or not at all. A chunk's head is put into
// room that was left in front of its bytes, without a copy of them. Values of headers lose CR, LF
// and NUL, with which one header could become two.
#include "http/exchange.h"

#include <event2/http.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/cpu_time.h"
#include "http/connection_journal.h"
#include "http/http_error.h"
#include "http/request_id.h"

namespace wideep::server {
namespace {

// Room in front of a chunk's bytes for its head: the number of bytes in hexadecimal, then "\r\n".
constexpr size_t kChunkHead = 2 * sizeof(size_t) + 2;

// plus_is_space: in queries, as forms have it.
std::string decoded(std::string_view text, bool plus_is_space) {
  size_t size = 0;
  char* bytes = evhttp_uridecode(std::string(text).c_str(), plus_is_space ? 1 : 0, &size);
  if (bytes == nullptr) return std::string(text);
  std::string result(bytes, size);
  std::free(bytes);
  return result;
}

const char* reason_of(int status) {
  constexpr std::pair<int, const char*> kReasons[] = {
      {200, "OK"},
      {204, "No Content"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {502, "Bad Gateway"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
      {529, "Overloaded"},
  };
  const auto* found = std::find_if(std::begin(kReasons), std::end(kReasons),
                                   [&](const auto& each) { return each.first == status; });
  return found == std::end(kReasons) ? "" : found->second;
}

// RFC 9110 5.6.7, with English names whatever the locale.
std::string date_now() {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&now, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday,
                     kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

// Bytes that would end a header and begin another are left out.
std::string header_text(std::string_view text) {
  std::string result(text);
  std::erase_if(result, [](char c) { return c == '\r' || c == '\n' || c == '\0'; });
  return result;
}

}  // namespace

std::string path_of_target(std::string_view target) {
  return decoded(target.substr(0, target.find('?')), false);
}

std::string status_and_date(int status) {
  return fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, reason_of(status), date_now());
}

Exchange::Exchange(ReplyWire& wire, RequestHead head, std::string body)
    : wire_(&wire), head_(std::move(head)), body_(std::move(body)) {
  path_ = path_of_target(head_.target);
  record_ = {.id = request_id_of(head_),
             .client = wire.client(),
             .method = head_.method,
             .path = head_.target.substr(0, head_.target.find('?')),
             .came_ns = base::wall_ns()};
  if (const ConnectionJournal* journal = wire.journal()) calls_before_ = journal->num_calls();
}

bool Exchange::keeps_records() const { return wire_ != nullptr && wire_->journal() != nullptr; }

std::vector<std::string> Exchange::records() const {
  return keeps_records() ? wire_->journal()->records() : std::vector<std::string>();
}

void Exchange::add_record(std::string_view record) {
  if (keeps_records()) wire_->add_record(record);
}

Exchange::~Exchange() {
  on_gone_ = nullptr;
  if (wire_ == nullptr) return;
  if (streams_) {
    wire_->disconnect();
  } else {
    reply(500, "application/json", HttpError{.status = 500, .message = "no reply"}.json());
  }
}

std::optional<HttpError> Exchange::hold(size_t bytes) {
  if (wire_ == nullptr) return std::nullopt;
  return wire_->hold(head_.held_bytes() + body_.size() + bytes);
}

std::string Exchange::header(std::string_view name) const {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  return head_.field(lower);
}

std::string Exchange::query(std::string_view name) const {
  std::string_view rest = head_.target;
  rest.remove_prefix(std::min(rest.find('?'), rest.size()));
  while (!rest.empty()) {
    rest.remove_prefix(1);  // "?" or "&"
    const std::string_view pair = rest.substr(0, rest.find('&'));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (decoded(pair.substr(0, equals), true) == name) {
      return decoded(pair.substr(std::min(equals + 1, pair.size())), true);
    }
    rest.remove_prefix(pair.size());
  }
  return "";
}

// The client has left, or is disconnected.
RequestRecord Exchange::detach() {
  // Null in the destructor. What is called may let go of this object.
  const std::shared_ptr<Exchange> kept = weak_from_this().lock();
  wire_ = nullptr;
  if (const auto callback = std::exchange(on_gone_, nullptr)) callback();
  return std::move(record_);
}

void Exchange::allow_methods(std::string_view methods) {
  if (!allows_origin_ || header("Access-Control-Request-Method").empty()) return;
  add_header("Access-Control-Allow-Methods", methods);
  const std::string headers = header("Access-Control-Request-Headers");
  if (!headers.empty()) add_header("Access-Control-Allow-Headers", headers);
  add_header("Access-Control-Max-Age", "86400");
}

void Exchange::allow_origin(std::string_view origin) {
  allows_origin_ = true;
  add_header("Access-Control-Allow-Origin", origin);
}

void Exchange::add_header(std::string_view name, std::string_view value) {
  headers_ += fmt::format("{}: {}\r\n", name, header_text(value));
}

std::string Exchange::start_of_reply(int status, std::string_view content_type) {
  record_.status = status;
  std::string text =
      status_and_date(status) + fmt::format("{}: {}\r\n", kRequestId, record_.id) + headers_;
  if (!content_type.empty()) {
    text += fmt::format("Content-Type: {}\r\n", header_text(content_type));
  }
  if (!head_.keeps_alive) {
    text += "Connection: close\r\n";
  } else if (head_.minor_version == 0) {
    text += "Connection: keep-alive\r\n";
  }
  return text;
}

void Exchange::reply(int status, std::string_view content_type, std::string_view body,
                     std::string_view retry_after) {
  if (wire_ == nullptr) return;
  if (!retry_after.empty()) add_header("Retry-After", retry_after);
  std::string text = start_of_reply(status, content_type);
  // RFC 9110 8.6: a reply without content by its status has no length either.
  if (status != 204 && status != 304) text += fmt::format("Content-Length: {}\r\n", body.size());
  text += "\r\n";
  ReplyWire* wire = std::exchange(wire_, nullptr);
  // In one piece: either all of it counts as written, or none.
  if (head_.method != "HEAD") text += body;
  if (!is_repeated_call()) wire->write(text);
  wire->end_reply(head_.keeps_alive);
}

void Exchange::start_stream(std::string_view content_type) {
  if (wire_ == nullptr) return;
  add_header("Cache-Control", "no-cache");
  streams_ = true;
  in_chunks_ = head_.minor_version > 0;
  if (!in_chunks_) head_.keeps_alive = false;  // the end of the connection ends the reply
  std::string text = start_of_reply(200, content_type);
  if (in_chunks_) text += "Transfer-Encoding: chunked\r\n";
  if (!is_repeated_call()) wire_->write(text + "\r\n");
}

void Exchange::send(std::string_view bytes) {
  if (wire_ == nullptr || head_.method == "HEAD" || is_repeated_call()) return;
  add_unsent(bytes);
}

// The journal counts calls: none that are repeated may be left when it does.
void Exchange::send_aside(std::string_view bytes) {
  if (wire_ == nullptr || head_.method == "HEAD" || bytes.empty()) return;
  if (num_calls_ >= calls_before_) add_unsent(bytes);
}

void Exchange::add_unsent(std::string_view bytes) {
  if (unsent_.empty()) {
    unsent_.resize(kChunkHead);
    wire_->flush_later(shared_from_this());
  }
  unsent_ += bytes;
}

// The unsent bytes as they go over the wire, with the chunk's head written into the room in front.
// REQUIRES: unsent_ is not empty.
std::string_view Exchange::frame_unsent() {
  if (!in_chunks_) return std::string_view(unsent_).substr(kChunkHead);
  char digits[kChunkHead];
  const char* end =
      std::to_chars(digits, digits + sizeof(digits), unsent_.size() - kChunkHead, 16).ptr;
  const auto num_digits = static_cast<size_t>(end - digits);
  const size_t first = kChunkHead - 2 - num_digits;
  std::copy_n(digits, num_digits, unsent_.data() + first);
  unsent_[kChunkHead - 2] = '\r';
  unsent_[kChunkHead - 1] = '\n';
  unsent_ += "\r\n";
  return std::string_view(unsent_).substr(first);
}

void Exchange::flush() {
  if (wire_ == nullptr || unsent_.empty()) return;
  // An empty chunk would be the last one.
  const bool empty = unsent_.size() == kChunkHead;
  ReplyWire* wire = wire_;
  if (!empty) wire->write_at_once(frame_unsent());
  unsent_.clear();
}

// Bytes that are not flushed yet go into libevent's queue, so that they leave together with the end
// of the stream.
void Exchange::end() {
  if (wire_ == nullptr) return;
  ReplyWire* wire = std::exchange(wire_, nullptr);
  const bool repeats = is_repeated_call();
  // In one piece, as a reply.
  std::string last(unsent_.size() > kChunkHead ? frame_unsent() : std::string_view());
  unsent_.clear();
  if (in_chunks_ && head_.method != "HEAD") last += "0\r\n\r\n";
  if (!repeats && !last.empty()) wire->write(last);
  wire->end_reply(head_.keeps_alive);
}

void Exchange::cut() {
  if (wire_ != nullptr) wire_->disconnect();
}

}  // namespace wideep::server
