// SPDX-License-Identifier: Apache-2.0
#include "model/model_tensors.h"

#include <fmt/format.h>

#include "model/model_forms.h"
#include "weights/stored_matrix.h"

namespace wideep::model {
namespace {

class Collector {
 public:
  Collector(const ModelConfig& config, const weights::TensorSource& tensors)
      : config_(config), tensors_(tensors) {}

  ModelTensors collect() {
    add(config_.embedding_tensor);
    for (int layer = 0; layer < config_.num_layers; ++layer) add_layer(layer);
    add("model.norm.weight");
    add(config_.head_tensor());
    return std::move(result_);
  }

 private:
  void add(const std::string& name) {
    std::vector<std::string> stored = weights::stored_names(tensors_, name);
    if (stored.empty()) result_.missing.push_back(name);
    for (std::string& each : stored) result_.used.insert(std::move(each));
  }

  void add_all(const std::string& prefix, std::initializer_list<const char*> modules) {
    for (const char* module : modules) add(fmt::format("{}{}.weight", prefix, module));
  }

  void add_mlp(const std::string& prefix) {
    add_all(prefix, {".gate_proj", ".up_proj", ".down_proj"});
  }

  void add_attention(const std::string& prefix) {
    if (!config_.is_mla()) {
      return add_all(prefix, {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"});
    }
    if (config_.q_lora_rank == 0) {
      add_all(prefix, {"q_proj"});
    } else {
      add_all(prefix, {"q_a_proj", "q_a_layernorm", "q_b_proj"});
    }
    add_all(prefix, {"kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"});
  }

  void add_layer(int layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    add_all(prefix, {"input_layernorm", "post_attention_layernorm"});
    add_attention(prefix + "self_attn.");
    if (!config_.is_moe_layer[static_cast<size_t>(layer)]) return add_mlp(prefix + "mlp");
    add_all(prefix, {"mlp.gate"});
    if (config_.routing.method == RoutingMethod::kDeepseekV3) {
      add(prefix + "mlp.gate.e_score_correction_bias");
    }
    if (config_.num_shared_experts > 0) add_mlp(prefix + "mlp.shared_experts");
    for (int expert = 0; expert < config_.routing.num_experts; ++expert) {
      add_mlp(expert_prefix(layer, expert));
    }
  }

  const ModelConfig& config_;
  const weights::TensorSource& tensors_;
  ModelTensors result_;
};

}  // namespace

ModelTensors model_tensors(const ModelConfig& config, const weights::TensorSource& tensors) {
  return Collector(config, tensors).collect();
}

}  // namespace wideep::model
