// SPDX-License-Identifier: Apache-2.0
//
// A file of options that says anything: it is refused with a line that names it, or becomes
// arguments of options that the command has.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/scratch_directory.h"
#include "command_line/command_line.h"
#include "command_line/options_file.h"

namespace {

using namespace wideep::command_line;

// A command as `serve`, with an option of each kind.
struct Serve {
  Serve() {
    Command serve = program.add_command("serve", "");
    serve.add_option("--model,-m", model).model();
    serve.add_option("--cors-origin", origins);
    serve.add_option("--port", port).range(0, 9);
    serve.add_flag("--fast", fast);
    serve.add_option(OptionsFile::kOption, file).path();
  }
  Program program{"p", "p"};
  std::string model, file;
  std::vector<std::string> origins;
  int port = 1;
  bool fast = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const wideep::base::ScratchDirectory directory;
  const std::string path = directory.path() + "/o.yaml";
  std::ofstream(path) << std::string_view(reinterpret_cast<const char*>(data), size);
  Serve serve;
  const auto file =
      OptionsFile::expand(serve.program.facts(), {"serve", OptionsFile::kOption, path});
  if (!file.ok()) {
    if (file.status().message().find(path) == std::string::npos) std::abort();
    return 0;
  }
  if (file->arguments().size() < 3) std::abort();
  const auto parsed = serve.program.parse(file->arguments());
  if (!parsed.ok() && file->explain(parsed.status().message()).empty()) std::abort();
  return 0;
}
