// SPDX-License-Identifier: Apache-2.0
#include "server/serve.h"

#include <fmt/format.h>

#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "base/try.h"
#include "server/chat_files.h"
#include "server/engine_backend.h"
#include "server/grace.h"
#include "server/open_files.h"

namespace wideep::server {
namespace {

using std::chrono::milliseconds;

constexpr int kDrainLookMs = 20;

std::string name_of(const std::string& model_dir) {
  const auto path = std::filesystem::path(model_dir).lexically_normal();
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

// The endpoints, and the thread they are served on, once there is an engine to ask.
class Front {
 public:
  Front(const ServiceOptions& options, const tokenizer::Tokenizer& tokenizer,
        std::optional<chat::ChatTemplate> chat)
      : iterations_(options.ranks), service_(options, tokenizer, std::move(chat), backend_) {}

  Status listen(const HttpOptions& options) {
    WIDEEP_TRY_ASSIGN(http_, HttpServer::listen(options, [this](std::shared_ptr<Exchange> each) {
                        service_.handle(each);
                      }));
    return {};
  }
  int port() const { return http_->port(); }

  void start(engine::RequestWriter& writer) {
    writer_ = &writer;
    backend_.start(&writer);
    service_.recorder().connect(
        [&writer](bool records) { writer.record_experts(records); },
        [this](std::function<void()> call) { http_->post(std::move(call)); });
    thread_ = std::thread([this] { http_->run(); });
  }

  // While there still is the writer that start() was given: whoever is served is cut off, and that
  // cancels what was written.
  void end() {
    http_->stop();
    thread_.join();
    service_.recorder().join();  // it posts to http_
    http_.reset();
  }

  // From the thread that hears from the ranks. A rank tells an iteration's tokens, then of it: they
  // are passed on together.
  void token(const engine::TokenMessage& message) { tokens_.push_back(message); }
  void iteration(int rank, const engine::IterationRecord& record) {
    auto stats = iterations_.add(rank, record);
    if (tokens_.empty() && !stats) return;
    http_->post([this, news = std::make_shared<const News>(
                           News{std::exchange(tokens_, {}), std::move(stats)})] { take(*news); });
  }
  void record_experts(bool records) {
    http_->post([this, records] { service_.recorder().ranks_have(records); });
  }
  void rebalance(const online::Rebalance& each) {
    http_->post([this, each] {
      service_.monitor().add(each, unix_seconds());
      ++service_.metrics().rebalances;
      service_.metrics().expert_moves += static_cast<uint64_t>(each.moves);
      service_.metrics().moved_bytes += static_cast<uint64_t>(each.bytes);
    });
  }

  // Takes no more requests for text, and says so to whoever asks; stops the ranks when nothing
  // runs.
  void drain() {
    http_->post([this] {
      service_.drain();
      http_->call_every(kDrainLookMs, [this] {
        if (service_.idle()) writer_->stop();
      });
    });
  }

 private:
  struct News {
    std::vector<engine::TokenMessage> tokens;
    std::optional<IterationStats> iteration;
  };
  // On the serving thread.
  void take(const News& news) {
    for (const engine::TokenMessage& each : news.tokens) backend_.token(each);
    if (!news.iteration) return;
    const IterationStats& stats = *news.iteration;
    ++service_.metrics().iterations;
    service_.metrics().iteration_seconds += stats.wall_seconds;
    service_.metrics().queue = stats.queue;
    service_.monitor().add(stats);
    service_.recorder().add(stats);
  }

  EngineBackend backend_;
  // Of the thread that hears from the ranks: what is to be passed on, and who puts it together.
  std::vector<engine::TokenMessage> tokens_;
  IterationCollector iterations_;
  Service service_;
  std::unique_ptr<HttpServer> http_;  // goes before what its connections are served by
  engine::RequestWriter* writer_ = nullptr;
  std::thread thread_;
};

// A rank other than the one that clients speak to, which also decides when all stop.
Status serve_silently(const ServeOptions& options) {
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<engine::Run> run, engine::prepare_to_serve(options.run));
  WIDEEP_TRY(engine::agree_on(options.run, {}));
  return engine::serve(*run, {.on_stop = grace_after});
}

}  // namespace

Status serve(const ServeOptions& options, const ServeObserver& observer) {
  if (options.run.started != nullptr && options.run.started->rank() != 0) {
    return serve_silently(options);
  }
  const auto say = [&](const std::string& line) {
    if (observer.on_line) observer.on_line(line);
  };
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<engine::Run> run, engine::prepare_to_serve(options.run));
  Result<ChatFiles> read = read_chat_files(options.run.model_dir);
  if (!read.ok()) return engine::agree_on(options.run, read.status());
  ChatFiles chat = std::move(*read);
  ServiceOptions service = options.service;
  if (service.model.empty()) service.model = name_of(options.run.model_dir);
  // In every answer: nobody is to take the texts for the model's.
  if (options.run.perfect_router) service.model += " (perfect router: means nothing)";
  service.max_sequence = engine::max_sequence(*run);
  service.bos_token = chat.bos_token;
  service.eos_token = chat.eos_token;
  service.ranks = engine::expert_ranks(*run);
  service.balances_online = !run->setup().online.empty();
  const bool chats = chat.chat.has_value();
  allow_most_open_files();
  // The address is ours before anything is loaded; whoever asks early waits.
  Front front(service, run->tokenizer(), std::move(chat.chat));
  WIDEEP_TRY(engine::agree_on(options.run, front.listen(options.http)));
  const auto on_ready = [&](engine::RequestWriter& writer) {
    front.start(writer);
    say(fmt::format("serving {} on http://{}:{}/v1 (context {} tokens{})", service.model,
                    options.http.host, front.port(), service.max_sequence,
                    chats ? "" : "; no chat template: completions only"));
  };
  const auto on_stop = [&](int signal) {
    const milliseconds grace = grace_after(signal);
    say(fmt::format("stopping: what runs may end within {} s", grace.count() / 1000));
    front.drain();
    return grace;
  };
  return engine::serve(
      *run,
      {.on_plan = observer.on_plan,
       .on_loading = observer.on_loading,
       .on_ready = on_ready,
       .on_token = [&](const engine::TokenMessage& message) { front.token(message); },
       .on_iteration =
           [&](int rank, const engine::IterationRecord& record) { front.iteration(rank, record); },
       .on_rebalance =
           [&](const online::Rebalance& each) {
             front.rebalance(each);
             if (observer.on_rebalance) observer.on_rebalance(each);
           },
       .on_record_experts = [&](bool records) { front.record_experts(records); },
       .on_stop = on_stop,
       .on_ended = [&] { front.end(); }});
}

}  // namespace wideep::server
