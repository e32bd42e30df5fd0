// SPDX-License-Identifier: Apache-2.0
#include "weights/quantize_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "formats/new_directories.h"
#include "kernels/coded_matrix.h"
#include "weights/checkpoint.h"
#include "weights/named_tensors.h"
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

// Other parts of a larger model are copied, whatever they hold.
Status check_floats(const Checkpoint& checkpoint, const NamedTensors& tensors) {
  for (const std::string& name : checkpoint.names()) {
    const Dtype dtype = checkpoint.find(name)->dtype;
    if (!tensors.has_prefix(name)) continue;
    if (dtype == Dtype::kF32 || dtype == Dtype::kBf16 || dtype == Dtype::kF16) continue;
    return invalid_input(
        fmt::format("{}: expected dtype F32, BF16 or F16, found {}; quantise the "
                    "original checkpoint of floats",
                    checkpoint.where(name), dtype_name(dtype)));
  }
  return {};
}

// A matrix to quantise.
struct Matrix {
  const TensorSource* source = nullptr;
  std::string asked;  // its name in the source
  std::string own;    // "<module>.weight" in the output
  int n = 0, k = 0;
};

// What becomes of the tensors of the files.
struct Plan {
  std::map<std::string, Matrix> matrices;  // by their own names
  std::set<std::string> left_out;          // tensors that they stand for
  std::vector<std::string> unfit;          // sorted
  int group = 0;
};

// The largest group, from the format's default down to 32, whose multiples are the columns of all
// matrices: a config.json can state only one group for all.
int choose_group(WeightFormat format, const std::map<std::string, Matrix>& matrices) {
  int group = kernels::default_group(format);
  if (format != WeightFormat::kInt8 && format != WeightFormat::kInt4) return group;
  for (const auto& [own, matrix] : matrices) {
    while (group > 32 && matrix.k % group != 0) group /= 2;
  }
  return group;
}

Result<std::map<std::string, Matrix>> find_matrices(const QuantizeOptions& options,
                                                    const Checkpoint& checkpoint,
                                                    const NamedTensors& tensors) {
  std::map<std::string, Matrix> matrices;
  for (const ListedMatrix& listed : options.matrices) {
    // Errors come before any work.
    WIDEEP_TRY(StoredMatrix::open(tensors, listed.name, listed.n, listed.k).status());
    const std::string own = tensors.own_name(listed.name);
    matrices[own] = {&tensors, listed.name, own, listed.n, listed.k};
  }
  for (const std::string& name : checkpoint.names()) {
    const std::vector<int64_t>& shape = checkpoint.find(name)->shape;
    const bool is_matrix = shape.size() == 2 && shape[0] > 0 && shape[1] > 0;
    if (!is_matrix || !has_quantizable_name(name) || !tensors.has_prefix(name)) continue;
    matrices.try_emplace(name, Matrix{&checkpoint, name, name, static_cast<int>(shape[0]),
                                      static_cast<int>(shape[1])});
  }
  return matrices;
}

Result<Plan> make_plan(const QuantizeOptions& options, const Checkpoint& checkpoint,
                       const NamedTensors& tensors) {
  Plan plan;
  WIDEEP_TRY_ASSIGN(plan.matrices, find_matrices(options, checkpoint, tensors));
  plan.group = choose_group(options.format, plan.matrices);
  std::set<std::string> unfit;
  std::erase_if(plan.matrices, [&](const auto& item) {
    const Matrix& matrix = item.second;
    const bool fits = fits_layout(options.format, plan.group, matrix.k);
    for (std::string& stored : stored_names(*matrix.source, matrix.asked)) {
      (fits ? plan.left_out : unfit).insert(std::move(stored));
    }
    return !fits;
  });
  plan.unfit.assign(unfit.begin(), unfit.end());
  return plan;
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

// Writes the tensors in the order of their names.
class CheckpointWriter {
 public:
  CheckpointWriter(const QuantizeOptions& options, const Checkpoint& checkpoint, const Plan& plan,
                   base::ThreadPool& pool)
      : options_(options),
        checkpoint_(checkpoint),
        plan_(plan),
        pool_(pool),
        writer_(options.output_dir, options.shard_bytes) {
    report_.bytes_before = checkpoint.total_bytes();
    report_.group = plan.group;
    report_.unfit = plan.unfit;
  }

  Result<QuantizeReport> write(Json config,
                               const std::function<void(int64_t done, int64_t all)>& progress) {
    std::set<std::string> names;
    for (const std::string& name : checkpoint_.names()) {
      if (!plan_.left_out.contains(name)) names.insert(name);
    }
    for (const auto& [own, matrix] : plan_.matrices) names.insert(own);
    int64_t done = 0;
    for (const std::string& name : names) {
      const auto matrix = plan_.matrices.find(name);
      WIDEEP_TRY(matrix == plan_.matrices.end() ? copy(name) : quantize(matrix->second));
      progress(++done, static_cast<int64_t>(names.size()));
    }
    // config.json comes after the weights: without it a directory of an interrupted run is no
    // model.
    WIDEEP_TRY(checkpoint_.check_unchanged());
    WIDEEP_TRY(writer_.finish());
    report_.bytes_after = writer_.total_bytes();
    WIDEEP_TRY(write_config(options_, std::move(config), plan_.group, ignored_));
    WIDEEP_TRY(copy_files(options_.model_dir, options_.output_dir));
    return std::move(report_);
  }

 private:
  Status copy(const std::string& name) {
    const TensorEntry& entry = *checkpoint_.find(name);
    if (entry.shape.size() == 2) ignored_.push_back(module_of(name));
    return writer_.add(copy_of(name, entry));
  }

  Status quantize(const Matrix& matrix) {
    WIDEEP_TRY_ASSIGN(const StoredMatrix stored,
                      StoredMatrix::open(*matrix.source, matrix.asked, matrix.n, matrix.k));
    WIDEEP_TRY_ASSIGN(const Quantized quantized,
                      MatrixQuantizer(stored, options_.format, plan_.group).run(pool_));
    report_.tensors.push_back({matrix.own, quantized.signal_to_noise_db});
    for (NamedTensor& tensor : quantized_tensors(module_of(matrix.own), quantized.matrix)) {
      WIDEEP_TRY(writer_.add(std::move(tensor)));
    }
    return {};
  }

  const QuantizeOptions& options_;
  const Checkpoint& checkpoint_;
  const Plan& plan_;
  base::ThreadPool& pool_;
  ShardWriter writer_;
  QuantizeReport report_;
  std::vector<std::string> ignored_;  // modules that are not quantised
};

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

bool has_quantizable_name(const std::string& name) {
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
  const NamedTensors tensors(checkpoint, checkpoint.names(), options.names, options.num_experts);
  WIDEEP_TRY(check_floats(checkpoint, tensors));
  WIDEEP_TRY_ASSIGN(Json config, read_config(options.model_dir));
  WIDEEP_TRY_ASSIGN(const Plan plan, make_plan(options, checkpoint, tensors));
  WIDEEP_TRY_ASSIGN(const auto made, make_output(options.output_dir));
  auto report =
      CheckpointWriter(options, checkpoint, plan, pool).write(std::move(config), progress);
  if (!report.ok()) return without_files(report.status(), options.output_dir);
  return report;
}

}  // namespace wideep::weights
