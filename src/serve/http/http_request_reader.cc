// SPDX-License-Identifier: Apache-2.0
//
// Lines are collected up to their CR LF and then judged whole; data go straight into the body:
//
//   request line → field lines → sized body ─────────────────────────────→ end
//                              → chunk size → data → CR LF → … → trailers → end
#include "http/http_request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"

namespace wideep::server {
namespace {

// A chunk's size line: hexadecimal digits and extensions, which are checked and ignored.
constexpr size_t kMaxChunkLineBytes = 4096;
constexpr size_t kMaxSizeDigits = 16;  // leading zeros count
constexpr size_t kMaxShown = 60;       // bytes of the request in a message

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
bool is_hex(char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

// RFC 9110 5.6.2.
bool is_token_char(char c) {
  return is_digit(c) || is_alpha(c) ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

// RFC 9110 5.5: visible characters, blanks and bytes above 127; no other control characters.
bool is_field_value(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

// RFC 3986: unreserved and reserved characters, and "%" with two hexadecimal digits. A fragment
// ("#") is not sent.
bool is_uri_text(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size() || !is_hex(text[i + 1]) || !is_hex(text[i + 2])) return false;
      i += 2;
    } else if (!is_digit(text[i]) && !is_alpha(text[i]) &&
               std::string_view("-._~:/?[]@!$&'()*+,;=").find(text[i]) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

// uri-host [":" port], or nothing.
bool is_host(std::string_view text) {
  const size_t colon = text.rfind(':');
  const bool has_port = colon != text.npos && text.find(']', colon) == text.npos;
  const std::string_view port = has_port ? text.substr(colon + 1) : std::string_view();
  const std::string_view host = has_port ? text.substr(0, colon) : text;
  const bool is_literal = host.starts_with('[') && host.ends_with(']');
  return std::all_of(port.begin(), port.end(), is_digit) && is_uri_text(host) &&
         host.find_first_of(is_literal ? "/?@" : "/?@[]:") == host.npos;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  }
  return result;
}

// The elements of a comma-separated list, in lower case; empty ones are dropped (RFC 9110 5.6.1.2).
std::vector<std::string> list_of(std::string_view text) {
  std::vector<std::string> elements;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string element = lower(trimmed(text.substr(0, comma)));
    if (!element.empty()) elements.push_back(element);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return elements;
}

bool contains(const std::vector<std::string>& list, std::string_view element) {
  return std::find(list.begin(), list.end(), element) != list.end();
}

std::string shown(std::string_view text) { return base::printable(text, kMaxShown); }

// The value of digits; the largest number if it does not fit.
uint64_t number_of(std::string_view digits, int base) {
  uint64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  return read.ec == std::errc::result_out_of_range ? UINT64_MAX : value;
}

// Takes what is in front as long as it fits.
template <typename Fits>
std::string_view take_while(std::string_view& text, Fits fits) {
  const auto end = std::find_if_not(text.begin(), text.end(), fits);
  const auto size = static_cast<size_t>(end - text.begin());
  const std::string_view taken = text.substr(0, size);
  text.remove_prefix(size);
  return taken;
}

// Takes a quoted string (RFC 9110 5.6.4). False: it does not end. REQUIRES: text begins with '"'.
bool take_quoted(std::string_view& text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

// RFC 9112 7.1.1: *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )
bool are_extensions(std::string_view text) {
  if (!is_field_value(text)) return false;
  while (!text.empty()) {
    take_while(text, is_blank);
    if (!text.starts_with(';')) return false;
    text.remove_prefix(1);
    take_while(text, is_blank);
    if (take_while(text, is_token_char).empty()) return false;
    std::string_view value = text;
    take_while(value, is_blank);
    if (!value.starts_with('=')) continue;
    value.remove_prefix(1);
    take_while(value, is_blank);
    const bool quoted = value.starts_with('"');
    if (quoted ? !take_quoted(value) : take_while(value, is_token_char).empty()) return false;
    text = value;
  }
  return true;
}

}  // namespace

HttpError body_too_large(size_t max_bytes) {
  return {.status = 413,
          .message = fmt::format("the body is too large: expected at most {} bytes", max_bytes)};
}

std::string RequestHead::field(std::string_view name) const {
  std::string joined;
  bool found = false;
  for (const auto& [each, value] : fields) {
    if (each != name) continue;
    if (std::exchange(found, true)) joined += ", ";
    joined += value;
  }
  return joined;
}

size_t RequestHead::held_bytes() const {
  size_t bytes = method.size() + target.size();
  for (const auto& field : fields)
    bytes += sizeof(field) + field.first.size() + field.second.size();
  return bytes;
}

RequestReader::Progress RequestReader::progress() const {
  if (error_) return kRefused;
  if (state_ == kEnd) return kDone;
  if (state_ > kFieldLines) return kBody;
  return state_ == kRequestLine && line_.empty() && head_bytes_ == 0 ? kNothing : kHead;
}

size_t RequestReader::read(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && state_ != kEnd && !error_) {
    const std::string_view rest = bytes.substr(taken);
    const bool data = state_ == kSizedBody || state_ == kChunkData;
    taken += data ? read_data(rest) : read_line(rest);
  }
  return taken;
}

size_t RequestReader::read_data(std::string_view bytes) {
  const size_t size = std::min(bytes.size(), data_left_);
  body_.append(bytes.substr(0, size));
  data_left_ -= size;
  if (data_left_ == 0) state_ = state_ == kSizedBody ? kEnd : kChunkEnd;
  return size;
}

size_t RequestReader::max_line_bytes() const {
  if (state_ == kChunkSize) return kMaxChunkLineBytes;
  if (state_ == kChunkEnd) return 2;
  return limits_.max_header_bytes - std::min(head_bytes_, limits_.max_header_bytes);
}

size_t RequestReader::read_line(std::string_view bytes) {
  const size_t feed = bytes.find('\n');
  const size_t size = feed == bytes.npos ? bytes.size() : feed + 1;
  if (line_.size() + size > max_line_bytes()) {
    refuse_long_line();
    return size;
  }
  line_ += bytes.substr(0, size);
  if (feed == bytes.npos) return size;
  const std::string line = std::exchange(line_, {});
  head_bytes_ += line.size();
  if (state_ == kChunkSize || state_ == kChunkEnd) framing_bytes_ += line.size();
  if (framing_bytes_ > max_framing_bytes()) {
    refuse(400, "the body's chunks are too short: their sizes are more bytes than their data");
    return size;
  }
  std::string_view text = line;
  text.remove_suffix(1);
  if (!text.ends_with('\r')) {
    refuse(400, fmt::format("expected lines that end with CR LF, found one with LF alone: '{}'",
                            shown(text)));
    return size;
  }
  text.remove_suffix(1);
  take_line(text);
  return size;
}

void RequestReader::refuse_long_line() {
  if (state_ == kChunkSize) return refuse(400, "a chunk's size line is too long");
  if (state_ == kChunkEnd) return refuse(400, "expected CR LF after a chunk's data");
  if (state_ == kRequestLine) {
    return refuse(414, fmt::format("the request's target is too long: expected at most {} bytes of "
                                   "request line and headers",
                                   limits_.max_header_bytes));
  }
  refuse(431, fmt::format("the headers are too large: expected at most {} bytes of headers",
                          limits_.max_header_bytes));
}

void RequestReader::take_line(std::string_view line) {
  switch (state_) {
    case kRequestLine:
      // Some clients send an empty line after a body (RFC 9112 2.2).
      return line.empty() ? void() : take_request_line(line);
    case kFieldLines:
      return line.empty() ? end_head() : take_field_line(line, false);
    case kChunkSize:
      return take_chunk_size(line);
    case kChunkEnd:
      state_ = kChunkSize;
      if (!line.empty()) refuse(400, "expected CR LF after a chunk's data");
      return;
    case kTrailers:
      if (line.empty()) state_ = kEnd;
      return line.empty() ? void() : take_field_line(line, true);
    default:
      return;
  }
}

// ---- the head ----

void RequestReader::take_request_line(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t second = line.rfind(' ');
  if (first == line.npos || first == second) {
    return refuse(400, fmt::format("expected a request line of HTTP/1.1, 'METHOD TARGET HTTP/1.1', "
                                   "found '{}'",
                                   shown(line)));
  }
  head_.method = line.substr(0, first);
  if (!is_token(head_.method)) {
    return refuse(400, fmt::format("expected a method, found '{}'", shown(head_.method)));
  }
  take_version(line.substr(second + 1));
  if (!error_) take_target(line.substr(first + 1, second - first - 1));
  state_ = kFieldLines;
}

void RequestReader::take_version(std::string_view version) {
  constexpr std::string_view kName = "HTTP/";
  const bool well_formed = version.size() == kName.size() + 3 && version.starts_with(kName) &&
                           is_digit(version[5]) && version[6] == '.' && is_digit(version[7]);
  if (!well_formed) {
    return refuse(400, fmt::format("expected the version HTTP/1.1, found '{}'", shown(version)));
  }
  if (version[5] != '1') {
    return refuse(505, fmt::format("expected HTTP/1.1 or HTTP/1.0, found {}", version));
  }
  head_.minor_version = version[7] - '0';
}

// RFC 9112 3.2: "/path?query"; "http://host/path"; "host:port" of CONNECT; "*" of OPTIONS.
void RequestReader::take_target(std::string_view target) {
  const auto refuse_target = [&] {
    refuse(400, fmt::format("expected a target such as /v1/models, percent-encoded, found '{}'",
                            shown(target)));
  };
  if (!is_uri_text(target)) return refuse_target();
  const std::string scheme = lower(target.substr(0, std::min<size_t>(target.size(), 8)));
  const bool absolute = scheme.starts_with("http://") || scheme.starts_with("https://");
  if (head_.method == "CONNECT") {
    const size_t colon = target.rfind(':');
    const bool has_port = colon != target.npos && colon + 1 < target.size() && colon > 0;
    if (!has_port || !is_host(target)) return refuse_target();
  } else if (absolute) {
    const size_t host = target.find("//") + 2;
    const size_t end = std::min(target.find_first_of("/?", host), target.size());
    if (end == host || !is_host(target.substr(host, end - host))) return refuse_target();
    head_.target = target.substr(end);
    if (!head_.target.starts_with('/')) head_.target.insert(0, "/");
    return;
  } else if (!target.starts_with('/') && !(target == "*" && head_.method == "OPTIONS")) {
    return refuse_target();
  }
  head_.target = target;
}

// Trailer fields are checked and dropped, as RFC 9110 6.5.1 permits: nothing here needs them.
void RequestReader::take_field_line(std::string_view line, bool is_trailer) {
  if (is_blank(line.front())) {
    return refuse(400, fmt::format("expected a header 'name: value', found a line that begins with "
                                   "white space: '{}'",
                                   shown(line)));
  }
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (colon == line.npos || !is_token(name)) {
    return refuse(400, fmt::format("expected a header 'name: value' without white space before the "
                                   "colon, found '{}'",
                                   shown(line)));
  }
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!is_field_value(value)) {
    return refuse(400, fmt::format("header {}: expected no control characters, found '{}'",
                                   shown(name), shown(value)));
  }
  if (is_trailer) return;
  if (head_.fields.size() == limits_.max_fields) {
    return refuse(431, fmt::format("the headers are too many: expected at most {} fields",
                                   limits_.max_fields));
  }
  head_.fields.emplace_back(lower(name), value);
}

void RequestReader::end_head() {
  check_host();
  if (!error_) take_connection();
  if (!error_) choose_framing();
}

// RFC 9112 3.2: one Host, which may be empty; HTTP/1.0 knows none.
void RequestReader::check_host() {
  const auto count = std::count_if(head_.fields.begin(), head_.fields.end(),
                                   [](const auto& each) { return each.first == "host"; });
  if (count == 0 && head_.minor_version == 0) return;
  if (count != 1) return refuse(400, fmt::format("expected one Host header, found {}", count));
  const std::string host = head_.field("host");
  if (!is_host(host)) {
    refuse(400, fmt::format("Host: expected a host and port, found '{}'", shown(host)));
  }
}

void RequestReader::take_connection() {
  const std::vector<std::string> connection = list_of(head_.field("connection"));
  const bool persistent = head_.minor_version > 0 || contains(connection, "keep-alive");
  head_.keeps_alive = persistent && !contains(connection, "close");
  const std::string expect = lower(head_.field("expect"));
  if (expect.empty() || head_.minor_version == 0) return;  // RFC 9110 10.1.1
  if (expect != "100-continue") {
    return refuse(417, fmt::format("Expectation Failed: Expect: expected 100-continue, found '{}'",
                                   shown(expect)));
  }
  head_.expects_continue = true;
}

// RFC 9112 6.3. Only what leaves no doubt about the length passes.
void RequestReader::choose_framing() {
  const auto count = [&](std::string_view name) {
    return std::count_if(head_.fields.begin(), head_.fields.end(),
                         [&](const auto& each) { return each.first == name; });
  };
  const std::string length = head_.field("content-length");
  if (count("transfer-encoding") == 0) {
    if (count("content-length") == 0) return expect_body(0, kSizedBody);
    const bool digits = !length.empty() && std::all_of(length.begin(), length.end(), is_digit);
    if (!digits) {
      return refuse(400,
                    fmt::format("Content-Length: expected one number, found '{}'", shown(length)));
    }
    return expect_body(number_of(length, 10), kSizedBody);
  }
  if (count("content-length") > 0) {
    return refuse(400, "expected Content-Length or Transfer-Encoding, found both");
  }
  if (head_.minor_version == 0) return refuse(400, "HTTP/1.0 has no Transfer-Encoding");
  const std::string value = head_.field("transfer-encoding");
  const std::vector<std::string> codings = list_of(value);
  if (codings.empty() || codings.back() != "chunked" ||
      std::count(codings.begin(), codings.end(), "chunked") != 1) {
    return refuse(400, fmt::format("Transfer-Encoding: expected chunked, once and last, found '{}'",
                                   shown(value)));
  }
  if (codings.size() > 1) {
    return refuse(
        501, fmt::format("Transfer-Encoding: only chunked is supported, found '{}'", shown(value)));
  }
  head_bytes_ = 0;
  state_ = kChunkSize;
}

// ---- the body ----

void RequestReader::limit_body(size_t max_bytes) {
  limits_.max_body_bytes = std::min(limits_.max_body_bytes, max_bytes);
  if (body_.size() + data_left_ > limits_.max_body_bytes) {
    refuse(body_too_large(limits_.max_body_bytes));
  }
}

void RequestReader::expect_body(uint64_t bytes, State state) {
  if (bytes > limits_.max_body_bytes - body_.size()) {
    return refuse(body_too_large(limits_.max_body_bytes));
  }
  data_left_ = static_cast<size_t>(bytes);
  // The whole at once: growing step by step would copy a large body again and again.
  if (state == kSizedBody) body_.reserve(data_left_);
  state_ = bytes == 0 ? kEnd : state;
}

void RequestReader::take_chunk_size(std::string_view line) {
  std::string_view rest = line;
  const std::string_view digits = take_while(rest, is_hex);
  if (digits.empty() || !are_extensions(rest)) {
    return refuse(400,
                  fmt::format("expected a chunk's size in hexadecimal, found '{}'", shown(line)));
  }
  if (digits.size() > kMaxSizeDigits && digits.front() == '0') {
    return refuse(400, fmt::format("expected at most {} digits of a chunk's size, found {}",
                                   kMaxSizeDigits, digits.size()));
  }
  extension_bytes_ += rest.size();
  if (extension_bytes_ > limits_.max_header_bytes) {
    return refuse(400, fmt::format("expected at most {} bytes of chunk extensions",
                                   limits_.max_header_bytes));
  }
  const uint64_t size = number_of(digits, 16);
  if (size > 0) return expect_body(size, kChunkData);
  head_bytes_ = 0;
  state_ = kTrailers;
}

void RequestReader::refuse(int status, std::string message) {
  refuse({.status = status, .message = std::move(message)});
}

void RequestReader::refuse(HttpError error) {
  if (!error_) error_ = std::move(error);
}

}  // namespace wideep::server
