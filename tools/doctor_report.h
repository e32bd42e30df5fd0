// SPDX-License-Identifier: Apache-2.0
//
// The findings of `wideep doctor`, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "advise/prompt_reuse.h"
#include "base/machine.h"
#include "doctor_experts.h"
#include "doctor_packed.h"
#include "doctor_places.h"
#include "gguf_content.h"
#include "kernels/kernels.h"
#include "run/advice.h"
#include "run/recovery.h"

namespace wideep::tools {

struct DoctorReport {
  base::Machine machine;
  const kernels::Kernels* chosen_kernels = nullptr;
  int num_ranks = 1;
  std::vector<PromptPlace> places;  // where prompts would be kept beyond the KV cache
  std::optional<PackedCache> packed;

  // With --model:
  std::string model_dir;
  std::optional<GgufContent> gguf;  // if it is one
  std::optional<run::ModelFit> fit;
  std::optional<ExpertReading> reading;           // if not all experts are in memory
  std::optional<run::RecoveryForecast> recovery;  // if it was asked for
  std::vector<advise::ReuseRow> reuse;            // likewise, of a dataset
  Status outcome;  // why the model cannot run as asked, or a packed file cannot be used

  std::vector<run::Advice> warnings;
};

// All findings except `outcome`, which the caller returns as its error: about 30 lines of at most
// 100 columns.
std::string doctor_text(const DoctorReport& report);
nlohmann::ordered_json doctor_json(const DoctorReport& report);

}  // namespace wideep::tools
