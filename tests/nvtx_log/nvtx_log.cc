// SPDX-License-Identifier: Apache-2.0
//
// For tests: a profiler that logs the calls of NVTX, one line each, into one file per thread:
// "<process>.<thread>" in the folder NVTX_LOG_DIRECTORY. NVTX loads this library if
// NVTX_INJECTION64_PATH names it, in the same way as a real profiler.
//
//   domain <name>
//   push <name>
//   pop
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

// Flushed after every line: ranks end with _exit, which runs no destructors of libraries.
void log_line(const std::string& line) {
  static thread_local const int file = [] {
    const std::string path = std::string(std::getenv("NVTX_LOG_DIRECTORY")) + "/" +
                             std::to_string(::getpid()) + "." + std::to_string(::gettid());
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  }();
  const std::string text = line + "\n";
  if (::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
}

nvtxDomainHandle_t create_domain(const char* name) {
  static int domain = 0;
  log_line(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  if (domain == nullptr) std::abort();
  log_line(std::string("push ") + attributes->message.ascii);
  return 0;
}

int pop(nvtxDomainHandle_t domain) {
  if (domain == nullptr) std::abort();
  log_line("pop");
  return 0;
}

template <typename Function>
void take_over(NvtxFunctionTable table, unsigned int size, unsigned int which, Function* own) {
  if (which >= size) std::abort();
  *table[which] = reinterpret_cast<NvtxFunctionPointer>(own);
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): NVTX looks up this name.
extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  take_over(table, size, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  take_over(table, size, NVTX_CBID_CORE2_DomainRangePushEx, push);
  take_over(table, size, NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}
