// SPDX-License-Identifier: Apache-2.0
#ifdef WIDEEP_WITH_CUDA
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <array>

#include "base/nvidia_profiler.h"

namespace wideep::base {
namespace {

// An own domain, because profilers show its ranges apart from those of libraries.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t created = nvtxDomainCreateA("wideep");
  return created;
}

// Iteration and layer are part of the name, because profilers search and list names. The name is
// formatted into a local array, so that a range allocates no memory; NVTX needs it
// during the call only.
void begin_range(Span span, int layer, int64_t iteration) {
  std::array<char, 64> name{};
  const char* what = span_name(span);
  if (span == Span::kIteration) {
    fmt::format_to_n(name.data(), name.size() - 1, "{} {}", what, iteration);
  } else if (layer >= 0) {
    fmt::format_to_n(name.data(), name.size() - 1, "{}, layer {}", what, layer);
  } else {
    fmt::format_to_n(name.data(), name.size() - 1, "{}", what);
  }
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.data();
  nvtxDomainRangePushEx(domain(), &attributes);
}

void end_range() { nvtxDomainRangePop(domain()); }

Status status_of(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return {};
  return failed(fmt::format("{}: {}", call, cudaGetErrorString(error)));
}

}  // namespace

std::string cuda_toolkit_version() {
  return fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

const TraceMarks& nvtx_marks(bool all_spans) {
  static constexpr TraceMarks kIterations{begin_range, end_range, false};
  static constexpr TraceMarks kAllSpans{begin_range, end_range, true};
  return all_spans ? kAllSpans : kIterations;
}

Status start_cuda_driver() {
  // The first call of the runtime starts the driver; this one fails without a driver or a GPU.
  int num_devices = 0;
  return status_of("cudaGetDeviceCount", cudaGetDeviceCount(&num_devices));
}
Status start_nvidia_profiler() { return status_of("cudaProfilerStart", cudaProfilerStart()); }
Status stop_nvidia_profiler() { return status_of("cudaProfilerStop", cudaProfilerStop()); }

}  // namespace wideep::base

#endif  // WIDEEP_WITH_CUDA
