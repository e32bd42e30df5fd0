// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/x86/avx2_begin.h"
//
#include "kernels/x86/attention_avx2.h"
//
#include "kernels/x86/kv_page_body.h"
//
#include "kernels/x86/attention_body.h"
//
#include "kernels/x86/indexer_body.h"
//
#include "kernels/x86/avx2_end.h"
#endif
