// SPDX-License-Identifier: Apache-2.0
#include "weights/quantize_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "formats/new_directories.h"
#include "kernels/coded_matrix.h"
#include "weights/checkpoint.h"
#include "weights/quantized_tensors.h"
#include "weights/stored_matrix.h"

namespace wideep::weights {
namespace {

using formats::TensorEntry;
using kernels::QuantizedMatrix;
using kernels::WeightFormat;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Creates the output directory; without files it is removed with the result.
Result<formats::NewDirectories> make_output(const std::string& dir) {
  WIDEEP_TRY_ASSIGN(formats::NewDirectories made, formats::NewDirectories::create(dir));
  std::error_code error;
  if (fs::is_empty(dir, error)) return made;
  return invalid_input(fmt::format("{}: expected an empty directory or none", dir));
}

Status check_floats(const Checkpoint& checkpoint) {
  for (const std::string& name : checkpoint.names()) {
    const Dtype dtype = checkpoint.find(name)->dtype;
    if (dtype == Dtype::kF32 || dtype == Dtype::kBf16 || dtype == Dtype::kF16) continue;
    return invalid_input(
        fmt::format("{}: expected dtype F32, BF16 or F16, found {}; quantise the "
                    "original checkpoint of floats",
                    checkpoint.where(name), dtype_name(dtype)));
  }
  return {};
}

bool is_quantizable_matrix(const Checkpoint& checkpoint, const std::string& name) {
  const std::vector<int64_t>& shape = checkpoint.find(name)->shape;
  return is_quantizable(name) && shape.size() == 2 && shape[0] > 0 && shape[1] > 0;
}

// The largest group, from the format's default down to 32, whose multiples are the columns of all
// matrices: a config.json can state only one group for all.
int choose_group(WeightFormat format, const Checkpoint& checkpoint) {
  int group = kernels::default_group(format);
  if (format != WeightFormat::kInt8 && format != WeightFormat::kInt4) return group;
  for (const std::string& name : checkpoint.names()) {
    if (!is_quantizable_matrix(checkpoint, name)) continue;
    while (group > 32 && checkpoint.find(name)->shape.back() % group != 0) group /= 2;
  }
  return group;
}

// Sums of squares over rows of a matrix.
struct Power {
  double signal = 0.0;
  double noise = 0.0;
};

struct Quantized {
  QuantizedMatrix matrix;
  double signal_to_noise_db = 0.0;
};

// Quantises a matrix with all threads, in parts of 128 rows: fp8 scales are shared by blocks of 128
// × 128, so parts of 128 rows are independent in every format.
class MatrixQuantizer {
 public:
  MatrixQuantizer(const StoredMatrix& stored, WeightFormat format, int group)
      : stored_(stored),
        format_(format),
        group_(group),
        parts_(static_cast<size_t>((stored.n() + kRows - 1) / kRows)),
        powers_(parts_.size()),
        statuses_(parts_.size()) {}

  Result<Quantized> run(base::ThreadPool& pool) {
    const float scale = stored_.matrix_scale(
        {.format = format_, .n = stored_.n(), .k = stored_.k(), .group = group_});
    pool.parallel_for(static_cast<int64_t>(parts_.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        statuses_[static_cast<size_t>(i)] = quantize_part(static_cast<size_t>(i), scale);
      }
    });
    for (const Status& status : statuses_) WIDEEP_TRY(status);
    return gather();
  }

 private:
  static constexpr int kRows = 128;

  Status quantize_part(size_t i, float scale) {
    const int begin = static_cast<int>(i) * kRows, end = std::min(begin + kRows, stored_.n());
    std::vector<float> rows(static_cast<size_t>(end - begin) * static_cast<size_t>(stored_.k()));
    std::vector<float> dequantized(rows.size());
    WIDEEP_TRY(stored_.to_finite(begin, end, rows.data()));
    parts_[i] =
        kernels::quantize_matrix(format_, group_, rows.data(), end - begin, stored_.k(), scale);
    kernels::dequantize_rows(parts_[i].view, 0, end - begin, dequantized.data());
    for (size_t j = 0; j < rows.size(); ++j) {
      const double error = double{rows[j]} - double{dequantized[j]};
      powers_[i].signal += double{rows[j]} * double{rows[j]};
      powers_[i].noise += error * error;
    }
    return {};
  }

  Quantized gather() {
    Quantized all;
    Power power;
    all.matrix.view = parts_.front().view;
    all.matrix.view.n = stored_.n();
    for (size_t i = 0; i < parts_.size(); ++i) {
      auto& [view, codes, scales] = parts_[i];
      all.matrix.codes.insert(all.matrix.codes.end(), codes.begin(), codes.end());
      all.matrix.scales.insert(all.matrix.scales.end(), scales.begin(), scales.end());
      power.signal += powers_[i].signal;
      power.noise += powers_[i].noise;
    }
    all.matrix.view.codes = all.matrix.codes.data();
    all.matrix.view.scales = all.matrix.scales.data();
    all.signal_to_noise_db =
        power.noise > 0.0 ? 10.0 * std::log10(power.signal / power.noise) : INFINITY;
    return all;
  }

  const StoredMatrix& stored_;
  WeightFormat format_;
  int group_;
  std::vector<QuantizedMatrix> parts_;
  std::vector<Power> powers_;
  std::vector<Status> statuses_;
};

// Writes tensors to files of limited size. The names of shards contain the number of shards, which
// is known only at the end: so files get temporary names first.
class ShardWriter {
 public:
  ShardWriter(std::string dir, uint64_t shard_bytes)
      : dir_(std::move(dir)), shard_bytes_(shard_bytes) {}

  Status add(NamedTensor tensor) {
    const uint64_t bytes = tensor.bytes.size();
    if (!tensors_.empty() && held_ + bytes > shard_bytes_) WIDEEP_TRY(flush());
    held_ += bytes;
    total_ += bytes;
    tensors_.push_back(std::move(tensor));
    return {};
  }

  // A single file becomes model.safetensors; several get numbers and an index.
  Status finish() {
    WIDEEP_TRY(flush());
    const auto count = names_.size();
    if (count == 1) return rename(part(0), "model.safetensors");
    Json weight_map = Json::object();
    for (size_t i = 0; i < count; ++i) {
      const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, count);
      WIDEEP_TRY(rename(part(i), file));
      for (const std::string& name : names_[i]) weight_map[name] = file;
    }
    const Json index = {{"metadata", {{"total_size", total_}}}, {"weight_map", weight_map}};
    return formats::write_file(dir_ + "/model.safetensors.index.json",
                               formats::json_text(index, 2) + "\n");
  }

  uint64_t total_bytes() const { return total_; }

 private:
  static std::string part(size_t i) { return fmt::format("part-{}.safetensors", i); }

  Status rename(const std::string& from, const std::string& to) {
    std::error_code error;
    fs::rename(dir_ + "/" + from, dir_ + "/" + to, error);
    if (!error) return {};
    return failed(fmt::format("{}/{}: cannot be written: {}", dir_, to, error.message()));
  }

  Status flush() {
    std::vector<formats::TensorToWrite> list;
    std::vector<std::string> names;
    for (const NamedTensor& tensor : tensors_) {
      list.push_back(tensor.to_write());
      names.push_back(tensor.name);
    }
    WIDEEP_TRY(
        formats::write_safetensors(dir_ + "/" + part(names_.size()), list, {{"format", "pt"}}));
    names_.push_back(std::move(names));
    tensors_.clear();
    held_ = 0;
    return {};
  }

  std::string dir_;
  uint64_t shard_bytes_, held_ = 0, total_ = 0;
  std::vector<NamedTensor> tensors_;
  std::vector<std::vector<std::string>> names_;  // tensors of each file
};

NamedTensor copy_of(const std::string& name, const TensorEntry& entry) {
  return {name, entry.dtype, entry.shape, {entry.bytes.begin(), entry.bytes.end()}};
}

Status copy_files(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::directory_iterator entry(from, error);
  while (!error && entry != fs::directory_iterator()) {
    const std::string name = entry->path().filename();
    const bool weights = name.ends_with(".safetensors") || name.ends_with(".index.json");
    std::error_code unknown;  // a dangling link is skipped, not an error
    if (entry->is_regular_file(unknown) && !weights && name != "config.json") {
      fs::copy_file(entry->path(), fs::path(to) / name, error);
    }
    if (!error) entry.increment(error);
  }
  if (!error) return {};
  return failed(fmt::format("{}: files cannot be copied to {}: {}", from, to, error.message()));
}

// ModelOpt's checkpoints contain the settings a second time, in hf_quant_config.json.
Status write_modelopt_config(const std::string& dir, int group,
                             const std::vector<std::string>& ignored) {
  const Json config = {
      {"producer", {{"name", "wideep"}}},
      {"quantization",
       {{"quant_algo", "NVFP4"}, {"group_size", group}, {"exclude_modules", ignored}}}};
  return formats::write_file(dir + "/hf_quant_config.json", formats::json_text(config, 2) + "\n");
}

Result<Json> read_config(const std::string& model_dir) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(model_dir + "/config.json"));
  Json config = Json::parse(text, nullptr, false);
  if (config.is_object()) return config;
  return invalid_input(model_dir + "/config.json: expected a JSON object");
}

Status write_config(const QuantizeOptions& options, Json config, int group,
                    const std::vector<std::string>& ignored) {
  config["quantization_config"] = Json::parse(quantization_config(options.format, group, ignored));
  WIDEEP_TRY(formats::write_file(options.output_dir + "/config.json",
                                 formats::json_text(config, 2) + "\n"));
  if (options.format != WeightFormat::kNvfp4) return {};
  return write_modelopt_config(options.output_dir, group, ignored);
}

Result<QuantizeReport> write_checkpoint(
    const QuantizeOptions& options, const Checkpoint& checkpoint, Json config,
    base::ThreadPool& pool, const std::function<void(int64_t done, int64_t all)>& progress) {
  QuantizeReport report;
  report.bytes_before = checkpoint.total_bytes();
  report.group = choose_group(options.format, checkpoint);
  std::vector<std::string> ignored;
  ShardWriter writer(options.output_dir, options.shard_bytes);
  const std::vector<std::string> names = checkpoint.names();
  for (size_t i = 0; i < names.size(); ++i) {
    const TensorEntry& entry = *checkpoint.find(names[i]);
    const bool wanted = is_quantizable_matrix(checkpoint, names[i]);
    const bool fits =
        wanted && fits_layout(options.format, report.group, static_cast<int>(entry.shape[1]));
    if (fits) {
      WIDEEP_TRY_ASSIGN(const StoredMatrix stored,
                        StoredMatrix::open(checkpoint, names[i], static_cast<int>(entry.shape[0]),
                                           static_cast<int>(entry.shape[1])));
      WIDEEP_TRY_ASSIGN(const Quantized quantized,
                        MatrixQuantizer(stored, options.format, report.group).run(pool));
      report.tensors.push_back({names[i], quantized.signal_to_noise_db});
      for (NamedTensor& tensor : quantized_tensors(module_of(names[i]), quantized.matrix)) {
        WIDEEP_TRY(writer.add(std::move(tensor)));
      }
    } else {
      if (wanted) report.unfit.push_back(names[i]);
      if (entry.shape.size() == 2) ignored.push_back(module_of(names[i]));
      WIDEEP_TRY(writer.add(copy_of(names[i], entry)));
    }
    progress(static_cast<int64_t>(i) + 1, static_cast<int64_t>(names.size()));
  }
  // config.json comes after the weights: without it a directory of an interrupted run is no model.
  WIDEEP_TRY(checkpoint.check_unchanged());
  WIDEEP_TRY(writer.finish());
  report.bytes_after = writer.total_bytes();
  WIDEEP_TRY(write_config(options, std::move(config), report.group, ignored));
  WIDEEP_TRY(copy_files(options.model_dir, options.output_dir));
  return report;
}

// What a failed run has written is no model, but may fill the disk. The directory was empty.
Status without_files(const Status& why, const std::string& dir) {
  std::error_code error;
  for (fs::directory_iterator each(dir, error); !error && each != fs::directory_iterator();) {
    const fs::path path = each->path();
    each.increment(error);
    if (!error) fs::remove(path, error);
  }
  const std::string outcome = error ? "what was written cannot be removed: " + error.message()
                                    : "what was written is removed";
  return {why.code(), why.message() + "; " + outcome};
}

}  // namespace

bool is_quantizable(const std::string& name) {
  constexpr std::array<std::string_view, 11> kModules = {
      "q_proj",    "k_proj",   "v_proj",    "o_proj",
      "q_a_proj",  "q_b_proj", "kv_b_proj", "kv_a_proj_with_mqa",
      "gate_proj", "up_proj",  "down_proj"};
  if (!name.ends_with(".weight")) return false;
  const std::string module = module_of(name);
  const std::string last = module.substr(module.rfind('.') + 1);
  return std::find(kModules.begin(), kModules.end(), last) != kModules.end();
}

Result<QuantizeReport> quantize_checkpoint(
    const QuantizeOptions& options, base::ThreadPool& pool,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  WIDEEP_TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model_dir));
  WIDEEP_TRY(check_floats(checkpoint));
  WIDEEP_TRY_ASSIGN(Json config, read_config(options.model_dir));
  WIDEEP_TRY_ASSIGN(const auto made, make_output(options.output_dir));
  auto report = write_checkpoint(options, checkpoint, std::move(config), pool, progress);
  if (!report.ok()) return without_files(report.status(), options.output_dir);
  return report;
}

}  // namespace wideep::weights
