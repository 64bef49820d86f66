// The paged cache as the CPU's ops lay it out, and what is common to the ways of attending to it.
#pragma once

#include <algorithm>
#include <vector>

#include "vectors.h"

constexpr int64_t BLOCK = 16, CHUNK = 64;

// In words: keys [kv heads, cache blocks, dim / P, 16], values [kv heads, cache blocks, 16 / P, dim], with P elements of
// T in a word: a head's blocks lie together, so that the CPU foresees the next one. Queries [rows, heads, dim], out
// likewise. The sequences' rows lie one after the other, from `starts[n]`.
template <typename T>
struct Paged {
  const T* queries;
  const T *keys, *values;
  const int64_t *starts, *lengths, *table;
  T* out;
  int64_t sequences, table_width, heads, kv_heads, blocks, dim;

  // Where the keys, and the values, of a block begin.
  int64_t at(int64_t kv_head, int64_t block) const { return (kv_head * blocks + block) * BLOCK * dim; }
};

// Some consecutive rows of a sequence, of which the first has `position` tokens before it.
struct Span {
  int64_t row, rows, position;
  const int64_t *table, *table_end;  // the sequence's blocks

  int64_t end() const { return position + rows; }
};

// All rows in spans of `most` at most.
template <typename T>
std::vector<Span> spans_of(const Paged<T>& paged, int64_t most) {
  std::vector<Span> spans;
  for (int64_t n = 0; n < paged.sequences; n++) {
    const int64_t length = paged.lengths[n], *table = paged.table + n * paged.table_width;
    for (int64_t row = paged.starts[n], end = paged.starts[n + 1]; row < end; row += most)
      spans.push_back({row, std::min(most, end - row), length - (end - row), table, table + (length + BLOCK - 1) / BLOCK});
  }
  return spans;
}

// Where 64 tokens of a sequence lie for one key-value head: those from `first` on, of which it has less if it ends.
template <typename T>
struct Chunk {
  int64_t first, blocks;
  const int32_t *keys[CHUNK / BLOCK], *values[CHUNK / BLOCK];

  Chunk(const Paged<T>& paged, int64_t kv_head, const int64_t* table, int64_t first, int64_t end)
      : first(first), blocks(std::clamp<int64_t>((end - first + BLOCK - 1) / BLOCK, 0, CHUNK / BLOCK)) {
    for (int64_t n = 0; n < CHUNK / BLOCK; n++) {  // beyond the last block nothing counts, but something must be there
      const int64_t at = paged.at(kv_head, n < blocks ? table[first / BLOCK + n] : table[0]);
      keys[n] = reinterpret_cast<const int32_t*>(paged.keys + at);
      values[n] = reinterpret_cast<const int32_t*>(paged.values + at);
    }
  }
};

// What scores of heads of `dim` are multiplied with, for weights that are powers of two.
inline float unit_of(int64_t dim) { return 1.44269504f / std::sqrt(float(dim)); }

// What is known of a query after some chunks: the score that weights are relative to, and their sum, by lanes.
struct Softmax {
  static constexpr float RISE = 8;

  float base = -std::numeric_limits<float>::infinity();
  Vec total = {};

  // Turns one more chunk's scores, of which the first `count` count, into weights: powers of two, for which `unit` makes
  // of e, and scales, the scores. Returns what earlier sums are to be multiplied with. That is 1 as a rule, since the base
  // is left only for a score that would be 2^8 times as heavy (Zadouri and others, "FlashAttention-4", 2026).
  template <typename T>
  float weigh(const float* scores, int64_t count, float unit, T* weights) {
    Vec seen[CHUNK / LANES];
    for (int n = 0; n < CHUNK / LANES; n++) seen[n] = load_floats(scores + n * LANES);
    if (count < CHUNK)
      for (int n = 0; n < CHUNK / LANES; n++)
        seen[n] = lane_numbers() + n * LANES < int32_t(count) ? seen[n] : Vec{} - std::numeric_limits<float>::infinity();
    Vec most = seen[0];
    for (int n = 1; n < CHUNK / LANES; n++) most = larger(most, seen[n]);
    const float top = largest_of(most);
    float scale = 1;
    if ((top - base) * unit > RISE) {
      scale = exp2<float>(Vec{} + (base - top) * unit)[0];
      base = top, total *= scale;
    }
    for (int n = 0; n < CHUNK / LANES; n++) {
      store_floats(exp2<T>((seen[n] - base) * unit), weights + n * LANES);
      total += load_floats(weights + n * LANES);  // as they were rounded
    }
    return scale;
  }
};

// What a query sees: its sums over its total weight. A zero has no sign, which would depend on what else was masked.
template <typename T>
void divide(const float* sums, const Softmax& by, int64_t dim, T* out) {
  const float total = sum_of(by.total);
  for (int64_t d = 0; d < dim; d += LANES) store_floats(load_floats(sums + d) / total + 0.0f, out + d);
}
