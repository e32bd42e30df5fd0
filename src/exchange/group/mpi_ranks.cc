// SPDX-License-Identifier: Apache-2.0
#include "group/mpi_ranks.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "group/mpi_module.h"
#include "group/node_watch.h"
#include "transport/node_map.h"

namespace wideep::transport {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libwideep_mpi.so";

// Beside the command in a build directory; elsewhere as an installation has it.
constexpr std::array<const char*, 3> kFolders{".", "../lib/wideep", "../" WIDEEP_MODULE_FOLDER};

const MpiModule* module = nullptr;  // once it is loaded; stays so

Status refused(const Launch& launch, const std::string& why) {
  return invalid_input(
      fmt::format("{} has started {} processes, but {}, or start one process with --ranks {}",
                  launch.launcher, launch.num_ranks, why, launch.num_ranks));
}

Status load(const Launch& launch) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::string path;
  for (const char* each : kFolders) {
    const fs::path candidate = (folder / each / kLibrary).lexically_normal();
    if (path.empty() && fs::exists(candidate, error)) path = candidate;
  }
  if (path.empty()) {
    return refused(launch, fmt::format("this wideep has no MPI: expected {} in {} or its {}; "
                                       "install libopenmpi-dev and build again",
                                       kLibrary, folder.string(), kFolders[1]));
  }
  // Global: MPI's own plugins look for its functions among those of the process.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return refused(launch, fmt::format("MPI cannot be loaded: {}; install Open MPI 4 (Debian: "
                                       "libopenmpi3)",
                                       ::dlerror()));
  }
  const auto get = reinterpret_cast<MpiModuleFunction*>(::dlsym(library, kMpiModuleFunction));
  if (get == nullptr || get()->version != std::string_view(WIDEEP_VERSION)) {
    return refused(launch, fmt::format("{} is of wideep {}, and this is wideep {}: install both "
                                       "from one build",
                                       path, get == nullptr ? "an unknown version" : get()->version,
                                       WIDEEP_VERSION));
  }
  module = get();
  return {};
}

void log_late(const char* what, std::chrono::seconds limit) {
  log::error("{}: MPI did not return within {} s", what, limit.count());
}

}  // namespace

Result<std::unique_ptr<StartedRanks>> start_mpi_ranks(const Launch& launch) {
  WIDEEP_TRY(load(launch));
  block_stop_signals();
  MpiConnection ranks;
  WIDEEP_TRY(module->connect({launch.launcher, launch.num_ranks, launch.group}, MpiHost{log_late},
                             &ranks));
  return std::make_unique<StartedRanks>(std::move(ranks.control), std::move(ranks.data),
                                        NodeMap(std::move(ranks.nodes)), ranks.rank);
}

void end_mpi_ranks(std::unique_ptr<StartedRanks> ranks, int exit_code) {
  std::fflush(nullptr);  // _Exit does not
  // After a failure some may be gone, and MPI would wait for them.
  if (ranks != nullptr && !ranks->is_broken()) module->finalize(exit_code);
  std::_Exit(exit_code);
}

}  // namespace wideep::transport
