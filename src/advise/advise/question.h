// SPDX-License-Identifier: Apache-2.0
//
// Thread safety: a plain value.
#pragma once

#include "advise/workload.h"
#include "cost/hardware.h"
#include "model/config/config.h"
#include "plan/model_plan.h"

namespace wideep::advise {

// What the advisor is asked: how to serve a model on a machine, if its experts get such loads.
struct Question {
  const cost::Hardware& hardware;
  const model::ModelConfig& config;
  // Of the config's MoE layers, any unit.
  const balance::ModelLoad& planned;  // what placements are made for
  const balance::ModelLoad& judged;   // what they then serve; may be the same
  Workload workload;
  Choices choices;
};

}  // namespace wideep::advise
