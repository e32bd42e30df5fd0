// SPDX-License-Identifier: Apache-2.0
#include "model_run.h"

#include <filesystem>

#include "base/try.h"
#include "model/model_division.h"
#include "model/model_files.h"
#include "parallel/initial_placement.h"
#include "tensor_files/gguf.h"

namespace wideep::tools {

bool has_file(const std::string& model_dir, const char* name) {
  std::error_code absent;
  return std::filesystem::exists(std::filesystem::path(model_dir) / name, absent);
}

bool has_weights(const std::string& model_dir) {
  return tensor_files::is_gguf(model_dir) || has_file(model_dir, "model.safetensors") ||
         has_file(model_dir, "model.safetensors.index.json");
}

namespace {

// The format of each matrix: from the command line, else from the checkpoint, else (no weights
// downloaded yet) from config.json.
Result<model::ModelForms> forms_of(const std::string& model_dir,
                                   std::optional<kernels::WeightFormat> format,
                                   model::ModelConfig* config) {
  if (!has_weights(model_dir)) {
    return model::uniform_forms(*config, format.value_or(config->stored_format));
  }
  WIDEEP_TRY_ASSIGN(const model::ModelFiles files, model::ModelFiles::open(model_dir, config));
  if (format) return model::uniform_forms(*config, *format);
  model::ModelForms forms = model::model_forms(*config, weights::WeightLoader(files.tensors(), {}));
  for (std::string& note : files.packing_notes(*config, forms)) {
    config->notes.push_back(std::move(note));
  }
  return forms;
}

}  // namespace

Result<ModelRun> model_run(const std::string& model_dir,
                           std::optional<kernels::WeightFormat> format,
                           const parallel::ParallelConfig& parallel) {
  ModelRun run;
  run.options.model_dir = model_dir;
  run.options.parallel = parallel;
  run.options.format = format;
  WIDEEP_TRY_ASSIGN(run.model.config, model::read_model_config(model_dir));
  WIDEEP_TRY(run::add_prediction(parallel, &run.model.config));
  WIDEEP_TRY_ASSIGN(run.model.placement,
                    parallel::initial_placement(parallel, {model::moe_layers(run.model.config),
                                                           run.model.config.routing.num_experts}));
  WIDEEP_TRY_ASSIGN(run.model.forms, forms_of(model_dir, format, &run.model.config));
  return run;
}

}  // namespace wideep::tools
