// Causal attention over the paged cache: one kernel for prefill and decode.
//
// A row's Q query heads of one key-value head are computed together, by the same instructions whatever the other rows:
// 64 tokens at a time from position 0, joined by an online softmax (Milakov and Gimelshein, 2018).
#pragma once

#include <vector>

#include "threads.h"
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
struct Tile {
  int64_t sequence, row, rows, position;
};

constexpr int64_t TILE_ROWS = 16;

inline std::vector<Tile> tiles_of(const int64_t* starts, const int64_t* lengths, int64_t sequences) {
  std::vector<Tile> tiles;
  for (int64_t n = 0; n < sequences; n++)
    for (int64_t row = starts[n]; row < starts[n + 1]; row += TILE_ROWS) {
      int64_t rows = std::min(TILE_ROWS, starts[n + 1] - row);
      tiles.push_back({n, row, rows, lengths[n] - (starts[n + 1] - row)});
    }
  return tiles;
}

template <typename T, int Q>
struct Kernel {
  static constexpr int64_t P = 4 / sizeof(T);
  static constexpr int AT_ONCE = Q * 4 + 4 <= REGISTERS ? 4 : 2;  // vectors that are summed in registers for each query

  int64_t dim;
  const int32_t *keys[CHUNK / BLOCK], *values[CHUNK / BLOCK];  // this chunk's blocks

  // What is known of a row after some chunks: the highest score, and relative to it the sum of weights, and of values.
  struct State {
    float highest[Q], total[Q];
    float* sums;  // [Q, dim]
  };

  // scores[q][t] = query q times key t, for the first `count` tokens of the chunk at least.
  void score(const int32_t* query, int64_t count, float (&scores)[Q][CHUNK]) const {
    const int64_t words = dim / P;
    for (int64_t first = 0; first < count; first += AT_ONCE * LANES) {
      Vec sums[Q][AT_ONCE] = {};
      for (int64_t word = 0; word < words; word++)
        for (int v = 0; v < AT_ONCE; v++) {
          const int64_t token = first + v * LANES;
          const Words key = load<Words>(keys[token / BLOCK] + word * BLOCK + token % BLOCK);
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
      const int32_t* row = values[block] + first;
      for (const int64_t end = std::min(words, word + BLOCK / P); word < end; word++, row += dim)
        for (int v = 0; v < AT; v++) {
          const Words value = load<Words>(row + v * LANES);
          for (int q = 0; q < Q; q++) added[q][v] = add_product<T>(added[q][v], Words{} + weights[q][word], value);
        }
    }
    for (int q = 0; q < Q; q++)
      for (int v = 0; v < AT; v++) store(added[q][v], sums + q * dim + first + v * LANES);
  }

  // One more chunk, of which the row sees the first `count` tokens.
  void take(const int32_t* query, int64_t count, State& state) const {
    alignas(64) float scores[Q][CHUNK];
    alignas(64) int32_t weights[Q][CHUNK];
    float scale[Q];
    score(query, count, scores);
    const float root = 1 / std::sqrt(float(dim));
    for (int q = 0; q < Q; q++) {
      for (int64_t t = count; t < CHUNK; t++) scores[q][t] = -std::numeric_limits<float>::infinity();
      Vec most = load_floats(scores[q]) * root;
      for (int64_t t = 0; t < CHUNK; t += LANES) {
        const Vec scaled = load_floats(scores[q] + t) * root;
        store_floats(scaled, scores[q] + t);
        most = most > scaled ? most : scaled;
      }
      const float highest = std::max(state.highest[q], largest_of(most));
      scale[q] = exp(Vec{} + (state.highest[q] - highest))[0];
      Vec total = {};
      for (int64_t t = 0; t < CHUNK; t += LANES) {
        const Vec weight = exp(load_floats(scores[q] + t) - highest);
        total += weight;
        store_floats(weight, reinterpret_cast<T*>(weights[q]) + t);
      }
      state.highest[q] = highest;
      state.total[q] = state.total[q] * scale[q] + sum_of(total);
    }
    const int64_t words = (count + P - 1) / P;
    int64_t first = 0;
    for (; first + AT_ONCE * LANES <= dim; first += AT_ONCE * LANES)
      add_values<AT_ONCE>(weights, scale, words, first, state.sums);
    for (; first < dim; first += LANES) add_values<1>(weights, scale, words, first, state.sums);
  }
};

// A tile's rows, for the Q heads from `head` on of one key-value head: a chunk at a time, so that it stays in the cache.
template <typename T, int Q>
void attend(const Paged<T>& paged, const Tile& tile, int64_t kv_head, int64_t head) {
  using K = Kernel<T, Q>;
  const int64_t dim = paged.dim, width = paged.heads * dim;
  K kernel{dim, {}, {}};
  std::vector<float> sums(tile.rows * Q * dim);
  typename K::State states[TILE_ROWS];
  for (int64_t row = 0; row < tile.rows; row++) {
    states[row].sums = sums.data() + row * Q * dim;
    for (int q = 0; q < Q; q++) states[row].highest[q] = -std::numeric_limits<float>::infinity(), states[row].total[q] = 0;
  }
  const int64_t end = tile.position + tile.rows;
  for (int64_t first = 0; first < end; first += CHUNK) {
    const int64_t* blocks = paged.table + tile.sequence * paged.table_width + first / BLOCK;
    for (int64_t n = 0; n < CHUNK / BLOCK; n++) {  // beyond the last block nothing counts, but something must be there
      const int64_t at = paged.at(kv_head, first + n * BLOCK < end ? blocks[n] : blocks[0]);
      kernel.keys[n] = reinterpret_cast<const int32_t*>(paged.keys + at);
      kernel.values[n] = reinterpret_cast<const int32_t*>(paged.values + at);
    }
    for (int64_t row = 0; row < tile.rows; row++) {
      const int64_t count = std::min(CHUNK, tile.position + row + 1 - first);
      const T* query = paged.queries + (tile.row + row) * width + head * dim;
      if (count > 0) kernel.take(reinterpret_cast<const int32_t*>(query), count, states[row]);
    }
  }
  for (int64_t row = 0; row < tile.rows; row++)
    for (int q = 0; q < Q; q++)
      for (int64_t d = 0; d < dim; d += LANES) {
        const Vec sum = load_floats(states[row].sums + q * dim + d);
        store_floats(sum / states[row].total[q], paged.out + (tile.row + row) * width + (head + q) * dim + d);
      }
}

// All rows. Key-value heads are outermost, so that a prefix that sequences share stays in the cache. Of each group of
// query heads four at most are computed together.
template <typename T>
void paged_attention(const Paged<T>& paged) {
  const std::vector<Tile> tiles = tiles_of(paged.starts, paged.lengths, paged.sequences);
  const int64_t items = tiles.size() * paged.kv_heads, group = paged.heads / paged.kv_heads;
  shared_out(items, [&](int64_t item) {
    const Tile& tile = tiles[item % tiles.size()];
    const int64_t kv_head = item / tiles.size(), end = (kv_head + 1) * group;
    int64_t head = kv_head * group;
    for (; end - head >= 4; head += 4) attend<T, 4>(paged, tile, kv_head, head);
    if (end - head == 3) attend<T, 3>(paged, tile, kv_head, head);
    if (end - head == 2) attend<T, 2>(paged, tile, kv_head, head);
    if (end - head == 1) attend<T, 1>(paged, tile, kv_head, head);
  });
}
