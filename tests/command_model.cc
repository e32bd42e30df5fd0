// SPDX-License-Identifier: Apache-2.0
#include "command_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "formats/files.h"
#include "random_model.h"

namespace wideep::tests {

namespace fs = std::filesystem;
using nlohmann::json;
using tensor_files::TensorToWrite;

namespace {

void change_config(const std::string& path, const std::function<void(json&)>& edit) {
  json config = json::parse(*formats::read_file(path));
  edit(config);
  ASSERT_TRUE(formats::write_file(path, config.dump()).ok());
}

}  // namespace

const std::string& small_model() {
  static const std::unique_ptr<base::ScratchDirectory> directory = [] {
    auto made = std::make_unique<base::ScratchDirectory>();
    write_random_model(made->path(), {});
    change_config(made->file("config.json"), [](json& config) { config.erase("eos_token_id"); });
    return made;
  }();
  return directory->path();
}

ModelCopy::ModelCopy() { fs::copy(small_model(), path(), fs::copy_options::recursive); }

void ModelCopy::write(const std::string& name, const std::string& content) const {
  ASSERT_TRUE(formats::write_file(file(name), content).ok());
}

void ModelCopy::remove(const std::string& name) const { fs::remove(file(name)); }

std::string ModelCopy::read(const std::string& name) const {
  const auto content = formats::read_file(file(name));
  EXPECT_TRUE(content.ok()) << content.status().message();
  return content.ok() ? *content : std::string();
}

void ModelCopy::edit_config(const std::function<void(json&)>& edit) const {
  change_config(file("config.json"), edit);
}

void ModelCopy::edit_tensors(const std::function<void(std::vector<TensorToWrite>&)>& edit) const {
  const auto source = tensor_files::SafetensorsFile::open(small_model() + "/model.safetensors");
  ASSERT_TRUE(source.ok()) << source.status().message();
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, entry] : source->tensors()) {
    tensors.push_back({name, entry.dtype, entry.shape, entry.bytes});
  }
  edit(tensors);
  const Status written = tensor_files::write_safetensors(file("model.safetensors"), tensors);
  ASSERT_TRUE(written.ok()) << written.message();
}

TensorToWrite& tensor_named(std::vector<TensorToWrite>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TensorToWrite& t) { return t.name == name; });
  EXPECT_NE(found, tensors.end()) << name;
  return *found;
}

CommandOptions generate(const std::string& model, const std::vector<std::string>& more) {
  CommandOptions options{.arguments = {"generate", "--model", model, "--prompt", "The cat"}};
  if (std::find(more.begin(), more.end(), "--max-tokens") == more.end()) {
    options.arguments.insert(options.arguments.end(), {"--max-tokens", "4"});
  }
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return options;
}

}  // namespace wideep::tests
