// SPDX-License-Identifier: Apache-2.0
//
// The endpoints for prompts as files (docs/prompt_cache_files.md): they copy a prompt's pages from
// the places where the service keeps them to an archive of --prompt-cache-export-dir, and an
// archive's pages to these places. Ranks take no part.
//
// The work is done on a thread of its own, one request after the other, with places of its own,
// which are opened for the first one. Few may wait; if this process dies they are lost, and their
// clients see an error.
//
// Thread safety: the serving thread, but read_prompt().
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/exchange.h"
#include "run/prompt_files.h"
#include "server/cache_prompt.h"
#include "server/exchange_work.h"
#include "server/metrics.h"
#include "server/replies.h"
#include "server/service_options.h"
#include "server/text_service.h"
#include "store/places.h"
#include "wideep/status.h"

namespace wideep::server {

// Whether an archive may have this name: 1 to 128 of [A-Za-z0-9._-], the first of them no dot.
bool is_archive_name(std::string_view name);

// Makes the directory, for this user alone, where it is missing. Errors (invalid input): it cannot
// be made or written.
Status prepare_export_dir(const std::string& path);

class CacheService {
 public:
  static constexpr size_t kMaxWaiting = 8;  // with the one that runs

  struct Opened {
    run::RecordForm form;
    std::vector<store::ListedPlace> places;
  };
  // Called at most once without an error, on any thread.
  using Open = std::function<Result<Opened>()>;

  // All outlive it.
  CacheService(const ServiceOptions& options, const TextService& text, const Metrics& metrics,
               Replies& replies)
      : options_(options), text_(text), metrics_(metrics), replies_(replies) {}

  // Lets the work be done on a thread of its own (server/exchange_work.h).
  void connect(std::function<void(std::function<void()>)> post) { work_.connect(std::move(post)); }
  // The places where the service keeps prompts. Without them requests are refused.
  void connect_places(Open open) { open_ = std::move(open); }
  // Ends what that thread does before its next record, and drops what waits for it.
  void join() {
    ends_ = true;
    work_.join();
  }
  bool is_busy() const { return work_.size() > 0; }

  void export_prompt(const std::shared_ptr<Exchange>& exchange);
  void import_archive(const std::shared_ptr<Exchange>& exchange);

  // Any thread.
  Parsed<CachePrompt> read_prompt(nlohmann::ordered_json body) const;

 private:
  using Reply = Parsed<nlohmann::ordered_json>;
  using Make = std::function<Reply(nlohmann::ordered_json body)>;

  std::optional<HttpError> refusal(const Exchange& exchange) const;
  void work_on(const std::shared_ptr<Exchange>& exchange, Make make);
  double page_seconds() const;
  std::string path_of_archive(const std::string& name) const;

  // On the thread of the work.
  Reply exported(nlohmann::ordered_json body, double page_seconds);
  Reply imported(nlohmann::ordered_json body);
  std::optional<HttpError> open_places();

  const ServiceOptions& options_;
  const TextService& text_;
  const Metrics& metrics_;
  Replies& replies_;
  Open open_;
  std::atomic<bool> ends_ = false;
  // Of the thread of the work.
  run::RecordForm form_;
  std::optional<store::Places> places_;
  ExchangeWork work_{replies_};  // last: it uses the members above
};

}  // namespace wideep::server
