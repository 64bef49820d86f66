// Attention by vectors: a row's Q query heads of one key-value head together, 64 tokens at a time.
#pragma once

#include "paged.h"

constexpr int64_t VECTOR_ROWS = 16;  // of a span

template <typename T, int Q>
struct Kernel {
  static constexpr int64_t P = 4 / sizeof(T);
  static constexpr int AT_ONCE = Q * 4 + 4 <= REGISTERS ? 4 : 2;  // vectors that are summed in registers for each query

  int64_t dim;
  const Chunk<T>& chunk;

  // scores[q][t] = query q times key t, for the first `count` tokens of the chunk at least.
  void score(const int32_t* query, int64_t count, float (&scores)[Q][CHUNK]) const {
    const int64_t words = dim / P;
    for (int64_t first = 0; first < count; first += AT_ONCE * LANES) {
      Vec sums[Q][AT_ONCE] = {};
      for (int64_t word = 0; word < words; word++)
        for (int v = 0; v < AT_ONCE; v++) {
          const int64_t token = first + v * LANES;
          const Words key = load<Words>(chunk.keys[token / BLOCK] + word * BLOCK + token % BLOCK);
          for (int q = 0; q < Q; q++) sums[q][v] = add_product<T>(sums[q][v], Words{} + query[q * words + word], key);
        }
      for (int q = 0; q < Q; q++)
        for (int v = 0; v < AT_ONCE; v++) store(sums[q][v], scores[q] + first + v * LANES);
    }
  }

  // sums[q] = sums[q] * scale[q] + weights[q] times the values, at `AT` vectors of a head from `first` on.
  template <int AT>
  void add_values(const int32_t (&weights)[Q][CHUNK], const float (&scale)[Q], int64_t words, int64_t first,
                  float* sums) const {
    Vec added[Q][AT];
    for (int q = 0; q < Q; q++)
      for (int v = 0; v < AT; v++) added[q][v] = load_floats(sums + q * dim + first + v * LANES) * scale[q];
    for (int64_t word = 0, block = 0; word < words; block++) {
      const int32_t* row = chunk.values[block] + first;
      for (const int64_t end = std::min(words, word + BLOCK / P); word < end; word++, row += dim)
        for (int v = 0; v < AT; v++) {
          const Words value = load<Words>(row + v * LANES);
          for (int q = 0; q < Q; q++) added[q][v] = add_product<T>(added[q][v], Words{} + weights[q][word], value);
        }
    }
    for (int q = 0; q < Q; q++)
      for (int v = 0; v < AT; v++) store(added[q][v], sums + q * dim + first + v * LANES);
  }

  // The chunk, of which the row sees the first `count` tokens. `sums` are [Q, dim].
  void take(const int32_t* query, int64_t count, Softmax* softmax, float* sums) const {
    alignas(64) float scores[Q][CHUNK];
    alignas(64) int32_t weights[Q][CHUNK];
    float scale[Q];
    score(query, count, scores);
    for (int q = 0; q < Q; q++)
      scale[q] = softmax[q].weigh(scores[q], count, unit_of(dim), reinterpret_cast<T*>(weights[q]));
    const int64_t words = (count + P - 1) / P;
    int64_t first = 0;
    for (; first + AT_ONCE * LANES <= dim; first += AT_ONCE * LANES) add_values<AT_ONCE>(weights, scale, words, first, sums);
    for (; first < dim; first += LANES) add_values<1>(weights, scale, words, first, sums);
  }
};

// A span's rows, for the Q heads from `head` on of one key-value head: a chunk at a time, so that it stays in the cache.
template <int Q, typename T>
void attend_heads(const Paged<T>& paged, const Span& span, int64_t kv_head, int64_t head) {
  const int64_t dim = paged.dim, width = paged.heads * dim;
  std::vector<float> sums(span.rows * Q * dim);
  Softmax softmax[VECTOR_ROWS][Q];
  for (int64_t first = 0; first < span.end(); first += CHUNK) {
    const Chunk<T> chunk(paged, kv_head, span.table, first, span.end());
    const Kernel<T, Q> kernel{dim, chunk};
    for (int64_t row = 0; row < span.rows; row++) {
      const int64_t count = std::min(CHUNK, span.position + row + 1 - first);
      const T* query = paged.queries + (span.row + row) * width + head * dim;
      if (count > 0) kernel.take(reinterpret_cast<const int32_t*>(query), count, softmax[row], sums.data() + row * Q * dim);
    }
  }
  for (int64_t row = 0; row < span.rows; row++)
    for (int q = 0; q < Q; q++)
      divide(sums.data() + (row * Q + q) * dim, softmax[row][q], dim, paged.out + (span.row + row) * width + (head + q) * dim);
}

// A span's rows for all heads of one key-value head, of which four at most are computed together.
template <typename T>
void attend(const Paged<T>& paged, const Span& span, int64_t kv_head) {
  const int64_t group = paged.heads / paged.kv_heads, end = (kv_head + 1) * group;
  int64_t head = kv_head * group;
  for (; end - head >= 4; head += 4) attend_heads<4>(paged, span, kv_head, head);
  if (end - head == 3) attend_heads<3>(paged, span, kv_head, head);
  if (end - head == 2) attend_heads<2>(paged, span, kv_head, head);
  if (end - head == 1) attend_heads<1>(paged, span, kv_head, head);
}
