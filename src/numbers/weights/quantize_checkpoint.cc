// SPDX-License-Identifier: Apache-2.0
//
// A plan first, then the work. The plan opens every listed matrix, so that a missing tensor or a
// wrong shape is reported before any work and before the output directory exists; and it needs all
// matrices to choose the group, since a config.json states one for all. A matrix that does not fit
// the layout is copied as it is, and reported.
//
// The writer goes through the names of the output in order: so shards do not depend on how the
// input was spread, and one matrix at a time is in memory besides the shard that is being filled.
#include "weights/quantize_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/try.h"
#include "formats/files.h"
#include "formats/new_directories.h"
#include "kernels/coded_matrix.h"
#include "weights/checkpoint.h"
#include "weights/checkpoint_output.h"
#include "weights/matrix_quantizer.h"
#include "weights/named_tensors.h"
#include "weights/quantized_tensors.h"
#include "weights/stored_matrix.h"

namespace wideep::weights {
namespace {

using kernels::QuantizedMatrix;
using kernels::WeightFormat;
using tensor_files::TensorEntry;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Other parts of a larger model are copied, whatever they hold, and so are tables of integers, which
// no codes are stored as.
Status check_floats(const Checkpoint& checkpoint, const NamedTensors& tensors) {
  for (const std::string& name : checkpoint.names()) {
    const Dtype dtype = checkpoint.find(name)->dtype;
    if (!tensors.has_prefix(name)) continue;
    if (dtype == Dtype::kF32 || dtype == Dtype::kBf16 || dtype == Dtype::kF16) continue;
    if (dtype == Dtype::kI64) continue;
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

Result<Json> read_config(const std::string& model_dir) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(model_dir + "/config.json"));
  Json config = Json::parse(text, nullptr, false);
  if (config.is_object()) return config;
  return invalid_input(model_dir + "/config.json: expected a JSON object");
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
    // config.json comes last: without it a directory of an interrupted run is no model.
    WIDEEP_TRY(checkpoint_.check_unchanged());
    WIDEEP_TRY(writer_.finish());
    report_.bytes_after = writer_.total_bytes();
    WIDEEP_TRY(copy_files(options_.model_dir, options_.output_dir));
    WIDEEP_TRY(write_config(options_.output_dir, options_.format, std::move(config), plan_.group,
                            ignored_));
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
