// The products of linear.h by tiles, for bfloat16.
#pragma once

#include "linear.h"
#include "tiles.h"

#ifdef __AMX_BF16__
constexpr int64_t LINE = 64;  // bytes that are read from memory together

// The weights that this thread will want next. They are asked for a little at each step, so that memory is read while
// tiles are multiplied; the CPU alone would not begin before the first of them is missed.
struct Ahead {
  const char* next;
  int64_t lines;  // at each step; 0 if there is nothing to ask for

  void ask() {
    for (int64_t n = 0; n < lines; n++, next += LINE) __builtin_prefetch(next, 0, 2);
  }
};

// Up to 32 rows, in two tiles on the left; the 32 outputs' weights are two on the right. Eight tiles are shaped so:
// sums 0 and 1 of the upper rows, 2 and 3 of the lower, 4 and 5 x, 6 and 7 the weights. Of these, x is to stay in
// the nearest cache for the next 32 outputs.
template <bool LOWER, typename Out>
void multiply_tiles(const Product<BFloat16, BFloat16, Out>& product, Ahead& ahead) {
  const int32_t *x = reinterpret_cast<const int32_t*>(product.x), *weight = reinterpret_cast<const int32_t*>(product.weight);
  const int64_t rows_a_step = (product.rows * TILE_ROWS + product.words - 1) / product.words;
  zero_tile<0>(), zero_tile<1>();
  if constexpr (LOWER) zero_tile<2>(), zero_tile<3>();
  for (int64_t n = 0, asked = 0; n < product.words; n += TILE_ROWS) {
    load_tile_once<6>(weight + n * OUTPUTS, OUTPUTS * 4), load_tile_once<7>(weight + n * OUTPUTS + OUTPUTS / 2, OUTPUTS * 4);
    load_tile<4>(x + n, product.words * 4);
    add_tiles<0, 4, 6>(), add_tiles<1, 4, 7>();
    ahead.ask();
    if constexpr (LOWER) load_tile<5>(x + TILE_ROWS * product.words + n, product.words * 4);
    for (const int64_t end = std::min(asked + rows_a_step, product.rows); asked < end; asked++)
      __builtin_prefetch(product.out + asked * product.width, 1);
    if constexpr (LOWER) add_tiles<2, 5, 6>(), add_tiles<3, 5, 7>();
  }
  alignas(64) float sums[2 * TILE_ROWS][OUTPUTS];
  store_tile<0>(sums[0], OUTPUTS * 4), store_tile<1>(sums[0] + OUTPUTS / 2, OUTPUTS * 4);
  if constexpr (LOWER)
    store_tile<2>(sums[TILE_ROWS], OUTPUTS * 4), store_tile<3>(sums[TILE_ROWS] + OUTPUTS / 2, OUTPUTS * 4);
  for (int64_t row = 0; row < product.rows; row++) product.store_row(reinterpret_cast<const Vec(&)[VECTORS]>(sums[row]), row);
}

inline TileShapes shapes_of(int64_t upper, int64_t lower) {
  TileShapes shapes;
  for (int tile : {0, 1, 4}) shapes.set(tile, upper);
  if (lower)
    for (int tile : {2, 3, 5}) shapes.set(tile, lower);
  return shapes.set(6, TILE_ROWS).set(7, TILE_ROWS);
}

template <typename Out>
void multiply_all(Product<BFloat16, BFloat16, Out> product, int64_t panels, const BFloat16* next) {
  constexpr int64_t STEP_LINES = TILE_ROWS * OUTPUTS * 4 / LINE;
  const Tiles tiles;
  const int64_t times = (product.rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS);  // that the weights go by
  Ahead ahead{reinterpret_cast<const char*>(next), next ? (STEP_LINES + times - 1) / times : 0};
  for (int64_t shaped = 0; product.rows > 0; product = product.from(2 * TILE_ROWS)) {
    const Product<BFloat16, BFloat16, Out> some = product.first(2 * TILE_ROWS);
    const int64_t upper = std::min(some.rows, TILE_ROWS), lower = some.rows - upper;
    if (shaped != some.rows) tiles.shape(shapes_of(upper, lower));
    shaped = some.rows;
    for (int64_t n = 0; n < panels; n++)
      lower ? multiply_tiles<true>(some.at(n), ahead) : multiply_tiles<false>(some.at(n), ahead);
  }
}
#endif
