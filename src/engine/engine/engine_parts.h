// SPDX-License-Identifier: Apache-2.0
//
// What an engine works with (engine/engine.h). Plain values and references.
#pragma once

#include "engine/online_layers.h"
#include "engine/page_store.h"
#include "engine/pipeline.h"
#include "engine/reporter.h"
#include "engine/request_feed.h"
#include "engine/speculation/speculation.h"
#include "model/model.h"
#include "model/state_layout.h"
#include "schedule/scheduler.h"

namespace wideep::engine {

class Constraints;

// All references must outlive the engine.
struct EngineParts {
  const model::ModelConfig& config;
  const SchedulerLimits& limits;
  const SpeculationOptions& speculation;
  model::Model& model;
  const model::KvLayout& kv;
  const model::StateLayout& states;  // of this rank's layers; without bytes: they keep none
  model::MoeRunner& moe;
  model::Compute compute;
  transport::Endpoint& stage;     // connects the ranks that compute the same layers
  ep::TokenRange dispatch_ranks;  // ranks of the stage that dispatch rows to each other
  ContextPlace context_place;     // among the ranks that share sequences
  Pipeline& pipeline;
  OnlineLayers* online = nullptr;              // null: placements never change
  Constraints* constraints = nullptr;          // null: no request has a grammar
  bool has_absent_experts = false;             // on any rank: some may not be readable
  model::ResidentExperts* resident = nullptr;  // of this rank; null: all are in memory
  PageStore* store = nullptr;                  // null: pages are kept in the cache alone
  bool tells_pages = false;                    // Reporter::pages_changed
  RequestFeed& feed;
  Reporter& reporter;
};

}  // namespace wideep::engine
