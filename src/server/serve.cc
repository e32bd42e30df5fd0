// SPDX-License-Identifier: Apache-2.0
#include "server/serve.h"

#include <fmt/format.h>

#include <filesystem>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/try.h"
#include "run/iteration_log.h"
#include "run/plan_text.h"
#include "run/rank_group.h"
#include "server/chat_files.h"
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

// The ranks of this process as the endpoints need them.
//
// Thread safety: the serving thread.
class EngineBackend : public Backend {
 public:
  // Before any request.
  void start(run::RequestWriter* requests) { requests_ = requests; }

  int64_t submit(engine::Request request, OnToken on_token) override {
    request.index = next_index_++;
    running_[request.index] = std::make_shared<const OnToken>(std::move(on_token));
    requests_->submit(std::move(request));
    return next_index_ - 1;
  }
  void cancel(int64_t id) override {
    if (running_.erase(static_cast<int>(id)) > 0) requests_->cancel(static_cast<int>(id));
  }

  // Of requests that were cancelled nobody wants to hear.
  void token(const run::Token& token) {
    const auto found = running_.find(token.request_index);
    if (found == running_.end()) return;
    const auto on_token = found->second;  // which may cancel it
    if (token.finish_reason != engine::FinishReason::kNotFinished) running_.erase(found);
    (*on_token)(token);
  }

 private:
  run::RequestWriter* requests_ = nullptr;
  int next_index_ = 0;
  std::unordered_map<int, std::shared_ptr<const OnToken>> running_;
};

// The endpoints, and the thread they are served on. The thread that pulls the ranks' events hands
// them over: take() for each of them.
class Front {
 public:
  Front(const ServiceOptions& options, const tokenizer::Tokenizer& tokenizer,
        std::optional<chat::ChatTemplate> chat)
      : experts_(options.ranks), service_(options, tokenizer, std::move(chat), backend_) {}

  Status listen(const HttpOptions& options) {
    WIDEEP_TRY_ASSIGN(http_, HttpServer::listen(options, [this](std::shared_ptr<Exchange> each) {
                        service_.handle(each);
                      }));
    return {};
  }
  int port() const { return http_->port(); }

  bool has_started() const { return thread_.joinable(); }
  void start(run::RankGroup& group) {
    group_ = &group;
    backend_.start(&group.requests());
    service_.recorder().connect(
        [&group](bool records) { group.requests().record_experts(records); },
        [this](std::function<void()> call) { http_->post(std::move(call)); });
    thread_ = std::thread([this] { http_->run(); });
  }

  // While the group that start() was given is still there: whoever is served is cut off, and that
  // cancels what was requested.
  void end() {
    if (!has_started()) return;
    http_->stop();
    thread_.join();
    service_.recorder().join();  // it posts to http_
    http_.reset();
  }

  // A rank reports an iteration's tokens, then the iteration: they are handed over together.
  void take(run::Token token) { tokens_.push_back(std::move(token)); }
  void take(run::Iteration iteration) {
    http_->post([this, tokens = std::exchange(tokens_, {}),
                 each = std::make_shared<const run::Iteration>(std::move(iteration))] {
      for (const run::Token& token : tokens) backend_.token(token);
      add(*each);
    });
  }
  void take(const run::ExpertRecording& recording) {
    http_->post([this, recording] { service_.recorder().ranks_have(recording.records); });
  }
  void take(const run::Rebalance& each) {
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
        if (service_.idle()) group_->stop();
      });
    });
  }

 private:
  // On the serving thread.
  void add(const run::Iteration& iteration) {
    const run::IterationSummary summary = run::summarize(iteration, experts_);
    ++service_.metrics().iterations;
    service_.metrics().iteration_seconds += summary.wall_ms * 1e-3;
    service_.metrics().queue = summary.queue;
    service_.monitor().add(summary, unix_seconds());
    service_.recorder().add(iteration);
  }

  EngineBackend backend_;
  std::vector<run::Token> tokens_;  // not handed over yet; of the thread that pulls events
  run::ExpertRanks experts_;
  Service service_;
  std::unique_ptr<HttpServer> http_;  // goes before what its connections are served by
  run::RankGroup* group_ = nullptr;
  std::thread thread_;
};

// What is done with each event of the ranks.
class EventPump {
 public:
  struct Parts {
    run::RankGroup& group;
    Front& front;
    std::optional<run::IterationLog> log;
    run::RunView& view;
    run::LoadingProgress& loading;
    const run::ExpertRanks& experts;
    std::string serving;  // the line that tells people where
  };
  explicit EventPump(Parts parts) : parts_(std::move(parts)) {}

  // Until the ranks have ended.
  void run() {
    while (auto event = parts_.group.next()) {
      std::visit([this](auto&& each) { take(std::move(each)); }, std::move(*event));
    }
  }
  Status log_status() const { return parts_.log ? parts_.log->status() : Status(); }

 private:
  void take(const run::WeightsRead& read) { parts_.loading.add(read.bytes); }
  void take(const run::RanksReady&) {
    parts_.front.start(parts_.group);
    parts_.view.line(parts_.serving);
  }
  void take(run::Token token) { parts_.front.take(std::move(token)); }
  void take(run::Iteration iteration) {
    if (parts_.log) parts_.log->add(run::summarize(iteration, parts_.experts));
    parts_.front.take(std::move(iteration));
  }
  void take(const run::ExpertRecording& recording) { parts_.front.take(recording); }
  void take(const run::Rebalance& each) {
    parts_.front.take(each);
    if (parts_.log) parts_.log->add(each);
    parts_.view.rebalanced(each);
  }
  void take(const run::StopRequested& stop) {
    constexpr milliseconds kGraceBeforeReady{700};
    if (!parts_.front.has_started()) {  // nobody is served yet
      parts_.group.stop();
      return parts_.group.end_within(kGraceBeforeReady);
    }
    const milliseconds grace = grace_after(stop.signal);
    parts_.view.line(fmt::format("stopping: what runs may end within {} s", grace.count() / 1000));
    parts_.front.drain();
    parts_.group.end_within(grace);
  }
  // Of batches and of the end, which nobody asks for here.
  void take(const run::RanksIdle&) {}
  void take(const run::RequestCounts&) {}
  void take(const run::RankEnded&) {}

  Parts parts_;
};

// A rank other than the one that clients speak to. Every rank gets the signals.
Status serve_silently(const ServeOptions& options) {
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<run::Run> run, run::Run::prepare(options.run));
  WIDEEP_TRY(run::agree_on(options.run, {}));  // rank 0 has read the chat template
  WIDEEP_TRY(run::agree_on(options.run, {}));  // and listens
  WIDEEP_TRY(run->load([](uint64_t) {}));
  WIDEEP_TRY_ASSIGN(const auto group, run::RankGroup::start(*run, {.reports_stop_signals = true}));
  while (const auto event = group->next()) {
    if (const auto* stop = std::get_if<run::StopRequested>(&*event)) {
      group->end_within(grace_after(stop->signal));
    }
  }
  return group->result();
}

// With what follows from the run.
ServiceOptions service_options(const ServeOptions& options, const run::Run& run,
                               const ChatFiles& chat) {
  ServiceOptions service = options.service;
  if (service.model.empty()) service.model = name_of(options.run.model_dir);
  // In every answer: nobody is to take the texts for the model's.
  if (options.run.perfect_router) service.model += " (perfect router: means nothing)";
  service.max_sequence = run.plan().longest_sequence();
  service.bos_token = chat.bos_token;
  service.eos_token = chat.eos_token;
  service.ranks = run.plan().experts;
  service.balances_online = run.plan().balances_online();
  return service;
}

// What only rank 0 of started ranks reads and opens.
struct Opened {
  ChatFiles chat;
  std::optional<run::IterationLog> log;
};
Result<Opened> open_files_of(const ServeOptions& options) {
  Opened opened;
  WIDEEP_TRY_ASSIGN(opened.chat, read_chat_files(options.run.model_dir));
  WIDEEP_TRY_ASSIGN(opened.log, run::create_iteration_log(options.run));
  return opened;
}

}  // namespace

Status serve(const ServeOptions& options, run::RunView& view) {
  if (!run::receives_events(options.run)) return serve_silently(options);
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<run::Run> run, run::Run::prepare(options.run));
  Result<Opened> opened = open_files_of(options);
  WIDEEP_TRY(run::agree_on(options.run, opened.status()));
  ChatFiles chat = std::move(opened->chat);
  const ServiceOptions service = service_options(options, *run, chat);
  const bool chats = chat.chat.has_value();
  allow_most_open_files();
  // The address is ours before anything is loaded; whoever asks early waits.
  Front front(service, run->tokenizer(), std::move(chat.chat));
  WIDEEP_TRY(run::agree_on(options.run, front.listen(options.http)));

  view.plan(run::plan_text(*run));
  run::LoadingProgress loading(view, run->bytes_to_load());
  WIDEEP_TRY(run->load([&](uint64_t bytes) { loading.add(bytes); }));
  WIDEEP_TRY_ASSIGN(const auto group, run::RankGroup::start(*run, {.reports_stop_signals = true}));
  EventPump pump(
      {.group = *group,
       .front = front,
       .log = std::move(opened->log),
       .view = view,
       .loading = loading,
       .experts = run->plan().experts,
       .serving = fmt::format("serving {} on http://{}:{}/v1 (context {} tokens{})", service.model,
                              options.http.host, front.port(), service.max_sequence,
                              chats ? "" : "; no chat template: completions only")});
  pump.run();
  front.end();
  const Status written = run->write_trace();
  WIDEEP_TRY(group->result());
  WIDEEP_TRY(written);
  return pump.log_status();
}

}  // namespace wideep::server
