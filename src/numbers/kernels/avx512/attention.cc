// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/avx512/begin.h"
//
#include "kernels/avx512/attention.h"
//
#include "kernels/body/kv_page.h"
//
#include "kernels/body/attention.h"
//
#include "kernels/body/indexer.h"
//
#include "kernels/avx512/end.h"
#endif
