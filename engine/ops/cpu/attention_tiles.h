// Attention by tiles, for bfloat16: up to 16 queries of one key-value head, which are a row's heads and the next rows',
// 64 tokens at a time. A block's keys and values lie as tiles are to be.
#pragma once

#include "paged.h"
#include "tiles.h"

#ifdef __AMX_BF16__
// The queries' scores, or their sums of 64 dims of a head, are in tiles 0 to 3.
constexpr int QUERIES = 4, KEYS = 5, WEIGHTS = 6, VALUES = 7;
constexpr int64_t MOST_DIM = 256, TILE_DIMS = 64;

struct TiledQueries {
  int64_t dim, count;
  alignas(64) BFloat16 queries[TILE_ROWS * MOST_DIM];
  alignas(64) float sums[TILE_ROWS * MOST_DIM];
  alignas(64) float scores[TILE_ROWS][CHUNK];
  alignas(64) BFloat16 weights[TILE_ROWS][CHUNK];
  Softmax softmax[TILE_ROWS];

  TiledQueries(int64_t dim, int64_t count) : dim(dim), count(count) { std::fill_n(sums, count * dim, 0.0f); }

  // Of the first `blocks` of the chunk's four.
  void score(const Chunk<BFloat16>& chunk, int64_t blocks) {
    up_to_four(blocks, [](auto block) { zero_tile<block>(); });
    for (int64_t first = 0; first < dim; first += 32) {
      load_tile<QUERIES>(queries + first, dim * 2);
      up_to_four(blocks, [&](auto block) {
        load_tile<KEYS>(chunk.keys[block] + first / 2 * BLOCK, TILE_BYTES);
        add_tiles<block, QUERIES, KEYS>();
      });
    }
    up_to_four(blocks, [&](auto block) { store_tile<block>(scores[0] + block * BLOCK, CHUNK * 4); });
  }

  void add_values(const Chunk<BFloat16>& chunk, int64_t blocks) {
    for (int64_t first = 0; first < dim; first += TILE_DIMS) {
      const int64_t columns = (dim - first) / 16;
      up_to_four(columns, [&](auto column) { load_tile<column>(sums + first + column * 16, dim * 4); });
      for (int64_t block = 0; block < blocks; block++) {
        load_tile<WEIGHTS>(weights[0] + block * BLOCK, CHUNK * 2);
        up_to_four(columns, [&](auto column) {
          load_tile<VALUES>(chunk.values[block] + first + column * 16, dim * 4);
          add_tiles<column, WEIGHTS, VALUES>();
        });
      }
      up_to_four(columns, [&](auto column) { store_tile<column>(sums + first + column * 16, dim * 4); });
    }
  }
};

// A span's rows for `group` heads of one key-value head, from `head` on.
inline void attend_in_tiles(const Paged<BFloat16>& paged, const Span& span, int64_t kv_head, int64_t head, int64_t group) {
  const int64_t dim = paged.dim, width = paged.heads * dim;
  TiledQueries tiled(dim, span.rows * group);
  for (int64_t row = 0; row < span.rows; row++)
    std::memcpy(tiled.queries + row * group * dim, paged.queries + (span.row + row) * width + head * dim, group * dim * 2);
  TileShapes shapes;
  for (int tile : {0, 1, 2, 3, QUERIES}) shapes.set(tile, tiled.count);
  shapes.set(KEYS, TILE_ROWS).set(WEIGHTS, tiled.count, BLOCK * 2).set(VALUES, BLOCK / 2);
  const Tiles tiles;
  tiles.shape(shapes);
  for (int64_t first = 0; first < span.end(); first += CHUNK) {
    const Chunk<BFloat16> chunk(paged, span, kv_head, first);
    const int64_t blocks = std::min(CHUNK, span.end() - first + BLOCK - 1) / BLOCK;
    tiled.score(chunk, blocks);
    for (int64_t n = 0; n < tiled.count; n++) {
      const int64_t count = std::min(CHUNK, span.position + n / group + 1 - first);
      const float scale = tiled.softmax[n].weigh(tiled.scores[n], count, 1 / std::sqrt(float(dim)), tiled.weights[n]);
      if (scale == 1) continue;
      float* sums = tiled.sums + n * dim;
      for (int64_t d = 0; d < dim; d += LANES) store(load_floats(sums + d) * scale, sums + d);
    }
    tiled.add_values(chunk, blocks);
  }
  for (int64_t n = 0; n < tiled.count; n++)
    divide(tiled.sums + n * dim, tiled.softmax[n], dim, paged.out + (span.row + n / group) * width + (head + n % group) * dim);
}
#endif
