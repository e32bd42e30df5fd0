// SPDX-License-Identifier: Apache-2.0
//
// What loading a model takes of memory at its peak, against what the weights are: a process of its
// own loads a checkpoint with random weights, and its anonymous pages are counted all along. Those
// of the file are the page cache's.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/proc_file.h"
#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "model/config/config_testing.h"
#include "model/model.h"
#include "model/model_division.h"
#include "online/weight_updater.h"
#include "run/memory_plan.h"
#include "weights/checkpoint.h"

namespace wideep::run {
namespace {

using kernels::WeightFormat;

nlohmann::json config_json(bool tied) {
  nlohmann::json json = model::golden_json("qwen3_gqa");
  json.erase("num_local_experts");
  json.update({{"vocab_size", 4096},
               {"hidden_size", 512},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 8},
               {"num_key_value_heads", 2},
               {"head_dim", 64},
               {"num_experts", 16},
               {"num_experts_per_tok", 2},
               {"moe_intermediate_size", 384},
               {"mlp_only_layers", nlohmann::json::array()},
               {"decoder_sparse_step", 1},
               {"tie_word_embeddings", tied}});
  return json;
}

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

Shapes tensor_shapes(const model::ModelConfig& config) {
  const int64_t hidden = config.hidden_size, vocab = config.vocab_size, dim = config.head_dim;
  const int64_t q = config.num_heads * dim, kv = config.num_kv_heads * dim;
  Shapes shapes = {{"model.embed_tokens.weight", {vocab, hidden}}, {"model.norm.weight", {hidden}}};
  if (!config.tie_word_embeddings) shapes.push_back({"lm_head.weight", {vocab, hidden}});
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    shapes.insert(shapes.end(), {{layer + "input_layernorm.weight", {hidden}},
                                 {layer + "post_attention_layernorm.weight", {hidden}},
                                 {attention + "q_proj.weight", {q, hidden}},
                                 {attention + "k_proj.weight", {kv, hidden}},
                                 {attention + "v_proj.weight", {kv, hidden}},
                                 {attention + "o_proj.weight", {hidden, q}},
                                 {attention + "q_norm.weight", {dim}},
                                 {attention + "k_norm.weight", {dim}},
                                 {mlp + "gate.weight", {config.routing.num_experts, hidden}}});
    for (int j = 0; j < config.routing.num_experts; ++j) {
      const std::string expert = fmt::format("{}experts.{}.", mlp, j);
      const int64_t width = config.moe_intermediate_size;
      shapes.insert(shapes.end(), {{expert + "gate_proj.weight", {width, hidden}},
                                   {expert + "up_proj.weight", {width, hidden}},
                                   {expert + "down_proj.weight", {hidden, width}}});
    }
  }
  return shapes;
}

Status write_checkpoint(const model::ModelConfig& config, const std::string& path) {
  std::mt19937 rng(1);
  std::vector<Bf16> values(static_cast<size_t>(config.vocab_size) * config.hidden_size);
  for (Bf16& value : values) value = Bf16(static_cast<float>(rng() % 1000) * 1e-3f - 0.5f);
  std::vector<tensor_files::TensorToWrite> tensors;
  for (const auto& [name, shape] : tensor_shapes(config)) {
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    tensors.push_back({name, Dtype::kBf16, shape, std::as_bytes(std::span(values).first(count))});
  }
  return tensor_files::write_safetensors(path, tensors);
}

uint64_t anonymous_kib() { return base::read_field("/proc/self/status", "RssAnon").value_or(0); }

// Bytes by which anonymous memory grew at its peak; 0 when loading failed.
uint64_t peak_of_loading(const model::ModelConfig& config, const std::string& dir,
                         WeightFormat format) {
  const auto checkpoint = weights::Checkpoint::open(dir);
  if (!checkpoint.ok()) return 0;
  balance::ModelPlacement placement;
  for (const int layer : model::moe_layers(config)) {
    placement.layers[layer] = *balance::linear_placement(config.routing.num_experts, 1);
  }
  base::ThreadPool pool(2);
  const uint64_t before = anonymous_kib();
  uint64_t peak = before;
  const auto look = [&](uint64_t) { peak = std::max(peak, anonymous_kib()); };
  const weights::WeightLoader loader(*checkpoint, format, look, &pool);
  const auto dense = model::ModelWeights::load(config, loader);
  const auto slots = model::ExpertSlots::load(config, loader, placement, 0);
  look(0);
  return dense.ok() && slots.ok() ? (peak - before) * 1024 : 0;
}

// Shared memory counts too: the host pool.
uint64_t resident_kib() {
  return anonymous_kib() + base::read_field("/proc/self/status", "RssShmem").value_or(0);
}

// Moves every expert of a layer once, so that all spare records are in use.
bool use_all_spares(online::UpdateBoard& board, online::WeightUpdater& updater,
                    std::vector<int32_t> slot_to_expert) {
  std::rotate(slot_to_expert.begin(), slot_to_expert.begin() + 1, slot_to_expert.end());
  board.post(0, slot_to_expert, {});
  transport::AgreedWords words = {};
  for (int i = 0; i < 5000 && words == transport::AgreedWords{}; ++i) {
    ::usleep(1000);
    updater.write_states(words);
  }
  return online::has(online::decide(std::span(&words, 1)).publish, 0);
}

// What online balancing keeps in memory at its peak, on a node with one rank: pool, slots, spares.
uint64_t peak_of_online(const model::ModelConfig& config, const std::string& dir,
                        WeightFormat format) {
  const auto checkpoint = weights::Checkpoint::open(dir);
  if (!checkpoint.ok()) return 0;
  const int num_experts = config.routing.num_experts;
  const std::vector<int> layers = model::moe_layers(config);
  balance::ModelPlacement placement;
  for (const int layer : layers) {
    placement.layers[layer] = *balance::linear_placement(num_experts, 1);
  }
  const std::vector<std::vector<int32_t>> slots_of_layers(
      layers.size(), placement.layers.begin()->second.slot_to_expert);
  base::ThreadPool threads(2);
  const uint64_t before = resident_kib();
  uint64_t peak = before;
  const auto look = [&](uint64_t) { peak = std::max(peak, resident_kib()); };
  const weights::WeightLoader loader(*checkpoint, format, look, &threads);
  const int num_layers = static_cast<int>(layers.size());
  auto pool = weights::HostPool::create(experts_shape(config, loader), num_layers, num_experts);
  const auto board = online::UpdateBoard::create({1, num_layers, num_experts});
  if (!pool.ok() || !model::fill_host_pool(layers, loader, 0, threads, **pool).ok()) return 0;
  look(0);
  const auto slots = model::ExpertSlots::copy(**pool, placement, 0, threads);
  online::WeightUpdater updater(**board, **pool, slots_of_layers, {.num_spares = num_experts});
  const bool moved = use_all_spares(**board, updater, slots_of_layers[0]);
  look(0);
  return slots.ok() && moved ? (peak - before) * 1024 : 0;
}

using Measured = uint64_t(const model::ModelConfig&, const std::string&, WeightFormat);

// The same in a process of its own, whose heap has no memory to spare.
uint64_t peak_in_child(Measured* measure, const model::ModelConfig& config, const std::string& dir,
                       WeightFormat format) {
  int fds[2];
  EXPECT_EQ(::pipe(fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const uint64_t peak = measure(config, dir, format);
    ::_exit(::write(fds[1], &peak, sizeof(peak)) == sizeof(peak) ? 0 : 1);
  }
  uint64_t peak = 0;
  EXPECT_EQ(::read(fds[0], &peak, sizeof(peak)), static_cast<ssize_t>(sizeof(peak)));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int fd : fds) ::close(fd);
  return peak;
}

TEST(LoadMemory, PeakIsTheWeightsAndLittleMore) {
  if (base::kSanitized) GTEST_SKIP() << "the sanitizer has memory of its own";
  if (anonymous_kib() == 0) GTEST_SKIP() << "the kernel does not count anonymous pages";
  for (const bool tied : {false, true}) {
    const auto config = model::parse(config_json(tied));
    ASSERT_TRUE(config.ok()) << config.status().message();
    const base::ScratchDirectory scratch;
    ASSERT_TRUE(write_checkpoint(*config, scratch.file("model.safetensors")).ok());
    for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8}) {
      const ep::DispatchShape shape = dispatch_shape(
          *config, {.num_slots = config->routing.num_experts, .max_num_tokens = 1}, format);
      const MemoryPlan plan = plan_memory(*config, shape, format, Dtype::kBf16);
      const auto planned = static_cast<double>(plan.dense_weights + plan.slots_per_rank);
      const auto peak =
          static_cast<double>(peak_in_child(peak_of_loading, *config, scratch.path(), format));
      SCOPED_TRACE(fmt::format("{}{}: {:.1f} of {:.1f} MiB planned",
                               kernels::weight_format_name(format), tied ? ", tied" : "",
                               peak / (1 << 20), planned / (1 << 20)));
      RecordProperty(tied ? "tied" : "untied", std::to_string(peak / planned));
      EXPECT_GE(peak, 0.95 * planned);
      EXPECT_LE(peak, 1.15 * planned);
    }
  }
}

TEST(LoadMemory, OnlineBalancingAddsThePoolAndTheSpares) {
  if (base::kSanitized) GTEST_SKIP() << "the sanitizer has memory of its own";
  if (anonymous_kib() == 0) GTEST_SKIP() << "the kernel does not count anonymous pages";
  const auto config = model::parse(config_json(false));
  ASSERT_TRUE(config.ok()) << config.status().message();
  const base::ScratchDirectory scratch;
  ASSERT_TRUE(write_checkpoint(*config, scratch.file("model.safetensors")).ok());
  const weights::ExpertShape expert{WeightFormat::kBf16, config->hidden_size,
                                    config->moe_intermediate_size};
  const auto layers = static_cast<double>(model::moe_layers(*config).size());
  // Pool and slots: all experts of all layers each; spares: those of one layer.
  const double planned =
      (2 * layers + 1) * config->routing.num_experts * static_cast<double>(expert.record_bytes());
  const auto peak = static_cast<double>(
      peak_in_child(peak_of_online, *config, scratch.path(), WeightFormat::kBf16));
  SCOPED_TRACE(fmt::format("{:.1f} of {:.1f} MiB", peak / (1 << 20), planned / (1 << 20)));
  RecordProperty("ratio", std::to_string(peak / planned));
  EXPECT_GE(peak, 0.95 * planned);
  EXPECT_LE(peak, 1.15 * planned);
}

}  // namespace
}  // namespace wideep::run
