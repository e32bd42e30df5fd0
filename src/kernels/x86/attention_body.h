// SPDX-License-Identifier: Apache-2.0
//
// attention.h, written once over F32x16. Included inside a region.
#pragma once

// Where an online softmax stands after some pages: largest score so far, sum of exponentials.
struct Running {
  float largest;
  float sum;
};

// Turns scores[0, count) into exp(score − largest), folds their sum into `running`, and returns
// what the output gathered so far must be multiplied by.
inline float fold_scores(float* scores, int count, bool first_page, Running* running) {
  float largest = first_page ? scores[0] : running->largest;
  for (int p = 0; p < count; ++p) largest = std::max(largest, scores[p]);
  F32x16 sum = zero();
  for_each_vector(count, [&](int i, int n) {
    const F32x16 e = exp(sub(load_n(scores + i, n), set1(largest)));
    store_n(scores + i, e, n);
    sum = add(sum, load_n(scores + i, n));  // read back: the lanes beyond a tail count as zero
  });
  float correction = 0.0f;
  if (!first_page) {
    float lanes[kPanelWidth];
    store(lanes, exp(set1(running->largest - largest)));
    correction = lanes[0];
  }
  running->sum = (first_page ? 0.0f : running->sum * correction) + reduce_add(sum);
  running->largest = largest;
  return correction;
}

// out = out · correction + Σ_p weights[p] · value[p], in ascending p for every element.
template <typename T>
inline void add_values(const T* values, size_t stride, const float* weights, int count, int dim,
                       float correction, bool first_page, float* out) {
  for_each_vector(dim, [&](int i, int n) {
    F32x16 acc = first_page ? zero() : mul(load_n(out + i, n), set1(correction));
    for (int p = 0; p < count; ++p) {
      acc = fma(set1(weights[p]), load_n(values + p * stride + i, n), acc);
    }
    store_n(out + i, acc, n);
  });
}

template <typename T>
inline void attention_head(const AttentionArgs& args, int head) {
  const int kv_head = head / (args.num_heads / args.num_kv_heads);
  const float* q = args.q + static_cast<size_t>(head) * args.key_dim;
  float* out = args.out + static_cast<size_t>(head) * args.value_dim;
  float scores[kPageTokens];
  Running running{};
  for (int begin = 0; begin < args.num_positions; begin += kPageTokens) {
    const int page = begin / kPageTokens;
    const int count = std::min(kPageTokens, args.num_positions - begin);
    const T* keys = reinterpret_cast<const T*>(args.key_pages[page]) + kv_head * args.key_dim;
    const T* values = reinterpret_cast<const T*>(args.value_pages[page]) + kv_head * args.value_dim;
    for (int p = 0; p < count; ++p) {
      scores[p] = dot(q, keys + p * args.key_stride, args.key_dim) * args.scale;
    }
    const float correction = fold_scores(scores, count, begin == 0, &running);
    add_values(values, args.value_stride, scores, count, args.value_dim, correction, begin == 0,
               out);
  }
  const F32x16 sum = set1(running.sum);
  for_each_vector(args.value_dim,
                  [&](int i, int n) { store_n(out + i, div(load_n(out + i, n), sum), n); });
}

void attention(const AttentionArgs& args) {
  for (int head = 0; head < args.num_heads; ++head) {
    if (args.cache_dtype == Dtype::kBf16) {
      attention_head<Bf16>(args, head);
    } else {
      attention_head<float>(args, head);
    }
  }
}
