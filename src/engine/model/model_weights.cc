// SPDX-License-Identifier: Apache-2.0
//
// Loading of everything but the routed experts (tensor_list.h).
//
// Tensors are asked for in the order of the layers, and each is checked at once; large ones are
// only queued, and loader.run() at the end reads and packs them with all threads. So no layer waits
// for the one before.
#include <fmt/format.h>

#include <cmath>

#include "base/numa.h"
#include "base/try.h"
#include "model/model.h"
#include "model/parts/compressed_attention.h"
#include "model/parts/gated_delta_net.h"
#include "model/parts/grouped_query_attention.h"
#include "model/parts/kimi_delta_attention.h"
#include "model/parts/latent_attention.h"
#include "model/parts/mamba2.h"
#include "model/parts/norms.h"
#include "model/parts/short_convolution.h"

namespace wideep::model {
namespace {

using kernels::WeightFormat;
using weights::WeightLoader;

// With the factor that comes after the norm.
Result<StreamNorm> load_router_norm(const ModelConfig& config, const WeightLoader& loader,
                                    const std::string& prefix) {
  StreamNorm norm{.weight = {}, .bias = {}, .eps = config.rms_norm_eps, .subtracts_mean = false};
  WIDEEP_TRY_ASSIGN(norm.weight, loader.floats(prefix + "gate.norm.weight", {config.hidden_size}));
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.hidden_size)));
  for (float& weight : norm.weight) weight *= factor;
  return norm;
}

Result<std::unique_ptr<MoeWeights>> load_moe(const ModelConfig& config, int layer,
                                             const WeightLoader& loader,
                                             const std::string& prefix) {
  auto moe = std::make_unique<MoeWeights>();
  const int num_experts = config.routing.num_experts;
  WIDEEP_TRY_ASSIGN(moe->router,
                    loader.matrix(prefix + "gate.weight", num_experts, config.hidden_size,
                                  weights::default_form(WeightFormat::kF32)));
  WIDEEP_TRY_ASSIGN(moe->logit_bias, load_bias(config.routing.logit_bias, loader,
                                               prefix + "gate.bias", num_experts));
  const bool by_token = config.layers[static_cast<size_t>(layer)].by_token;
  WIDEEP_TRY_ASSIGN(moe->router_bias,
                    load_bias(config.routing.selection_bias && !by_token, loader,
                              prefix + "gate.e_score_correction_bias", num_experts));
  if (by_token) {
    WIDEEP_TRY_ASSIGN(moe->experts_of_ids,
                      loader.integers(prefix + "gate.tid2eid",
                                      {config.vocab_size, config.routing.top_k}, num_experts));
  }
  if (config.routing.own_norm) {
    WIDEEP_TRY_ASSIGN(moe->router_norm, load_router_norm(config, loader, prefix));
  }
  WIDEEP_TRY_ASSIGN(moe->expert_scale, load_bias(config.routing.expert_scale, loader,
                                                 prefix + "gate.expert_scale", num_experts));
  if (const int latent = config.moe_latent_size; latent > 0) {
    WIDEEP_TRY_ASSIGN(moe->latent_in,
                      loader.matrix(prefix + "fc1_latent_proj.weight", latent, config.hidden_size));
    WIDEEP_TRY_ASSIGN(moe->latent_out,
                      loader.matrix(prefix + "fc2_latent_proj.weight", config.hidden_size, latent));
  }
  if (config.shared_intermediate_size == 0) return moe;
  WIDEEP_TRY_ASSIGN(moe->shared,
                    weights::load_mlp(loader, prefix + "shared_experts", config.hidden_size,
                                      config.shared_intermediate_size,
                                      {.activation = config.mlp_activation(layer)}));
  if (config.shared_expert_gate) {
    WIDEEP_TRY_ASSIGN(moe->shared_gate,
                      loader.matrix(prefix + "shared_expert_gate.weight", 1, config.hidden_size,
                                    weights::default_form(WeightFormat::kF32)));
  }
  return moe;
}

Result<std::unique_ptr<Mixer>> load_mixer(const ModelConfig& config, int layer,
                                          const WeightLoader& loader) {
  switch (config.layers[static_cast<size_t>(layer)].mixer) {
    case LayerConfig::Mixer::kAttention:
      if (config.is_compressed()) return CompressedAttention::load(config, layer, loader);
      return config.is_mla() ? LatentAttention::load(config, layer, loader)
                             : GroupedQueryAttention::load(config, layer, loader);
    case LayerConfig::Mixer::kDeltaNet:
      return GatedDeltaNet::load(config, layer, loader);
    case LayerConfig::Mixer::kKimiDelta:
      return KimiDeltaAttention::load(config, layer, loader);
    case LayerConfig::Mixer::kConvolution:
      return ShortConvolution::load(config, layer, loader);
    case LayerConfig::Mixer::kMamba2:
      return Mamba2::load(config, layer, loader);
    case LayerConfig::Mixer::kNone:
      break;
  }
  return failed("unreachable");
}

Result<std::unique_ptr<PredictionWeights>> load_prediction(const ModelConfig& config,
                                                           const WeightLoader& loader,
                                                           const std::string& prefix) {
  auto prediction = std::make_unique<PredictionWeights>();
  const int hidden = config.hidden_size;
  WIDEEP_TRY_ASSIGN(prediction->embedding_norm, load_stream_norm(config, loader, prefix + "enorm"));
  WIDEEP_TRY_ASSIGN(prediction->hidden_norm, load_stream_norm(config, loader, prefix + "hnorm"));
  if (config.hyper.is_on()) {
    const weights::MatrixForm form = loader.common_form(
        {{prefix + "e_proj.weight", hidden}, {prefix + "h_proj.weight", hidden}});
    WIDEEP_TRY_ASSIGN(prediction->projection,
                      loader.matrix(prefix + "e_proj.weight", hidden, hidden, form));
    WIDEEP_TRY_ASSIGN(prediction->stream_projection,
                      loader.matrix(prefix + "h_proj.weight", hidden, hidden, form));
    if (config.hyper.learned_end) {
      WIDEEP_TRY_ASSIGN(prediction->end_hyper,
                        HyperWeights::load(config, loader, prefix + "hc_head"));
    }
  } else {
    WIDEEP_TRY_ASSIGN(prediction->projection,
                      loader.matrix(prefix + "eh_proj.weight", hidden, 2 * hidden));
  }
  WIDEEP_TRY_ASSIGN(prediction->final_norm,
                    load_stream_norm(config, loader, prefix + "shared_head.norm"));
  return prediction;
}

Result<Layer> load_layer(const ModelConfig& config, int index, const WeightLoader& loader) {
  Layer layer;
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const int hidden = config.hidden_size;
  if (config.is_prediction(index)) {
    WIDEEP_TRY_ASSIGN(layer.prediction, load_prediction(config, loader, prefix));
  }
  const auto norm = [&](bool has, const char* name) -> Result<StreamNorm> {
    if (!has) return StreamNorm();
    return load_stream_norm(config, loader, prefix + name);
  };
  if (const bool has_mixer = config.has_mixer(index); has_mixer) {
    WIDEEP_TRY_ASSIGN(layer.mixer_norm, norm(has_mixer, "input_layernorm"));
    WIDEEP_TRY_ASSIGN(layer.mixer, load_mixer(config, index, loader));
    if (config.hyper.is_on()) {
      WIDEEP_TRY_ASSIGN(layer.mixer_hyper, HyperWeights::load(config, loader, prefix + "attn_hc"));
    }
    WIDEEP_TRY_ASSIGN(layer.mixer_output_norm, norm(config.norms_after, "mixer_output_norm"));
  }
  const bool has_mlp = config.has_mlp(index), norms_after = has_mlp && config.norms_after;
  WIDEEP_TRY_ASSIGN(layer.mlp_norm,
                    norm(has_mlp && !config.parallel_parts, "post_attention_layernorm"));
  WIDEEP_TRY_ASSIGN(layer.mlp_output_norm, norm(norms_after, "mlp_output_norm"));
  if (has_mlp && config.hyper.is_on()) {
    WIDEEP_TRY_ASSIGN(layer.mlp_hyper, HyperWeights::load(config, loader, prefix + "ffn_hc"));
  }
  const bool is_moe = config.is_moe(index), is_beside = is_moe && config.dense_beside_experts;
  if (is_moe) {
    WIDEEP_TRY_ASSIGN(layer.moe, load_moe(config, index, loader, prefix + "mlp."));
  }
  if (config.is_dense(index) || is_beside) {
    WIDEEP_TRY_ASSIGN(
        layer.mlp, weights::load_mlp(
                       loader, prefix + "mlp", hidden, config.dense_intermediate_size,
                       {.biased = config.dense_bias, .activation = config.mlp_activation(index)}));
  }
  WIDEEP_TRY_ASSIGN(layer.dense_output_norm, norm(is_beside, "mlp.dense_output_norm"));
  WIDEEP_TRY_ASSIGN(layer.experts_norm, norm(is_beside, "mlp.experts_norm"));
  WIDEEP_TRY_ASSIGN(layer.experts_output_norm, norm(is_beside, "mlp.experts_output_norm"));
  if (config.layer_scalar) {
    WIDEEP_TRY_ASSIGN(const std::vector<float> scalar, loader.floats(prefix + "layer_scalar", {1}));
    layer.scalar = scalar.front();
  }
  return layer;
}

}  // namespace

Result<ModelWeights> ModelWeights::load(const ModelConfig& config, const WeightLoader& loader,
                                        std::optional<parallel::LayerRange> of_layers) {
  const parallel::LayerRange layers =
      of_layers.value_or(parallel::LayerRange{0, config.num_all_layers()});
  const bool is_last = layers.last == config.num_all_layers();
  ModelWeights model;
  model.dtype = loader.row_dtype();
  const int vocab = config.vocab_size, hidden = config.hidden_size;
  if (layers.first == 0 || (is_last && config.num_prediction_layers > 0)) {
    model.embedding =
        base::AlignedBytes(static_cast<size_t>(vocab) * hidden * dtype_bytes(model.dtype));
    // All ranks of the machine read the embedding, so it is not placed near one of them.
    base::spread_over_numa_nodes(model.embedding.data(), model.embedding.size());
    WIDEEP_TRY(
        loader.rows(config.embedding_tensor, vocab, hidden, model.dtype, model.embedding.data()));
  }
  model.layers.resize(static_cast<size_t>(config.num_all_layers()));
  for (int layer = layers.first; layer < layers.last; ++layer) {
    WIDEEP_TRY_ASSIGN(model.layers[static_cast<size_t>(layer)], load_layer(config, layer, loader));
  }
  if (is_last) {
    if (config.hyper.learned_end) {
      WIDEEP_TRY_ASSIGN(model.end_hyper, HyperWeights::load(config, loader, "model.hc_head"));
    }
    WIDEEP_TRY_ASSIGN(model.final_norm, load_stream_norm(config, loader, "model.norm"));
    WIDEEP_TRY_ASSIGN(model.lm_head, loader.matrix(config.head_tensor(), vocab, hidden));
    WIDEEP_TRY_ASSIGN(model.head_bias, load_bias(config.head_bias, loader, "lm_head.bias", vocab));
  }
  WIDEEP_TRY(loader.run());
  return model;
}

}  // namespace wideep::model
