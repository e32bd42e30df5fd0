// SPDX-License-Identifier: Apache-2.0
//
// One request at a time is on its way, each over a connection of its own: one that is kept may have
// been closed meanwhile, and a batch would be lost to find out. A connection of libevent must not be
// freed inside of its own callbacks, so it connects again by itself; the next step after a callback
// is a timer's. A timer also ends a request that takes too long, whatever comes of its reply. What
// goes wrong is said once, until the collector takes spans again.
#include "traces/span_exporter.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/no_pipe_signals.h"
#include "base/printable.h"

namespace wideep::traces {
namespace {

constexpr int kMaxWaitSeconds = 60;
constexpr ev_ssize_t kMaxReplyBytes = 64 << 10;  // its headers, and its body

timeval time_of(int ms) { return {ms / 1000, ms % 1000 * 1000}; }

bool may_come_later(int status) {
  return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

std::string body_of(evhttp_request* reply) {
  evbuffer* buffer = evhttp_request_get_input_buffer(reply);
  std::string text(evbuffer_get_length(buffer), '\0');
  evbuffer_copyout(buffer, text.data(), text.size());
  return text;
}

// Spans that the collector says it has not taken, of a reply with 200.
uint64_t num_rejected(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object() || !json.contains("partialSuccess")) return 0;
  const auto& partial = json["partialSuccess"];
  if (!partial.is_object() || !partial.contains("rejectedSpans")) return 0;
  const auto& count = partial["rejectedSpans"];
  uint64_t value = 0;
  if (count.is_number_unsigned()) return count.get<uint64_t>();
  if (!count.is_string()) return 0;
  const std::string text = count.get<std::string>();
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

class SpanExporter::Sender {
 public:
  Sender(SpanExporter& exporter, const TraceSettings& settings)
      : exporter_(exporter), settings_(settings) {}
  ~Sender() {
    if (connection_ != nullptr) evhttp_connection_free(connection_);
    for (event* each : {tick_, again_, late_, deadline_, wake_}) {
      if (each != nullptr) event_free(each);
    }
    if (base_ != nullptr) event_base_free(base_);
    if (wake_fd_ >= 0) ::close(wake_fd_);
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  Status begin() {
    base_ = event_base_new();
    wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (base_ == nullptr || wake_fd_ < 0) return failed("traces: the system gives no event loop");
    if (!connect()) return failed("traces: the system gives no connection");
    tick_ = event_new(base_, -1, EV_PERSIST, on_tick, this);
    again_ = event_new(base_, -1, 0, on_again, this);
    late_ = event_new(base_, -1, 0, on_late, this);
    deadline_ = event_new(base_, -1, 0, on_deadline, this);
    wake_ = event_new(base_, wake_fd_, EV_READ | EV_PERSIST, on_wake, this);
    const timeval every = time_of(exporter_.limits_.batch_ms);
    event_add(tick_, &every);
    event_add(wake_, nullptr);
    return {};
  }

  void run() {
    // A collector that closes its end must not end this process.
    const base::NoPipeSignals no_pipe_signals;
    // Tokens come first where cores are short.
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
    event_base_dispatch(base_);
    give_up_batch();
  }
  // Any thread: a batch is complete, or it is the end.
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof(one));
  }
  void end() {
    ends_ = true;
    wake();
  }

 private:
  static void on_tick(int, short, void* self) { static_cast<Sender*>(self)->send_next(); }
  static void on_again(int, short, void* self) { static_cast<Sender*>(self)->go_on(); }
  // libevent's own timeout begins anew with each byte.
  static void on_late(int, short, void* self) {
    auto* sender = static_cast<Sender*>(self);
    if (!sender->is_sent_) return;
    evhttp_connection_free(std::exchange(sender->connection_, nullptr));
    sender->replied(0, "", "");
  }
  static void on_deadline(int, short, void* self) {
    event_base_loopbreak(static_cast<Sender*>(self)->base_);
  }
  static void on_wake(int fd, short, void* self) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd, &count, sizeof(count));
    auto* sender = static_cast<Sender*>(self);
    if (sender->ends_ && !std::exchange(sender->is_ending_, true)) {
      const timeval flush = time_of(sender->exporter_.limits_.flush_ms);
      event_add(sender->deadline_, &flush);
      // What waits to be sent again is sent once more, at once.
      if (sender->waits_) return sender->go_on();
    }
    sender->send_next();
  }

  void send_next() {
    if (is_sent_ || waits_) return;
    if (num_spans_ == 0) {
      const std::vector<Span> batch = exporter_.take_batch();
      if (batch.empty()) {
        if (is_ending_) event_base_loopbreak(base_);
        return;
      }
      num_spans_ = batch.size();
      attempts_ = 0;
      body_ = export_request(settings_.resource, batch);
    }
    send();
  }

  // As one that takes too long has none. False: the system gives none.
  bool connect() {
    if (connection_ != nullptr) return true;
    const Collector& to = settings_.collector;
    connection_ = evhttp_connection_base_bufferevent_new(
        base_, nullptr, nullptr, to.address.c_str(), static_cast<ev_uint16_t>(to.port));
    if (connection_ == nullptr) return false;
    const timeval timeout = time_of(to.timeout_ms);
    evhttp_connection_set_timeout_tv(connection_, &timeout);
    evhttp_connection_set_max_body_size(connection_, kMaxReplyBytes);
    evhttp_connection_set_max_headers_size(connection_, kMaxReplyBytes);
    return true;
  }

  void send() {
    ++attempts_;
    if (!connect()) return replied(0, "", "");
    evhttp_request* request = evhttp_request_new(on_reply, this);
    evkeyvalq* sent = evhttp_request_get_output_headers(request);
    const Collector& to = settings_.collector;
    evhttp_add_header(sent, "Host", to.host.c_str());
    evhttp_add_header(sent, "Content-Type", "application/json");
    evhttp_add_header(sent, "Connection", "close");
    for (const auto& [name, value] : to.headers)
      evhttp_add_header(sent, name.c_str(), value.c_str());
    evbuffer_add(evhttp_request_get_output_buffer(request), body_.data(), body_.size());
    is_sent_ = true;
    const timeval timeout = time_of(to.timeout_ms);
    event_add(late_, &timeout);
    if (evhttp_make_request(connection_, request, EVHTTP_REQ_POST, to.path.c_str()) != 0) {
      replied(0, "", "");
    }
  }

  // reply: null or without a status if there was none.
  static void on_reply(evhttp_request* reply, void* self) {
    auto* sender = static_cast<Sender*>(self);
    if (!sender->is_sent_) return;
    const int status = reply == nullptr ? 0 : evhttp_request_get_response_code(reply);
    if (status == 0) return sender->replied(0, "", "");
    const char* wait = evhttp_find_header(evhttp_request_get_input_headers(reply), "Retry-After");
    sender->replied(status, body_of(reply), wait == nullptr ? "" : wait);
  }

  void replied(int status, const std::string& body, const std::string& retry_after) {
    is_sent_ = false;
    event_del(late_);
    if (status >= 200 && status < 300) {
      taken(num_rejected(body));
      return go_on_in(0);
    }
    complain(status, body);
    if (!may_come_later(status) || attempts_ >= exporter_.limits_.max_attempts || is_ending_) {
      give_up_batch();
      return go_on_in(0);
    }
    int wait_ms = exporter_.limits_.first_wait_ms << (attempts_ - 1);
    int seconds = 0;
    std::from_chars(retry_after.data(), retry_after.data() + retry_after.size(), seconds);
    if (seconds > 0) wait_ms = std::min(seconds, kMaxWaitSeconds) * 1000;
    go_on_in(wait_ms);
  }

  // Whatever a reply says, no more than were sent.
  void taken(uint64_t rejected) {
    rejected = std::min<uint64_t>(rejected, std::exchange(num_spans_, 0));
    exporter_.dropped_ += rejected;
    if (rejected > 0 && !std::exchange(said_rejected_, true)) {
      log::warn("traces: {} has refused {} spans of a request; this is said once", url(), rejected);
    }
    if (!std::exchange(complained_, false)) return;
    log::info("traces: {} takes spans again; {} were dropped", url(), exporter_.num_dropped());
  }
  void give_up_batch() { exporter_.dropped_ += std::exchange(num_spans_, 0); }

  void go_on_in(int ms) {
    waits_ = true;
    const timeval time = time_of(ms);
    event_add(again_, &time);
  }
  void go_on() {
    event_del(again_);
    waits_ = false;
    // Else it goes on with a batch that is not full yet when the time has come.
    if (num_spans_ > 0 || is_ending_ || exporter_.has_batch()) send_next();
  }

  void complain(int status, const std::string& body) {
    if (std::exchange(complained_, true)) return;
    std::string found = status == 0 ? "no answer" : fmt::format("status {}", status);
    if (!body.empty()) found += ": " + base::printable(body, 120);
    log::warn("traces: {}: {}; spans wait while there is room, and are dropped then", url(), found);
  }
  const std::string& url() const { return settings_.collector.url; }

  SpanExporter& exporter_;
  const TraceSettings settings_;
  event_base* base_ = nullptr;
  evhttp_connection* connection_ = nullptr;
  event *tick_ = nullptr, *again_ = nullptr, *late_ = nullptr, *deadline_ = nullptr,
        *wake_ = nullptr;
  int wake_fd_ = -1;
  std::atomic<bool> ends_ = false;
  // On the thread alone.
  bool is_ending_ = false;
  bool is_sent_ = false;  // a request is on its way
  bool waits_ = false;    // again_ will go on
  size_t num_spans_ =
      0;  // of the batch that is on its way, or is to be sent again; 0: there is none
  int attempts_ = 0;
  std::string body_;
  bool complained_ = false, said_rejected_ = false;
};

SpanExporter::SpanExporter(const TraceSettings& settings, const ExporterLimits& limits)
    : limits_(limits), sender_(std::make_unique<Sender>(*this, settings)) {}

Result<std::unique_ptr<SpanExporter>> SpanExporter::start(const TraceSettings& settings,
                                                          const ExporterLimits& limits) {
  std::unique_ptr<SpanExporter> exporter(new SpanExporter(settings, limits));
  if (Status status = exporter->sender_->begin(); !status.ok()) return status;
  exporter->thread_ = std::thread([sender = exporter->sender_.get()] { sender->run(); });
  return exporter;
}

SpanExporter::~SpanExporter() {
  if (!thread_.joinable()) return;
  const uint64_t before = dropped_;
  sender_->end();
  thread_.join();
  dropped_ += num_queued_;
  if (dropped_ > before) {
    log::warn("traces: {} spans were not sent before the end", dropped_ - before);
  }
}

void SpanExporter::add(std::vector<Span> spans) {
  const size_t count = spans.size();
  bool completes_batch = false;
  {
    const std::lock_guard lock(mutex_);
    if (num_queued_ + count > limits_.max_queue) {
      dropped_ += count;
      return;
    }
    queue_.push_back(std::move(spans));
    completes_batch = num_queued_ < limits_.max_batch && num_queued_ + count >= limits_.max_batch;
    num_queued_ += count;
  }
  if (completes_batch) sender_->wake();
}

bool SpanExporter::has_batch() {
  const std::lock_guard lock(mutex_);
  return num_queued_ >= limits_.max_batch;
}

// Whole requests, so that the lock is held for a few pointers only.
std::vector<Span> SpanExporter::take_batch() {
  std::vector<std::vector<Span>> requests;
  size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    while (!queue_.empty() && count < limits_.max_batch) {
      count += queue_.front().size();
      requests.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    num_queued_ -= count;
  }
  std::vector<Span> batch;
  batch.reserve(count);
  for (std::vector<Span>& each : requests) std::ranges::move(each, std::back_inserter(batch));
  return batch;
}

}  // namespace wideep::traces
