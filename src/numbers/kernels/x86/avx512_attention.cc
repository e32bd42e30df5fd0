// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/x86/avx512_begin.h"
//
#include "kernels/x86/attention_avx512.h"
//
#include "kernels/x86/kv_page_body.h"
//
#include "kernels/x86/attention_body.h"
//
#include "kernels/x86/indexer_body.h"
//
#include "kernels/x86/avx512_end.h"
#endif
