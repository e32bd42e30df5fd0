// SPDX-License-Identifier: Apache-2.0
//
// A canonical name is first located: one tensor of that meaning, or the tensors that it is a part
// of (Located::Kind). For matrices that gives a list of stored rows and an order of columns, which
// BlockMatrix reads as asked, without a copy of the tensor. Vectors are small: where values differ,
// they are converted once and kept.
//
// match() opens every tensor that loading will ask for. What is left over then decides: a bias or
// scale that nobody reads is an error, since the model would compute something else; the rest is
// named.
#include "model/gguf/gguf_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "model/gguf/gguf_config.h"
#include "model/gguf/key_value_b.h"
#include "model/tensor_list.h"
#include "tensor_files/shape.h"
#include "weights/blocks.h"
#include "weights/sampled_hash.h"

namespace wideep::model {
namespace {

using kernels::WeightFormat;
using tensor_files::BlockType;
using tensor_files::GgufTensor;
using tensor_files::TensorEntry;
using weights::BlockMatrix;
using weights::BlockRow;
using weights::BlockRows;
using weights::MatrixForm;

std::optional<Dtype> float_dtype(BlockType type) {
  if (type == BlockType::kF32) return Dtype::kF32;
  if (type == BlockType::kF16) return Dtype::kF16;
  if (type == BlockType::kBf16) return Dtype::kBf16;
  return std::nullopt;
}

std::vector<int64_t> squeezed(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

int64_t rows_in(const GgufTensor& tensor) { return tensor.num_elements() / tensor.columns(); }

// The stored index of each asked one, of heads of `width` that lie side by side in the file (value
// head j of all key heads before value head j + 1) and by key head here.
std::vector<int32_t> heads_by_key_head(const DeltaNetConfig& net, int width, int offset) {
  const int each = net.num_value_heads / net.num_key_heads;
  std::vector<int32_t> order;
  for (int head = 0; head < net.num_value_heads; ++head) {
    const int stored = head % each * net.num_key_heads + head / each;
    for (int i = 0; i < width; ++i) order.push_back(offset + stored * width + i);
  }
  return order;
}

// Pairs (i, i + d/2) of each head, which the file has as neighbours.
std::vector<int32_t> rotated_rows(int n, int head_dim) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  for (int row = 0; row < n; ++row) {
    const int head = row / head_dim, at = row % head_dim, half = head_dim / 2;
    order[static_cast<size_t>(row)] = head * head_dim + at % half * 2 + at / half;
  }
  return order;
}

bool holds_one_plus_weight(const ModelConfig& config, const TensorName& name) {
  return config.norms_add_one && name.module.ends_with("norm") &&
         name.module != "linear_attn.norm" && name.ending == ".weight";
}

}  // namespace

GgufTensors::GgufTensors(tensor_files::GgufFiles files, const ModelConfig& config,
                         bool moves_rotated_rows)
    : files_(std::move(files)), config_(config), moves_rotated_rows_(moves_rotated_rows) {
  for (const tensor_files::GgufFile& file : files_.files()) {
    states_.push_back(formats::file_state(file.path()));
  }
}

Result<std::unique_ptr<GgufTensors>> GgufTensors::reopen(const std::string& path,
                                                         const ModelConfig& config) {
  WIDEEP_TRY_ASSIGN(tensor_files::GgufFiles files, tensor_files::GgufFiles::open(path));
  WIDEEP_TRY_ASSIGN(const GgufConfig found, gguf_config(files));
  return std::unique_ptr<GgufTensors>(
      new GgufTensors(std::move(files), config, found.moves_rotated_rows));
}

Result<std::unique_ptr<GgufTensors>> GgufTensors::open(const std::string& path,
                                                       ModelConfig* config) {
  WIDEEP_TRY_ASSIGN(auto tensors, reopen(path, *config));
  WIDEEP_TRY(tensors->match(config));
  return tensors;
}

Result<std::unique_ptr<GgufTensors>> GgufTensors::of(tensor_files::GgufFiles files,
                                                     ModelConfig* config) {
  WIDEEP_TRY_ASSIGN(const GgufConfig found, gguf_config(files));
  std::unique_ptr<GgufTensors> tensors(
      new GgufTensors(std::move(files), *config, found.moves_rotated_rows));
  WIDEEP_TRY(tensors->match(config));
  return tensors;
}

const GgufTensor* GgufTensors::find_gguf(const std::string& name) const {
  for (const tensor_files::GgufFile& file : files_.files()) {
    const auto found = file.tensors().find(name);
    if (found != file.tensors().end()) return &found->second;
  }
  return nullptr;
}

GgufTensors::Located GgufTensors::locate(const TensorName& name) const {
  Located located;
  const auto add = [&](const std::string& gguf) {
    const GgufTensor* found = find_gguf(gguf);
    if (found == nullptr) return false;
    located.names.push_back(gguf);
    located.tensors.push_back(found);
    return true;
  };
  // Layers of one part have one norm, which is called as that of mixers.
  TensorName norm = name;
  const bool is_alone =
      name.layer >= 0 && name.layer < config_.num_all_layers() && !config_.has_mixer(name.layer);
  if (is_alone && name.module == "post_attention_layernorm") norm.module = "input_layernorm";
  for (const GgufName& each : gguf_names(norm)) {
    if (!add(each.name)) continue;
    located.of_all_experts = each.of_all_experts;
    return located;
  }
  const auto combined = [&](Located::Kind kind, std::initializer_list<const char*> parts) {
    for (const char* part : parts) {
      if (!add(gguf_name(name.layer, part, name.ending))) {
        located.names.clear();
        located.tensors.clear();
        return;
      }
    }
    located.kind = kind;
  };
  using Kind = Located::Kind;
  const bool has_gate = config_.activation.has_gate();
  if (name.expert >= 0 && has_gate && !name.module.ends_with(".down_proj")) {
    combined(Kind::kGateUp, {"ffn_gate_up_exps"});
    located.of_all_experts = !located.tensors.empty();
  } else if (name.module == "self_attn.q_proj" || name.module == "self_attn.k_proj" ||
             name.module == "self_attn.v_proj") {
    combined(Kind::kQkv, {"attn_qkv"});
  } else if (name.module == "linear_attn.in_proj_qkvz") {
    combined(Kind::kDeltaInput, {"attn_qkv", "attn_gate"});
  } else if (name.module == "self_attn.kv_b_proj") {
    combined(Kind::kKeyValueB, {"attn_k_b", "attn_v_b"});
  }
  return located;
}

std::string GgufTensors::where_of(const Located& located, const std::string& name) const {
  if (located.names.empty()) {
    const std::vector<GgufName> names = gguf_names(TensorName::parse(name));
    return fmt::format("{}: tensor '{}'", files_.first().path(),
                       names.empty() ? base::printable(name) : names.front().name);
  }
  const std::string& first = located.names.front();
  for (const tensor_files::GgufFile& file : files_.files()) {
    if (file.tensors().contains(first)) return fmt::format("{}: tensor '{}'", file.path(), first);
  }
  return first;
}

std::string GgufTensors::where(const std::string& name) const {
  return where_of(locate(TensorName::parse(name)), name);
}

Status GgufTensors::check_unchanged() const {
  for (size_t i = 0; i < states_.size(); ++i) {
    WIDEEP_TRY(formats::check_unchanged(files_.files()[i].path(), states_[i]));
  }
  return {};
}

std::string GgufTensors::fingerprint() const {
  std::vector<weights::SampledTensor> sampled;
  for (const tensor_files::GgufFile& file : files_.files()) {
    for (const auto& [name, tensor] : file.tensors()) {
      sampled.push_back({name, block_type_name(tensor.type), tensor.shape, tensor.bytes});
    }
  }
  return weights::sampled_hash(sampled);
}

// ---- vectors ----

Result<const TensorEntry*> GgufTensors::tensor(const std::string& name,
                                               const std::vector<int64_t>& shape) const {
  WIDEEP_TRY_ASSIGN(const weights::TensorSlice found, slice(name, shape));
  return found.entry;
}

Result<const TensorEntry*> GgufTensors::tensor(const std::string& name,
                                               const std::vector<int64_t>& shape,
                                               std::span<const Dtype> dtypes) const {
  if (std::ranges::find(dtypes, Dtype::kI32) == dtypes.end()) return tensor(name, shape);
  const Located located = locate(TensorName::parse(name));
  if (located.tensors.empty()) return invalid_input(where_of(located, name) + ": missing");
  const GgufTensor& stored = *located.tensors.front();
  if (stored.type != BlockType::kI32 || squeezed(stored.shape) != squeezed(shape)) {
    return invalid_input(fmt::format("{}: expected {} of I32, found {} of {}",
                                     where_of(located, name), tensor_files::describe(shape),
                                     tensor_files::describe(stored.shape),
                                     tensor_files::block_type_name(stored.type)));
  }
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Converted>& kept = converted_[located.names.front()];
  if (kept == nullptr) {
    kept = std::make_unique<Converted>();
    kept->entry = {Dtype::kI32, shape, stored.bytes};
  }
  return &kept->entry;
}

Result<weights::TensorSlice> GgufTensors::slice(const std::string& name,
                                                const std::vector<int64_t>& shape) const {
  const TensorName parsed = TensorName::parse(name);
  const Located located = locate(parsed);
  if (located.tensors.empty()) return invalid_input(where_of(located, name) + ": missing");
  const int64_t size = shape.empty() ? 1 : shape.front();
  const bool is_bias_of_part = located.kind == Located::Kind::kQkv;
  std::vector<int64_t> expected = {size};
  if (located.of_all_experts) expected.insert(expected.begin(), config_.routing.num_experts);
  const GgufTensor& stored = *located.tensors.front();
  // Mamba-2's norm is a row for each of its groups.
  const bool is_in_rows = parsed.module == "mamba.norm" && stored.num_elements() == size;
  if (!float_dtype(stored.type) || shape.size() != 1 ||
      (!is_bias_of_part && !is_in_rows && squeezed(stored.shape) != squeezed(expected))) {
    return invalid_input(fmt::format("{}: expected {} of F32, F16 or BF16, found {} of {}",
                                     where_of(located, name), tensor_files::describe(expected),
                                     tensor_files::describe(stored.shape),
                                     tensor_files::block_type_name(stored.type)));
  }
  WIDEEP_TRY_ASSIGN(const TensorEntry* entry, converted(name, parsed, located, size));
  weights::TensorSlice slice = {entry, 0, 1, size, size, 1};
  const bool is_whole = entry->num_elements() == size;
  if (located.of_all_experts && !is_whole) slice.first = parsed.expert * size;
  return slice;
}

// The tensor itself where its values are those of the asked one, else a copy.
Result<const TensorEntry*> GgufTensors::converted(const std::string& name, const TensorName& parsed,
                                                  const Located& located, int64_t size) const {
  const GgufTensor& stored = *located.tensors.front();
  std::vector<int32_t> order = row_order(parsed, static_cast<int>(size));
  const bool adds_one = holds_one_plus_weight(config_, parsed);
  const bool is_decay = parsed.module.ends_with(".A_log");
  const bool is_part = located.kind == Located::Kind::kQkv;
  const bool copies = !order.empty() || adds_one || is_decay || is_part;
  const std::string& key = copies ? name : located.names.front();
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Converted>& kept = converted_[key];
  if (kept != nullptr) return &kept->entry;
  auto made = std::make_unique<Converted>();
  if (!copies) {
    made->entry = {*float_dtype(stored.type), stored.shape, stored.bytes};
    kept = std::move(made);
    return &kept->entry;
  }
  int64_t first = 0;
  if (is_part) {
    const int64_t queries = int64_t{config_.num_heads} * config_.head_dim;
    const int64_t keys = int64_t{config_.num_kv_heads} * config_.head_dim;
    if (parsed.module != "self_attn.q_proj") first = queries;
    if (parsed.module == "self_attn.v_proj") first += keys;
    if (stored.num_elements() != queries + 2 * keys) {
      converted_.erase(key);
      return invalid_input(fmt::format("{}: expected [{}], found {}", where_of(located, name),
                                       queries + 2 * keys, tensor_files::describe(stored.shape)));
    }
  }
  std::vector<float> values(static_cast<size_t>(stored.num_elements()));
  weights::dequantize_blocks(stored.type, stored.bytes.data(), stored.num_elements(),
                             values.data());
  if (order.empty()) {
    order.resize(static_cast<size_t>(size));
    std::iota(order.begin(), order.end(), 0);
  }
  for (const int32_t at : order) {
    float value = values[static_cast<size_t>(first + at)];
    if (adds_one) value -= 1.0f;
    if (is_decay) value = std::log(std::abs(value));  // of exp(A_log), of most files negated
    made->values.push_back(value);
  }
  made->entry = {Dtype::kF32, {size}, std::as_bytes(std::span(made->values))};
  kept = std::move(made);
  return &kept->entry;
}

// ---- matrices ----

std::vector<int32_t> GgufTensors::row_order(const TensorName& name, int n) const {
  const bool rotates = name.module == "self_attn.q_proj" || name.module == "self_attn.k_proj";
  if (moves_rotated_rows_ && rotates) return rotated_rows(n, config_.head_dim);
  const DeltaNetConfig& net = config_.delta_net;
  if (net.fused_projections || net.num_value_heads <= net.num_key_heads) return {};
  if (name.module == "linear_attn.in_proj_z") return heads_by_key_head(net, net.value_dim, 0);
  for (const char* each : {"in_proj_b", "in_proj_a", "A_log", "dt_bias"}) {
    if (name.module == std::string("linear_attn.") + each) return heads_by_key_head(net, 1, 0);
  }
  if (name.module != "linear_attn.in_proj_qkv" && name.module != "linear_attn.conv1d") return {};
  const int before = 2 * net.key_width();
  std::vector<int32_t> order(static_cast<size_t>(before));
  std::iota(order.begin(), order.end(), 0);
  const std::vector<int32_t> values = heads_by_key_head(net, net.value_dim, before);
  order.insert(order.end(), values.begin(), values.end());
  return order;
}

Result<BlockRows> GgufTensors::rows_of(const TensorName& name, const Located& located, int n,
                                       int k) const {
  using Kind = Located::Kind;
  BlockRows rows;
  rows.parts = located.tensors;
  // The rows that the tensors must have.
  int64_t expected = n;
  if (located.kind == Kind::kGateUp) expected = int64_t{2} * n;
  if (located.of_all_experts) {
    rows.first = name.expert * expected;
    expected *= config_.routing.num_experts;
  }
  if (located.kind == Kind::kGateUp && name.module.ends_with(".up_proj")) rows.first += n;
  const int64_t queries = int64_t{config_.num_heads} * config_.head_dim;
  const int64_t keys = int64_t{config_.num_kv_heads} * config_.head_dim;
  if (located.kind == Kind::kQkv) {
    expected = (config_.grouped_query.output_gate ? 2 : 1) * queries + 2 * keys;
    if (name.module != "self_attn.q_proj") rows.first = expected - 2 * keys;
    if (name.module == "self_attn.v_proj") rows.first += keys;
  }
  const DeltaNetConfig& net = config_.delta_net;
  if (located.kind == Kind::kDeltaInput) {
    // By key head: query, key, values and gates of its value heads.
    const int values = net.value_width() / std::max(1, net.num_key_heads);
    for (int head = 0; head < net.num_key_heads; ++head) {
      const auto add = [&](int part, int begin, int count) {
        for (int i = 0; i < count; ++i) rows.map.push_back({part, begin + i});
      };
      add(0, head * net.key_dim, net.key_dim);
      add(0, net.key_width() + head * net.key_dim, net.key_dim);
      add(0, 2 * net.key_width() + head * values, values);
      add(1, head * values, values);
    }
    expected = net.convolved_width();
  }
  for (size_t i = 0; i < rows.parts.size(); ++i) {
    const GgufTensor& part = *rows.parts[i];
    const int64_t wanted = i == 0 ? expected : net.value_width();
    if (part.type == BlockType::kI32) {
      return invalid_input(where_of(located, name.module) + ": expected weights, found I32");
    }
    if (part.columns() == k && rows_in(part) == wanted) continue;
    return invalid_input(fmt::format("{}: expected {} rows of {}, found {}",
                                     where_of(located, name.module), wanted, k,
                                     tensor_files::describe(part.shape)));
  }
  const std::vector<int32_t> order = row_order(name, n);
  for (const int32_t row : order) {
    rows.map.push_back({0, static_cast<int32_t>(rows.first) + row});
  }
  if (const int step = column_step(name); step > 0) {
    rows.column_step = step;
    rows.columns = heads_by_key_head(net, 1, 0);
  }
  return rows;
}

Result<std::shared_ptr<const weights::RowSource>> GgufTensors::open_rows(const std::string& name,
                                                                         int n, int k) const {
  const TensorName parsed = TensorName::parse(name);
  const Located located = locate(parsed);
  if (located.tensors.empty()) return invalid_input(where_of(located, name) + ": missing");
  if (located.kind == Located::Kind::kKeyValueB) {
    const GgufTensor& keys = *located.tensors[0];
    const GgufTensor& values = *located.tensors[1];
    const int64_t heads = config_.num_heads;
    const std::vector<int64_t> of_keys = {heads, k, config_.qk_nope_head_dim};
    const std::vector<int64_t> of_values = {heads, config_.v_head_dim, k};
    if (keys.shape != of_keys || values.shape != of_values) {
      return invalid_input(
          fmt::format("{}: expected {} and values {}, found {} and {}", where_of(located, name),
                      tensor_files::describe(of_keys), tensor_files::describe(of_values),
                      tensor_files::describe(keys.shape), tensor_files::describe(values.shape)));
    }
    return std::shared_ptr<const weights::RowSource>(std::make_shared<KeyValueB>(keys, values));
  }
  WIDEEP_TRY_ASSIGN(BlockRows rows, rows_of(parsed, located, n, k));
  return std::shared_ptr<const weights::RowSource>(
      std::make_shared<BlockMatrix>(std::move(rows), n, k));
}

int GgufTensors::column_step(const TensorName& name) const {
  const DeltaNetConfig& net = config_.delta_net;
  const bool by_value_head = name.module == "linear_attn.out_proj" && !net.fused_projections &&
                             net.num_value_heads > net.num_key_heads;
  return by_value_head ? net.value_dim : 0;
}

bool GgufTensors::holds(const std::string& name, const MatrixForm& form) const {
  const TensorName parsed = TensorName::parse(name);
  const Located located = locate(parsed);
  if (located.kind == Located::Kind::kKeyValueB) return false;
  const int step = column_step(parsed);
  return std::ranges::all_of(located.tensors, [&](const GgufTensor* tensor) {
    return BlockMatrix::holds(tensor->type, form, step);
  });
}

MatrixForm GgufTensors::form_of(const std::vector<std::string>& names) const {
  std::set<BlockType> types;
  int step = 0;
  for (const std::string& name : names) {
    const TensorName parsed = TensorName::parse(name);
    const Located located = locate(parsed);
    if (located.tensors.empty() || located.kind == Located::Kind::kKeyValueB) {
      return weights::default_form(WeightFormat::kBf16);
    }
    for (const GgufTensor* tensor : located.tensors) types.insert(tensor->type);
    step = std::max(step, column_step(parsed));
  }
  return BlockMatrix::form_of(std::vector<BlockType>(types.begin(), types.end()), step);
}

std::vector<std::string> GgufTensors::names_of(const std::string& name) const {
  return locate(TensorName::parse(name)).names;
}

uint64_t GgufTensors::bytes_of(const std::string& name, int64_t num_elements) const {
  uint64_t bytes = 0, elements = 0;
  for (const GgufTensor* tensor : locate(TensorName::parse(name)).tensors) {
    bytes += tensor->bytes.size();
    elements += static_cast<uint64_t>(tensor->num_elements());
  }
  if (elements == 0) return 0;
  return static_cast<uint64_t>(static_cast<double>(bytes) * static_cast<double>(num_elements) /
                               static_cast<double>(elements));
}

std::string GgufTensors::type_of(const std::string& name) const {
  std::set<std::string_view> types;
  for (const GgufTensor* tensor : locate(TensorName::parse(name)).tensors) {
    types.insert(tensor_files::block_type_name(tensor->type));
  }
  return fmt::format("{}", fmt::join(types, " and "));
}

// ---- the comparison with the metadata ----

Status GgufTensors::match(ModelConfig* config) const {
  std::set<std::string> used = {"rope_freqs.weight"};
  if (config->rope.has_lengths()) {
    used.insert({"rope_factors_long.weight", "rope_factors_short.weight"});
  }
  // Shapes are compared here, before ranks start.
  const auto use = [&](const std::vector<ListedTensor>& tensors) -> Status {
    for (const ListedTensor& tensor : tensors) {
      for (std::string& name : names_of(tensor.name)) used.insert(std::move(name));
      if (tensor.shape.size() != 2) {
        WIDEEP_TRY(slice(tensor.name, tensor.shape).status());
        continue;
      }
      if (tensor.name.ends_with("tid2eid")) {
        constexpr Dtype kTable[] = {Dtype::kI32};
        WIDEEP_TRY(this->tensor(tensor.name, tensor.shape, kTable).status());
        continue;
      }
      const auto n = static_cast<int>(tensor.shape[0]), k = static_cast<int>(tensor.shape[1]);
      WIDEEP_TRY(open_rows(tensor.name, n, k).status());
    }
    return {};
  };
  WIDEEP_TRY(use(outer_tensors(*config)));
  for (int layer = 0; layer < config->num_all_layers(); ++layer) {
    WIDEEP_TRY(use(layer_tensors(*config, layer)));
    if (!config->is_moe(layer)) continue;
    // One tensor holds all experts, except in old files.
    const bool merged = locate({"mlp.experts.down_proj", ".weight", layer, 0}).of_all_experts;
    for (int expert = 0; expert < (merged ? 1 : config->routing.num_experts); ++expert) {
      WIDEEP_TRY(use(expert_tensors(*config, layer, expert)));
    }
  }
  std::vector<std::string> unused;
  int num_mtp = 0;
  for (const tensor_files::GgufFile& file : files_.files()) {
    for (const auto& [name, tensor] : file.tensors()) {
      if (used.contains(name)) continue;
      const std::optional<int> layer = gguf_layer(name);
      if (layer && *layer >= config->num_layers &&
          *layer < config->num_layers + config->num_mtp_layers) {
        ++num_mtp;
        continue;
      }
      // They would change results: biases that the family does not have, scales beside codes,
      // sinks and gates of attention, divisors of frequencies that depend on the length.
      if (name.ends_with(".bias") || name.ends_with(".attn_sinks.weight") ||
          name.ends_with(".attn_gate.weight") || name.ends_with(".scale") ||
          name.starts_with("rope_factors_") || (layer && *layer >= config->num_all_layers())) {
        return invalid_input(fmt::format(
            "{}: tensor '{}': a tensor that the model's description leaves out, which has {} "
            "layers of {}; wideep does not compute it",
            file.path(), base::printable(name), config->num_layers, config->family));
      }
      unused.push_back(base::printable(name));
    }
  }
  const std::string& path = files_.first().path();
  if (num_mtp > 0) {
    config->notes.push_back(fmt::format(
        "{}: {} tensors of layers that predict further tokens are not run", path, num_mtp));
  }
  if (!unused.empty()) {
    const size_t more = unused.size() > 3 ? unused.size() - 3 : 0;
    unused.resize(unused.size() - more);
    config->notes.push_back(fmt::format("{}: not used: {}{}", path, fmt::join(unused, ", "),
                                        more == 0 ? "" : fmt::format(" and {} more", more)));
  }
  return {};
}

}  // namespace wideep::model
