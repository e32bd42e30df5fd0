// SPDX-License-Identifier: Apache-2.0
#include "server/router_ask.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "http/http_server.h"

namespace wideep::server {

bool is_connected(evhttp_connection* connection) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  const int socket = bufferevent_getfd(evhttp_connection_get_bufferevent(connection));
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

// A libevent connection must not be freed inside its own callbacks, so the answer is posted. The
// posted call keeps the attempt alive.
struct RouterAsk::Attempt : std::enable_shared_from_this<RouterAsk::Attempt> {
  Attempt(RouterAsk& asker, Answer to_call) : owner(&asker), answer(std::move(to_call)) {}
  ~Attempt() { disconnect(); }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  void disconnect() {
    if (connection != nullptr) evhttp_connection_free(std::exchange(connection, nullptr));
  }
  void cancel() {
    owner = nullptr;
    disconnect();
  }
  // reply: null or without a status if there was none.
  static void done(evhttp_request* reply, void* self) {
    auto* attempt = static_cast<Attempt*>(self);
    const int status = reply == nullptr ? 0 : evhttp_request_get_response_code(reply);
    std::string body;
    if (status != 0) {
      evbuffer* buffer = evhttp_request_get_input_buffer(reply);
      body.resize(evbuffer_get_length(buffer));
      evbuffer_copyout(buffer, body.data(), body.size());
    }
    attempt->end(status, std::move(body));
  }
  void end(int status, std::string body) {
    if (owner == nullptr || std::exchange(has_ended, true)) return;
    owner->http_.post([self = shared_from_this(), status, text = std::move(body)] {
      self->disconnect();
      if (self->owner == nullptr) return;
      std::exchange(self->owner, nullptr)->attempt_.reset();
      self->answer(status, text);
    });
  }

  RouterAsk* owner;  // null: nobody waits for the answer
  Answer answer;
  evhttp_connection* connection = nullptr;
  bool has_ended = false;
};

void RouterAsk::ask(const Question& question, Answer answer) {
  attempt_ = std::make_shared<Attempt>(*this, std::move(answer));
  evhttp_connection* connection = evhttp_connection_base_bufferevent_new(
      http_.loop(), nullptr, nullptr, question.numbers.c_str(),
      static_cast<ev_uint16_t>(question.port));
  if (connection == nullptr) return attempt_->end(0, "");
  attempt_->connection = connection;
  const timeval timeout{question.timeout_ms / 1000, question.timeout_ms % 1000 * 1000};
  evhttp_connection_set_timeout_tv(connection, &timeout);
  evhttp_connection_set_max_body_size(connection,
                                      static_cast<ev_ssize_t>(question.max_reply_bytes));
  evhttp_request* request = evhttp_request_new(Attempt::done, attempt_.get());
  evkeyvalq* sent = evhttp_request_get_output_headers(request);
  evhttp_add_header(sent, "Host", question.host.c_str());
  evhttp_add_header(sent, "Connection", "close");
  for (const auto& [name, value] : question.headers) {
    evhttp_add_header(sent, name.c_str(), value.c_str());
  }
  if (question.body != nullptr) {
    evhttp_add_header(sent, "Content-Length", std::to_string(question.body->size()).c_str());
    evbuffer_add(evhttp_request_get_output_buffer(request), question.body->data(),
                 question.body->size());
  }
  const auto method = question.body != nullptr ? EVHTTP_REQ_POST : EVHTTP_REQ_GET;
  if (evhttp_make_request(connection, request, method, question.target.c_str()) != 0) {
    attempt_->end(0, "");
  }
}

bool RouterAsk::is_connected() const {
  evhttp_connection* const connection = attempt_->connection;
  return connection != nullptr && server::is_connected(connection);
}

void RouterAsk::cancel() {
  if (attempt_ != nullptr) std::exchange(attempt_, nullptr)->cancel();
}

}  // namespace wideep::server
