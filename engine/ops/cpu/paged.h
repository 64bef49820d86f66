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
  int64_t sequence, row, rows, position;

  int64_t end() const { return position + rows; }
};

// All rows in spans of `most` at most.
inline std::vector<Span> spans_of(const int64_t* starts, const int64_t* lengths, int64_t sequences, int64_t most) {
  std::vector<Span> spans;
  for (int64_t n = 0; n < sequences; n++)
    for (int64_t row = starts[n]; row < starts[n + 1]; row += most)
      spans.push_back({n, row, std::min(most, starts[n + 1] - row), lengths[n] - (starts[n + 1] - row)});
  return spans;
}

// Where the blocks of 64 tokens from `first` on lie, for one key-value head.
template <typename T>
struct Chunk {
  const int32_t *keys[CHUNK / BLOCK], *values[CHUNK / BLOCK];

  Chunk(const Paged<T>& paged, const Span& span, int64_t kv_head, int64_t first) {
    const int64_t* blocks = paged.table + span.sequence * paged.table_width + first / BLOCK;
    for (int64_t n = 0; n < CHUNK / BLOCK; n++) {  // beyond the last block nothing counts, but something must be there
      const int64_t at = paged.at(kv_head, first + n * BLOCK < span.end() ? blocks[n] : blocks[0]);
      keys[n] = reinterpret_cast<const int32_t*>(paged.keys + at);
      values[n] = reinterpret_cast<const int32_t*>(paged.values + at);
    }
  }
};

// What is known of a query after some chunks: the highest score, and relative to it the sum of the weights, by lanes.
struct Softmax {
  float highest = -std::numeric_limits<float>::infinity();
  Vec total = {};

  // Turns one more chunk's scores, of which the first `count` count, into weights. Returns what earlier sums are to be
  // multiplied with.
  template <typename T>
  float weigh(float* scores, int64_t count, float root, T* weights) {
    for (int64_t t = std::max<int64_t>(0, count); t < CHUNK; t++) scores[t] = -std::numeric_limits<float>::infinity();
    Vec scaled[CHUNK / LANES], most = Vec{} + highest;
    for (int n = 0; n < CHUNK / LANES; n++) {
      scaled[n] = load_floats(scores + n * LANES) * root;
      most = most > scaled[n] ? most : scaled[n];
    }
    const float before = highest;
    highest = largest_of(most);
    const float scale = highest == before ? 1 : exp(Vec{} + (before - highest))[0];
    total *= scale;
    for (int n = 0; n < CHUNK / LANES; n++) {
      const Vec weight = exp(scaled[n] - highest);
      total += weight;
      store_floats(weight, weights + n * LANES);
    }
    return scale;
  }
};

// What a query sees: its sums over its total weight.
template <typename T>
void divide(const float* sums, const Softmax& by, int64_t dim, T* out) {
  const float total = sum_of(by.total);
  for (int64_t d = 0; d < dim; d += LANES) store_floats(load_floats(sums + d) / total, out + d);
}
