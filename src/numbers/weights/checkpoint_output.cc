// SPDX-License-Identifier: Apache-2.0
//
// Tensors are held until a shard is full and then written as part-i; finish() renames the parts.
// Between the two a directory has no file that a reader would take for a model. After an error
// everything in it is removed, which is safe only since make_output() has refused a directory with
// files.
#include "weights/checkpoint_output.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "tensor_files/safetensors.h"

namespace wideep::weights {

using kernels::WeightFormat;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

Result<formats::NewDirectories> make_output(const std::string& dir) {
  WIDEEP_TRY_ASSIGN(formats::NewDirectories made, formats::NewDirectories::create(dir));
  std::error_code error;
  if (fs::is_empty(dir, error)) return made;
  return invalid_input(fmt::format("{}: expected an empty directory or none", dir));
}

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

Status ShardWriter::add(NamedTensor tensor) {
  const uint64_t bytes = tensor.bytes.size();
  if (!tensors_.empty() && held_ + bytes > shard_bytes_) WIDEEP_TRY(flush());
  held_ += bytes;
  total_ += bytes;
  tensors_.push_back(std::move(tensor));
  return {};
}

Status ShardWriter::finish() {
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

std::string ShardWriter::part(size_t i) { return fmt::format("part-{}.safetensors", i); }

Status ShardWriter::rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(dir_ + "/" + from, dir_ + "/" + to, error);
  if (!error) return {};
  return failed(fmt::format("{}/{}: cannot be written: {}", dir_, to, error.message()));
}

Status ShardWriter::flush() {
  std::vector<tensor_files::TensorToWrite> list;
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors_) {
    list.push_back(tensor.to_write());
    names.push_back(tensor.name);
  }
  WIDEEP_TRY(
      tensor_files::write_safetensors(dir_ + "/" + part(names_.size()), list, {{"format", "pt"}}));
  names_.push_back(std::move(names));
  tensors_.clear();
  held_ = 0;
  return {};
}

namespace {

// ModelOpt's checkpoints contain the settings a second time, in hf_quant_config.json.
Status write_modelopt_config(const std::string& dir, int group,
                             const std::vector<std::string>& ignored) {
  const Json config = {
      {"producer", {{"name", "wideep"}}},
      {"quantization",
       {{"quant_algo", "NVFP4"}, {"group_size", group}, {"exclude_modules", ignored}}}};
  return formats::write_file(dir + "/hf_quant_config.json", formats::json_text(config, 2) + "\n");
}

}  // namespace

Status write_config(const std::string& dir, WeightFormat format, Json config, int group,
                    const std::vector<std::string>& ignored) {
  config["quantization_config"] = Json::parse(quantization_config(format, group, ignored));
  WIDEEP_TRY(formats::write_file(dir + "/config.json", formats::json_text(config, 2) + "\n"));
  if (format != WeightFormat::kNvfp4) return {};
  return write_modelopt_config(dir, group, ignored);
}

}  // namespace wideep::weights
