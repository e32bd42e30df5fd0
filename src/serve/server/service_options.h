// SPDX-License-Identifier: Apache-2.0
//
// What the endpoints of a service are told of the model, its ranks and their limits.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/response_store.h"
#include "kv_events/event_log.h"
#include "run/sampling_defaults.h"
#include "server/balancer_state.h"
#include "server/context_requests.h"
#include "server/expert_recorder.h"
#include "server/generation.h"

namespace wideep::server {

class RoleMemory;

// Whose names /metrics has.
enum class MetricsNames : uint8_t { kWideep, kVllm, kBoth };

struct ServiceOptions {
  std::string model;       // the name that clients use, and that answers have
  std::string commit;      // of the build; "": unknown
  std::string isa;         // whose kernels run: "avx2", …
  std::string other_name;  // another one that requests may use; "": none
  std::string api_key;     // "": no key is required
  std::string admin_key;   // for what changes the service; "": the same as the others
  int vocab_size = 0;      // of the model, which may have more tokens than the tokenizer
  bool has_end_tokens = true;
  run::SamplingDefaults sampling = {};  // what requests do not say
  int max_sequence = 0;                 // tokens of a prompt and its answer together
  int max_queue = 1024;                 // answers running and waiting; more are refused with 429
  int stream_interval = 1;              // tokens (GenerationSetup)
  ResponseStoreLimits stored_responses;
  std::string export_dir;  // of archives of prompts (server/cache_service.h); "": none
  DraftMetrics draft_metrics = DraftMetrics::kNone;  // in each reply
  MetricsNames metrics_names = MetricsNames::kWideep;
  int max_drafts = 0;            // of a request in a step; 0: there are none
  bool has_pages = true;         // the chat page and the dashboard
  bool returns_experts = false;  // whole replies have the experts of each token
  bool reuses_pages = false;     // of the KV cache, for later prompts
  bool keeps_states = false;     // snapshots of them, too (PreparationOptions::finds_turns)
  run::ExpertRanks ranks;
  int start_ranks = 0;  // of these; 0: all
  // As BalancerState has it; null: experts stay where they are.
  std::function<run::OnlineTotals()> online_totals;
  std::string record_class;  // of the names of pages; "": they have none
  std::string page_key;      // of the servers whose pages are taken (store/page_trust.h); "": none
  // Who hears of requests whose prompts are computed for other servers; outlives the service. Null:
  // nobody, pages are not shared.
  ContextRequests* context_requests = nullptr;
  // What another server has to know of this one to take pages (a store::PagePeer without a request):
  // at the address where the client's connection came. "", or null: pages are not shared.
  std::function<std::string(const Exchange&)> opaque_state;
  std::vector<std::string> prompt_places;  // labels (PlaceStates)
  double timeout_seconds = 30;             // of a rank that waits for another one
  RecorderOptions recorder;
  // Which pages ranks know; outlives the service. Null: nobody tells.
  const kv_events::EventLog* kv_events = nullptr;
  // What the server prefers to do; outlives the service. Null: both, for ever.
  RoleMemory* role = nullptr;
  // Of the pages that are shared; outlives the service. Null: none are.
  const store::PageServerCounts* pages_given = nullptr;
};

}  // namespace wideep::server
