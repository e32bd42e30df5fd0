// SPDX-License-Identifier: Apache-2.0
#include "server/service.h"

#include <utility>

#include "api/api.h"
#include "server/recent_times.h"

namespace wideep::server {
namespace {

using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

template <typename OneService>
Handler to(OneService& service, void (OneService::*method)(const std::shared_ptr<Exchange>&)) {
  return [&service, method](const std::shared_ptr<Exchange>& each) { (service.*method)(each); };
}

}  // namespace

Service::Service(ServiceOptions options, const tokenizer::Tokenizer& tokenizer, ChatFiles chat,
                 Backend& backend)
    : options_(std::move(options)),
      state_(options_),
      replies_(state_.metrics),
      text_(options_,
            {.tokenizer = tokenizer,
             .chat = std::move(chat),
             .backend = backend,
             .metrics = state_.metrics},
            replies_),
      status_(options_, state_, text_, pd_, replies_),
      dashboard_(options_, state_, pd_, replies_),
      chat_page_(replies_),
      admin_(state_, text_, replies_),
      kv_events_(options_.kv_events, replies_),
      cache_(options_, text_, state_.metrics, replies_),
      pd_(options_, state_, replies_),
      endpoints_(table(), {.api = options_.api_key, .admin = options_.admin_key}, replies_) {}

std::vector<Endpoint> Service::table() {
  using enum Endpoint::Access;
  using enum Endpoint::Body;
  const auto of_api = [this](Api api) -> Endpoint {
    const ApiSpec& spec = spec_of(api);
    return {"POST", spec.path, kClients, kAnyBody,
            [this, &spec](const std::shared_ptr<Exchange>& each) { text_.answer(each, spec); }};
  };
  std::vector<Endpoint> table = {
      of_api(Api::kCompletion),
      of_api(Api::kChat),
      of_api(Api::kResponses),
      {"GET", "/v1/responses/", kClients, kShortBody, to(text_, &TextService::stored_response)},
      {"DELETE", "/v1/responses/", kClients, kShortBody, to(text_, &TextService::delete_response)},
      of_api(Api::kMessages),
      {"POST", "/v1/messages/count_tokens", kClients, kAnyBody,
       to(text_, &TextService::count_tokens)},
      {"POST", "/tokenize", kClients, kAnyBody, to(text_, &TextService::tokenize)},
      {"POST", "/detokenize", kClients, kAnyBody, to(text_, &TextService::detokenize)},
      {"GET", "/tokenizer_info", kClients, kShortBody, to(text_, &TextService::tokenizer_info)},
      {"POST", "/prompt_tokens", kClients, kAnyBody, to(text_, &TextService::prompt_tokens)},
      {"GET", "/v1/models", kClients, kShortBody, to(status_, &StatusService::models)},
      {"GET", "/v1/models/", kClients, kShortBody, to(status_, &StatusService::model)},
      {"GET", "/health", kPublic, kShortBody, to(status_, &StatusService::health)},
      {"GET", "/version", kPublic, kShortBody, to(status_, &StatusService::version)},
      {"GET", "/metrics", kClients, kShortBody, to(status_, &StatusService::metrics)},
      {"GET", "/perf_metrics", kClients, kShortBody,
       to(dashboard_, &DashboardService::perf_metrics)},
      {"POST", "/start_expert_distribution_record", kAdmins, kShortBody,
       to(admin_, &AdminService::start_record)},
      {"POST", "/stop_expert_distribution_record", kAdmins, kShortBody,
       to(admin_, &AdminService::stop_record)},
      {"POST", "/dump_expert_distribution_record", kAdmins, kShortBody,
       to(admin_, &AdminService::dump_record)},
      {"POST", "/scale_elastic_ep", kAdmins, kShortBody, to(admin_, &AdminService::scale)},
      {"POST", "/drain", kAdmins, kShortBody, to(admin_, &AdminService::drain)},
      {"DELETE", "/drain", kAdmins, kShortBody, to(admin_, &AdminService::end_drain)},
      {"POST", "/v1/cache/export", kAdmins, kAnyBody, to(cache_, &CacheService::export_prompt)},
      {"POST", "/v1/cache/import", kAdmins, kShortBody, to(cache_, &CacheService::import_archive)},
      {"GET", "/v1/pd_role", kClients, kShortBody,
       [this](const std::shared_ptr<Exchange>& each) {
         pd_.role(each, endpoints_.may_administrate(each->head()));
       }},
      {"POST", "/pd_role_switch", kAdmins, kShortBody, to(pd_, &PdService::switch_role)},
      {"POST", "/is_scaling_elastic_ep", kClients, kShortBody,
       to(admin_, &AdminService::is_scaling)},
  };
  // Whoever reads events reads the prompts of all clients.
  if (options_.kv_events != nullptr) {
    table.insert(table.end(), {{"GET", "/v1/kv_events", kAdmins, kShortBody,
                                to(kv_events_, &KvEventsService::events)},
                               {"GET", "/v1/kv_events/snapshot", kAdmins, kShortBody,
                                to(kv_events_, &KvEventsService::snapshot)}});
  }
  if (!options_.has_pages) return table;
  table.insert(table.end(), {{"GET", "/dashboard", kPublic, kShortBody,
                              to(dashboard_, &DashboardService::dashboard)},
                             {"GET", "/dashboard/data", kClients, kShortBody,
                              to(dashboard_, &DashboardService::dashboard_data)},
                             {"GET", "/dashboard/load", kClients, kShortBody,
                              to(dashboard_, &DashboardService::dashboard_load)}});
  if (ChatPageService::has_page()) {
    table.push_back({"GET", "/", kPublic, kShortBody, to(chat_page_, &ChatPageService::page)});
  }
  return table;
}

void Service::restarted(int number, int wanted) {
  replies_.restarted(number);
  state_.metrics.go_on();
  state_.places.go_on();
  state_.experts.go_on();
  state_.ranks.begin_again(number, wanted, unix_seconds());
}

void Service::take(run::ExpertPlaces places) {
  state_.monitor.add(state_.experts.take(std::move(places)), unix_seconds());
}

void Service::join() {
  text_.join();
  kv_events_.join();
  cache_.join();
  state_.recorder.join();
}

}  // namespace wideep::server
