// SPDX-License-Identifier: Apache-2.0
//
// Two threads. The caller's thread pulls the ranks' events (EventPump) and posts them to the
// serving thread, which owns the endpoints and all their state (Front). Requests go from the
// serving thread to the ranks through the RequestWriter (EngineBackend).
#include "server/serve.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <limits>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/error_form.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/shared_bytes.h"
#include "base/try.h"
#include "formats/new_directories.h"
#include "group/client_keeper.h"
#include "group/signal_queue.h"
#include "http/open_files.h"
#include "run/iteration_lines.h"
#include "run/iteration_log.h"
#include "run/online_text.h"
#include "run/page_geometry.h"
#include "run/plan_text.h"
#include "run/prompt_places.h"
#include "run/rank_group.h"
#include "run/shared_host_cache.h"
#include "server/access_log.h"
#include "server/chat_files.h"
#include "server/chat_page_service.h"
#include "server/grace.h"
#include "server/loading_text.h"
#include "server/page_sharing.h"
#include "server/page_teller.h"
#include "server/request_tracer.h"
#include "server/role_memory.h"
#include "server/start_queue.h"
#include "server/warm_up.h"
#include "store/page_peer.h"
#include "store/record.h"

namespace wideep::server {
namespace {

using std::chrono::milliseconds;

constexpr int kPingEveryMs = 5000;
constexpr int kLifeEveryMs = 1000;                 // signs of life for a service manager
constexpr milliseconds kManagersPatience{15'000};  // beyond the grace, for what it sees late
constexpr int kReadersEveryMs = 1000;              // how often readers that wait are looked at
constexpr int kStartCheckMs = 500;                 // how often a start queue is checked
constexpr double kStartQuietSeconds = 20.0;        // after which no more requests are waited for
constexpr int kWarmEveryMs = 200;                  // how often further prompts may be submitted
constexpr int kDrainCheckMs = 20;  // how often a draining server checks whether it is idle

double steady_seconds() { return static_cast<double>(base::wall_ns()) * 1e-9; }

std::string name_of(const std::string& model_dir) {
  const auto path = std::filesystem::path(model_dir).lexically_normal();
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

// What the service manager is told by this process, or by its keeper, which is the one that the
// manager listens to.
class ManagerLink {
 public:
  ManagerLink(const base::ServiceNotifier* manager, transport::KeptRanks* keeper)
      : manager_(keeper == nullptr ? manager : nullptr),
        keeper_(manager == nullptr ? nullptr : keeper) {}
  void loading(const std::string& text) const {
    if (text.empty()) return;
    if (keeper_ != nullptr) keeper_->report(text, false);
    if (manager_ != nullptr) manager_->loading(text);
  }
  void serving(const std::string& text) const {
    if (keeper_ != nullptr) keeper_->report(text, true);
    if (manager_ != nullptr) manager_->ready(text);
  }
  // The rest is what a keeper sees itself.
  void stopping(milliseconds grace) const {
    if (manager_ != nullptr)
      manager_->stopping("running requests may end", grace + kManagersPatience);
  }
  void draining(bool now, const std::string& serving) const {
    if (manager_ != nullptr) manager_->status(now ? "draining: no requests are taken" : serving);
  }
  bool is_direct() const { return manager_ != nullptr; }
  void alive() const { manager_->alive(); }

 private:
  const base::ServiceNotifier* manager_;
  transport::KeptRanks* keeper_;
};

// peer: as engine::Request::peer. One without a name has at most computed the beginning before.
bool is_computed_by(const std::string& peer) {
  const auto found = store::parse_page_peer(peer);
  return found.ok() && found->computes();
}

// The ranks as the endpoints' Backend: numbers requests, and passes each token to its request.
//
// Thread safety: the serving thread.
class EngineBackend : public Backend {
 public:
  explicit EngineBackend(int start_queue) : queue_(start_queue) {}

  // Must be called before the first request.
  void start(run::RequestWriter* requests) { requests_ = requests; }

  int64_t submit(engine::Request request, OnToken on_token, OnExperts on_experts,
                 OnProgress on_progress) override {
    request.index = fresh_index();
    const int index = request.index;
    if (!request.returns_experts) on_experts = nullptr;
    running_[request.index] = std::make_shared<Callbacks>(
        Callbacks{std::move(on_token), std::move(on_experts), std::move(on_progress)});
    // One that another process had begun is near its end, or will say so soon.
    running_[index]->peer = request.peer;
    if (request.answered.empty()) {
      const auto size = static_cast<int64_t>(request.prompt.size());
      running_[index]->prompt_size = size;
      // What a peer computes is its work: as far as is known, all but the last page.
      running_[index]->prompt_tokens =
          is_computed_by(request.peer) ? std::min(size, int64_t{store::kPageTokens}) : size;
    }
    if (queue_.is_open()) {
      requests_->submit(std::move(request));
    } else {
      queue_.add(std::move(request), steady_seconds());
      if (queue_.is_full()) open_queue();
    }
    return index;
  }
  void cancel(int64_t id) override {
    if (running_.erase(static_cast<int>(id)) == 0) return;
    if (!queue_.cancel(static_cast<int>(id))) requests_->cancel(static_cast<int>(id));
  }
  void cut(int64_t id) override {
    open_queue();
    requests_->cut(static_cast<int>(id));
  }
  std::optional<double> computes_since() const override {
    return requests_ == nullptr ? std::nullopt : requests_->computes_since();
  }

  const StartQueue& queue() const { return queue_; }
  // Submits what is held; nothing is from now on. Returns how many were.
  size_t open_queue() {
    std::vector<engine::Request> held = queue_.open();
    const size_t count = held.size();
    if (count > 0) requests_->submit_together(std::move(held));
    return count;
  }

  // Nobody goes on with the request.
  void fail(int request_index) {
    const auto found = running_.find(request_index);
    if (found == running_.end()) return;
    const auto callbacks = found->second;
    running_.erase(found);
    callbacks->on_token({.request_index = request_index,
                         .sampled = {},
                         .finish_reason = engine::FinishReason::kFailed,
                         .digest = {},
                         .likely = {}});
  }

  // Tokens of cancelled requests are dropped.
  void token(const run::Token& token) {
    const auto found = running_.find(token.request_index);
    if (found == running_.end()) return;
    const auto callbacks = found->second;  // a copy: they may cancel, which erases `found`
    callbacks->prompt_tokens = 0;
    const bool is_last = token.finish_reason != engine::FinishReason::kNotFinished;
    if (is_last && callbacks->on_experts == nullptr) running_.erase(found);
    callbacks->on_token(token);
  }

  void progress(const run::PromptProgress& progress) {
    const auto found = running_.find(progress.request_index);
    if (found == running_.end()) return;
    const auto callbacks = found->second;  // a copy, as above
    callbacks->prompt_tokens = progress.total - progress.processed;
    callbacks->on_progress(progress);
  }

  // Returns Request::peer of the request; "": it was cancelled.
  std::string transferred(const run::PromptTransfer& transfer) {
    const auto found = running_.find(transfer.request_index);
    if (found == running_.end()) return "";
    Callbacks& callbacks = *found->second;
    const int64_t pages = int64_t{transfer.known_pages} + transfer.fetched_pages;
    callbacks.prompt_tokens =
        std::max(callbacks.prompt_size - pages * int64_t{store::kPageTokens}, int64_t{0});
    return std::move(callbacks.peer);
  }

  // Of requests that have no token yet, what is not computed, as far as that is known.
  int64_t prompt_tokens() const {
    int64_t all = 0;
    for (const auto& [index, callbacks] : running_) all += callbacks->prompt_tokens;
    return all;
  }

  void experts(const run::RoutedExperts& routed) {
    const auto found = running_.extract(routed.request_index);
    if (!found.empty()) found.mapped()->on_experts(routed);
  }

 private:
  struct Callbacks {
    OnToken on_token;
    OnExperts on_experts;  // null: not wanted
    OnProgress on_progress;
    int64_t prompt_size = 0;    // tokens; 0: it has begun in another process
    int64_t prompt_tokens = 0;  // to compute before its first token
    std::string peer = {};      // Request::peer, until pages have come from there
  };
  int fresh_index() {
    while (running_.contains(next_index_)) next_index_ = after(next_index_);
    return std::exchange(next_index_, after(next_index_));
  }
  static int after(int index) { return index == std::numeric_limits<int>::max() ? 0 : index + 1; }

  run::RequestWriter* requests_ = nullptr;
  StartQueue queue_;
  // Nobody counts so far: it begins anew before an int ends, past requests that still run.
  int next_index_ = 0;
  std::unordered_map<int, std::shared_ptr<Callbacks>> running_;
};

// The endpoints and their serving thread. The thread that pulls the ranks' events calls take() for
// each of them, which posts it to the serving thread.
class Front {
 public:
  Front(const ServiceOptions& options, int start_queue, const tokenizer::Tokenizer& tokenizer,
        ChatFiles chat)
      : backend_(start_queue),
        experts_(options.ranks),
        service_(options, tokenizer, std::move(chat), backend_) {}

  // will_fork: begin() follows in another process.
  Status listen(const HttpOptions& options, bool will_fork) {
    WIDEEP_TRY_ASSIGN(http_, HttpServer::bind(options, [this](std::shared_ptr<Exchange> each) {
                        service_.handle(each);
                      }));
    http_->check_heads([this](const RequestHead& head) { return service_.check_head(head); });
    return will_fork ? Status() : http_->begin();
  }
  // Prompts of a file, to be computed when the ranks are ready. Before it forks. Errors: as
  // read_warm_prompts().
  Status warm_with(const std::string& path) {
    auto prompts = read_warm_prompts(path, [this](nlohmann::ordered_json body) {
      return service_.cache().read_prompt(std::move(body));
    });
    WIDEEP_TRY(prompts.status().at("--prompt-cache-warm"));
    WIDEEP_TRY_ASSIGN(is_warm_, base::SharedBytes::create("prompt cache", 1));
    warm_up_.emplace(backend_, std::move(*prompts), [this](const std::string& line) {
      log::info("prompt cache: {}", line);
      *is_warm_.data() = std::byte{1};
    });
    return {};
  }
  // Lets prompts be exported and imported: from and to the places where the run keeps them, which
  // are opened when the first one comes. run, options: outlive it.
  void connect_places(const run::RunOptions& options, const run::Run& run) {
    if (!options.keeps_prompts()) return;
    service_.cache().connect_places([&options, &run]() -> Result<CacheService::Opened> {
      WIDEEP_TRY_ASSIGN(const run::PageGeometry geometry,
                        run::page_geometry(run.plan(), /*rank=*/0, run.record_class()));
      WIDEEP_TRY_ASSIGN(auto places,
                        run::open_prompt_places(options, geometry, run.host_tier_memory()));
      return CacheService::Opened{.form = {.record_class = geometry.record_class,
                                           .page_bytes = geometry.page_bytes,
                                           .state_bytes = geometry.state_bytes},
                                  .places = std::move(places)};
    });
  }
  // Says what becomes of requests. After listen().
  void watch_requests(bool access_log, const std::optional<traces::TraceSettings>& traces) {
    if (traces) service_.trace_with(&tracer_.emplace(*traces));
    if (!access_log && !traces) return;
    http_->on_ended([this, access_log](const RequestRecord& record) {
      if (access_log) log_access(record);
      if (tracer_) tracer_->ended(record);
    });
  }
  // Tells which pages ranks know. pages: outlives it. zmq: null: over HTTP only.
  void tell_pages(PageTeller* pages, const kv_events::ZmqLibrary* zmq) {
    pages_ = pages;
    zmq_ = zmq;
    if (pages_ != nullptr) pages_->begin();
  }
  // Says to a group when requests are taken. membership: outlives it; null: there is none.
  void join_group(Membership* membership) { membership_ = membership; }
  // With ranks that are kept: clients come from their keeper.
  Status begin(transport::KeptRanks& ranks) {
    WIDEEP_TRY(http_->begin(/*accepts=*/false));
    clients_ = &ranks.connections();
    if (ranks.past().num_fronts > 0) {
      goes_on_ = true;
      service_.restarted(ranks.past().num_fronts, ranks.past().wanted);
      service_.monitor().go_on_after(ranks.memory().control().next_iteration - 1);
    }
    if (ranks.past().drains) service_.set_draining(true);
    http_->on_closed([this](int64_t id) { clients_->drop(id); });
    http_->watch(clients_->fd(), [this] { take_clients(); });
    return {};
  }
  int port() const { return http_->port(); }
  int socket() const { return http_->socket(); }

  bool has_started() const { return thread_.joinable(); }
  // It goes on where another process has died.
  bool goes_on() const { return goes_on_; }
  // serving: what the manager is told.
  void start(run::RankGroup& group, const ManagerLink& manager, const std::string& serving) {
    group_ = &group;
    backend_.start(&group.requests());
    const auto post = [this](std::function<void()> call) { http_->post(std::move(call)); };
    service_.connect(post);
    service_.places().connect([&group] { return group.requests().fetch_counts(); });
    service_.recorder().connect(
        [&group](bool records) { group.requests().record_experts(records); }, post);
    service_.connect_scaling([&group](int num_ranks) { return group.want(num_ranks); },
                             [this](int seconds, std::function<void()> call) {
                               http_->call_in(seconds, std::move(call));
                             });
    service_.pd().begin(
        {.change = [&group](engine::Role role) { return group.requests().change_role(role); },
         .prompt_tokens = [this] { return backend_.prompt_tokens(); },
         .peer_waits = [&group] { return group.requests().peer_waits(); },
         .call_in = [this](
                        int seconds,
                        std::function<void()> call) { http_->call_in(seconds, std::move(call)); }});
    service_.connect_draining([this, &group, &manager, serving](bool now) {
      if (now) backend_.open_queue();  // no more can come
      if (now && warm_up_) warm_up_->pause();
      manager.draining(now, serving);
      show_in_group(!now);
      if (group.kept() == nullptr) return;
      [[maybe_unused]] const Status told = group.kept()->drains(now);
    });
    http_->call_every(kPingEveryMs, [this] { service_.ping(); });
    if (manager.is_direct()) {
      http_->call_every(kLifeEveryMs, [&manager] { manager.alive(); });
    }
    if (warm_up_ && *is_warm_.data() == std::byte{0}) {
      http_->call_every(kWarmEveryMs, [this] {
        if (backend_.queue().is_open() && !service_.metrics().draining) {
          warm_up_->go_on(service_.metrics().running);
        }
      });
    }
    if (goes_on_) backend_.open_queue();  // its requests have begun before
    if (!backend_.queue().is_open()) http_->call_every(kStartCheckMs, [this] { watch_queue(); });
    if (pages_ != nullptr) {
      http_->call_every(kReadersEveryMs, [this] { service_.kv_events().look(); });
      pages_->start(zmq_);
    }
    if (tracer_) {
      if (const Status status = tracer_->start(); !status.ok()) log::warn("{}", status.message());
    }
    show_in_group(!service_.metrics().draining);
    thread_ = std::thread([this] {
      if (clients_ != nullptr) {
        clients_->accept();
        take_clients();
      }
      http_->run();
    });
  }

  // Stops serving, when the ranks have ended. Requests in progress get the reason as an error. The
  // group passed to start() must still exist.
  void end(const Status& why) {
    if (!has_started()) return;
    if (membership_ != nullptr) membership_->end();
    if (pages_ != nullptr) pages_->stop();
    if (!why.ok()) fail_requests(why);
    http_->stop();
    thread_.join();
    service_.join();  // it posts to http_
    http_.reset();
    service_.trace_with(nullptr);
    tracer_.reset();  // the last spans are sent, for a moment
  }

  // After end(): a line about a recording that was not dumped; "": there is none.
  std::string undumped() const { return service_.recorder().undumped(); }

  // The tokens of an iteration arrive before the iteration. Both are posted together, so that the
  // serving thread wakes up once per iteration.
  void take(run::Token token) { news_.tokens.push_back(std::move(token)); }
  // That a prompt has begun is told at once: the iteration may take long.
  void take(const run::PromptProgress& progress) {
    if (!progress.is_first) return news_.progress.push_back(progress);
    http_->post([this, progress] { backend_.progress(progress); });
  }
  void take(run::Iteration iteration) {
    http_->post([this, news = std::exchange(news_, {}),
                 each = std::make_shared<const run::Iteration>(std::move(iteration))] {
      tell(news);
      add(*each);
    });
  }
  void take(const run::ExpertRecording& recording) {
    http_->post([this, recording] { service_.recorder().ranks_switched(recording.records); });
  }
  // Before the request's first token.
  void take(run::PromptTransfer transfer) {
    http_->post([this, transfer = std::move(transfer)] {
      const std::string peer = backend_.transferred(transfer);
      service_.pd().transferred(transfer, peer, steady_seconds());
      service_.monitor().add(transfer, peer);
    });
  }
  void take(const run::RoleSeen& seen) {
    if (membership_ != nullptr) membership_->change_role(seen.role);
    http_->post([this, seen] { service_.pd().seen(seen); });
  }
  void take(const run::Rebalance& each) {
    http_->post([this, each] {
      service_.monitor().add(each, unix_seconds());
      service_.load().add(each);
      ++service_.metrics().rebalances;
      service_.metrics().expert_moves += static_cast<uint64_t>(each.moves);
      service_.metrics().moved_bytes += static_cast<uint64_t>(each.bytes);
    });
  }
  void take(run::StoreState state) {
    // Before it starts there is no other thread.
    if (!has_started()) return service_.places().take(state);
    http_->post([this, state = std::move(state)] { service_.places().take(state); });
  }
  void take(const run::TrustChange& change) {
    http_->post([this, change] { service_.ranks().note(unix_seconds(), run::line_of(change)); });
  }
  void take(const run::BackgroundSilence& silence, const std::string& line) {
    http_->post([this, silence, line] {
      service_.balancer().take(silence);
      service_.ranks().note(unix_seconds(), line);
    });
  }

  void take(const run::RankMemory& rank) {
    // Before it starts there is no other thread.
    if (!has_started()) return service_.ranks().memory(rank);
    http_->post([this, rank] { service_.ranks().memory(rank); });
  }

  void take(run::ExpertPlaces places) {
    if (!has_started()) return service_.take(std::move(places));
    http_->post([this, places = std::move(places)]() mutable { service_.take(std::move(places)); });
  }

  void take(run::ExpertLoad load) {
    http_->post([this, load = std::move(load)] { service_.load().add(load, unix_seconds()); });
  }

  // The request's last token may not be posted yet.
  void take(run::RoutedExperts routed) {
    http_->post([this, news = std::exchange(news_, {}),
                 each = std::make_shared<const run::RoutedExperts>(std::move(routed))] {
      tell(news);
      backend_.experts(*each);
    });
  }
  // The tokens that are not posted yet come before what others go on with.
  void take(run::RankDied rank) {
    if (pages_ != nullptr) {
      pages_->died(rank.rank);
      wake_readers();
    }
    http_->post([this, news = std::exchange(news_, {}), rank = std::move(rank)] {
      tell(news);
      service_.ranks().died(rank, unix_seconds());
      service_.places().ended(rank.rank);
      service_.experts().ended(rank.rank);
      for (const int request : rank.failed) backend_.fail(request);
    });
  }
  void take(const run::PagesChanged& pages) {
    if (pages_ == nullptr) return;
    pages_->take(pages);
    wake_readers();
  }
  void take(const run::RankStarted& rank) {
    http_->post([this, rank] { service_.ranks().started(rank); });
  }
  // After the last tokens of an iteration that its members did not all complete.
  void take(run::MembersChanged change) {
    http_->post([this, news = std::exchange(news_, {}), change = std::move(change)] {
      tell(news);
      service_.ranks().changed(change, unix_seconds());
      service_.balancer().members_changed();
    });
  }

  void post(std::function<void()> call) { http_->post(std::move(call)); }

  // How many requests began before as many had come as were waited for; 0: there is nothing to
  // tell, or it has been told. Any thread.
  size_t began_early() { return began_early_.exchange(0); }

  // Refuses new requests for text (503) until a client takes it back.
  void set_draining() {
    if (!has_started()) return service_.set_draining(true);
    http_->post([this] { service_.set_draining(true); });
  }
  // Refuses new requests for text (503), and stops the ranks when whatever runs has ended (texts,
  // dumps, another number of ranks) and its clients have read the replies.
  void drain() {
    show_in_group(false);
    http_->post([this] {
      backend_.open_queue();  // no more can come
      if (warm_up_) warm_up_->stop();
      service_.drain();
      http_->call_every(kDrainCheckMs, [this] {
        if (service_.has_answered() && !http_->has_unread()) group_->stop();
      });
    });
  }

 private:
  // What the ranks have said of requests. A request's tokens come after all progress of its prompt.
  struct News {
    std::vector<run::PromptProgress> progress;
    std::vector<run::Token> tokens;
  };
  void wake_readers() {
    if (!service_.kv_events().has_waiting()) return;
    http_->post([this] { service_.kv_events().look(); });
  }
  // On the serving thread.
  void tell(const News& news) {
    for (const run::PromptProgress& each : news.progress) backend_.progress(each);
    for (const run::Token& each : news.tokens) backend_.token(each);
  }

  // On the serving thread. The first ones may be of a process that has died.
  void take_clients() {
    while (const auto client = clients_->next()) {
      if (client->socket < 0) {  // no descriptor was free for it
        clients_->drop(client->id);
        continue;
      }
      std::unique_ptr<ConnectionJournal> journal;
      if (client->companion >= 0) {
        auto opened = ConnectionJournal::open(client->companion, client->socket);
        if (opened.ok()) journal = std::move(*opened);
      }
      // Nobody knows how far its last reply has come.
      if (client->was_served && journal == nullptr) {
        ::close(client->socket);
        clients_->drop(client->id);
        continue;
      }
      http_->adopt(client->socket, std::move(journal), client->id, client->is_suspect);
    }
  }
  // Returns when the errors have had time to leave.
  void fail_requests(const Status& why) {
    constexpr milliseconds kLastWords{500};
    const std::string text = why.code() == StatusCode::kInterrupted
                                 ? "the server has stopped before the answer was complete"
                                 : "the server has failed: " + why.message();
    std::promise<bool> failed;
    http_->post([&] { failed.set_value(service_.fail(text)); });
    if (failed.get_future().get()) std::this_thread::sleep_for(kLastWords);
  }

  // On the serving thread.
  void watch_queue() {
    if (backend_.queue().is_open()) return;
    if (!backend_.queue().is_quiet(steady_seconds(), kStartQuietSeconds)) return;
    began_early_ = backend_.open_queue();
  }

  // On the serving thread.
  void add(const run::Iteration& iteration) {
    const run::IterationSummary summary = run::summarize(iteration, experts_);
    ++service_.metrics().iterations;
    service_.metrics().iteration_seconds += summary.wall_ms * 1e-3;
    service_.metrics().take(summary.queue);
    service_.metrics().speculation += summary.speculation;
    if (auto& vllm = service_.metrics().vllm) {
      vllm->iteration(summary.prompt_tokens + summary.generated_tokens);
    }
    service_.iteration_ended(summary.wall_ms * 1e-3);
    service_.monitor().add(summary, unix_seconds());
    service_.load().add(summary, unix_seconds());
    service_.recorder().add(iteration);
    service_.pd().iteration_ended(iteration, steady_seconds());
  }

  void show_in_group(bool takes_requests) {
    if (membership_ == nullptr) return;
    takes_requests ? membership_->join(port()) : membership_->leave();
  }

  EngineBackend backend_;
  News news_;  // not posted yet; used by the thread that pulls events
  run::ExpertRanks experts_;
  std::optional<RequestTracer> tracer_;
  PageTeller* pages_ = nullptr;  // null: nobody is told
  const kv_events::ZmqLibrary* zmq_ = nullptr;
  Service service_;
  std::unique_ptr<HttpServer> http_;  // destroyed before service_, which its connections use
  Membership* membership_ = nullptr;  // null: there is no group
  transport::HeldConnections* clients_ = nullptr;  // null: http_ accepts them itself
  run::RankGroup* group_ = nullptr;
  bool goes_on_ = false;
  // Of all processes that serve, one after the other: a byte that is 1 when the prompts are computed.
  base::SharedBytes is_warm_;
  std::optional<WarmUp> warm_up_;  // nullopt: there is nothing to compute
  std::atomic<size_t> began_early_ = 0;
  std::thread thread_;
};

// Pulls the events of the ranks and handles each of them.
class EventPump {
 public:
  struct Parts {
    run::RankGroup& group;
    Front& front;
    std::optional<run::IterationLog> log;
    std::optional<run::IterationLines> lines;
    run::RunView& view;
    run::LoadingProgress& loading;
    LoadingText loading_text;
    ManagerLink manager;
    const run::ExpertRanks& experts;
    size_t num_stages;
    int grace_seconds;
    std::string serving;  // the line to print when requests are accepted
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
  // Ranks that return read weights, too: no start waits for them, and their bytes are a part of all.
  void take(const run::WeightsRead& read) {
    if (parts_.front.has_started() || parts_.front.goes_on()) return;
    parts_.loading.add(read.bytes);
    parts_.manager.loading(parts_.loading_text.add(read.bytes));
  }
  void take(const run::RanksReady&) { start(); }
  // When the first members compute, or those that follow them where one has died meanwhile.
  void start() {
    if (parts_.front.has_started()) return;
    parts_.front.start(parts_.group, parts_.manager, parts_.serving);
    parts_.manager.serving(parts_.serving);
    if (!parts_.front.goes_on()) parts_.view.line(parts_.serving);
  }
  void take(run::RankStarted rank) { parts_.front.take(rank); }
  void take(run::RankDied rank) {
    if (!rank.was_expected) parts_.view.line(line_of(rank));
    parts_.front.take(std::move(rank));
  }
  void take(run::MembersChanged change) {
    parts_.view.line(line_of(change, parts_.experts.ranks.size()));
    start();
    parts_.front.take(std::move(change));
  }
  void take(const run::PagesChanged& pages) { parts_.front.take(pages); }
  void take(run::Token token) { parts_.front.take(std::move(token)); }
  void take(const run::PromptProgress& progress) { parts_.front.take(progress); }
  void take(run::RoutedExperts routed) { parts_.front.take(std::move(routed)); }
  void take(run::Iteration iteration) {
    if (parts_.log) log(run::summarize(iteration, parts_.experts));
    if (parts_.lines) parts_.lines->print(iteration);
    if (const size_t early = parts_.front.began_early(); early > 0) {
      parts_.view.line(
          fmt::format("the first iteration has begun with {} requests: no more have come for {} s",
                      early, kStartQuietSeconds));
    }
    parts_.front.take(std::move(iteration));
  }
  void take(run::ExpertLoad load) { parts_.front.take(std::move(load)); }
  void take(const run::RankMemory& rank) { parts_.front.take(rank); }
  void take(run::ExpertPlaces places) { parts_.front.take(std::move(places)); }
  void take(run::StoreState state) { parts_.front.take(std::move(state)); }
  void take(const run::ExpertRecording& recording) { parts_.front.take(recording); }
  void take(const run::RoleSeen& seen) { parts_.front.take(seen); }
  void take(run::PromptTransfer transfer) { parts_.front.take(std::move(transfer)); }
  void take(const run::Rebalance& each) {
    parts_.front.take(each);
    if (parts_.log) parts_.log->add(each);
    parts_.view.rebalanced(each);
  }
  void take(const run::TrustChange& change) {
    parts_.view.line(run::line_of(change));
    parts_.front.take(change);
  }
  void take(const run::BackgroundSilence& silence) {
    const std::string line = run::line_of(silence, parts_.num_stages);
    parts_.view.line(line);
    parts_.front.take(silence, line);
  }
  void take(const run::StopRequested& stop) {
    // Ranks that still load have nothing to finish, but get a moment to end by themselves.
    constexpr milliseconds kGraceBeforeReady{700};
    if (!parts_.front.has_started() && !parts_.front.goes_on()) {
      parts_.group.stop();
      return parts_.group.end_within(kGraceBeforeReady);
    }
    const milliseconds grace = grace_after(stop.signal, parts_.grace_seconds);
    parts_.view.line(
        fmt::format("stopping: running requests have {} s to finish", grace.count() / 1000));
    parts_.manager.stopping(grace);
    parts_.front.drain();
    parts_.group.end_within(grace);
  }
  void take(const run::DrainSignal&) { parts_.front.set_draining(); }
  // Serving goes on without the log, so whoever reads it must be told now.
  void log(const run::IterationSummary& summary) {
    const bool wrote = parts_.log->status().ok();
    parts_.log->add(summary);
    if (!wrote || parts_.log->status().ok()) return;
    parts_.view.line(fmt::format("{}; no more lines are written, serving goes on",
                                 parts_.log->status().message()));
  }

  // By both threads: what hangs in either of them hangs the service.
  void take(const run::Ping& ping) {
    if (!parts_.front.has_started()) return parts_.group.kept()->answer(ping);
    parts_.front.post([kept = parts_.group.kept(), ping] { kept->answer(ping); });
  }

  // Not used by the server.
  void take(const run::RanksIdle&) {}
  void take(const run::RequestCounts&) {}
  void take(const run::RankEnded&) {}

  Parts parts_;
};

// The part of the ranks other than 0, if a launcher has started the ranks: the same collective
// calls as in serve(), without endpoints. The launcher sends signals to all ranks.
Status serve_silently(const ServeOptions& options) {
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<run::Run> run, run::Run::prepare(options.run));
  WIDEEP_TRY(run::agree_on(options.run, {}));  // rank 0 has opened its files
  WIDEEP_TRY(run::agree_on(options.run, {}));  // and has the address of its pages
  WIDEEP_TRY(run::agree_on(options.run, {}));  // rank 0 listens
  WIDEEP_TRY(run->load([](uint64_t) {}));
  WIDEEP_TRY_ASSIGN(const auto group, run::RankGroup::start(*run, {.reports_stop_signals = true}));
  while (const auto event = group->next()) {
    if (const auto* stop = std::get_if<run::StopRequested>(&*event)) {
      group->end_within(grace_after(stop->signal, options.grace_seconds));
    }
  }
  return group->result();
}

// Labels of the places where prompts are kept, nearest first.
std::vector<std::string> places_of(const run::RunOptions& run) {
  std::vector<std::string> labels;
  if (!run.keeps_prompts()) return labels;
  if (run.host_cache_bytes > 0) labels.emplace_back("host");
  if (!run.prompt_cache_dir.empty()) labels.emplace_back("disk");
  if (!run.prompt_cache_redis.empty()) labels.emplace_back("redis");
  return labels;
}

// The service's options, completed by what follows from the run.
ServiceOptions service_options(const ServeOptions& options, const run::Run& run) {
  ServiceOptions service = options.service;
  if (service.model.empty()) service.model = name_of(options.run.model_dir);
  // The name is part of every answer, so that nobody takes the texts for the model's own.
  // Clients go on with the name that they know.
  if (options.run.perfect_router) {
    service.other_name = service.model;
    service.model += " (perfect router: means nothing)";
  }
  service.vocab_size = run.plan().model.config.vocab_size;
  service.has_end_tokens = !run.plan().model.config.eos_token_ids.empty();
  service.max_sequence = run.plan().longest_sequence();
  service.max_drafts = run.plan().speculation.max_draft_len;
  service.returns_experts = options.run.routed_experts;
  service.prompt_places = places_of(options.run);
  service.reuses_pages = options.run.reuses_pages();
  service.record_class = run.record_class();
  service.keeps_states = service.reuses_pages && run.plan().model.config.has_state();
  service.ranks = run.plan().experts;
  service.start_ranks = run.plan().start_ranks;
  if (run.plan().balances_online()) {
    service.online_totals = [&run] { return run::read_totals(run.online()); };
  }
  service.timeout_seconds = std::chrono::duration<double>(options.run.timeout).count();
  return service;
}

// Waiting for more requests than can run, or are accepted, would not end by itself.
int start_queue_of(const ServeOptions& options, const run::RunPlan& plan) {
  return static_cast<int>(std::min(
      {int64_t{options.start_queue}, int64_t{options.service.max_queue}, plan.max_running()}));
}

// How chats are answered, or what they will miss, for the line that tells the address.
std::string note_on(const ChatTemplates& templates) {
  if (templates.empty()) return "; no chat template: completions only";
  if (templates.has_default()) {
    const auto chosen = templates.choose("", true);
    const bool says = chosen.ok() && !chosen->style->format.is_plain();
    return says ? "; " + chosen->style->format.description() : "";
  }
  return fmt::format("; no chat template named 'default': requests have to name one, of {}",
                     templates.names());
}

// Where the pages are, for the same line.
std::string note_on_pages(const ServiceOptions& service, const std::string& address) {
  if (!service.has_pages) return "";
  const std::string chat =
      ChatPageService::has_page() ? fmt::format("; chat {}/", address) : std::string();
  return fmt::format("{}; dashboard {}/dashboard", chat, address);
}

// Files that only the serving process opens.
struct Opened {
  ChatFiles chat;
  run::SamplingDefaults sampling;
  std::optional<run::IterationLog> log;
  const kv_events::ZmqLibrary* zmq = nullptr;  // null: KV events are not published
};

// Whether dumps of expert statistics can be written, before the server starts. Leaves nothing.
Status check_dumps(const std::string& directory) {
  if (directory.empty()) return {};
  return formats::NewDirectories::create(directory).status().at("--expert-statistic-path");
}

Result<Opened> open_files_of(const ServeOptions& options, const tokenizer::Tokenizer& tokenizer) {
  Opened opened;
  WIDEEP_TRY_ASSIGN(opened.chat, read_chat_files(options.run.model_dir));
  WIDEEP_TRY(opened.chat.templates.find_styles(tokenizer, options.parsers));
  WIDEEP_TRY_ASSIGN(opened.sampling,
                    run::read_sampling_defaults(options.run.model_dir, options.generation_config));
  WIDEEP_TRY_ASSIGN(opened.log, run::create_iteration_log(options.run));
  WIDEEP_TRY(check_dumps(options.service.recorder.directory));
  if (options.kv_events && options.kv_events->has_publisher) {
    WIDEEP_TRY_ASSIGN(opened.zmq, kv_events::ZmqLibrary::load());
  }
  if (!options.service.export_dir.empty()) {
    const Status prepared = prepare_export_dir(options.service.export_dir);
    WIDEEP_TRY(prepared.at("--prompt-cache-export-dir"));
  }
  return opened;
}

// What the processes that serve, one after the other, have in common for a router.
struct Shared {
  RoleMemory role;
  std::unique_ptr<PageSharing> pages;  // null: not shared
  std::string host_for_nodes;          // PageSharing's; "": there are no others
};

// By which ranks of other nodes reach this one. Errors (invalid input): there is none.
Result<std::string> host_for_nodes(const ServeOptions& options, const PageSharing& pages) {
  const transport::NodeMap* nodes = run::node_map(options.run);
  if (nodes == nullptr || nodes->num_nodes() == 1) return std::string();
  // Of those that a launcher has started nobody says how they reach each other.
  if (!options.run.kept_nodes) return pages.host_for_nodes("", /*are_here=*/false);
  return pages.host_for_nodes(options.nodes.address,
                              options.run.kept_nodes->place.here.is_loopback());
}

// Before they fork. Whoever was told of pages that other nodes cannot send here would wait in vain.
Result<Shared> share(const ServeOptions& options, const run::Run& run, run::RunView& view) {
  WIDEEP_TRY_ASSIGN(RoleMemory role, RoleMemory::create(options.role));
  Shared shared{.role = std::move(role), .pages = nullptr, .host_for_nodes = {}};
  if (!options.pages) return shared;
  auto pages = PageSharing::create(*options.pages, run.record_class(),
                                   store::PageTrust(options.service.page_key));
  WIDEEP_TRY(pages.status().at("--page-address"));
  auto host = host_for_nodes(options, **pages);
  if (!host.ok()) {
    view.line(
        fmt::format("--page-address: {}: no pages are shared, and other servers compute these "
                    "prompts themselves; name one (without --page-key-file it is 127.0.0.1)",
                    host.status().message()));
    return shared;
  }
  shared.pages = std::move(*pages);
  shared.host_for_nodes = std::move(*host);
  if (options.service.page_key.empty()) {
    view.line(
        "pages of prompts are shared with servers of this machine only, without --page-key-file");
  }
  return shared;
}

// Serving goes on where pages cannot be had: whoever wants them computes them.
void start_sharing(const Shared& shared, const run::Run& run, run::RunView& view,
                   run::RequestWriter& requests) {
  if (shared.pages == nullptr) return;
  if (const Status status = shared.pages->start(*run.host_tier_memory()); !status.ok()) {
    view.line(fmt::format("{}; no pages are shared, serving goes on", status.message()));
  }
  // Also that there is nowhere to offer any: ranks of other nodes know the last process's.
  if (!shared.host_for_nodes.empty()) {
    requests.offer_pages_to(shared.pages->offering_state(shared.host_for_nodes));
  }
}

// Of memory for pages that other servers take, where nobody has said how much.
Status size_host_cache(int num_nodes, run::RunOptions* options) {
  const auto& transceiver = options->parallel.cache_transceiver_config;
  const bool has_tokens = transceiver && transceiver->max_tokens_in_buffer;
  const bool is_alone = options->started == nullptr && num_nodes == 1;
  if (!has_tokens && !is_alone) {
    return invalid_input(
        "--host-cache-size: expected a size, the same for all ranks, as 8G, where pages are shared "
        "by ranks of several nodes or of a launcher, whose free memory differs (or "
        "cache_transceiver_config.max_tokens_in_buffer)");
  }
  WIDEEP_TRY_ASSIGN(const run::RunInputs inputs, run::read_run_inputs(*options));
  const base::Machine machine = base::read_machine();
  WIDEEP_TRY_ASSIGN(const run::RunPlan plan, run::plan_run(inputs.model, *options, machine));
  WIDEEP_TRY_ASSIGN(options->host_cache_bytes, run::shared_host_cache(*options, plan, machine));
  return {};
}

// ---- nodes ----

Result<transport::PeerAddress> address_of_service(const NodeOptions& options) {
  auto address = transport::resolve(options.address, options.port);
  WIDEEP_TRY(address.status().at("--master-addr"));
  return *address;
}

// Errors: the file; none where one is needed (invalid input).
Result<transport::ClusterKey> cluster_key(const NodeOptions& options,
                                          const transport::PeerAddress& service) {
  if (!options.key_file.empty()) {
    auto key = transport::ClusterKey::read(options.key_file);
    WIDEEP_TRY(key.status().at("--cluster-key-file"));
    return key;
  }
  if (options.insecure || service.is_loopback()) return transport::ClusterKey();
  return invalid_input(
      fmt::format("--cluster-key-file: expected a file with the nodes' shared secret, as {} is no "
                  "loopback address: write one with 'openssl rand -hex 32' and give all nodes a "
                  "copy, or let everybody take part with --insecure-cluster",
                  options.address));
}

// address: of the service.
run::KeptNodes kept_nodes(const ServeOptions& options, transport::PeerAddress address) {
  address.port = 0;
  const int num_ranks = options.run.parallel.mapping().world_size();
  return {.place = {.nodes = transport::NodeMap::even(num_ranks, options.nodes.num_nodes),
                    .node = options.nodes.node,
                    .here = address},
          .agree_on = {}};
}

// What this node keeps while it connects again: weights, the host pool, and memory.
struct NodeRun {
  std::unique_ptr<run::Run> run;
  std::shared_ptr<transport::SharedMemory> memory;
  std::vector<uint64_t> numbers;  // with which it is planned
};

// Errors (deadline_exceeded): the service has gone.
Status prepare_node(const run::RunOptions& options, run::RunView& view,
                    const base::ServiceNotifier& manager, NodeRun* node) {
  WIDEEP_TRY_ASSIGN(node->run, run::Run::prepare(options));
  const uint64_t all = node->run->bytes_to_load();
  run::LoadingProgress loading(view, all);
  LoadingText text(all);
  WIDEEP_TRY(node->run->load([&](uint64_t bytes) {
    loading.add(bytes);
    if (const std::string line = text.add(bytes); !line.empty()) manager.loading(line);
    manager.alive();
  }));
  const run::RunPlan& plan = node->run->plan();
  WIDEEP_TRY_ASSIGN(node->memory, transport::SharedMemory::create(plan.mapping.world_size(),
                                                                  plan.segment.bytes()));
  return {};
}

Status serve_as_node(const ServeOptions& options, run::RunView& view) {
  WIDEEP_TRY_ASSIGN(const transport::PeerAddress service, address_of_service(options.nodes));
  WIDEEP_TRY_ASSIGN(const transport::ClusterKey key, cluster_key(options.nodes, service));
  const base::ServiceNotifier none;
  const base::ServiceNotifier& manager = options.manager == nullptr ? none : *options.manager;
  // While it waits for node 0 it is alive, too.
  const auto line = [&](const std::string& text) {
    view.line(text);
    manager.alive();
    manager.loading(text);
  };
  run::RunOptions run_options = options.run;
  run_options.kept_nodes = kept_nodes(options, service);
  // The next node 0 may have another address: in Kubernetes each pod has its own.
  const auto where = [&] { return address_of_service(options.nodes); };
  transport::SignalQueue::keep_hang_up();
  NodeRun node;
  for (;;) {
    WIDEEP_TRY_ASSIGN(transport::NodeClient client,
                      transport::NodeClient::connect(where, key, options.nodes.node, line));
    // Node 0 may wait for other nodes for long.
    client.on_alive([&] {
      manager.alive();
      manager.loading("waiting for node 0 and the other nodes");
    });
    client.on_stop([&](int signal) {
      manager.stopping("it ends with node 0, whose running requests may end",
                       grace_after(signal, options.grace_seconds) + kManagersPatience);
    });
    run_options.kept_nodes->place.here = client.here();
    run_options.kept_nodes->agree_on = [&](const std::vector<uint64_t>& own) {
      auto min = client.agree_on(own);
      if (min.ok()) node.numbers = *min;
      return min;
    };
    Status status;
    if (node.run == nullptr) {
      status = prepare_node(run_options, view, manager, &node);
    } else {
      const std::vector<uint64_t> before = node.numbers;
      status = run_options.kept_nodes->agree_on(before).status();
      // Another service, whose nodes have less memory.
      if (status.ok() && node.numbers != before) {
        node = {};
        continue;
      }
    }
    if (status.code() == StatusCode::kDeadlineExceeded) {
      node.run = nullptr;
      continue;
    }
    WIDEEP_TRY(status);
    run_options.kept_nodes->place.service = client.service();
    run_options.kept_nodes->place.links = key.for_links(client.service());
    client.present(node.run->settings());
    client.on_alive([&] { manager.alive(); });
    const std::string connected = fmt::format("node {} of {}: connected to node 0",
                                              options.nodes.node, options.nodes.num_nodes);
    view.line(connected);
    manager.ready(connected);
    WIDEEP_TRY_ASSIGN(const auto ended, run::RankGroup::keep_node(*node.run, client, node.memory));
    if (ended == transport::NodeClient::Ended::kCutOff) continue;
    view.line(ended == transport::NodeClient::Ended::kFinished ? "the service has ended"
                                                               : "stopped");
    return {};
  }
}

// nodes: the other nodes; null: there are none.
Status serve_with(const ServeOptions& options, transport::NodeServer* nodes, run::RunView& view) {
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<run::Run> run, run::Run::prepare(options.run));
  if (nodes != nullptr) nodes->set_settings(run->settings());
  Result<Opened> opened = open_files_of(options, run->tokenizer());
  WIDEEP_TRY(run::agree_on(options.run, opened.status()));
  ChatFiles chat = std::move(opened->chat);
  ServiceOptions service = service_options(options, *run);
  service.sampling = std::move(opened->sampling);
  std::optional<PageTeller> pages;
  if (options.kv_events) {
    pages.emplace(*options.kv_events, run->plan());
    service.kv_events = &pages->log();
  }
  auto shared = share(options, *run, view);
  WIDEEP_TRY(run::agree_on(options.run, shared.status()));
  service.role = &shared->role;
  PageSharing* const sharing = shared->pages.get();
  if (sharing != nullptr) {
    service.context_requests = &sharing->requests();
    service.pages_given = &sharing->counts();
    service.opaque_state = [sharing](const Exchange& exchange) {
      return sharing->opaque_state(exchange.local_host());
    };
  }
  const std::string chat_note = note_on(chat.templates);
  allow_most_open_files();
  // Listens before anything is loaded, so that an address in use is an early error. Requests that
  // arrive during loading wait in the listen queue.
  const int start_queue = start_queue_of(options, run->plan());
  Front front(service, start_queue, run->tokenizer(), std::move(chat));
  // The keeper accepts no more, so that the front must make room then.
  HttpOptions http = options.http;
  http.error_form = error_form;
  if (options.run.keeps_ranks) {
    http.max_connections = std::min(
        http.max_connections, transport::clients_for_descriptors(run->plan().mapping.world_size()));
  }
  Status ready = options.warm_file.empty() ? Status() : front.warm_with(options.warm_file);
  if (ready.ok()) ready = front.listen(http, options.run.keeps_ranks);
  WIDEEP_TRY(run::agree_on(options.run, ready));
  front.watch_requests(options.access_log, options.traces);
  front.connect_places(options.run, *run);
  front.join_group(options.membership);

  view.plan(run::plan_text(*run));
  for (const std::string& line : service.sampling.lines()) view.line(line);
  if (start_queue > 1) {
    view.line(
        fmt::format("TLLM_BENCHMARK_REQ_QUEUES_SIZE: the first iteration waits for {} requests (at "
                    "most as many as can run at once), or until none has come for {} s",
                    start_queue, kStartQuietSeconds));
  }
  run::LoadingProgress loading(view, run->bytes_to_load());
  LoadingText loading_text(run->bytes_to_load());
  const ManagerLink here(options.manager, nullptr);
  WIDEEP_TRY(run->load([&](uint64_t bytes) {
    loading.add(bytes);
    here.loading(loading_text.add(bytes));
  }));
  const std::string address = fmt::format("http://{}:{}", options.http.host, front.port());
  const std::string serving =
      fmt::format("serving {} on {}/v1 (context {} tokens{}){}", service.model, address,
                  service.max_sequence, chat_note, note_on_pages(service, address));
  const auto use = [&](run::RankGroup& group) -> Status {
    start_sharing(*shared, *run, view, group.requests());
    front.tell_pages(pages ? &*pages : nullptr, opened->zmq);
    if (group.kept() != nullptr) WIDEEP_TRY(front.begin(*group.kept()));
    if (front.goes_on() && opened->log) {
      // As after a line that cannot be written: serving goes on without the log.
      if (const Status status = opened->log->go_on(); !status.ok()) {
        view.line(fmt::format("{}; no more lines are written, serving goes on", status.message()));
        opened->log.reset();
      }
    }
    EventPump pump({.group = group,
                    .front = front,
                    .log = std::move(opened->log),
                    .lines = run::IterationLines::create(options.run),
                    .view = view,
                    .loading = loading,
                    .loading_text = loading_text,
                    .manager = ManagerLink(options.manager, group.kept()),
                    .experts = run->plan().experts,
                    .num_stages = run->online().size(),
                    .grace_seconds = options.grace_seconds,
                    .serving = serving});
    pump.run();
    const Status ended = group.result();
    front.end(ended);
    if (const std::string lost = front.undumped(); !lost.empty()) view.line(lost);
    WIDEEP_TRY(ended);
    return pump.log_status();
  };
  Status ended;
  if (options.run.keeps_ranks) {
    ended =
        run::RankGroup::keep(*run,
                             {.listener = front.socket(),
                              .max = options.http.max_connections,
                              .companion = ConnectionJournal::create,
                              .nodes = nodes,
                              .manager = options.manager},
                             [&](std::unique_ptr<run::RankGroup> group) { return use(*group); });
  } else {
    WIDEEP_TRY_ASSIGN(const auto group, run::RankGroup::start(*run, {.reports_stop_signals = true,
                                                                     .reports_hang_up = true}));
    ended = use(*group);
  }
  const Status written = run->write_trace();
  WIDEEP_TRY(ended);
  return written;
}

Status serve_sized(const ServeOptions& options, run::RunView& view) {
  if (!run::receives_events(options.run)) return serve_silently(options);
  if (options.nodes.node > 0) return serve_as_node(options, view);
  if (options.nodes.num_nodes == 1) return serve_with(options, nullptr, view);
  WIDEEP_TRY_ASSIGN(const transport::PeerAddress address, address_of_service(options.nodes));
  WIDEEP_TRY_ASSIGN(const transport::ClusterKey key, cluster_key(options.nodes, address));
  Result<std::unique_ptr<transport::NodeServer>> nodes =
      transport::NodeServer::listen(address, options.nodes.num_nodes, key);
  WIDEEP_TRY(nodes.status().at("--master-addr, --master-port"));
  ServeOptions over_nodes = options;
  over_nodes.run.kept_nodes = kept_nodes(options, address);
  over_nodes.run.kept_nodes->place.service = (*nodes)->service();
  over_nodes.run.kept_nodes->place.links = key.for_links((*nodes)->service());
  // Nodes whose ranks the service does not begin with may come whenever they are wanted.
  const transport::NodeMap& map = over_nodes.run.kept_nodes->place.nodes;
  const int start_ranks = std::clamp(options.run.start_ranks, 0, map.num_ranks());
  const int num_needed = start_ranks == 0 ? map.num_nodes() : map.node_of(start_ranks - 1) + 1;
  over_nodes.run.kept_nodes->agree_on = [&, num_needed](const std::vector<uint64_t>& own) {
    return (*nodes)->agree_on(num_needed, own, [&](const std::string& line) {
      view.line(line);
      if (options.manager != nullptr) options.manager->loading(line);
    });
  };
  return serve_with(over_nodes, nodes->get(), view);
}

}  // namespace

Status serve(const ServeOptions& options, run::RunView& view) {
  if (!options.pages || options.run.host_cache_bytes > 0) return serve_sized(options, view);
  ServeOptions sized = options;
  const Status status = size_host_cache(options.nodes.num_nodes, &sized.run);
  WIDEEP_TRY(run::agree_on(options.run, status));
  return serve_sized(sized, view);
}

}  // namespace wideep::server
