// SPDX-License-Identifier: Apache-2.0
#include "run/packed_weights.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/byte_size.h"
#include "base/content_hash.h"
#include "base/log.h"
#include "base/try.h"
#include "kernels/weight_format.h"
#include "model/config/config.h"
#include "model/model_cost.h"
#include "model/model_division.h"
#include "model/model_forms.h"
#include "packed/packed_writer.h"

namespace wideep::run {
namespace {

// The last part of a model's path, as far as it can be part of a name.
std::string label_of(const std::string& model_dir) {
  const std::filesystem::path path = std::filesystem::path(model_dir + "/").parent_path();
  std::string label = path.filename().string();
  for (char& each : label) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '-' ||
                          each == '.' || each == '_';
    if (!is_plain) each = '_';
  }
  return label.empty() ? "model" : label;
}

}  // namespace

PackedPlace packed_place(const std::string& cache, const RunOptions& options,
                         const RunInputs& inputs) {
  const std::string format = options.format
                                 ? std::string(kernels::weight_format_name(*options.format))
                                 : std::string("as stored");
  PackedPlace place{.directory = {},
                    .record_class = fmt::format("packed {}, weights {}, {}", packed::kVersion,
                                                inputs.tensors().fingerprint(), format)};
  const std::string name =
      fmt::format("{}-{}", label_of(options.model_dir), base::content_hash_hex(place.record_class));
  place.directory = (std::filesystem::path(cache) / name).string();
  return place;
}

PackedBytes packed_bytes(const model::PackOrder& order) {
  const model::ModelConfig& config = order.config;
  const model::ModelForms forms =
      model::model_forms(config, weights::WeightLoader(order.tensors, order.format));
  PackedBytes bytes{.dense =
                        model::dense_weight_bytes(config, forms, {0, config.num_all_layers()})};
  if (config.routing.num_experts == 0) return bytes;
  const uint64_t experts = model::moe_layers(config).size() *
                           static_cast<uint64_t>(config.routing.num_experts) *
                           static_cast<uint64_t>(order.num_slices);
  bytes.experts = experts * model::experts_shape(config, forms, order.num_slices).record_bytes();
  return bytes;
}

Result<std::optional<packed::PackedFile>> open_packed(const PackedPlace& place,
                                                      const model::PackOrder& order) {
  std::error_code absent;
  if (!std::filesystem::exists(place.directory, absent)) return std::optional<packed::PackedFile>();
  WIDEEP_TRY_ASSIGN(packed::PackedFile file,
                    packed::PackedFile::open(place.directory, place.record_class));
  if (!model::are_packed(order, file)) return std::optional<packed::PackedFile>();
  return std::optional(std::move(file));
}

Status write_packed(const PackedPlace& place, const model::PackOrder& order) {
  std::error_code absent;
  const bool is_new = !std::filesystem::exists(place.directory, absent);
  WIDEEP_TRY_ASSIGN(
      packed::PackedWriter writer,
      packed::PackedWriter::open(
          place.directory, {.model = std::filesystem::path(place.directory).filename().string(),
                            .record_class = place.record_class,
                            .expected_bytes = is_new ? packed_bytes(order).all() : 0}));
  if (writer.resumed_bytes() > 0) {
    log::info("{}: going on behind the {} that an earlier process has packed", place.directory,
              base::byte_size(writer.resumed_bytes()));
  }
  WIDEEP_TRY(model::pack_weights(order, writer));
  return writer.finish();
}

}  // namespace wideep::run
