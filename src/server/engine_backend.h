// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <unordered_map>

#include "engine/serve.h"
#include "server/backend.h"

namespace wideep::server {

// The engine of this process's ranks.
class EngineBackend : public Backend {
 public:
  // Before any request.
  void start(engine::RequestWriter* writer) { writer_ = writer; }

  int64_t submit(engine::Request request, OnToken on_token) override {
    request.index = next_index_++;
    running_[request.index] = std::make_shared<const OnToken>(std::move(on_token));
    writer_->submit(std::move(request));
    return next_index_ - 1;
  }
  void cancel(int64_t id) override {
    if (running_.erase(static_cast<int>(id)) > 0) writer_->cancel(static_cast<int>(id));
  }

  // On the serving thread. Of requests that were cancelled nobody wants to hear.
  void token(const engine::TokenMessage& message) {
    const auto found = running_.find(message.request_index);
    if (found == running_.end()) return;
    const auto on_token = found->second;  // which may cancel it
    if (message.finish_reason != engine::FinishReason::kNotFinished) running_.erase(found);
    (*on_token)({message.sampled, message.finish_reason, message.likely, message.cached_tokens});
  }

 private:
  engine::RequestWriter* writer_ = nullptr;
  int next_index_ = 0;
  std::unordered_map<int, std::shared_ptr<const OnToken>> running_;
};

}  // namespace wideep::server
